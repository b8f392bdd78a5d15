//! The table of field reports and the tests are one.

use xtask::guard::reports::breaches;
use xtask::repo::{self, Source};

const DOCUMENT: &str = "docs/field-reports.md";

fn source(text: &str) -> Source {
    Source { path: "a.rs".into(), text: text.into() }
}

/// This file is about such tests and must be able to name some that are not there.
fn without_this_one(files: Vec<Source>) -> Vec<Source> {
    files.into_iter().filter(|file| file.path != "xtask/tests/reports.rs").collect()
}

#[test]
fn every_field_report_has_its_row_and_its_tests() {
    let document =
        std::fs::read_to_string(repo::root().join(DOCUMENT)).expect("it is part of the repository");
    assert!(40 < document.matches("\n| BR-").count(), "the guard looks at nothing");
    let found = breaches(&document, &without_this_one(repo::rust(&repo::root())));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_report_without_a_row_a_test_or_a_place_is_found() {
    let document = "BR-001, BR-002 and BR-003.\n\n| BR-001 | a | `br_001_it_holds` |\n| BR-002 | b | none |\n\
                    | BR-004 | c | `br_004_it_is_gone` |\n";
    let sources = [
        source("fn br_001_it_holds() {}\n// fn br_009_in_a_comment() {}\n"),
        source("pub async fn br_005_it_has_none(a: B) {}\n"),
    ];
    assert_eq!(
        breaches(document, &sources),
        [
            "BR-003 is in the list and has no row",
            "the row of BR-002 names no test that begins with `br_002_`",
            "BR-004 has a row and is not in the list",
            "the test `br_005_it_has_none` is in no row",
            "there is no test `br_004_it_is_gone`",
        ]
    );
    assert_eq!(
        breaches("BR-001\n| BR-001 | `br_001_it_holds` |\n", &[source("fn br_001_it_holds() {}")]),
        [""; 0]
    );
}

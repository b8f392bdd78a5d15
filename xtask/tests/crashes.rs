//! The crash matrix and its tests are one.

use xtask::guard::crashes::breaches;
use xtask::repo::{self, Source};

const DOCUMENT: &str = "docs/crash-matrix.md";

fn source(text: &str) -> Source {
    Source { path: "a.rs".into(), text: text.into() }
}

/// This file is about such tests and must be able to name some that are not there.
fn without_this_one(files: Vec<Source>) -> Vec<Source> {
    files.into_iter().filter(|file| file.path != "xtask/tests/crashes.rs").collect()
}

#[test]
fn every_row_of_the_crash_matrix_has_its_tests() {
    let document =
        std::fs::read_to_string(repo::root().join(DOCUMENT)).expect("it is part of the repository");
    assert!(15 < document.matches("`crash_").count(), "the guard looks at nothing");
    let found = breaches(&document, &without_this_one(repo::rust(&repo::root())));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_row_without_a_test_and_a_test_without_a_row_are_found() {
    let rows: Vec<String> = (3..=14).map(|row| format!("| {row} | a | b | of carriers |\n")).collect();
    let document = format!(
        "| 1 | a | b | `crash_01_holds`, `crash_02_holds` |\n| 2 | a | b | none |\n{}",
        rows.concat()
    );
    let sources =
        [source("fn crash_01_holds() {}\nfn crash_05_stray() {}\n// fn crash_09_in_a_comment() {}\n")];
    assert_eq!(
        breaches(&document, &sources),
        [
            "there is no test `crash_02_holds`",
            "the test `crash_02_holds` is not of row 1",
            "row 2 names no test, and is not of carriers",
            "the test `crash_05_stray` is in no row",
        ]
    );
    let whole = format!("| 1 | a | b | `crash_01_holds` |\n| 2 | a | b | carriers |\n{}", rows.concat());
    assert_eq!(breaches(&whole, &[source("fn crash_01_holds() {}")]), [""; 0]);
    assert_eq!(breaches("", &[]).len(), 14, "every row is missing");
}

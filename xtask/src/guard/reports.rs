//! `docs/field-reports.md` and the tests that it names: each report has its row, each row its tests, and each test its
//! place in a row.

use std::collections::{BTreeMap, BTreeSet};

use crate::repo::Source;

/// What breaks the document: reports without a row, rows without a test, tests without a row.
pub fn breaches(document: &str, sources: &[Source]) -> Vec<String> {
    let rows = rows(document);
    let prose: String = document.lines().filter(|line| !line.starts_with('|')).collect::<Vec<_>>().join("\n");
    let listed = numbers(&prose);
    let mut found = Vec::new();
    for number in &listed {
        if !rows.contains_key(number) {
            found.push(format!("BR-{number} is in the list and has no row"));
        }
    }
    for (number, tests) in &rows {
        if !listed.contains(number) {
            found.push(format!("BR-{number} has a row and is not in the list"));
        }
        let begins = format!("br_{number}_");
        if !tests.iter().any(|test| test.starts_with(&begins)) {
            found.push(format!("the row of BR-{number} names no test that begins with `{begins}`"));
        }
    }
    let named: BTreeSet<&str> = rows.values().flatten().copied().collect();
    let ours = sources.iter().flat_map(|source| tests(&source.text, "br_")).collect::<BTreeSet<&str>>();
    for test in ours.difference(&named) {
        found.push(format!("the test `{test}` is in no row"));
    }
    for test in named.difference(&ours) {
        found.push(format!("there is no test `{test}`"));
    }
    found
}

/// The tests of each row, by the number of its report.
fn rows(document: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut rows = BTreeMap::new();
    for line in document.lines() {
        let Some(number) = line.strip_prefix("| BR-").and_then(|rest| rest.get(..3)) else { continue };
        let words = line.split('`').skip(1).step_by(2).filter(|word| word.starts_with("br_"));
        rows.entry(number).or_insert_with(Vec::new).extend(words);
    }
    rows
}

fn numbers(text: &str) -> BTreeSet<&str> {
    let numbers = text.split("BR-").skip(1).filter_map(|rest| rest.get(..3));
    numbers.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// The functions whose names begin so.
pub(super) fn tests<'t>(text: &'t str, begins: &str) -> impl Iterator<Item = &'t str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let begins = format!("fn {begins}");
    let names = code.filter_map(move |line| line[line.find(&begins)? + "fn ".len()..].split('(').next());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
}

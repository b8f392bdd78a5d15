//! `docs/crash-matrix.md` and the tests that it names: each row of the matrix has its tests, or says that it is of
//! carriers, and each test is in its row.

use std::collections::BTreeSet;

use super::reports::tests;
use crate::repo::Source;

/// Rows of the matrix.
const ROWS: usize = 14;

/// What a row says that has no test yet.
const CARRIERS: &str = "carriers";

/// What breaks the document: rows that are missing or have no test, tests that are in no row or do not exist.
pub fn breaches(document: &str, sources: &[Source]) -> Vec<String> {
    // Words with one low line are of other things, such as `on_error`.
    let named = |row: &str| -> BTreeSet<String> {
        let words = row.split('`').skip(1).step_by(2).filter(|word| 1 < word.matches('_').count());
        words.map(str::to_owned).collect()
    };
    let every = |begins: &'static str| sources.iter().flat_map(move |source| tests(&source.text, begins));
    let has_number = |name: &&str| name.as_bytes()["crash_".len()..].first().is_some_and(u8::is_ascii_digit);
    let ours: BTreeSet<&str> = every("crash_").filter(has_number).collect();
    let all: BTreeSet<&str> = every("").collect();
    let mut found = Vec::new();
    let mut placed = BTreeSet::new();
    for row in 1..=ROWS {
        let begins = format!("| {row} |");
        let Some(line) = document.lines().find(|line| line.starts_with(&begins)) else {
            found.push(format!("row {row} is missing"));
            continue;
        };
        let names = named(line);
        if names.is_empty() && !line.contains(CARRIERS) {
            found.push(format!("row {row} names no test, and is not of {CARRIERS}"));
        }
        let own = format!("crash_{row:02}_");
        for name in &names {
            if !all.contains(name.as_str()) {
                found.push(format!("there is no test `{name}`"));
            }
            if name.starts_with("crash_") && !name.starts_with(&own) {
                found.push(format!("the test `{name}` is not of row {row}"));
            }
        }
        placed.extend(names);
    }
    for test in ours.into_iter().filter(|test| !placed.contains(*test)) {
        found.push(format!("the test `{test}` is in no row"));
    }
    found
}

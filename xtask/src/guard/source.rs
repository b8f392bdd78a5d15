//! Rules about what our Rust files must not contain. They look at lines, not at a syntax tree: cheap, and enough
//! for words that have no business in a place at all.

use std::collections::BTreeSet;

use crate::repo::Source;

/// What core must not touch, because it decides as a function of its arguments.
const MACHINERY: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "thread::",
    "tokio::",
    "getrandom",
    "rand::",
];

/// Words that only a statement has.
const STATEMENTS: &[&[&str]] = &[
    &["select ", " from "],
    &["insert into "],
    &["update ", " set "],
    &["delete from "],
    &["create table "],
    &["alter table "],
    &["drop table "],
    &["begin immediate"],
    &["pragma "],
    &[".sql"],
];

/// Core reads no clock, opens nothing, draws nothing and starts nothing.
pub fn machinery_in_core(files: &[Source]) -> Vec<String> {
    let why = "core is pure: take what you need as an argument, and read it in the engine or in a store";
    in_code(files, "crates/millpond-core/src/", |line| {
        MACHINERY.iter().find(|word| line.contains(**word)).map(|word| format!("`{word}`: {why}"))
    })
}

/// The engine holds no SQL.
pub fn sql_in_engine(files: &[Source]) -> Vec<String> {
    let why =
        "the engine holds no SQL: make it a verb of a port in core, and a statement in a store's `.sql` file";
    in_code(files, "crates/millpond-engine/src/", |line| {
        // Between quotes is every second part; code between two texts on one line has no statements either.
        let is_statement = |text: &str| {
            let text = text.to_lowercase();
            STATEMENTS.iter().any(|words| words.iter().all(|word| text.contains(word)))
        };
        line.split('"').skip(1).step_by(2).any(is_statement).then(|| why.to_owned())
    })
}

/// Tests wait for signals of the code under test, or for virtual time. `allowed` are files that may sleep, each
/// with its reason; one that does not sleep any more is reported too.
pub fn sleeps_in_tests(files: &[Source], allowed: &[(&str, &str)]) -> Vec<String> {
    let why = "a test waits for a named signal of the code under test, or under a paused clock for virtual time; if \
               neither is possible, add the file with its reason to `SLEEPS` in xtask/tests/source.rs";
    let helpers = test_modules(files);
    let mut found = Vec::new();
    for file in files {
        let is_test = is_test_file(&file.path) || helpers.contains(&file.path);
        let sleeping = lines(file).filter(|(_, line, in_tests)| (is_test || *in_tests) && sleeps(line));
        let places: Vec<usize> = sleeping.map(|(number, ..)| number).collect();
        let excused = allowed.iter().any(|(path, _)| *path == file.path);
        match (places.is_empty(), excused) {
            (false, false) => {
                found.extend(places.iter().map(|line| format!("{}:{line}: `sleep`: {why}", file.path)))
            }
            (true, true) => found.push(format!("{} does not sleep: take it from the list", file.path)),
            _ => {}
        }
    }
    let gone = allowed.iter().filter(|(path, _)| files.iter().all(|file| file.path != *path));
    found.extend(
        gone.map(|(path, _)| format!("{path} is in the list of files that may sleep and does not exist")),
    );
    found
}

fn sleeps(line: &str) -> bool {
    line.contains("sleep(") || line.contains("sleep_until(")
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.starts_with("crates/millpond-testkit/src/contract")
}

/// The files of `#[cfg(test)] mod name;`.
fn test_modules(files: &[Source]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let all: Vec<&str> = file.text.lines().map(str::trim).collect();
        for pair in all.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            let name = pair[1].strip_prefix("mod ").and_then(|name| name.strip_suffix(';'));
            found.extend(name.map(|name| format!("{folder}/{name}.rs")));
        }
    }
    found
}

/// What `breaks` says of the code lines of the files below `folder`, with their places.
fn in_code(files: &[Source], folder: &str, breaks: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(folder)) {
        for (number, line, _) in lines(file).filter(|(_, _, in_tests)| !in_tests) {
            found.extend(breaks(line).map(|why| format!("{}:{number}: {why}", file.path)));
        }
    }
    found
}

/// Lines with their numbers, without comments, and whether they belong to the tests at the end of the file.
fn lines(file: &Source) -> impl Iterator<Item = (usize, &str, bool)> {
    let all: Vec<&str> = file.text.lines().collect();
    let begins_tests = |pair: &[&str]| pair[0].trim() == "#[cfg(test)]" && pair[1].trim_end().ends_with('{');
    let tests = all.windows(2).position(begins_tests).unwrap_or(all.len());
    let code = all.into_iter().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.map(move |(number, line)| (number + 1, line, tests <= number))
}

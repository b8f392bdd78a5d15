//! Rules about the documents at the root: what they name exists.

use std::collections::BTreeSet;

use crate::repo::Source;

/// The tasks of `cargo xtask`, in one line each.
pub const TASKS: &[(&str, &str)] = &[
    (
        "test",
        "everything that must hold before a change goes in: format, lints, docs, tests, a crash test, the demo",
    ),
    ("ci", "the same"),
    ("torture", "kill -9 under load, release build; its arguments follow"),
    ("bench", "benchmarks, release build; their arguments follow"),
    ("services", "which programs the tests lack; `services install` gets their Debian packages"),
    (
        "adapters",
        "formats, lints and tests the adapters for other database libraries; `--measure`: from commit to handler",
    ),
    ("examples", "installs what the programs in examples/sql/ need, and runs them"),
    ("reference", "writes the pages that come from the program itself: docs/reference/, docs/man/"),
    ("stores", "runs the contract on every store and writes what each can do: docs/reference/stores.md"),
    ("sizes", "the ten largest files and functions"),
];

/// Endings by which a name in backticks is taken for a file.
const ENDINGS: &[&str] = &[".rs", ".sql", ".md", ".toml", ".jsonl", ".json", ".lock"];

/// Files that the documents name and that are made by a run, or are the user's.
const NOT_OURS: &[&str] = &["millpond.toml", "report.json"];

/// The folders at the root: a name that begins with one is taken for a path.
const FOLDERS: &[&str] = &[
    "crates/",
    "adapters/",
    "xtask/",
    "torture/",
    "bench/",
    "docs/",
    "examples/",
    "changelog.d/",
    ".ci/",
    ".cargo/",
];

/// Paths in backticks that are not in the repository. A path may leave out its beginning (`worker/run.rs`).
pub fn missing_paths(document: &str, text: &str, files: &[String]) -> Vec<String> {
    let exists = |path: &str| {
        let folder = path.trim_end_matches('/');
        files.iter().any(|file| {
            file.strip_suffix(path).is_some_and(|before| before.is_empty() || before.ends_with('/'))
                || file.strip_prefix(folder).is_some_and(|after| after.starts_with('/'))
        })
    };
    let named = in_backticks(text).into_iter().filter(|word| looks_like_path(word));
    let missing = named.filter(|word| !exists(word));
    missing.map(|word| format!("{document} names `{word}`, which does not exist: correct the path")).collect()
}

fn looks_like_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let ours = FOLDERS.iter().any(|folder| word.starts_with(folder))
        || ENDINGS.iter().any(|end| word.ends_with(end));
    plain && ours && !ENDINGS.contains(&word) && !NOT_OURS.contains(&word)
}

/// Tests in backticks (names of four words and more) that no file has.
pub fn missing_tests(document: &str, text: &str, sources: &[Source]) -> Vec<String> {
    let functions: BTreeSet<&str> = sources.iter().flat_map(|file| names_of_functions(&file.text)).collect();
    let is_test = |word: &&str| {
        word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && 3 <= word.matches('_').count()
    };
    let missing = in_backticks(text).into_iter().filter(is_test).filter(|word| !functions.contains(word));
    missing
        .map(|word| format!("{document} names the test `{word}`, which does not exist: correct the name"))
        .collect()
}

fn names_of_functions(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.filter_map(|line| line.split_once("fn ")?.1.split(['(', '<']).next())
}

/// Tasks that a text gives to `cargo xtask` and that do not exist.
pub fn missing_tasks(document: &str, text: &str) -> Vec<String> {
    let word =
        |after: &str| after.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned();
    let named = text.split("cargo xtask ").skip(1).map(word);
    let missing = named.filter(|name| !name.is_empty() && TASKS.iter().all(|(task, _)| task != name));
    missing.map(|name| format!("{document} names `cargo xtask {name}`, which does not exist")).collect()
}

/// The contents of the blocks that are marked `sh`.
pub fn shell_blocks(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix("sh\n")).map(str::to_owned).collect()
}

/// Whether a block is about building, and not about the program.
pub fn is_of_cargo(block: &str) -> bool {
    block.lines().any(|line| line.starts_with("cargo "))
}

/// What stands in single backticks, outside of blocks.
fn in_backticks(text: &str) -> BTreeSet<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2)).collect()
}

//! What the documents at the root name exists.

use xtask::guard::text::{is_of_cargo, missing_paths, missing_tasks, missing_tests, shell_blocks};
use xtask::repo::{self, Source};

/// The documents that are held to what they name.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "changelog.d/README.md",
    "docs/crash-matrix.md",
    "docs/field-reports.md",
];

/// What `guard` says of each document.
fn in_documents(guard: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let read =
        |name: &&str| std::fs::read_to_string(repo::root().join(name)).expect("it is part of the repository");
    DOCUMENTS.iter().flat_map(|name| guard(name, &read(name))).collect()
}

#[test]
fn every_path_exists() {
    let files = repo::files(&repo::root());
    let found = in_documents(|name, text| missing_paths(name, text, &files));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_test_that_is_named_exists() {
    let sources = repo::rust(&repo::root());
    let found = in_documents(|name, text| missing_tests(name, text, &sources));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_task_exists() {
    let found = in_documents(missing_tasks);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_path_that_is_gone_is_found() {
    let files = ["crates/a/src/log.rs".to_owned(), "README.md".to_owned()];
    let text = "`crates/a/src/log.rs` `src/log.rs` `log.rs` `crates/a/` `README.md` `a.send(x)` `.sql`\n\
                `crates/b/` `og.rs` `docs/none.md`\n```sh\n`crates/c/`\n```\n";
    let found = missing_paths("X.md", text, &files);
    let named: Vec<_> = found.iter().filter_map(|line| line.split('`').nth(1)).collect();
    assert_eq!(named, ["crates/b/", "docs/none.md", "og.rs"]);
}

#[test]
fn a_test_that_is_gone_is_found() {
    let source = Source { path: "a.rs".into(), text: "async fn a_test_of_ours() {}\n".into() };
    let found = missing_tests("X.md", "`a_test_of_ours`, `a_test_of_others`, `data_version`", &[source]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("`a_test_of_others`"));
}

#[test]
fn a_task_that_is_gone_is_found() {
    let found = missing_tasks("X.md", "`cargo xtask test`, `cargo xtask polish --now`");
    assert_eq!(found, ["X.md names `cargo xtask polish`, which does not exist"]);
}

#[test]
fn shell_blocks_are_those_marked_sh() {
    let text = "```sh\ncargo xtask test\n```\nand\n```rust\nfn main() {}\n```\n```sh\nmillpond health\n```\n";
    let blocks = shell_blocks(text);
    assert_eq!(blocks, ["cargo xtask test\n", "millpond health\n"]);
    assert_eq!(blocks.iter().map(|block| is_of_cargo(block)).collect::<Vec<_>>(), [true, false]);
}

//! What must not be in our Rust files is not.

use xtask::guard::source::{machinery_in_core, sleeps_in_tests, sql_in_engine};
use xtask::repo::{self, Source};

/// Files whose tests may sleep, each with the reason why there is no signal to wait for.
const SLEEPS: &[(&str, &str)] = &[];

fn file(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}

fn ours() -> Vec<Source> {
    let files = repo::rust(&repo::root());
    assert!(50 < files.len(), "only {} files were seen: the guard looks at nothing", files.len());
    files
}

/// This file is about sleeping and must be able to say so.
fn without_this_one(files: Vec<Source>) -> Vec<Source> {
    files.into_iter().filter(|file| file.path != "xtask/tests/source.rs").collect()
}

#[test]
fn core_reads_no_clock() {
    let found = machinery_in_core(&ours());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_engine_holds_no_sql() {
    let found = sql_in_engine(&ours());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_test_sleeps() {
    let found = sleeps_in_tests(&without_this_one(ours()), SLEEPS);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_clock_in_core_is_found_and_one_in_a_comment_is_not() {
    let text = "// Instant::now is not for us.\nfn due() { SystemTime::now(); }\n";
    let found = machinery_in_core(&[file("crates/millpond-core/src/due.rs", text)]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("crates/millpond-core/src/due.rs:2: `SystemTime`: core is pure"),
        "{found:?}"
    );
    assert_eq!(machinery_in_core(&[file("crates/millpond-engine/src/due.rs", text)]), [""; 0]);
}

#[test]
fn a_statement_in_the_engine_is_found_and_words_are_not() {
    let path = "crates/millpond-engine/src/pond.rs";
    let statement = "let text = \"SELECT body FROM millpond_log\";\n";
    assert!(sql_in_engine(&[file(path, statement)])[0].contains("the engine holds no SQL"));
    let words = "let text = \"select what to update\";\n";
    assert_eq!(sql_in_engine(&[file(path, "let text = \"cannot update\";\n"), file(path, words)]).len(), 0);
}

#[test]
fn a_sleep_is_found_in_each_kind_of_test() {
    let in_folder = file("crates/a/tests/b.rs", "fn b() { sleep(x); }\n");
    let in_module =
        file("crates/a/src/c.rs", "fn c() { sleep(x); }\n#[cfg(test)]\nmod tests {\n    sleep(x);\n}\n");
    let declares = file("crates/a/src/lib.rs", "#[cfg(test)]\nmod fake;\nfn d() { sleep(x); }\n");
    let helper = file("crates/a/src/fake.rs", "fn e() { sleep(x); }\n");
    let found = sleeps_in_tests(&[in_folder, in_module, declares, helper], &[]);
    let places: Vec<_> = found.iter().map(|line| line.split(": ").next().unwrap_or_default()).collect();
    assert_eq!(places, ["crates/a/tests/b.rs:1", "crates/a/src/c.rs:4", "crates/a/src/fake.rs:1"]);
}

#[test]
fn an_excuse_that_is_not_needed_is_found() {
    let quiet = file("crates/a/tests/b.rs", "fn b() {}\n");
    let found = sleeps_in_tests(&[quiet], &[("crates/a/tests/b.rs", "why"), ("crates/gone.rs", "why")]);
    assert_eq!(found.len(), 2, "{found:?}");
}

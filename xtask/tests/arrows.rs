//! The dependency graph is the one in ARCHITECTURE.md.

use std::process::Command;

use serde_json::{Value, json};
use xtask::guard::arrows::{banned, breaches};
use xtask::repo;

fn metadata() -> Value {
    let mut cargo = Command::new(repo::cargo());
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).current_dir(repo::root());
    let output = cargo.output().expect("cargo runs, it started this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// A workspace of a few crates, in which one depends on another.
fn one_arrow(from: &str, to: &str, kind: Option<&str>) -> Value {
    let package = |name: &str| json!({ "name": name, "dependencies": [] });
    let mut packages = vec![json!({ "name": from, "dependencies": [{ "name": to, "kind": kind }] })];
    packages.extend(["millpond-core", "millpond-engine", "millpond-sqlite", "millpond-cli"].map(package));
    json!({ "packages": packages })
}

#[track_caller]
fn fires(from: &str, to: &str, kind: Option<&str>, words: &str) {
    let found = breaches(&one_arrow(from, to, kind));
    assert_eq!(found.len(), 1, "{from} → {to}: {found:?}");
    assert!(found[0].contains(words), "{found:?}");
}

#[test]
fn every_crate_keeps_to_its_arrows() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().map_or(0, Vec::len);
    assert!(8 <= packages, "only {packages} packages were seen: the guard looks at nothing");
    let found = breaches(&metadata);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_lock_file_has_nothing_that_is_banned() {
    let lock_file = std::fs::read_to_string(repo::root().join("Cargo.lock")).expect("it is committed");
    assert!(lock_file.contains("name = \"millpond-core\""), "the guard looks at nothing");
    assert_eq!(banned(&lock_file), [""; 0]);
}

#[test]
fn an_arrow_that_points_up_is_found() {
    fires("millpond-core", "millpond-engine", None, "may use nothing of ours");
    fires("millpond-engine", "millpond-sqlite", None, "may use `millpond-core`");
    fires("millpond-sqlite", "millpond-engine", None, "See \"Arrows\"");
    fires("millpond-new", "millpond-core", None, "may use nothing of ours");
    fires("millpond", "millpond-cli", None, "from outside");
    fires("millpond-testkit", "millpond-cli", Some("dev"), "from outside");
}

#[test]
fn machinery_below_core_is_found() {
    fires("millpond-core", "tokio", None, "core decides");
    assert_eq!(breaches(&one_arrow("millpond-core", "uuid", None)), [""; 0]);
}

#[test]
fn a_driver_outside_of_its_store_is_found() {
    fires("millpond-engine", "rusqlite", None, "for `millpond-sqlite` alone");
    assert_eq!(breaches(&one_arrow("millpond-sqlite", "rusqlite", None)), [""; 0]);
}

#[test]
fn known_bugs_outside_of_the_crash_tests_are_found() {
    let mut metadata = one_arrow("millpond", "millpond-sqlite", None);
    metadata["packages"][0]["dependencies"][0]["features"] = json!(["sabotage"]);
    assert!(breaches(&metadata)[0].contains("for the crash tests alone"));
    metadata["packages"][0]["name"] = "millpond-torture".into();
    assert_eq!(breaches(&metadata), [""; 0]);
}

#[test]
fn a_banned_crate_is_found() {
    let lock_file = "[[package]]\nname = \"aws-lc-sys\"\nversion = \"0.1.0\"\n";
    assert!(banned(lock_file)[0].contains("choose the `ring` feature"));
}

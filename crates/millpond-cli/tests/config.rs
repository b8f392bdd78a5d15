//! `millpond check` and `millpond config`: what is wrong, what holds, and who says so.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use common::{Place, stderr};
use serde_json::Value;

#[test]
fn everything_that_is_wrong_is_said_at_once_without_a_database() {
    let place = Place::empty();
    place.write(
        "millpond.toml",
        "store = \"mongodb://ada:tulip@db\"\n[worker]\nconcurency = 3\nlease = \"1s\"\n",
    );
    let output = place.run("check");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for line in [
        "./millpond.toml:3: unknown key `worker.concurency`; did you mean `worker.concurrency`?",
        "./millpond.toml:4: worker.lease: it is at least 2s",
        "./millpond.toml:1: store: the URL does not begin with `sqlite:`",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    assert!(!text.contains("tulip"), "{text}");
    let output = place.run("check --json");
    let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(problem["code"], "invalid-config");
    assert_eq!(problem["errors"].as_array().unwrap().len(), 3, "{problem}");
    assert!(!place.path().join("millpond.db").exists());
}

#[test]
fn what_can_work_is_ok_and_says_what_was_read() {
    let place = Place::empty();
    assert!(place.ok("check -o table").starts_with("ok\n  configuration  no file"));
    place.write("millpond.toml", "[worker]\nconcurrency = 3\ntimeout = \"1m\"\n");
    let mut command = place.command("check --json");
    let output = command.env("MILLPOND_STORE", "sqlite://app.db").output().unwrap();
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&checked["status"], &checked["file"]), (&"ok".into(), &"./millpond.toml".into()));
    assert_eq!(
        (&checked["environment"][0], &checked["store"]),
        (&"MILLPOND_STORE".into(), &"sqlite://app.db".into())
    );
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "no store is made");
    place.refused(
        "check --store app.db",
        2,
        "error: flag --store: store: the URL does not begin with `sqlite:` (invalid-config)",
    );
}

#[test]
fn settings_that_cannot_work_together_are_named_where_they_stand() {
    let place = Place::empty();
    place.write("millpond.toml", "\n[notify]\nchannels = [\"log\", \"webhook\"]\n");
    place.refused(
        "check",
        2,
        "error: ./millpond.toml:3: notify.channels: it names `webhook`, and notify.webhook.url is not set \
         (invalid-config)",
    );
}

#[test]
fn a_value_says_what_it_overrides_and_a_secret_says_nothing() {
    let place = Place::empty();
    place.write(
        "millpond.toml",
        "store = \"sqlite://file.db\"\nredact.literals = [\"rose garden\", \"daisy\"]\n",
    );
    let mut command = place.command("config --store sqlite://flag.db --json");
    let output = command.env("DATABASE_URL", "postgres://ada:tulip@db/app").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("tulip") && !text.contains("rose") && !text.contains("daisy"), "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    let of = |key: &str| {
        shown["items"].as_array().unwrap().iter().find(|item| item["key"] == key).unwrap().clone()
    };
    let store = of("store");
    assert_eq!((&store["value"], &store["origin"]), (&"sqlite://flag.db".into(), &"flag --store".into()));
    let origins: Vec<_> =
        store["overrides"].as_array().unwrap().iter().map(|other| other["origin"].clone()).collect();
    assert_eq!(origins, ["environment DATABASE_URL", "./millpond.toml:1", "default"]);
    assert_eq!(of("redact.literals")["value"], "2 texts, hidden");
    assert_eq!(of("worker.snooze")["live"], false);
    let table = place.ok("config --origin -o table");
    assert!(table.starts_with("KEY ") && table.lines().next().unwrap().contains("OVERRIDES"), "{table}");
    assert!(!place.ok("config -o table").contains("OVERRIDES"));
}

#[test]
fn the_schema_knows_every_key_that_the_program_knows() {
    let place = Place::empty();
    let schema: Value = serde_json::from_str(&place.ok("config schema")).unwrap();
    for item in place.json("config")["items"].as_array().unwrap() {
        let key = item["key"].as_str().unwrap();
        let path = format!("/properties/{}", key.replace('.', "/properties/"));
        assert!(schema.pointer(&path).is_some(), "{key}");
    }
}

/// The shorter limit of time holds: here the one of the configuration.
#[test]
fn a_run_ends_by_the_timeout_of_the_configuration() {
    let place = Place::with_queue();
    place.write("millpond.toml", "worker.timeout = \"50ms\"\n");
    let id = place.send("1");
    assert_eq!(place.json("work mail --exec 'sleep 1000' --drain")["failed"], 2);
    assert_eq!(place.json(&format!("message get {id}"))["error"], "timeout; ended by signal 15");
}

//! Every code has a test that produces it, here or elsewhere, and its page shows the message as it is printed.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Place, stderr};
use millpond::sqlite::{SqliteUnit, rusqlite::Connection};
use millpond::{Begun, Job, JobError, Pond, Queue, Worker};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Ids in pages are this one.
const ID: &str = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";

/// Codes that a line of the program produces, beside a queue `mail`.
const LINES: &[(&str, &str)] = &[
    ("body-too-large", "queue send small 1234567890"),
    ("not-serialisable", "queue send mail { --content-type application/json"),
    ("invalid-name", "queue add Mail"),
    ("invalid-header", "queue send mail 1 --header Bad=x"),
    ("invalid-option", "queue send mail 1 --priority 4"),
    ("invalid-json", "queue send mail --ndjson --file users.ndjson"),
    ("unknown-queue", "queue send maill 1"),
    ("message-not-found", "message get 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10"),
    ("dedup-conflict", "queue send mail 2 --dedup-key order-17"),
    ("count-changed", "dead-letter redrive --all --expect 4"),
    ("queue-conflict", "queue add mail --lease 1m --store sqlite://ordered.db"),
    ("invalid-config", "queue add mail --lease 1s"),
    ("unsupported-store", "queue list --store mongodb://ada:tulip@db/app"),
    ("schema-newer", "queue list --store sqlite://newer.db"),
    ("schema-older", "queue list --store sqlite://other.db"),
    ("invalid-parameter", "queue send mail 1 --delya 5m"),
    ("invalid-filter", "dead-letter redrive"),
    ("not-found", "explain lease-losst"),
    ("unknown-time-zone", "events trends --zone Europe/Madird"),
];

/// Codes that a test of this file produces in its own way.
const HERE: &[(&str, &str)] = &[
    ("invalid-key", "a_key_that_is_too_long"),
    ("store-unreachable", "a_store_that_is_not_there"),
    ("internal", "an_output_that_is_full"),
    ("interrupted", "a_file_of_lines_that_is_interrupted"),
    ("batch-too-large", "a_batch_over_the_limit_of_one_call"),
    ("statement-failed", "a_statement_of_a_handler_that_fails"),
    ("handler-missing", "a_worker_without_a_handler"),
    ("transaction-required", "a_send_outside_of_a_transaction"),
];

/// Codes that need a lost lease, a full disk or the like, which other tests have.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("lease-lost", "crates/millpond-sqlite/tests/store.rs", "a_lost_lease_settles_nothing"),
    ("shutting-down", "crates/millpond-engine/src/pond.rs", "a_closed_pond_refuses_the_sends_of_its_clones"),
    (
        "send-inside-transaction",
        "crates/millpond-engine/src/job.rs",
        "the_pond_refuses_sends_while_the_handlers_unit_is_open",
    ),
    ("store-unavailable", "crates/millpond-engine/src/pond.rs", "no_answer_in_time_is_an_unknown_outcome"),
    ("unknown-outcome", "crates/millpond-engine/src/pond.rs", "no_answer_in_time_is_an_unknown_outcome"),
    (
        "already-settled",
        "crates/millpond-cli/tests/bulk.rs",
        "messages_are_cancelled_and_can_be_brought_back",
    ),
    ("already-retried", "crates/millpond-cli/tests/bulk.rs", "dead_letters_are_sent_again_as_told"),
    (
        "wrong-state",
        "crates/millpond-cli/tests/bulk.rs",
        "messages_that_wait_are_made_due_and_those_that_do_not_are_left",
    ),
    (
        "not-drained",
        "crates/millpond-cli/tests/queue_ops.rs",
        "a_drain_waits_until_nothing_is_left_and_changes_nothing",
    ),
    (
        "storage-full",
        "crates/millpond-sqlite/tests/disk_full.rs",
        "a_full_disk_refuses_sends_and_everything_else_goes_on",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The example of a page.
#[track_caller]
fn example(code: &str) -> String {
    let page = fs::read_to_string(root().join(format!("docs/errors/{code}.md"))).unwrap();
    let example = page.split("```text\n").nth(1).and_then(|rest| rest.split("\n```").next());
    example.unwrap_or_else(|| panic!("{code}: its page has no example")).to_owned()
}

/// What was printed is what the page shows.
#[track_caller]
fn shown(code: &str, printed: &str) {
    assert!(is_shown(code, printed), "docs/errors/{code}.md shows another message than\n{printed}");
}

/// The same, but for ids.
fn is_shown(code: &str, printed: &str) -> bool {
    let is_id = |word: &str| word.len() == 36 && word.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    let words = printed.trim_end().split(' ').map(|word| if is_id(word) { ID } else { word });
    let printed = words.collect::<Vec<_>>().join(" ");
    counted(&example(code)) == counted(&printed)
}

/// How many migrations a release knows is not what a page is about.
fn counted(text: &str) -> String {
    let (before, after) = text.split_once("this release knows ").unwrap_or((text, ""));
    format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// A folder in which every one of the lines fails.
fn place() -> Place {
    let place = Place::with_queue();
    place.ok("queue add small --message-limit 10B");
    place.write("users.ndjson", "{\"n\": 1}\n{\"n\":\n");
    let copy = |name: &str| {
        place.ok(&format!("queue add mail --store sqlite://{name}"));
        Connection::open(place.path().join(name)).unwrap()
    };
    copy("ordered.db").execute("update millpond_queue set delivery = 'ordered'", []).unwrap();
    copy("newer.db").execute("insert into millpond_migration values (999, '0999_later', 0, 0)", []).unwrap();
    Connection::open(place.path().join("other.db")).unwrap().execute_batch("create table user (id)").unwrap();
    place.ok("queue send mail 1 --dedup-key order-17");
    place.ok("work mail --exec 'exit 65' --drain");
    place
}

#[test]
fn every_line_prints_what_the_page_of_its_code_shows() {
    let place = place();
    let mut differ = Vec::new();
    for (code, line) in LINES {
        let output = place.run(line);
        let text = stderr(&output);
        if !is_shown(code, &text) {
            differ.push(format!(
                "docs/errors/{code}.md shows another message than `millpond {line}` prints:\n{text}"
            ));
            continue;
        }
        let page = place.json(&format!("explain {code}"));
        let exit = i64::from(output.status.code().unwrap());
        assert!(
            page["exitCode"] == exit || (exit == 4 && *code == "invalid-filter"),
            "{line}: {exit}\n{page}"
        );
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn a_key_that_is_too_long() {
    let place = Place::with_queue();
    let output = place.run(&format!("queue send mail 1 --key {}", "a".repeat(251)));
    shown("invalid-key", &stderr(&output));
}

#[test]
fn a_send_outside_of_a_transaction() {
    let place = Place::with_queue();
    assert!(place.run("queue add reports --transactional require").status.success());
    shown("transaction-required", &stderr(&place.run("queue send reports 1")));
}

#[test]
fn a_store_that_is_not_there() {
    shown("store-unreachable", &stderr(&Place::empty().run("queue list")));
}

#[test]
fn an_output_that_is_full() {
    // Only where there is such a device.
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let place = Place::with_queue();
    let output = place.command("queue list").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    shown("internal", &stderr(&output));
}

#[test]
fn a_file_of_lines_that_is_interrupted() {
    let place = Place::with_queue();
    let mut child = place.command("queue send mail - --ndjson").stdin(Stdio::piped()).spawn().unwrap();
    // A batch, which is stored at once, and then nothing.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all("1\n".repeat(1_000).as_bytes()).unwrap();
    // Each look is a process of its own, so this does not spin.
    while place.queue()["sent"] != 1_000 {}
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    shown("interrupted", &stderr(&output));
    drop(stdin);
}

const MAIL: Queue<u64> = Queue::new("mail");

async fn pond() -> Pond {
    let pond = Pond::open("sqlite::memory:").await.unwrap();
    pond.declare(&MAIL).await.unwrap();
    pond
}

#[tokio::test]
async fn a_batch_over_the_limit_of_one_call() {
    let pond = Pond::open("sqlite::memory:").await.unwrap();
    let bodies = vec!["x".repeat(1024 * 1024 - 2); 68];
    let queue = Queue::<String>::new("mail").message_limit(2 * 1024 * 1024);
    let error = pond.send(&queue, bodies).await.unwrap_err();
    shown("batch-too-large", &format!("Error: {error:?}"));
}

#[tokio::test]
async fn a_statement_of_a_handler_that_fails() {
    async fn book(job: Job<u64>, told: tokio::sync::mpsc::Sender<String>) -> Result<(), JobError> {
        let Begun::Open(mut unit) = job.begin().await? else { return Ok(()) };
        let amount = job.body;
        let insert = unit.sqlite(move |db| db.execute("insert into booking (amount) values (?1)", [amount]));
        let error = insert.await.unwrap_err();
        told.send(format!("Error: {error:?}")).await.unwrap();
        Ok(())
    }
    let pond = pond().await;
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    pond.send(&MAIL, [7]).await.unwrap();
    let mut said = String::new();
    let worker = Worker::new(&pond).state(tell).handle(&MAIL, book);
    worker.run_until(async { said = told.recv().await.unwrap() }).await.unwrap();
    shown("statement-failed", &said);
}

#[tokio::test]
async fn a_worker_without_a_handler() {
    let pond = pond().await;
    let error = Worker::new(&pond).run_until(async {}).await.unwrap_err();
    shown("handler-missing", &format!("Error: {error:?}"));
}

#[test]
fn every_code_has_a_test_that_produces_it() {
    let all = Place::empty().json("explain");
    let errors = all["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "error");
    let known: BTreeSet<&str> = errors.filter_map(|item| item["code"].as_str()).collect();
    let mut produced: BTreeSet<&str> = LINES.iter().chain(HERE).map(|(code, _)| *code).collect();
    produced.extend(ELSEWHERE.iter().map(|(code, ..)| *code));
    let missing: Vec<_> = known.difference(&produced).collect();
    assert!(missing.is_empty(), "add a line or the name of a test in {}: {missing:?}", file!());
    let gone: Vec<_> = produced.difference(&known).collect();
    assert!(gone.is_empty(), "these are no codes any more: {gone:?}");
    assert!(30 < known.len(), "only {} codes were seen", known.len());
}

/// The body of a test in a file.
fn body<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("fn {name}("))?;
    Some(rest.split("#[test]").next()?.split("#[tokio::test").next().unwrap_or(rest))
}

#[test]
fn every_test_that_is_named_exists_and_is_about_its_code() {
    for (code, name) in HERE {
        let of_this = include_str!("codes.rs");
        let body = body(of_this, name).unwrap_or_else(|| panic!("there is no test `{name}` here"));
        assert!(body.contains(&format!("shown(\"{code}\"")), "{name} is not about {code}");
    }
    for (code, path, name) in ELSEWHERE {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let body = body(&text, name).unwrap_or_else(|| panic!("{path} has no test `{name}`"));
        let words = code.split('-').map(|word| word[..1].to_uppercase() + &word[1..]);
        let variant = format!("Code::{}", words.collect::<String>());
        assert!(body.contains(&variant) || body.contains(&format!("({code})")), "{name} is not about {code}");
    }
}

#[test]
fn with_json_an_error_says_whether_to_retry() {
    let place = Place::empty();
    let output = place.run("queue list --json");
    let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(problem["retryable"], "yes");
}

//! `millpond doctor`, `health` and `store`: what is wrong is named, and nothing hangs.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use common::{Place, stderr};
use millpond::sqlite::rusqlite::Connection;
use serde_json::Value;

fn codes(report: &Value) -> Vec<&str> {
    report["items"].as_array().unwrap().iter().map(|item| item["code"].as_str().unwrap()).collect()
}

/// What a doctor says, with its exit code.
fn examined(place: &Place, line: &str) -> (Option<i32>, Value) {
    let output = place.run(&format!("{line} --json"));
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    (output.status.code(), report)
}

#[test]
fn a_store_that_is_well() {
    let place = Place::with_queue();
    let (exit, report) = examined(&place, "doctor --deep");
    assert_eq!((exit, codes(&report), &report["status"]), (Some(0), vec!["HEALTHY"], &"ok".into()));
    let checks: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(checks, ["configuration", "integrity", "store", "clocks", "counts"]);
    let text = place.ok("doctor -o table");
    assert!(text.starts_with("ok        HEALTHY\n          nothing needs anybody\n"), "{text}");
}

#[test]
fn what_is_wrong_comes_worst_first_with_what_to_do() {
    let place = Place::with_queue();
    place.send("65");
    place.ok("work mail --exec 'exit $(cat)' --drain");
    place.ok("queue pause mail --reason deploy");
    let (exit, report) = examined(&place, "doctor");
    assert_eq!((exit, codes(&report)), (Some(1), vec!["FAILED_JOBS_PRESENT", "QUEUE_PAUSED"]));
    place.send("1");
    let (_, report) = examined(&place, "doctor");
    assert_eq!(codes(&report), ["FAILED_JOBS_PRESENT", "QUEUE_WITHOUT_LISTENER", "QUEUE_PAUSED"]);
    for item in report["items"].as_array().unwrap() {
        let action = item["action"].as_str().unwrap().strip_prefix("millpond ").unwrap();
        place.ok(action);
    }
    let store = Connection::open(place.path().join("millpond.db")).unwrap();
    let changed = "update millpond_worker set stopped = 0, lease_until = 0, seen_at = seen_at - 3600000000";
    assert_eq!(store.execute(changed, []).unwrap(), 1);
    let (exit, report) = examined(&place, "doctor");
    assert_eq!((exit, codes(&report)[0]), (Some(1), "WORKER_HEARTBEAT_STALE"));
    assert_eq!(report["status"], "critical");
    assert!(place.run("doctor -o csv").stdout.starts_with(b"code,severity,count,message,action\n"));
}

#[test]
fn a_pause_alone_is_no_failure() {
    let place = Place::with_queue();
    place.ok("queue pause mail");
    let (exit, report) = examined(&place, "doctor");
    assert_eq!((exit, &report["status"]), (Some(0), &"info".into()));
}

#[test]
fn a_damaged_store_is_found_by_a_deep_look() {
    let place = Place::with_queue();
    for body in 0..200 {
        place.with_input("queue send mail - --ndjson", format!("{{\"n\":{body}}}\n").repeat(20).as_bytes());
        if 4 < body {
            break;
        }
    }
    let path = place.path().join("millpond.db");
    let store = Connection::open(&path).unwrap();
    store.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(())).unwrap();
    let root: u64 = store
        .query_row("select rootpage from sqlite_schema where name = 'millpond_log_sent'", [], |row| {
            row.get(0)
        })
        .unwrap();
    drop(store);
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    // What an index says of itself.
    file.seek(SeekFrom::Start((root - 1) * 4096)).unwrap();
    file.write_all(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff]).unwrap();
    drop(file);
    let (exit, report) = examined(&place, "doctor --deep");
    assert_eq!((exit, codes(&report)[0]), (Some(1), "INTEGRITY_BROKEN"), "{report}");
}

#[test]
fn health_is_one_of_three_words() {
    let place = Place::with_queue();
    assert_eq!(place.json("health")["status"], "ready");
    assert!(place.ok("health -o table").starts_with("ready: sqlite://millpond.db\n"));
    place.ok("work mail --exec true --drain");
    assert_eq!(place.json("health")["checks"][1]["text"], "all have stopped by themselves");
    let store = Connection::open(place.path().join("millpond.db")).unwrap();
    store.execute("update millpond_worker set stopped = 0, lease_until = 0", []).unwrap();
    let health = place.json("health");
    assert_eq!((&health["status"], &health["checks"][1]["ok"]), (&"degraded".into(), &false.into()));
    let empty = Place::empty();
    empty.write("text", "hello");
    for (line, exit, code) in
        [("health", 3, "store-unreachable"), ("health --store sqlite://text", 4, "unsupported-store")]
    {
        let output = empty.run(&format!("{line} --json"));
        let health: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{health}");
        assert_eq!((&health["status"], &health["code"]), (&"not ready".into(), &code.into()));
    }
    assert!(!empty.path().join("millpond.db").exists(), "looking makes nothing");
}

#[test]
fn health_does_not_wait_for_a_locked_store() {
    let place = Place::with_queue();
    let store = Connection::open(place.path().join("millpond.db")).unwrap();
    // Nobody else may even read.
    store.execute_batch("pragma locking_mode = exclusive; begin exclusive; create table mine (a);").unwrap();
    let begun = Instant::now();
    let output = place.run("health --json");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let health: Value = serde_json::from_slice(&output.stdout).unwrap();
    // In a write-ahead log readers pass a writer, so it may be ready; it must not hang, and say which.
    let word = health["status"].as_str().unwrap();
    assert_eq!(output.status.success(), word == "ready", "{health}");
    drop(store);
    let text = place.path().join("journal.db");
    let other = Connection::open(&text).unwrap();
    other
        .execute_batch(
            "pragma journal_mode = delete; create table a (b); begin exclusive; insert into a values (1);",
        )
        .unwrap();
    let begun = Instant::now();
    let output = place.run("health --json --store sqlite://journal.db");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let health: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &health["status"]), (Some(3), &"not ready".into()), "{health}");
}

#[test]
fn a_store_tells_about_itself() {
    let place = Place::with_queue();
    let info = place.json("store info");
    assert_eq!(info["kind"], "sqlite");
    let fact =
        |name: &str| info["facts"].as_array().unwrap().iter().find(|fact| fact["name"] == name).cloned();
    assert!(fact("size_bytes").unwrap()["value"].as_u64().unwrap() > 0);
    assert_eq!(info["capabilities"][0]["name"], "survives-restart");
    assert!(place.ok("store info -o table").contains("\nTABLE "));
    assert!(place.ok("store grants -o table").contains("millpond.db"));
}

#[test]
fn what_is_exported_comes_back_the_same() {
    let place = Place::with_queue();
    place.ok(
        "queue send mail '{\"b\":1.10, \"a\":1}' --kind mail.welcome --key customer:8 --header tenant=acme",
    );
    place.ok("queue send mail 2 --delay 1h --attempts-max 7 --priority 0");
    // A deadline alone, of what waits and of what is ready: the number of attempts is none.
    for line in [
        r#"{"body":3,"retryUntil":"2030-01-01T00:00:00Z","delay":"1h"}"#,
        r#"{"body":4,"retryUntil":"2030-01-01T00:00:00Z","priority":3}"#,
    ] {
        let sent = place.with_input("queue send mail - --ndjson --envelopes", line.as_bytes());
        assert!(sent.status.success(), "{}", stderr(&sent));
    }
    place.with_input("queue send mail -", b"\xff\xfe");
    place.with_input("queue send mail - --content-type text/plain", b"a\nb");
    place.with_input("queue send mail -", b"{\n  \"pretty\": true\n}");
    let output = place.run("store export --queue mail --to mail.ndjson");
    assert_eq!(stderr(&output), "7 messages exported\n");
    assert!(output.stdout.is_empty());
    let copied = place.ok("queue add mail --store sqlite://copy.db");
    assert!(copied.contains("added"));
    let send = "queue send mail --file mail.ndjson --ndjson --envelopes --store sqlite://copy.db --json";
    let sent: Value = serde_json::from_str(&place.ok(send)).unwrap();
    assert_eq!(sent["sent"], 7);
    let again: Value = serde_json::from_str(&place.ok(send)).unwrap();
    assert_eq!((&again["sent"], &again["duplicates"]), (&0.into(), &7.into()), "sent twice is stored once");
    let of = |text: &str| -> Vec<Value> {
        text.lines()
            .map(|line| {
                let mut message: Value = serde_json::from_str(line).unwrap();
                let fields = message.as_object_mut().unwrap();
                // What belongs to the life of a message, and not to what was sent.
                for name in ["id", "dedupKey", "sentAt"] {
                    fields.remove(name).unwrap();
                }
                message
            })
            .collect()
    };
    let first = fs::read_to_string(place.path().join("mail.ndjson")).unwrap();
    let second = place.ok("store export --store sqlite://copy.db");
    let exported = of(&first);
    assert_eq!(exported, of(&second));
    for (body, field, value) in [(2, "priority", 0.into()), (4, "priority", 3.into())]
        .into_iter()
        .chain([3, 4].map(|body| (body, "retryUntil", Value::from("2030-01-01T00:00:00Z"))))
    {
        let line = exported.iter().find(|line| line["body"] == body).unwrap();
        assert_eq!(line[field], value, "{line}");
    }
    assert!(exported.iter().all(|line| line["body"] != 3 || line["attemptsMax"].is_null()));
    assert!(first.lines().next().unwrap().contains("{\"b\":1.10, \"a\":1}"), "as it was sent: {first}");
    let bad = place.with_input("queue send mail - --ndjson --envelopes", b"{\"body\":1}\n{\"bdy\":1}\n");
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        stderr(&bad).starts_with("error: line 2: it is no message: unknown field `bdy`"),
        "{}",
        stderr(&bad)
    );
}

#[test]
fn dead_letters_are_exported_with_why_they_died() {
    let place = Place::with_queue();
    let id = place.send("65");
    place.send("0");
    place.ok("work mail --exec 'read code; echo no route >&2; exit $code' --drain");
    let output = place.run("store export --dead-letters");
    assert_eq!(stderr(&output), "1 dead letter exported\n");
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&line["id"], &line["reason"]), (&id.as_str().into(), &"refused".into()));
    assert!(line["error"].as_str().unwrap().contains("no route"), "{line}");
    assert_eq!(stderr(&place.run("store export")), "0 messages exported\n");
}

/// More than a page, oldest first, and a reader that goes away is no error.
#[test]
fn a_large_export_keeps_the_order() {
    let place = Place::with_queue();
    let bodies: String = (0..1_200).map(|number| format!("{number}\n")).collect();
    assert!(place.with_input("queue send mail - --ndjson", bodies.as_bytes()).status.success());
    let exported = place.ok("store export");
    let numbers: Vec<u64> = exported
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..1_200).collect::<Vec<_>>());
    let mut child = place.command("store export").spawn().unwrap();
    let first = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(first.contains("\"body\":0"), "{first}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

//! Bulk actions through the binary: preview, confirmation, refusals, and what they leave.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use common::{Place, refused, stderr};
use millpond::sqlite::rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Three dead letters: two of `mail`, one of another kind in `other`.
fn with_dead() -> (Place, Vec<String>) {
    let place = Place::with_queue();
    place.ok("queue add other --attempts-max 1");
    let ids = vec![
        place.send("1"),
        place.send("2"),
        place.ok("queue send other 3 --kind odd -o id").trim().to_owned(),
    ];
    place.ok("work mail --exec 'exit 65' --drain");
    place.ok("work other --exec 'echo broken >&2; exit 1' --drain");
    (place, ids)
}

#[test]
fn a_preview_counts_groups_and_samples_and_changes_nothing() {
    let (place, _) = with_dead();
    let preview = place.json("dead-letter redrive --all --dry-run");
    assert_eq!((&preview["dryRun"], &preview["matched"]), (&true.into(), &3.into()));
    assert_eq!((&preview["byQueue"]["mail"], &preview["byQueue"]["other"]), (&2.into(), &1.into()));
    assert_eq!((&preview["byJobName"]["odd"], &preview["byReason"]["refused"]), (&1.into(), &2.into()));
    assert_eq!(preview["blocked"]["handlerMissing"], 3, "nobody listens");
    assert_eq!(preview["sample"].as_array().unwrap().len(), 3);
    assert!(preview["oldest"].as_str().unwrap() <= preview["newest"].as_str().unwrap());
    let text = place.ok("dead-letter redrive queue:mail --dry-run -o table");
    assert!(text.starts_with("would redrive 2 dead letters\n  queues   mail 2\n"), "{text}");
    assert!(text.contains("blocked  2: no live worker has a handler for them"), "{text}");
    for line in ["dead-letter remove --all --dry-run", "message cancel state:dead --dry-run"] {
        place.ok(line);
    }
    assert_eq!(place.json("dead-letter list")["total"], 3);
    assert_eq!(place.json("audit list")["total"], 0);
}

#[test]
fn what_was_not_surely_meant_is_refused() {
    let (place, ids) = with_dead();
    for (verb, things) in [
        ("dead-letter redrive", "redrive every dead letter"),
        ("dead-letter remove", "remove every dead letter"),
        ("message retry", "retry every message"),
        ("message cancel", "cancel every message"),
        ("outbox retry", "retry every message"),
        ("outbox remove", "cancel every message"),
    ] {
        place.refused(verb, 4, &format!("error: refused to {things} of the store (invalid-filter)"));
        place.refused(
            &format!("{verb} queue:mail --all"),
            2,
            "error: --all and a filter were both named (invalid-parameter)",
        );
        place.refused(
            &format!("{verb} queue:maill"),
            5,
            "error: cannot look up queue `maill` (unknown-queue)",
        );
        place.refused(
            &format!("{verb} queu:mail"),
            2,
            "error: there is no field `queu` here; did you mean `queue:`? (invalid-filter)",
        );
        assert_eq!(place.run(&format!("{verb} queue:mail --dry-rn")).status.code(), Some(2));
    }
    place.refused(
        "dead-letter remove queue:mail",
        4,
        "error: refused to remove 2 dead letters without a confirmation (invalid-parameter)",
    );
    let output = place.run("dead-letter redrive queue:mail --expect 3");
    refused(&output, 6, "error: cannot redrive dead letters (count-changed)");
    assert!(stderr(&output).contains("expected 3, now 2; nothing was done"), "{}", stderr(&output));
    place.refused(
        &format!("dead-letter remove {} --expect 2", ids[0]),
        6,
        "error: cannot remove dead letters (count-changed)",
    );
    assert_eq!(place.json("dead-letter list")["total"], 3, "nothing was done");
}

#[test]
fn dead_letters_are_sent_again_as_told() {
    let (place, ids) = with_dead();
    let line = format!(
        "dead-letter redrive {} --to other --attempts-max 9 --delay 1h --because 'it is repaired'",
        ids[0]
    );
    let done = place.json(&line);
    assert_eq!((&done["matched"], &done["done"], &done["remaining"]), (&1.into(), &1.into(), &0.into()));
    assert_eq!(done["messages"][0]["failedJobId"], ids[0].as_str());
    let new = done["messages"][0]["jobId"].as_str().unwrap();
    let message = place.json(&format!("message get {new}"));
    assert_eq!((&message["queue"], &message["attemptsMax"]), (&"other".into(), &9.into()));
    assert_eq!((&message["state"], &message["retryOf"]), (&"scheduled".into(), &ids[0].as_str().into()));
    let letter = place.json(&format!("dead-letter get {}", ids[0]));
    assert_eq!((&letter["status"], &letter["retriedAs"]), (&"retried".into(), &new.into()));
    let audit = place.json("audit list");
    assert_eq!(audit["items"][0]["object"], format!("id:{} --to other", ids[0]));
    assert_eq!(audit["items"][0]["reason"], "it is repaired");
    let again = place.run(&format!("dead-letter redrive {}", ids[0]));
    refused(&again, 6, &format!("error: cannot redrive dead letter `{}` (already-retried)", ids[0]));
    assert!(stderr(&again).contains(&format!("was sent again already, as `{new}`")), "{}", stderr(&again));

    let both = place.run(&format!("dead-letter redrive {} {} --json", ids[0], ids[1]));
    assert_eq!(both.status.code(), Some(8), "{}", stderr(&both));
    let done: Value = serde_json::from_slice(&both.stdout).unwrap();
    assert_eq!((&done["done"], &done["skipped"]["alreadyRetried"]), (&1.into(), &1.into()));
    assert_eq!(stderr(&both), "skipped 1: 1 sent again already\n");
    place.refused(
        "dead-letter redrive --all --to nope --yes",
        5,
        "error: cannot look up queue `nope` (unknown-queue)",
    );
}

#[test]
fn due_times_are_spread_over_a_time() {
    let place = Place::with_queue();
    let lines: String = (1..=4).map(|number| format!("{number}\n")).collect();
    place.with_input("queue send mail - --ndjson", lines.as_bytes());
    place.ok("work mail --exec 'exit 65' --drain");
    place.ok("dead-letter redrive queue:mail --over 1h --expect 4");
    let mut due: Vec<i64> = Vec::new();
    let list = place.json("outbox list");
    for row in list["items"].as_array().unwrap() {
        let at: jiff::Timestamp = row["availableAt"].as_str().unwrap().parse().unwrap();
        due.push(at.as_second());
    }
    due.sort_unstable();
    let steps: Vec<i64> = due.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(steps.iter().all(|step| (899..=901).contains(step)), "{steps:?}");
}

#[test]
fn dead_letters_are_removed_for_good() {
    let (place, ids) = with_dead();
    assert_eq!(place.json(&format!("dlq rm {}", ids[2]))["done"], 1);
    place.refused(
        &format!("dead-letter remove {}", ids[2]),
        5,
        &format!("error: cannot remove dead letter `{}` (message-not-found)", ids[2]),
    );
    assert_eq!(place.json("dead-letter remove --reason refused --yes")["done"], 2);
    assert_eq!(place.ok("dead-letter remove --all -o table"), "no dead letters match\n");
    assert_eq!(place.json("dead-letter list")["total"], 0);
    let audit = place.json("audit list");
    assert_eq!(
        (&audit["items"][0]["object"], &audit["items"][0]["count"]),
        (&"reason:refused".into(), &2.into())
    );
}

#[test]
fn messages_that_wait_are_made_due_and_those_that_do_not_are_left() {
    let place = Place::with_queue();
    let ready = place.send("1");
    place.ok("queue send mail 2 --delay 1h");
    let late = place.ok("queue send mail 3 --delay 2h -o id").trim().to_owned();
    assert_eq!(place.json("message retry queue:mail --dry-run")["matched"], 2, "what is ready is not meant");
    place.refused(
        &format!("message retry {ready}"),
        6,
        &format!("error: cannot retry message `{ready}` (wrong-state)"),
    );
    assert_eq!(place.json(&format!("message retry {late}"))["done"], 1);
    assert_eq!(
        place.json("outbox retry queue:mail --yes")["done"],
        2,
        "one that is due may be asked for again"
    );
    assert_eq!(place.json("work mail --exec cat --drain")["done"], 3);
    assert_eq!(place.json("message retry queue:mail --yes")["matched"], 0);
    let id = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";
    place.refused(
        &format!("message retry {id}"),
        5,
        &format!("error: cannot retry message `{id}` (message-not-found)"),
    );
}

#[test]
fn messages_are_cancelled_and_can_be_brought_back() {
    let place = Place::with_queue();
    let ready = place.send("1");
    place.ok("queue send mail 2 --delay 1h --key customer:8");
    place.ok("queue send mail 3 --delay 1h");
    assert_eq!(place.json("message cancel key:customer:* --yes")["done"], 1);
    assert_eq!(place.json("outbox remove queue:mail --expect 1 --reason 'no mail today'")["done"], 1);
    assert_eq!(place.json(&format!("message cancel {ready}"))["done"], 1);
    let message = place.json(&format!("message get {ready}"));
    assert_eq!((&message["state"], &message["reason"]), (&"cancelled".into(), &"cancelled".into()));
    place.refused(
        &format!("message cancel {ready}"),
        6,
        &format!("error: cannot cancel message `{ready}` (already-settled)"),
    );
    assert_eq!(place.json("message cancel --all --yes")["matched"], 0);
    assert_eq!(place.json("work mail --exec cat --drain")["done"], 0, "what is cancelled never runs");
    assert_eq!(place.json("dead-letter redrive status:cancelled --yes")["done"], 3);
    assert_eq!(place.json("work mail --exec cat --drain")["done"], 3);
}

/// Its worker is told, ends the program, and the message is taken out with that run.
#[test]
fn a_message_that_runs_is_stopped_by_its_worker() {
    let place = Place::with_queue();
    let id = place.send("1");
    let mut command = place.command("work mail");
    command.args(["--exec", "echo running; exec sleep 1000"]);
    let mut worker = command.env("MILLPOND_WORKER__CANCEL_GRACE", "50ms").spawn().unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("running")).unwrap();
    assert_eq!(place.json("message cancel state:leased --dry-run")["warnings"]["running"], 1);
    let asked = place.json(&format!("message cancel {id} --reason 'sent by mistake'"));
    assert_eq!((&asked["done"], &asked["asked"]), (&0.into(), &1.into()));
    let started = Instant::now();
    let state = || place.json(&format!("message get {id}"))["state"].clone();
    // Each look is a process of its own, so this does not spin.
    while state() != "cancelled" && started.elapsed() < Duration::from_secs(30) {}
    assert_eq!(state(), "cancelled");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

/// Stopped between two transactions, with the count of what was done; the same command does the rest.
#[test]
fn an_interrupt_leaves_whole_transactions_and_a_repeat_does_the_rest() {
    let place = Place::with_queue();
    let count = 5_000_u64;
    let lines: String = (0..count).map(|number| format!("{number}\n")).collect();
    place.with_input("queue send mail - --ndjson", lines.as_bytes());
    let store = Connection::open(place.path().join("millpond.db")).unwrap();
    let child = place.command("message cancel queue:mail --yes --json").spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let started = Instant::now();
    let audit =
        || store.query_row("select count(*) from millpond_audit", [], |row| row.get::<_, u64>(0)).unwrap();
    while audit() == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "no transaction was seen");
    }
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (done, remaining) = (answer["done"].as_u64().unwrap(), answer["remaining"].as_u64().unwrap());
    assert_eq!((done + remaining, done % 500), (count, 0));
    assert!(0 < done && 0 < remaining, "{answer}");
    let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(problem["code"], "interrupted");
    assert!(problem["detail"].as_str().unwrap().contains("none is done twice"), "{problem}");
    assert_eq!(place.queue()["dead"], done);
    assert_eq!(place.json(&format!("message cancel queue:mail --expect {remaining}"))["done"], remaining);
    assert_eq!(place.queue()["dead"], count);
}

//! What operators do to queues and workers, through the binary.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::{Place, refused, stderr};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

/// Looks until it is so. Each look is a process of its own, so this does not spin.
#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never became so");
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // A test that fails must not leave it behind.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawned(command: &mut Command) -> Running {
    Running(command.spawn().unwrap())
}

#[test]
fn settings_are_changed_at_run_time_and_go_back_to_what_is_declared() {
    let place = Place::with_queue();
    let set = place.json("queue set mail attempts_max=7 timeout=none --reason 'slow today'");
    let changes = set["changed"].as_array().unwrap();
    assert_eq!((&changes[0]["setting"], &changes[0]["before"]), (&"attempts_max".into(), &"2".into()));
    assert_eq!((&changes[0]["after"], &changes[1]["after"]), (&"7".into(), &"none".into()));
    assert_eq!((&set["settings"]["attemptsMax"], &set["settings"]["timeoutMs"]), (&7.into(), &Value::Null));
    place.ok("queue add mail --attempts-max 9");
    let shown = place.json("queue show mail");
    assert_eq!(shown["settings"]["attemptsMax"], 7, "what is set wins over a later declaration");
    let changed: Vec<&str> = shown["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["setting"].as_str().unwrap())
        .collect();
    assert_eq!(changed, ["attempts_max", "timeout"]);
    let table = place.ok("queue show mail -o table");
    let line = table.lines().find(|line| line.contains("attempts_max")).unwrap();
    assert!(line.contains("7   changed by "), "{table}");
    let unset = place.json("queue unset mail attempts_max");
    assert_eq!((&unset["changed"][0]["before"], &unset["changed"][0]["after"]), (&"7".into(), &"9".into()));
    assert_eq!(place.json("queue unset mail --all")["changed"][0]["setting"], "timeout");
    assert_eq!(place.json("queue unset mail --all")["changed"], Value::Array(Vec::new()), "nothing to do");
    assert_eq!(place.queue()["changes"], Value::Array(Vec::new()));
    let audit = place.json("audit list");
    assert_eq!(audit["items"][2]["object"], "mail attempts_max=7 timeout=none");
    assert_eq!(audit["items"][2]["reason"], "slow today");
}

#[test]
fn a_setting_that_cannot_be_is_refused_and_a_dry_run_changes_nothing() {
    let place = Place::with_queue();
    let dry = place.json("queue set mail lease=1m --dry-run");
    assert_eq!((&dry["dryRun"], &dry["changed"][0]["after"]), (&true.into(), &"1m".into()));
    assert_eq!(place.queue()["changes"], Value::Array(Vec::new()));
    for (line, words) in [
        ("queue set mail", "required"),
        ("queue set mail atempts_max=3", "did you mean `attempts_max`?"),
        ("queue set mail attempts_max", "has no `=`"),
        ("queue set mail lease=30", "needs a unit"),
        ("queue set mail delivery=ordered", "fixed for the life of a queue"),
        ("queue set mail lease=1s", "lease is 1s; it is at least 2s"),
        ("queue set mail rate=30", "`30` has no `/`"),
        ("queue set mail exclusive=true concurrency=2", "exclusive and concurrency exclude each other"),
        ("queue unset mail", "required"),
        ("queue unset mail tiemout", "did you mean `timeout`?"),
    ] {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{line}: {}", stderr(&output));
    }
    for line in [
        "queue set maill lease=1m",
        "queue unset maill --all",
        "queue pause maill",
        "queue purge maill --yes",
    ] {
        place.refused(line, 5, "error: cannot look up queue `maill` (unknown-queue)");
    }
}

#[test]
fn a_queue_is_held_by_every_pause_until_each_is_ended() {
    let place = Place::with_queue();
    place.send("1");
    let dry = place.json("queue pause mail --dry-run");
    assert_eq!((&dry["dryRun"], &dry["pausedBy"]), (&true.into(), &Value::Array(Vec::new())));
    let paused = place.json("queue pause mail --for 10m --reason 'the server is down'");
    assert_eq!((&paused["pausedBy"][0]["scope"], &paused["queue"]), (&"queue".into(), &"mail".into()));
    assert_eq!(paused["pausedBy"][0]["reason"], "the server is down");
    assert!(paused["pausedBy"][0]["until"].is_string());
    assert_eq!(place.json("queue pause --all")["pausedBy"][0]["scope"], "global");
    let list = place.ok("queue list -o csv");
    assert!(list.lines().next().unwrap().ends_with(",oldest,paused"), "{list}");
    assert!(list.lines().nth(1).unwrap().ends_with(",all"), "{list}");
    assert_eq!(place.queue()["pausedBy"].as_array().unwrap().len(), 2);
    let shown = place.ok("queue show mail -o table");
    assert!(shown.contains("held by a pause of its own, by "), "{shown}");
    assert!(shown.contains(": the server is down"), "{shown}");
    let resumed = place.ok("queue resume mail -o table");
    assert!(
        resumed.starts_with("queue `mail` is resumed\n  still held by a pause of all queues, by "),
        "{resumed}"
    );
    let again = place.ok("queue resume mail -o table");
    assert!(again.starts_with("nothing to do: "), "{again}");
    assert_eq!(place.json("queue resume --all")["pausedBy"], Value::Array(Vec::new()));
    assert_eq!(place.json("work mail --exec cat --drain")["done"], 1);
    place.refused("queue pause", 4, "error: refused: no queue was named (invalid-parameter)");
    place.refused("queue resume", 4, "error: refused: no queue was named (invalid-parameter)");
    let past = "error: --until 2020-01-01T00:00:00Z is past (invalid-parameter)";
    place.refused("queue pause mail --until 2020-01-01T00:00:00Z", 2, past);
    assert_eq!(place.run("queue pause mail --for 10").status.code(), Some(2));
    assert_eq!(place.run("queue pause mail --all").status.code(), Some(2));
}

#[test]
fn a_drain_waits_until_nothing_is_left_and_changes_nothing() {
    let place = Place::with_queue();
    assert_eq!(place.json("queue drain mail")["drained"], true);
    place.send("1");
    place.ok("queue send mail 2 --delay 1h");
    let left = place.json("queue drain mail --dry-run");
    assert_eq!((&left["ready"], &left["scheduled"]), (&1.into(), &1.into()));
    let output = place.run("queue drain mail --timeout 20ms");
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("no live worker listens to queue `mail`"), "{said}");
    assert!(said.contains("error: queue `mail` is not drained (not-drained)"), "{said}");
    assert!(said.contains("why: left after 20ms: 1 ready, 1 scheduled"), "{said}");

    let mut drain = spawned(&mut place.command("queue drain mail"));
    let mut lines = BufReader::new(drain.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("no live worker")).unwrap();
    place.ok("message retry state:scheduled --expect 1");
    assert_eq!(place.json("work mail --exec cat --drain")["done"], 2);
    assert_eq!(drain.0.wait().unwrap().code(), Some(0));

    place.send("3");
    let mut drain = spawned(&mut place.command("queue drain mail"));
    let mut lines = BufReader::new(drain.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("no live worker")).unwrap();
    until(|| {
        // It may not listen yet: then the signal ends it as any process.
        signal(&drain.0, Signal::INT);
        drain.0.try_wait().unwrap().is_some()
    });
    let code = drain.0.wait().unwrap().code();
    assert!(matches!(code, Some(130) | None), "{code:?}");
    assert_eq!(place.queue()["ready"], 1, "nothing was changed");
}

#[test]
fn a_purge_is_shown_confirmed_and_leaves_what_is_leased() {
    let place = Place::with_queue();
    for body in ["1", "2", "3"] {
        place.send(body);
    }
    place.ok("queue send mail 4 --delay 1h");
    let dry = place.json("queue purge mail --dry-run");
    assert_eq!((&dry["matched"], &dry["purged"]), (&4.into(), &0.into()));
    assert_eq!((&dry["ready"], &dry["scheduled"]), (&3.into(), &1.into()));
    place.refused(
        "queue purge mail",
        4,
        "error: refused to purge 4 messages of queue `mail` without a confirmation (invalid-parameter)",
    );
    place.refused("queue purge mail --expect 3", 6, "error: cannot purge queue `mail` (count-changed)");
    assert_eq!(place.queue()["ready"], 3, "nothing was done");
    let purged = place.json("queue purge mail --expect 4 --reason 'a mistake'");
    assert_eq!((&purged["purged"], &purged["remaining"]), (&4.into(), &0.into()));
    let queue = place.queue();
    assert_eq!((&queue["ready"], &queue["scheduled"], &queue["dead"]), (&0.into(), &0.into(), &0.into()));
    assert!(place.ok("queue purge mail -o table").starts_with("nothing waits in queue `mail`"));
    assert_eq!(place.json("audit list")["items"][0]["count"], 4);
}

#[test]
fn a_tail_shows_messages_as_they_arrive() {
    let place = Place::with_queue();
    place.ok("queue add other");
    place.send("\"before\"");
    let mut tail = spawned(&mut place.command("queue tail mail kind:shown --bodies --count 2"));
    let mut lines = BufReader::new(tail.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut first = None;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| lines.next());
        // It looks for what is sent after it has begun: until it has seen one, more are sent.
        until(|| {
            place.ok("queue send other 1 --kind shown");
            place.ok("queue send mail \"passed\" --kind other");
            place.ok("queue send mail \"first\" --kind shown");
            reader.is_finished()
        });
        first = reader.join().unwrap();
    });
    let first: Value = serde_json::from_str(&first.unwrap()).unwrap();
    assert_eq!((&first["body"], &first["queue"]), (&"first".into(), &"mail".into()));
    until(|| {
        place.ok("queue send mail \"second\" --kind shown");
        tail.0.try_wait().unwrap().is_some()
    });
    assert_eq!(tail.0.wait().unwrap().code(), Some(0), "it ends after --count");
    let second: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_ne!(second["id"], first["id"], "none is shown twice");

    let mut tail = spawned(&mut place.command("queue tail mail -o csv"));
    let mut lines = BufReader::new(tail.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("id,queue,kind,"));
    signal(&tail.0, Signal::INT);
    assert_eq!(tail.0.wait().unwrap().code(), Some(130));
    place.refused("queue tail maill", 5, "error: cannot look up queue `maill` (unknown-queue)");
}

#[test]
fn a_worker_hears_of_a_wish_and_a_wish_can_be_taken_back() {
    let place = Place::with_queue();
    let mut command = place.command("work mail --exec cat");
    let mut worker = spawned(command.env("MILLPOND_WORKER__LEASE", "2s"));
    let live = || place.json("worker list --state live");
    until(|| live()["items"].as_array().unwrap().len() == 1);
    let id = live()["items"][0]["workerId"].as_str().unwrap().to_owned();
    place.refused("worker drain", 4, "error: refused to drain every worker (invalid-parameter)");
    place.refused("worker drain nobody", 5, "error: there is no worker `nobody` (not-found)");
    place.refused(
        "worker restart --all",
        4,
        "error: refused to restart 1 worker without a confirmation (invalid-parameter)",
    );
    let dry = place.json(&format!("worker drain {id} --dry-run"));
    assert_eq!((&dry["count"], &dry["workers"][0]), (&1.into(), &id.as_str().into()));
    assert_eq!(live()["items"][0]["wish"], Value::Null);
    assert_eq!(place.json(&format!("worker drain {id} --reason 'a new host'"))["count"], 1);
    assert_eq!(live()["items"][0]["wish"], "drain");
    assert_eq!(place.json("audit list")["items"][0]["verb"], "worker drain");
    assert_eq!(place.json(&format!("worker drain {id} --undo"))["wish"], Value::Null);
    assert_eq!(live()["items"][0]["wish"], Value::Null);
    assert_eq!(place.json("worker restart --all --yes")["count"], 1);
    until(|| worker.0.try_wait().unwrap().is_some() || live()["items"].as_array().unwrap().is_empty());
    worker.0.wait().unwrap();
    let output = place.run(&format!("worker restart {id}"));
    refused(&output, 5, &format!("error: worker `{id}` does not live (not-found)"));
}

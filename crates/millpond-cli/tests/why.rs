//! `millpond why`: every cause, produced by what really happens; and what is recommended works when it is pasted.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, stderr};
use millpond::{Job, JobError, Pond, Queue, Worker};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// As long as a machine under load may need for anything here.
const PATIENCE: Duration = Duration::from_secs(40);

/// A program that takes what it gets, says so, and does not end by itself.
const HOLD: &str = "echo running >&2; exec sleep 1000";

/// Asks until it is so. Each question is a process of its own, so this does not spin.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
    }
}

fn why(place: &Place, target: &str) -> Value {
    serde_json::from_slice(&place.run(&format!("why {target} --json")).stdout).unwrap()
}

fn codes(why: &Value) -> Vec<String> {
    let causes = why["causes"].as_array().unwrap();
    causes.iter().map(|cause| cause["code"].as_str().unwrap().to_owned()).collect()
}

/// The cause of this code.
#[track_caller]
fn cause(why: &Value, code: &str) -> Value {
    let causes = why["causes"].as_array().unwrap();
    causes.iter().find(|cause| cause["code"] == code).unwrap_or_else(|| panic!("no {code} in {why}")).clone()
}

/// Runs what is recommended as it stands, by a shell that finds the binary.
#[track_caller]
fn paste(place: &Place, why: &Value) {
    for cause in why["causes"].as_array().unwrap() {
        let Some(action) = cause["action"].as_str() else { continue };
        let binary = std::path::Path::new(env!("CARGO_BIN_EXE_millpond"));
        let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", action]).current_dir(place.path()).env("PATH", path).env_remove("DATABASE_URL");
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{action}: {}", stderr(&output));
    }
}

/// A worker, ended with its test.
struct Work(Child);

impl Drop for Work {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Work {
    /// Once as many programs run as are wanted.
    fn holding(place: &Place, line: &str, running: usize) -> Self {
        let mut command = place.command(line);
        let mut child = command.args(["--exec", HOLD]).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let seen = lines.filter(|line| line.contains("running")).take(running).count();
        assert_eq!(seen, running);
        Self(child)
    }

    /// Once it is seen.
    fn idle(place: &Place, line: &str) -> Self {
        let mut command = place.command(line);
        let child = command.args(["--exec", "cat"]).stderr(Stdio::null()).spawn().unwrap();
        let queue = line.split(' ').nth(1).unwrap();
        until("a worker lives", || place.json(&format!("queue show {queue}"))["listeners"] == 1);
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap(), signal).unwrap();
    }
}

#[test]
fn what_is_not_there() {
    let place = Place::with_queue();
    let id = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";
    let unknown = why(&place, id);
    assert_eq!(codes(&unknown), ["unknown-id"]);
    paste(&place, &unknown);
    place.refused("why mial", 5, "error: cannot look up queue `mial` (unknown-queue)");
    let first = "error: `a b` is neither a message id nor the name of a queue (invalid-parameter)";
    place.refused("why 'a b'", 2, first);
}

#[test]
fn what_has_ended() {
    let place = Place::with_queue();
    let (done, dead, cancelled) = (place.send("0"), place.send("65"), place.send("1"));
    place.ok(&format!("message cancel {cancelled} --reason mistake"));
    place.ok("work mail --exec 'exit $(cat)' --drain");
    assert_eq!(codes(&why(&place, &done)), ["done"]);
    let of_dead = why(&place, &dead);
    assert_eq!(codes(&of_dead), ["dead"]);
    assert!(cause(&of_dead, "dead")["text"].as_str().unwrap().contains("refused"), "{of_dead}");
    let of_cancelled = why(&place, &cancelled);
    assert_eq!(codes(&of_cancelled), ["cancelled"]);
    assert!(
        cause(&of_cancelled, "cancelled")["text"].as_str().unwrap().contains("mistake"),
        "{of_cancelled}"
    );
    for answer in [of_dead, of_cancelled] {
        paste(&place, &answer);
    }
    let again = why(&place, &dead);
    assert!(cause(&again, "dead")["text"].as_str().unwrap().contains("it lives on as"), "{again}");
    paste(&place, &again);
}

#[test]
fn what_waits_until_it_is_due() {
    let place = Place::empty();
    place.ok("queue add mail --backoff 1h --attempts-max 3");
    let (retrying, snoozed) = (place.send("1"), place.send("75"));
    place.ok("work mail --exec 'read code; echo no route >&2; exit $code' --snooze 1h --drain");
    let scheduled = place.ok("queue send mail 1 --delay 1h -o id").trim().to_owned();
    for (id, code) in [(&retrying, "retrying"), (&snoozed, "snoozed"), (&scheduled, "scheduled")] {
        let answer = why(&place, id);
        assert_eq!(codes(&answer), [code, "no-listener"]);
        assert!(cause(&answer, code)["until"].is_string(), "{answer}");
        let text = cause(&answer, "no-listener")["text"].as_str().unwrap().to_owned();
        assert!(text.contains("the last one was seen"), "{text}");
        paste(&place, &answer);
        // What was made due waits for a worker that moves it.
        let due = why(&place, id);
        assert_eq!(codes(&due), ["not-relayed", "no-listener"]);
        paste(&place, &due);
    }
    assert!(why(&place, &retrying)["causes"][0]["text"].as_str().unwrap().contains("no route"));
}

#[test]
fn what_is_paused_once_and_twice() {
    let place = Place::with_queue();
    let id = place.send("1");
    place.ok("queue pause mail --reason deploy --for 10m");
    place.ok("queue pause --all");
    let answer = why(&place, &id);
    assert_eq!(codes(&answer), ["paused", "paused", "no-listener"]);
    let with_end: Vec<bool> =
        answer["causes"].as_array().unwrap().iter().map(|cause| cause["until"].is_string()).collect();
    assert!(with_end.contains(&true) && answer.to_string().contains("deploy"), "{answer}");
    let of_queue = place.json("why mail");
    assert_eq!(
        (&of_queue["advice"]["code"], &of_queue["advice"]["moreWorkersHelp"]),
        (&"paused".into(), &false.into())
    );
    paste(&place, &answer);
    assert_eq!(codes(&why(&place, &id)), ["no-listener"]);
}

#[test]
fn what_is_with_a_worker_that_goes_on_stops_or_is_killed() {
    let place = Place::empty();
    place.ok("queue add mail --lease 2s --timeout 1s");
    let id = place.send("1");
    let mut command = place.command("work mail");
    // It does not care for signals, so that it is past its timeout until it is killed.
    let stubborn = "trap '' TERM; echo running >&2; sleep 1000 & wait; wait";
    let command = command.args(["--exec", stubborn]).env("MILLPOND_WORKER__CANCEL_GRACE", "60s");
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("running")).unwrap();
    let work = Work(child);
    let answer = why(&place, &id);
    assert_eq!(codes(&answer), ["leased"]);
    assert!(cause(&answer, "leased")["until"].is_string(), "{answer}");
    until("it is stuck", || why(&place, &id).to_string().contains("stuck: it is past its timeout"));
    paste(&place, &why(&place, &id));
    until("it was asked to stop", || why(&place, &id).to_string().contains("was asked to stop"));
    drop(work);
    until("its lease is over", || codes(&why(&place, &id)) == ["lease-expired"]);
    let answer = why(&place, &id);
    assert!(answer.to_string().contains("no worker of any queue is live"), "{answer}");
    paste(&place, &answer);
}

#[test]
fn what_killed_its_worker_waits_for_company() {
    let place = Place::with_queue();
    place.ok("queue add mail --lease 2s");
    place.ok("queue add other");
    let ids = [place.send("1"), place.send("2"), place.send("3")];
    drop(Work::holding(&place, "work mail --concurrency 3", 3));
    place.ok("queue pause mail");
    // Any worker takes over what a dead one left, and moves what is due; the pause keeps it ready.
    let _work = Work::idle(&place, "work other");
    until("they are ready as suspects", || {
        codes(&why(&place, &ids[0])).contains(&"suspect-waits".to_owned())
    });
    paste(&place, &why(&place, &ids[0]));
}

#[test]
fn what_waits_for_a_slot_behind_others() {
    let place = Place::empty();
    place.ok("queue add mail --lease 2s");
    let running = place.send("1");
    let _work = Work::holding(&place, "work mail --concurrency 1", 1);
    let ids = [place.send("2"), place.send("3")];
    until("the worker is seen to be busy", || codes(&why(&place, &ids[1])) == ["behind", "no-free-slots"]);
    let answer = why(&place, &ids[1]);
    let text = cause(&answer, "behind")["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("1 message of its part of the queue comes before it; at "), "{text}");
    let text = cause(&answer, "no-free-slots")["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("all 1 slots of 1 worker are busy; the longest: mail for "), "{text}");
    assert!(text.contains(&running), "{text}");
    paste(&place, &answer);
    until("they are old enough", || place.json("why mail")["advice"]["code"] == "no-free-slots");
    let of_queue = place.json("why mail");
    assert_eq!(of_queue["slots"]["saturation"], 1.0);
    assert_eq!((&of_queue["lag"]["ready"], &of_queue["inFlight"]), (&2.into(), &1.into()));
    let text = place.ok("why mail -o table");
    assert!(text.starts_with("more workers would help: all 1 slots are busy, "), "{text}");
    assert!(text.contains("\nslots       1 of 1 busy (100 %), 1 worker\n"), "{text}");
}

#[test]
fn what_a_limit_over_all_workers_holds() {
    let place = Place::empty();
    for (queue, limit, code, words) in [
        ("ledger", "--exclusive", "exclusive-busy", " has 1 in hand"),
        (
            "slow",
            "--concurrency 1",
            "concurrency-limit",
            "at most 1 message of queue `slow` may be in hand, and worker ",
        ),
        ("sms", "--rate 1/1h", "rate-limited", "its rate of 1 in 1h allows; there is room in "),
    ] {
        place.ok(&format!("queue add {queue} {limit}"));
        let send = || place.ok(&format!("queue send {queue} 1 -o id")).trim().to_owned();
        send();
        let _work = Work::holding(&place, &format!("work {queue} --concurrency 4"), 1);
        let answer = why(&place, &send());
        let text = cause(&answer, code)["text"].as_str().unwrap().to_owned();
        assert!(text.contains(words), "{text}");
        assert_eq!(cause(&answer, code)["until"].is_string(), code == "rate-limited", "{answer}");
        paste(&place, &answer);
        let advice = || place.json(&format!("why {queue}"))["advice"].clone();
        until("it is old enough", || advice()["code"] == code);
        assert_eq!(advice()["moreWorkersHelp"], false);
    }
}

#[test]
fn what_nothing_holds() {
    let place = Place::with_queue();
    let work = Work::idle(&place, "work mail");
    work.signal(Signal::STOP);
    let id = place.send("1");
    assert_eq!(codes(&why(&place, &id)), ["ready"]);
    work.signal(Signal::CONT);
    until("it is done", || codes(&why(&place, &id)) == ["done"]);
    let of_queue = place.json("why mail");
    assert_eq!(of_queue["advice"]["code"], "nothing-waits");
    assert_eq!(of_queue["runs"]["count"], 1);
    assert_eq!(of_queue["rates"][2]["minutes"], 60);
}

#[test]
fn workers_that_know_other_kinds_are_no_handlers() {
    const MAIL: Queue<Value> = Queue::new("mail");
    let place = Place::with_queue();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let url = format!("sqlite://{}", place.path().join("millpond.db").display());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = runtime.spawn(async move {
        let pond = Pond::open(&url).await.unwrap();
        let handler = |_: Job<Value>| async { Ok::<_, JobError>(()) };
        let worker = Worker::new(&pond).handle_kind(&MAIL, "mail.welcome", handler);
        worker.run_until(async { drop(stopped.await) }).await.unwrap();
    });
    until("the worker lives", || place.queue()["listeners"] == 1);
    let id = place.ok("queue send mail 1 --kind mail.farewell -o id").trim().to_owned();
    until("no handler", || codes(&why(&place, &id)).contains(&"no-handler".to_owned()));
    let answer = why(&place, &id);
    let text = cause(&answer, "no-handler")["text"].as_str().unwrap().to_owned();
    assert!(text.contains("mail.farewell"), "{text}");
    paste(&place, &answer);
    stop.send(()).unwrap();
    runtime.block_on(run).unwrap();
}

#[test]
fn a_command_names_the_store_that_was_asked() {
    let place = Place::empty();
    place.ok("queue add mail --store sqlite://other.db");
    let id = place.ok("queue send mail 1 -o id --store sqlite://other.db").trim().to_owned();
    let answer = place.json(&format!("why {id} --store sqlite://other.db"));
    assert_eq!(answer["causes"][0]["action"], "millpond worker list --store sqlite://other.db");
    paste(&place, &answer);
}

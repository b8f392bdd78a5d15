//! The binary as a stranger meets it: what it prints, how it ends, and what it leaves in the store.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Output;

use common::{Place, refused, stderr};
use millpond::sqlite::rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

#[test]
fn a_queue_is_added_once_and_changed_by_what_is_named() {
    let place = Place::empty();
    let added = place.json("queue add mail --backoff '[\"1s\",\"5s\"]' --timeout none --message-limit 2KiB");
    assert_eq!((&added["result"], &added["settings"]["backoff"]), (&"added".into(), &"1s,5s".into()));
    assert_eq!(added["settings"]["timeoutMs"], Value::Null);
    let changed = place.json("queue add mail --lease 1m");
    assert_eq!((&changed["result"], &changed["settings"]["leaseMs"]), (&"changed".into(), &60_000.into()));
    assert_eq!(changed["settings"]["messageLimitBytes"], 2048, "what is not named stays");
    assert_eq!(place.json("queue add mail")["result"], "unchanged");
    let limits = &place.json("queue add sms --concurrency 4 --rate 30/1m")["settings"];
    assert_eq!((&limits["concurrency"], &limits["rate"]), (&4.into(), &"30/1m".into()));
    assert_eq!(limits["exclusive"], false);
    place.refused("queue add sms --exclusive", 2, "error: cannot declare queue `sms` (invalid-config)");
    let refused = place.run("queue add sms --exclusive");
    assert!(
        stderr(&refused).contains("exclusive and concurrency exclude each other"),
        "{}",
        stderr(&refused)
    );
    place.ok("queue add ledger --exclusive");
    place.ok("queue set ledger exclusive=false");
    assert_eq!(place.json("queue show ledger")["settings"]["exclusive"], false);
    let list = place.json("queue list");
    assert_eq!((&list["items"][1]["name"], &list["items"][1]["ready"]), (&"mail".into(), &0.into()));
    assert_eq!(place.ok("queue list -o id"), "ledger\nmail\nsms\n");
    assert!(place.ok("queue list -o csv").starts_with("name,ready,leased,"));
    assert!(place.ok("queue list -o table").starts_with("NAME    READY  LEASED"));
}

#[test]
fn a_dry_run_makes_nothing() {
    let place = Place::empty();
    assert_eq!(place.json("queue add mail --dry-run")["result"], "added");
    assert!(!place.path().join("millpond.db").exists());
}

#[test]
fn a_store_that_is_missing_is_not_made_by_looking() {
    let place = Place::empty();
    let missing = "error: there is no store at sqlite://millpond.db (store-unreachable)";
    let id = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";
    for line in [
        "queue list",
        "queue show mail",
        "queue send mail 1",
        "work mail --exec true",
        "worker list",
        "dead-letter list",
        "dead-letter redrive --all",
        "migrate status",
        &format!("message get {id}"),
        &format!("why {id}"),
    ] {
        place.refused(line, 3, missing);
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_bad_declaration_leaves_no_store_behind() {
    let place = Place::empty();
    place.refused("queue add Mail", 2, "error: cannot declare queue `Mail` (invalid-name)");
    place.refused("queue add mail --lease 1s", 2, "error: cannot declare queue `mail` (invalid-config)");
    place.refused(
        "queue add mail --lease 30",
        2,
        "error: invalid value '30' for '--lease <LEASE>': `30` needs a unit, such as `30s`: \
         allowed are ms, s, m, h and d (invalid-parameter)",
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_misspelt_word_is_answered_with_the_nearest() {
    let place = Place::empty();
    let output = place.run("queue sned mail 1");
    refused(&output, 2, "error: unrecognized subcommand 'sned' (invalid-parameter)");
    assert!(stderr(&output).contains("'send'; see `millpond queue --help`"), "{}", stderr(&output));
    place.refused(
        "queue add mail --leese 30s",
        2,
        "error: unexpected argument '--leese' found (invalid-parameter)",
    );
    assert!(place.ok("queue send --help").contains("Examples:"));
    assert!(place.ok("--version").starts_with("millpond "));
}

#[test]
fn one_message_with_everything_said_about_it() {
    let place = Place::with_queue();
    let line = "queue send mail '{\"userId\": 1.10}' --kind mail.welcome --key customer:8 --priority 1 \
                --header tenant=acme --dedup-key o-17 --attempts-max 7 --delay 1h";
    let sent = place.json(line);
    let id = sent["messages"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!((&sent["sent"], &sent["messages"][0]["result"]), (&1.into(), &"stored".into()));
    let again = place.json(line);
    assert_eq!((&again["sent"], &again["messages"][0]["of"]), (&0.into(), &id.as_str().into()));
    let text = place.ok(&format!("message get {id} --json"));
    assert!(text.contains("\"body\": {\"userId\": 1.10}"), "as it was sent: {text}");
    let message: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&message["state"], &message["kind"]), (&"scheduled".into(), &"mail.welcome".into()));
    assert_eq!((&message["headers"]["tenant"], &message["attemptsMax"]), (&"acme".into(), &7.into()));
    let why = place.json(&format!("why {id}"));
    assert_eq!(why["causes"][0]["code"], "scheduled");
    assert_eq!(why["causes"][1]["code"], "no-listener");
}

#[test]
fn a_body_comes_from_anywhere_and_is_what_it_looks_like() {
    let place = Place::with_queue();
    place.write("body.txt", "hello\n");
    let id = |output: Output| String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let file = id(place.run("queue send mail --file body.txt -o id"));
    let stdin = id(place.with_input("queue send mail - -o id", b"\xff\xfe"));
    let get = |id: &str| place.json(&format!("message get {id}"));
    assert_eq!(
        (&get(&file)["body"], &get(&file)["contentType"]),
        (&"hello\n".into(), &"text/plain; charset=utf-8".into())
    );
    assert_eq!(get(&stdin)["bodyBase64"], "//4=");
    assert!(place.ok(&format!("message get {file} -o table")).contains("body         hello\\n"));
}

#[test]
fn a_body_that_is_meant_as_json_and_is_none_is_pointed_at() {
    let place = Place::with_queue();
    let output = place.run("queue send mail {userId:1} -o table");
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(said.trim_end().ends_with(" (text/plain: it is not JSON)"), "{said}");
    assert!(
        stderr(&output).starts_with("hint: the body looks like JSON, but is not: "),
        "{}",
        stderr(&output)
    );
    for line in ["queue send mail {} -o table", "queue send mail {a --content-type text/plain -o table"] {
        let output = place.run(line);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("JSON"), "{line}");
        assert_eq!(stderr(&output), "", "{line}");
    }
    place.refused(
        "queue send mail -",
        2,
        "error: there is no body for queue `mail`: stdin is empty (invalid-parameter)",
    );
    assert_eq!(place.queue()["sent"], 3);
    place.ok("queue send mail ''");
}

#[test]
fn a_message_that_cannot_be_sent_changes_nothing() {
    let place = Place::with_queue();
    place.ok("queue add small --message-limit 10B");
    place.refused("queue send nope 1", 5, "error: cannot look up queue `nope` (unknown-queue)");
    place.refused("queue send small 1234567890", 2, "error: cannot send to queue `small` (body-too-large)");
    place.ok("queue send small 123456789");
    place.refused(
        "queue send mail 1 --header Bad=x",
        2,
        "error: cannot send to queue `mail` (invalid-header)",
    );
    place.refused("queue send mail 1 --priority 4", 2, "error: cannot send to queue `mail` (invalid-option)");
    place.refused("queue send mail", 2, "error: there is no body for queue `mail` (invalid-parameter)");
    place.refused("queue send mail --file nope", 2, "error: cannot read nope (invalid-parameter)");
    place.refused(
        "queue send mail { --content-type application/json",
        2,
        "error: cannot send to queue `mail` (not-serialisable)",
    );
    assert_eq!(place.queue()["sent"], 0);
}

#[test]
fn a_file_of_lines_stops_at_a_bad_one_and_goes_on_from_there() {
    let place = Place::with_queue();
    let mut lines: Vec<String> = (1..=2_500).map(|number| format!("{{\"n\": {number}}}")).collect();
    lines[1_500] = "{\"n\":".into();
    place.write("users.ndjson", &lines.join("\n"));
    let output = place.run("queue send mail --ndjson --file users.ndjson");
    refused(
        &output,
        2,
        "error: line 1501: it is not JSON: EOF while parsing a value at column 5 (invalid-json)",
    );
    let text = stderr(&output);
    assert!(text.contains("1000 messages stored, through line 1000"), "{text}");
    assert!(text.contains("continue with --from-line 1001"), "{text}");
    assert_eq!(place.queue()["ready"], 1_000);
    lines[1_500] = "{\"n\": 1501}".into();
    place.write("users.ndjson", &lines.join("\n"));
    let sent = place.json("queue send mail --ndjson --file users.ndjson --from-line 1001");
    assert_eq!((&sent["sent"], &sent["throughLine"]), (&1_500.into(), &2_500.into()));
    assert_eq!(place.queue()["ready"], 2_500);
}

#[test]
fn a_file_that_is_sent_twice_with_a_dedup_key_is_stored_once() {
    let place = Place::with_queue();
    for (sent, duplicates) in [(2, 0), (0, 2)] {
        let output = place.with_input("queue send mail - --ndjson --dedup-key import --json", b"1\n\n2\n");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["sent"], &answer["duplicates"]), (&sent.into(), &duplicates.into()));
    }
    let other = place.with_input("queue send mail --ndjson --dedup-key import", b"9\n");
    assert_eq!(other.status.code(), Some(6), "{}", stderr(&other));
    assert!(stderr(&other).starts_with("error: line 1: key `import#1` is held by"), "{}", stderr(&other));
    let large = format!("{}\n", "1".repeat(2 * 1024 * 1024));
    let output = place.with_input("queue send mail - --ndjson", large.as_bytes());
    refused(
        &output,
        2,
        "error: line 1: it has more than 1048576 bytes, the limit of the queue (body-too-large)",
    );
    assert!(stderr(&output).contains("nothing is stored"));
}

/// What a program is told, and what each of its exit statuses does.
#[test]
fn a_program_works_a_queue_until_it_is_empty() {
    let place = Place::with_queue();
    place.write(
        "handler.sh",
        "body=$(cat)
         echo \"$MILLPOND_QUEUE $MILLPOND_ATTEMPT $MILLPOND_KIND $MILLPOND_HEADER_TENANT_ID $body\" >> seen
         echo \"$MILLPOND_ID\" >> ids
         case $body in
           *dead*) echo 'no such user, password=tulip' >&2; exit 65;;
           *later*) exit 75;;
           *fail*) echo 'no route' >&2; exit 1;;
           *kill*) kill -9 $$;;
         esac",
    );
    let (dead, later, fail, kill) =
        (place.send("\"dead\""), place.send("\"later\""), place.send("\"fail\""), place.send("\"kill\""));
    place.ok("queue send mail \"fine\" --kind mail.x --header tenant-id=acme");
    let summary = place.json("work mail --exec 'exec sh ./handler.sh' --drain --snooze 1h --concurrency 1");
    let counts: Vec<_> = ["done", "failed", "snoozed", "refused", "waiting"]
        .map(|name| summary[name].as_u64().unwrap())
        .into();
    assert_eq!(counts, [1, 4, 1, 1, 1]);
    let seen = fs::read_to_string(place.path().join("seen")).unwrap();
    assert!(seen.contains("mail 1 mail.x acme \"fine\""), "{seen}");
    assert!(seen.contains("mail 2 mail  \"fail\""), "{seen}");
    assert!(fs::read_to_string(place.path().join("ids")).unwrap().contains(&dead));
    let get = |id: &str| place.json(&format!("message get {id}"));
    assert_eq!((&get(&dead)["state"], &get(&dead)["reason"]), (&"dead".into(), &"refused".into()));
    assert_eq!(get(&dead)["error"], "no such user, password=***");
    assert_eq!((&get(&later)["state"], &get(&later)["attempt"]), (&"scheduled".into(), &0.into()));
    assert_eq!((&get(&fail)["reason"], &get(&fail)["error"]), (&"exhausted".into(), &"no route".into()));
    assert_eq!(get(&kill)["error"], "ended by signal 9, nothing on stderr");
    assert_eq!(place.json(&format!("why {later}"))["causes"][0]["code"], "snoozed");
    assert_eq!(place.json(&format!("why {dead}"))["causes"][0]["code"], "dead");
    assert_eq!(place.json("worker list")["items"][0]["state"], "stopped");
}

#[test]
fn a_program_need_not_read_its_input_and_may_print_more_than_a_pipe_holds() {
    let place = Place::with_queue();
    let body = format!("\"{}\"", "x".repeat(1_000_000));
    place.with_input("queue send mail -", body.as_bytes());
    assert_eq!(place.json("work mail --exec 'exec <&-; exit 0' --drain")["done"], 1);
    place.with_input("queue send mail -", body.as_bytes());
    let summary = place.json("work mail --exec 'head -c 3000000 /dev/zero >&2; cat | cmp -n 5 - /dev/null; cat >/dev/null; exit 0' --drain");
    assert_eq!(summary["done"], 1);
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let place = Place::with_queue();
    let id = place.send("1");
    let summary = place.json("work mail --exec 'sleep 1000' --timeout 50ms --drain");
    assert_eq!(summary["failed"], 2);
    assert_eq!(place.json(&format!("message get {id}"))["error"], "timeout; ended by signal 15");
    place.refused(
        "work mail --exec true --timeout 10m",
        2,
        "error: --timeout 10m is longer than the 5m of queue `mail`, which ends every run (invalid-parameter)",
    );
}

/// The program ignores SIGTERM: it is killed, with what it started, and the attempt is given back.
#[test]
fn a_worker_that_is_stopped_leaves_no_program_behind() {
    let place = Place::with_queue();
    let id = place.send("1");
    let mut command = place.command("work mail");
    command.args(["--exec", "trap '' TERM; sleep 1000 & echo running $$ $!; wait; wait"]);
    let mut worker = command.env("MILLPOND_WORKER__CANCEL_GRACE", "50ms").spawn().unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines().map(Result::unwrap);
    let running = lines.find(|line| line.starts_with("running")).unwrap();
    let pids: Vec<Pid> =
        running.split(' ').skip(1).map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect();
    assert_eq!(place.json(&format!("why {id}"))["causes"][0]["code"], "leased");
    let worker_pid = Pid::from_raw(i32::try_from(worker.id()).unwrap()).unwrap();
    for _ in 0..2 {
        kill_process(worker_pid, Signal::TERM).unwrap();
        lines.find(|line| line.contains("stopping")).unwrap();
    }
    lines.find(|line| line.contains("given back")).unwrap();
    assert!(worker.wait().unwrap().success());
    test_kill_process(pids[0]).unwrap_err();
    let message = place.json(&format!("message get {id}"));
    assert_eq!((&message["attempt"], &message["releases"]), (&0.into(), &1.into()));
}

#[test]
fn dead_letters_are_listed_and_sent_again() {
    let place = Place::with_queue();
    let ids = [place.send("1"), place.send("2"), place.send("3")];
    place.ok("work mail --exec 'exit 65' --drain");
    let list = place.json("dead-letter list --queue mail --limit 2");
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(list["items"][0]["reason"], "refused");
    place.refused(
        "dead-letter redrive",
        4,
        "error: refused to redrive every dead letter of the store (invalid-filter)",
    );
    place.refused(
        "dead-letter redrive --all",
        4,
        "error: refused to redrive 3 dead letters without a confirmation (invalid-parameter)",
    );
    place.refused(
        "dead-letter redrive --all --expect 4",
        6,
        "error: cannot redrive dead letters (count-changed)",
    );
    place.refused(
        "dead-letter redrive --queue nope",
        5,
        "error: cannot look up queue `nope` (unknown-queue)",
    );
    assert_eq!(place.json("dead-letter redrive --reason refused --dry-run")["matched"], 3);
    assert_eq!(place.queue()["dead"], 3, "nothing was done");
    let one = place.json(&format!("dead-letter redrive --id {} --expect 1", ids[0]));
    let new = one["messages"][0]["jobId"].as_str().unwrap();
    assert_eq!(one["messages"][0]["failedJobId"], ids[0].as_str());
    assert_eq!(place.json(&format!("message get {}", ids[0]))["redrivenAs"], new);
    assert_eq!(place.json("dead-letter redrive --queue mail --yes")["done"], 2);
    assert_eq!(place.json("dead-letter redrive --all")["done"], 0);
    assert_eq!(place.json("work mail --exec true --drain")["done"], 3);
}

#[test]
fn whoever_looks_at_a_misspelt_queue_or_reason_is_told_the_nearest() {
    let place = Place::with_queue();
    for line in ["queue show maill", "dead-letter list --queue maill", "dead-letter redrive --queue maill"] {
        let output = place.run(line);
        refused(&output, 5, "error: cannot look up queue `maill` (unknown-queue)");
        let text = stderr(&output);
        assert!(text.contains("did you mean `mail`?"), "{text}");
        assert!(text.contains("do:  `millpond queue list` shows what is declared"), "{text}");
    }
    for line in ["dead-letter list --reason refusd", "dead-letter redrive --reason refusd"] {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(text.contains("did you mean `refused`? known are exhausted, refused, "), "{text}");
    }
}

#[test]
fn a_store_that_cannot_be_there_is_said_in_plain_words() {
    let place = Place::empty();
    fs::create_dir(place.path().join("folder")).unwrap();
    for (line, exit, words) in [
        ("queue list --store app.db", 4, "do:  write sqlite://app.db"),
        ("queue add mail --store app.db", 4, "do:  write sqlite://app.db"),
        ("queue list --store sqlite://folder", 3, "why: it is a directory"),
        ("queue add mail --store sqlite://folder", 3, "why: it is a directory"),
        ("queue list --store sqlite://no/app.db", 3, "why: folder `no` does not exist"),
        ("queue add mail --store sqlite://no/app.db", 3, "why: folder `no` does not exist"),
        ("migrate up --store sqlite://no/app.db", 3, "why: folder `no` does not exist"),
    ] {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(exit), "{line}");
        assert!(stderr(&output).contains(words), "{line}: {}", stderr(&output));
    }
}

#[test]
fn a_number_or_a_flag_that_is_wrong_or_missing_is_said_in_plain_words() {
    let place = Place::with_queue();
    for (line, words) in [
        ("queue add mail --attempts-max abc", "write a whole number from 1 to"),
        ("queue add mail --attempts-max 0", "write a whole number from 1 to"),
        ("queue send mail 1 --attempts-max -1", "write a whole number from 1 to"),
        ("queue send mail 1 --delay -5s", "a duration cannot be negative"),
        ("work mail", "such as --exec 'cat'"),
    ] {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(words), "{line}: {}", stderr(&output));
    }
}

#[test]
fn a_program_that_cannot_be_run_is_warned_of_once() {
    let place = Place::with_queue();
    place.send("1");
    let output = place.run("work mail --exec /nope --drain");
    let text = stderr(&output);
    let warned = "WARN the program was not found (exit status 127): check --exec";
    assert_eq!(text.matches(warned).count(), 1, "{text}");
    assert_eq!(text.matches("WARN failed id=").count(), 2, "{text}");
}

#[test]
fn an_id_that_is_not_there() {
    let place = Place::with_queue();
    let id = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";
    place.refused(
        &format!("message get {id}"),
        5,
        &format!("error: cannot find message `{id}` (message-not-found)"),
    );
    let output = place.run(&format!("why {id} --json"));
    assert_eq!(output.status.code(), Some(5));
    let why: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(why["causes"][0]["code"], "unknown-id");
    assert_eq!(place.run("why abc").status.code(), Some(5), "it is taken for the name of a queue");
}

#[test]
fn with_json_an_error_is_a_problem_document() {
    let place = Place::with_queue();
    let output = place.run("queue send nope 1 --json");
    let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&problem["code"], &problem["status"]), (&"unknown-queue".into(), &404.into()));
    assert_eq!(problem["type"], "/problems/unknown-queue");
    let output = place.run("queue send --json");
    let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(problem["code"], "invalid-parameter");
}

#[test]
fn the_schema_is_planned_and_applied() {
    let place = Place::empty();
    let plan = place.json("migrate plan");
    assert!(plan["migrations"][0]["sql"].as_str().unwrap().contains("create table"));
    assert!(!place.path().join("millpond.db").exists(), "a plan does nothing");
    assert_eq!(place.json("migrate up")["applied"][0], "0001_log");
    assert_eq!(place.json("migrate up")["applied"], Value::Array(Vec::new()));
    assert!(place.json("migrate status")["items"][0]["appliedAt"].is_string());
    assert_eq!(place.json("health")["status"], "ready");
}

#[test]
fn a_setting_has_its_origin_and_its_secrets_hidden() {
    let place = Place::empty();
    place.write("millpond.toml", "[worker]\nconcurrency = 3\n");
    let mut command = place.command("config --json");
    let output = command.env("DATABASE_URL", "postgres://ada:tulip@db/app").output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |key: &str| {
        let items = shown["items"].as_array().unwrap();
        items.iter().find(|item| item["key"] == key).unwrap().clone()
    };
    assert_eq!(of("store")["origin"], "environment DATABASE_URL");
    assert!(!of("store")["value"].as_str().unwrap().contains("tulip"), "{shown}");
    assert_eq!(
        (of("worker.concurrency")["value"].clone(), of("worker.concurrency")["origin"].clone()),
        ("3".into(), "./millpond.toml:2".into())
    );
    place.write("millpond.toml", "[worker]\nconcurency = 3\n");
    place.refused(
        "queue list",
        2,
        "error: ./millpond.toml:2: unknown key `worker.concurency`; did you mean `worker.concurrency`? (invalid-config)",
    );
    place.refused(
        "config --config no.toml",
        2,
        "error: there is no configuration file no.toml (invalid-config)",
    );
}

#[test]
fn a_store_of_another_kind_is_refused_without_its_password() {
    let place = Place::empty();
    let output = place.run("queue list --store redis://ada:tulip@db/app");
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("(unsupported-store)"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("tulip"), "{}", stderr(&output));
}

#[test]
fn a_file_that_is_no_store_is_left_as_it_is() {
    let place = Place::empty();
    place.write("notes.txt", &"not a database, and long enough to have a header of one\n".repeat(20));
    let before = fs::read(place.path().join("notes.txt")).unwrap();
    let output = place.run("queue list --store sqlite://notes.txt");
    refused(&output, 4, "error: notes.txt is not a database (unsupported-store)");
    assert!(!stderr(&output).contains("Error code"), "{}", stderr(&output));
    let output = place.run("queue add mail --store sqlite://notes.txt");
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(fs::read(place.path().join("notes.txt")).unwrap(), before);

    let other = Connection::open(place.path().join("other.db")).unwrap();
    other.execute_batch("create table user (id)").unwrap();
    drop(other);
    let before = fs::read(place.path().join("other.db")).unwrap();
    let expected = "error: there is no Millpond schema in sqlite://other.db (schema-older)";
    place.refused("queue list --store sqlite://other.db", 4, expected);
    assert_eq!(fs::read(place.path().join("other.db")).unwrap(), before);
}

#[test]
fn a_schema_of_a_later_release_is_not_touched() {
    let place = Place::with_queue();
    let store = Connection::open(place.path().join("millpond.db")).unwrap();
    store.execute("insert into millpond_migration values (999, '0999_later', 0, 0)", []).unwrap();
    drop(store);
    for line in ["queue list", "queue add mail", "queue send mail 1"] {
        place.refused(line, 4, "error: cannot read the schema (schema-newer)");
    }
}

#[test]
fn a_store_that_may_only_be_read_is_named_as_such() {
    let place = Place::with_queue();
    let path = place.path().join("millpond.db");
    let mut rights = fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&path, rights).unwrap();
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        return; // No right can be taken from this user.
    }
    place.ok("queue list");
    for line in ["queue add mail2", "queue send mail 1", "work mail --exec true", "dead-letter redrive --all"]
    {
        place.refused(line, 3, "error: cannot write to the store millpond.db (store-unreachable)");
    }
}

#[test]
fn a_store_that_another_process_has_locked_is_named_as_unavailable() {
    let place = Place::with_queue();
    let store = Connection::open(place.path().join("millpond.db")).unwrap();
    store.execute_batch("begin immediate").unwrap();
    place.ok("queue list");
    let output = place.run("queue send mail 1");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    store.execute_batch("rollback").unwrap();
    assert_eq!(place.queue()["sent"], 0);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::with_queue();
    for line in ["queue list", "migrate plan", "queue --help"] {
        let mut child = place.command(line).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{line}");
    }
}

/// Whoever is the last to close a database deletes its write-ahead log: another program must see that we are there.
#[test]
fn a_worker_keeps_its_locks_on_the_database() {
    let place = Place::with_queue();
    let mut worker = place.command("work mail --exec cat").spawn().unwrap();
    let listens = || place.json("worker list")["items"][0]["state"] == "live";
    let started = std::time::Instant::now();
    // Each look is a process of its own, so this does not spin.
    while !listens() && started.elapsed() < std::time::Duration::from_secs(20) {}
    let database = fs::metadata(place.path().join("millpond.db")).unwrap();
    let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&database));
    let of_worker = format!(" {} ", worker.id());
    let locked = |locks: String| locks.lines().any(|lock| lock.contains(&inode) && lock.contains(&of_worker));
    let locked = fs::read_to_string("/proc/locks").map(locked);
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(locked.unwrap_or(true), "the worker has lost its locks on the database");
}

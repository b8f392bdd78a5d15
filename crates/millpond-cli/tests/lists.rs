//! Lists of messages, dead letters, the outbox, workers and the audit, as the binary prints them.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use common::{Place, refused, stderr};
use serde_json::Value;

/// Moves the cursor, changes the order of characters, and begins a formula.
const HOSTILE: &str = "=cmd\u{1b}[2J\u{9b}31m\u{202e}gnp.exe\u{200f}";

fn ids(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// One message of each state but leased: ready, scheduled, done, dead.
fn with_states() -> Place {
    let place = Place::with_queue();
    place.ok("queue send mail 1 --kind done");
    place.ok("queue send mail 2 --kind dead --key customer:8 --header tenant=acme");
    let program = "case $MILLPOND_KIND in dead) echo 'no such user' >&2; exit 65;; esac";
    place.write("handler.sh", program);
    place.ok("work mail --exec 'sh ./handler.sh' --drain");
    place.ok("queue send mail '{\"n\":3}' --kind ready");
    place.ok("queue send mail 4 --kind scheduled --delay 1h");
    place
}

#[test]
fn messages_of_any_state_are_listed_and_chosen() {
    let place = with_states();
    let all = place.json("message list");
    assert_eq!((&all["total"], &all["totalIsEstimate"]), (&4.into(), &false.into()));
    assert_eq!((&all["hasMore"], &all["nextCursor"]), (&false.into(), &Value::Null));
    let kinds = |filter: &str| {
        let list = place.json(&format!("message list {filter}"));
        let mut kinds: Vec<String> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["kind"].as_str().unwrap().to_owned())
            .collect();
        kinds.sort();
        kinds.join(" ")
    };
    for (filter, expected) in [
        ("queue:mail", "dead done ready scheduled"),
        ("state:ready,scheduled", "ready scheduled"),
        ("'state:dead reason:refused'", "dead"),
        ("queue:mail state:done", "done"),
        ("'error:\"no such user\"'", "dead"),
        ("'sent:today -state:done'", "dead ready scheduled"),
        ("'due:>+30m'", "scheduled"),
        ("--queue mail kind:d*", "dead done"),
        ("header.tenant:acme", "dead"),
        ("key:customer:8", "dead"),
        ("kind:nothing", ""),
        ("body.n:3", "ready"),
    ] {
        assert_eq!(kinds(filter), expected, "{filter}");
    }
    let id = ids(&place.json("message list state:ready"))[0].clone();
    assert_eq!(ids(&place.json(&format!("message list {id}"))), [id.as_str()]);
    assert_eq!(place.ok("message list state:ready -o id"), format!("{id}\n"));
    assert_eq!(place.ok("msg ls state:ready -o id"), format!("{id}\n"), "aliases do");
    assert!(place.json("message list state:ready")["items"][0].get("body").is_none());
    let with_body = place.json("message list state:ready --bodies");
    assert_eq!(with_body["items"][0]["body"]["n"], 3);
    let table = place.ok("message list -o table --utc");
    assert!(table.starts_with("ID "), "{table}");
    assert!(table.contains("+00:00"), "times in tables have an offset: {table}");
    let lines = place.ok("message list");
    assert_eq!(lines.lines().count(), 4, "ndjson when piped: {lines}");
}

#[test]
fn a_filter_that_is_wrong_is_pointed_at_and_nothing_is_searched() {
    let place = Place::with_queue();
    let output = place.run("message list 'queue:mail sate:ready'");
    refused(&output, 2, "error: there is no field `sate` here; did you mean `state:`? (invalid-filter)");
    assert_eq!(
        stderr(&output).lines().skip(1).collect::<Vec<_>>(),
        ["  why: queue:mail sate:ready", "  do:             ^ correct it here"]
    );
    for (line, exit, first) in [
        (
            "message list state:redy",
            2,
            "error: there is no `redy`; did you mean `ready`? known are scheduled, retrying, ready, leased, done, dead, \
             cancelled (invalid-filter)",
        ),
        (
            "message list attempt:many",
            2,
            "error: `many` is not a whole number, such as 3, >3 or 1..5 (invalid-filter)",
        ),
        (
            "outbox list state:ready",
            2,
            "error: there is no field `state` here; known are queue, kind, key, id, trace, \
             reason, error, attempt, age, sent, due, header.NAME, body.PATH; quote a text that holds a colon \
             (invalid-filter)",
        ),
        (
            "dead-letter list status:opn",
            2,
            "error: there is no `opn`; did you mean `open`? known are open, retried, \
             cancelled (invalid-filter)",
        ),
        ("message list queue:maill", 5, "error: cannot look up queue `maill` (unknown-queue)"),
        ("message list --queue maill", 5, "error: cannot look up queue `maill` (unknown-queue)"),
        ("message list --after x", 2, "error: cannot go on with a list (invalid-option)"),
    ] {
        place.refused(line, exit, first);
    }
    let output = place.run("message list sate:ready --json");
    let problem: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&problem["code"], &problem["status"]), (&"invalid-filter".into(), &400.into()));
    assert_eq!(place.run("message list -n 0").status.code(), Some(2));
    assert_eq!(place.run("message list -n 1001").status.code(), Some(2));
}

#[test]
fn pages_follow_each_other_and_say_what_is_missing() {
    let place = Place::with_queue();
    let lines: String = (1..=5).map(|number| format!("{number}\n")).collect();
    place.with_input("queue send mail - --ndjson", lines.as_bytes());
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let output = place.run(&format!("message list -n 2 --json {after}"));
        let page: Value = serde_json::from_slice(&output.stdout).unwrap();
        seen.extend(ids(&page));
        let Some(next) = page["nextCursor"].as_str() else { break };
        assert!(
            stderr(&output).contains("2 of 5 messages; --limit shows more, --after"),
            "{}",
            stderr(&output)
        );
        after = format!("--after {next}");
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5);
}

#[test]
fn hostile_keys_and_bodies_are_shown_and_cannot_move_a_cursor() {
    let place = Place::with_queue();
    let body = serde_json::to_string(HOSTILE).unwrap();
    let mut command = place.command("queue send mail --kind hostile --json");
    let output = command.arg(&body).args(["--key", "=1+1\u{202e}x"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    place.write("handler.sh", "printf 'bad \\033[2J\\302\\2331m\\342\\200\\256 end' >&2; exit 65");
    place.ok("queue send mail 2 --delay 1h --key '@sum'");
    place.ok("work mail --exec 'sh ./handler.sh' --drain");
    for line in [
        "message list --bodies",
        "dead-letter list --bodies",
        "dead-letter groups",
        "outbox list --bodies",
        "queue list",
        "worker list",
        "dead-letter redrive --all --dry-run",
    ] {
        for form in ["table", "csv", "json", "ndjson", "id"] {
            let text = place.ok(&format!("{line} -o {form}"));
            let moves = |c: char| {
                (c.is_control() && c != '\n')
                    || matches!(c, '\u{202a}'..='\u{202e}' | '\u{200e}' | '\u{200f}')
            };
            assert!(!text.contains(moves), "{line} -o {form}: {text:?}");
        }
    }
    let csv = place.ok("dead-letter list -o csv");
    assert!(csv.contains(",'=1+1\\u{202e}x,"), "a formula stays a text: {csv}");
    assert!(place.ok("outbox list -o csv").contains(",'@sum,"));
    let id = ids(&place.json("dead-letter list"))[0].clone();
    let letter = place.json(&format!("dead-letter get {id}"));
    assert_eq!(letter["payload"].as_str(), Some(HOSTILE), "in JSON it is what was sent");
    let shown = place.ok(&format!("dead-letter get {id} -o table"));
    assert!(shown.contains("\\u{202e}"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn dead_letters_are_listed_grouped_and_shown() {
    let place = with_states();
    let list = place.json("dead-letter list");
    let letter = &list["items"][0];
    let id = letter["id"].as_str().unwrap();
    assert_eq!((&letter["jobId"], &letter["jobName"]), (&id.into(), &"dead".into()));
    assert_eq!((&letter["provider"], &letter["queue"]), (&"sqlite".into(), &"mail".into()));
    assert_eq!((&letter["attempts"], &letter["maxAttempts"]), (&1.into(), &2.into()));
    assert_eq!((&letter["reason"], &letter["status"]), (&"refused".into(), &"open".into()));
    assert_eq!(letter["errorSummary"], "no such user");
    let fingerprint = letter["fingerprint"].as_str().unwrap();
    assert!(letter["createdAt"].is_string() && letter["failedAt"].is_string());
    assert!(letter.get("payload").is_none());
    for (filter, count) in [
        ("--reason refused", 1),
        ("--reason exhausted", 0),
        (&format!("fingerprint:{fingerprint}") as &str, 1),
        ("'died:today attempt:1'", 1),
        ("status:retried", 0),
        (&format!("--id {id} --queue mail"), 1),
    ] {
        assert_eq!(ids(&place.json(&format!("dead-letter list {filter}"))).len(), count, "{filter}");
    }
    for (by, key) in
        [("fingerprint", fingerprint), ("queue", "mail"), ("kind", "dead"), ("reason", "refused")]
    {
        let groups = place.json(&format!("dead-letter groups --by {by}"));
        let group = &groups["items"][0];
        assert_eq!((&group["key"], &group["count"]), (&key.into(), &1.into()), "{by}");
        assert_eq!((&group["example"], &group["perDay"][6]), (&"no such user".into(), &1.into()));
    }
    assert_eq!(place.run("dead-letter groups --by colour").status.code(), Some(2));
    let letter = place.json(&format!("dlq get {id}"));
    assert_eq!((&letter["payload"], &letter["payloadBytes"]), (&2.into(), &1.into()));
    assert_eq!(
        (&letter["errorDetail"], &letter["headers"]["tenant"]),
        (&"no such user".into(), &"acme".into())
    );
    assert_eq!(letter["attemptErrors"][0]["error"], "no such user");
    assert_eq!(letter["events"][0]["event"], "ENQUEUE");
    let ready = ids(&place.json("message list state:ready"))[0].clone();
    let output = place.run(&format!("dead-letter get {ready}"));
    refused(&output, 5, &format!("error: cannot find dead letter `{ready}` (message-not-found)"));
    assert!(stderr(&output).contains("the message is ready, and no dead letter"), "{}", stderr(&output));
}

#[test]
fn the_outbox_is_listed_and_summed_up() {
    let place = with_states();
    let list = place.json("outbox list queue:mail");
    let row = &list["items"][0];
    assert_eq!((&row["jobName"], &row["reason"]), (&"scheduled".into(), &"delay".into()));
    assert_eq!((&row["attempts"], &list["total"]), (&0.into(), &1.into()));
    assert!(row["availableAt"].is_string());
    let summary = place.json("outbox summary");
    let row = &summary["items"][0];
    assert_eq!((&row["destination"], &row["rows"]), (&"mail".into(), &1.into()));
    assert_eq!((&row["dueRows"], &row["mostAttempts"]), (&0.into(), &0.into()));
    assert!(row["nextDue"].is_string());
    assert!(place.ok("outbox summary -o table").contains("MOST ATTEMPTS"));
}

#[test]
fn workers_are_listed_and_shown_with_what_they_say() {
    let place = with_states();
    let list = place.json("worker list");
    let worker = &list["items"][0];
    let id = worker["workerId"].as_str().unwrap();
    assert_eq!((&worker["state"], &worker["status"]), (&"stopped".into(), &"STOPPED".into()));
    assert_eq!((&worker["queues"][0], &worker["provider"]), (&"mail".into(), &"sqlite".into()));
    assert!(worker["totalProcessed"].is_u64() && worker["pid"].is_u64());
    assert_eq!(place.json(&format!("worker show {id}"))["workerId"], id);
    let beginning = &id[..id.len() - 2];
    assert_eq!(place.json(&format!("worker show {beginning}"))["workerId"], id);
    assert!(place.ok(&format!("worker show {id} -o table")).contains("state        stopped"));
    assert_eq!(place.json("worker list --state live")["items"].as_array().unwrap().len(), 0);
    assert_eq!(place.json("worker list --queue mail")["items"].as_array().unwrap().len(), 1);
    place.refused("worker show nobody", 5, "error: there is no worker `nobody` (not-found)");
}

#[test]
fn the_audit_says_who_changed_what_and_why() {
    let place = Place::with_queue();
    assert_eq!(place.json("audit list")["items"].as_array().unwrap().len(), 0);
    let mut command = place.command("queue pause mail --reason 'no mail today'");
    assert!(command.env("USER", "ada").output().unwrap().status.success());
    place.ok("queue resume mail");
    let list = place.json("audit list");
    let (resume, pause) = (&list["items"][0], &list["items"][1]);
    assert_eq!((&resume["verb"], &resume["number"]), (&"queue resume".into(), &2.into()));
    assert_eq!((&pause["verb"], &pause["object"]), (&"queue pause".into(), &"mail".into()));
    assert_eq!((&pause["reason"], &pause["intact"]), (&"no mail today".into(), &true.into()));
    assert!(pause["actor"].as_str().unwrap().starts_with("ada"), "{pause}");
    let page = place.json("audit list -n 1");
    assert_eq!((&page["nextCursor"], &page["total"]), (&"2".into(), &2.into()));
    assert_eq!(place.json("audit list --after 2")["items"][0]["number"], 1);
}

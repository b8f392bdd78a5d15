//! `millpond events`: the run log as lists, live, and counted by minute and by day.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use common::{Place, stderr};
use serde_json::Value;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["event"].as_str().unwrap()).collect()
}

/// One done and one dead after two attempts.
fn worked() -> (Place, String, String) {
    let place = Place::with_queue();
    let (done, dead) = (place.send("0"), place.send("1"));
    place.ok("work mail --exec 'read code; echo no route >&2; exit $code' --drain");
    (place, done, dead)
}

#[test]
fn a_list_has_the_six_kinds_newest_first_and_is_filtered() {
    let (place, done, dead) = worked();
    let of_done = lines(&place.ok(&format!("events list {done} -o ndjson")));
    assert_eq!(kinds(&of_done), ["SUCCESS", "START", "ENQUEUE"]);
    let of_dead = lines(&place.ok(&format!("event ls id:{dead} -o ndjson")));
    assert_eq!(kinds(&of_dead), ["DLQ", "START", "RETRY", "START", "ENQUEUE"]);
    assert_eq!((&of_dead[0]["reason"], &of_dead[0]["attempt"]), (&"exhausted".into(), &2.into()));
    assert!(of_dead[0]["durationMs"].is_u64() && of_dead[0]["workerId"].is_string(), "{}", of_dead[0]);
    for (name, value) in of_dead[0].as_object().unwrap() {
        let nothing =
            ["subscription", "maxAttempts", "traceId", "batchId", "retryOf"].contains(&name.as_str());
        assert!(nothing || !value.is_null(), "{name}: {}", of_dead[0]);
    }
    let failures = lines(&place.ok("events list 'queue:mail event:RETRY,DLQ error:\"no route\"' -o ndjson"));
    assert_eq!(kinds(&failures), ["DLQ", "RETRY"]);
    assert_eq!(place.json("events list at:<-1h")["items"], Value::Array(Vec::new()));
    let page = place.json("events list --limit 3");
    assert_eq!((&page["size"], &page["total"], &page["hasMore"]), (&3.into(), &8.into(), &true.into()));
    let mut command = place.command("events list --limit 5 --json --after");
    let rest = command.arg(page["nextCursor"].as_str().unwrap()).output().unwrap();
    let rest: Value = serde_json::from_slice(&rest.stdout).unwrap();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|entry| entry["id"].to_string()).collect()
    };
    let all: BTreeSet<String> = ids(&page).into_iter().chain(ids(&rest)).collect();
    assert_eq!(all.len(), 8, "two pages hold everything once");
    assert!(place.ok("events list -o table").starts_with("JOB "));
    assert!(place.ok("events list -o csv").starts_with("job,at,event,reason,queue,"));
    place.refused(
        "events list evnt:DLQ",
        2,
        "error: there is no field `evnt` here; did you mean `event:`? (invalid-filter)",
    );
}

#[test]
fn a_tail_says_the_past_and_then_everything_once() {
    let place = Place::with_queue();
    place.send("0");
    let mut tail = place.command("events tail --last 1 --every 20ms -o ndjson --count 60").spawn().unwrap();
    let mut entries = BufReader::new(tail.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = vec![entries.next().unwrap()];
    for _ in 0..19 {
        place.send("0");
    }
    place.ok("work mail --exec true --drain");
    seen.extend(entries);
    assert!(tail.wait().unwrap().success());
    let seen = lines(&seen.join("\n"));
    let unique: BTreeSet<String> =
        seen.iter().map(|entry| format!("{} {}", entry["jobId"], entry["event"])).collect();
    assert_eq!(unique.len(), 60);
    let count = |kind| seen.iter().filter(|entry| entry["event"] == kind).count();
    assert_eq!([count("ENQUEUE"), count("START"), count("SUCCESS")], [20, 20, 20]);
}

#[test]
fn a_trend_has_as_many_days_as_were_asked_for() {
    let (place, ..) = worked();
    let trend = place.json("events trends --days 3 --zone Asia/Kathmandu --queue mail");
    assert_eq!((&trend["days"], &trend["timezone"]), (&3.into(), &"Asia/Kathmandu".into()));
    let items = trend["items"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    let today = &items[2];
    let six =
        ["enqueue", "start", "success", "retry", "dlq", "recover"].map(|name| today[name].as_u64().unwrap());
    assert_eq!(six, [2, 3, 1, 1, 1, 0]);
    assert_eq!(today["total"], 8);
    assert_eq!(items[0]["total"], 0);
    assert!(items.windows(2).all(|two| two[0]["date"].as_str() < two[1]["date"].as_str()));
    assert_eq!(place.json("events trends --kind nothing")["items"].as_array().unwrap().len(), 7);
    assert!(
        place.ok("events trends -o csv").starts_with("date,total,enqueue,start,success,retry,dlq,recover\n")
    );
    let output = place.run("events trends --zone Europe/Madird");
    assert_eq!(output.status.code(), Some(2));
    let said = "error: there is no time zone `Europe/Madird` (unknown-time-zone)\n  do:  did you mean `Europe/Madrid`?\n";
    assert_eq!(stderr(&output), said);
    assert_eq!(place.run("events trends --days 91").status.code(), Some(2));
    place.refused("events trends --queue mial", 5, "error: cannot look up queue `mial` (unknown-queue)");
}

#[test]
fn rates_are_one_line_for_each_minute() {
    let (place, ..) = worked();
    let minutes = lines(&place.ok("events rates --minutes 5 --queue mail -o ndjson"));
    assert_eq!(minutes.len(), 5);
    let sum = |name: &str| minutes.iter().map(|minute| minute[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(["enqueue", "start", "success", "retry", "dlq"].map(sum), [2, 3, 1, 1, 1]);
    assert!(minutes.iter().any(|minute| minute["runMs"].is_u64()));
    assert!(minutes.windows(2).all(|two| two[0]["at"].as_str() < two[1]["at"].as_str()));
}

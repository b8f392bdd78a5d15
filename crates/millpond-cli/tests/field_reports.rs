//! What went wrong in other systems, as their users reported it, played with the real binary: real processes, real
//! signals, a real command line. A `BR` number is that of the report in `docs/field-reports.md`.
//!
//! What a report needs more of than a test run can give is scaled down; `MILLPOND_FIELD_REPORTS=full` plays it in full.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::process::{Child, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use common::{Place, stderr};
use millpond::sqlite::rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The size of a test, and of the report.
fn scaled(size: usize, full: usize) -> (usize, Duration) {
    match std::env::var("MILLPOND_FIELD_REPORTS").as_deref() {
        Ok("full") => (full, PATIENCE * 60),
        _ => (size, PATIENCE),
    }
}

/// Asks until the answer is yes.
#[track_caller]
fn eventually(what: &str, yes: impl FnMut() -> bool) {
    eventually_within(PATIENCE, what, yes);
}

#[track_caller]
fn eventually_within(limit: Duration, what: &str, mut yes: impl FnMut() -> bool) {
    let began = Instant::now();
    while !yes() {
        assert!(began.elapsed() < limit, "not met within {limit:?}: {what}");
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// A worker process, killed when the test is over. What it says goes to a file.
struct Worker(Child);

impl Worker {
    /// `millpond work mail` with these flags and this program.
    fn start(place: &Place, flags: &str, program: &str) -> Self {
        let said = fs::OpenOptions::new().create(true).append(true).open(place.path().join("said")).unwrap();
        let mut command = place.command(&format!("work mail {flags} --json"));
        command.args(["--exec", program]).env("MILLPOND_WORKER__CANCEL_GRACE", "200ms");
        Self(command.stdout(Stdio::piped()).stderr(said).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually_within(PATIENCE * 60, "the worker ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Tells it to stop, and waits until it has.
    #[track_caller]
    fn stop(mut self) {
        self.signal(Signal::TERM);
        self.ended();
    }

    #[track_caller]
    fn kill(mut self) {
        self.signal(Signal::KILL);
        self.ended();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of a file that programs write.
fn lines(place: &Place, name: &str) -> Vec<String> {
    let text = fs::read_to_string(place.path().join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn line_count(place: &Place, name: &str) -> usize {
    fs::read(place.path().join(name)).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

/// A place whose queue `mail` has these settings.
fn with_queue(settings: &str) -> Place {
    let place = Place::empty();
    place.ok(&format!("queue add mail {settings}"));
    place
}

#[track_caller]
fn send_many(place: &Place, count: usize) {
    let text: String = (0..count).map(|number| format!("{number}\n")).collect();
    let output = place.with_input("queue send mail - --ndjson", text.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
}

fn message(place: &Place, id: &str) -> Value {
    place.json(&format!("message get {id}"))
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// BR-007: two worker processes on one SQLite file both took the same job.
#[test]
fn br_007_two_worker_processes_run_each_message_once() {
    let (count, _) = scaled(200, 1_000);
    let place = with_queue("--attempts-max 1");
    send_many(&place, count);
    let program = "echo $MILLPOND_ID >> seen";
    let mut workers = [(); 2].map(|()| Worker::start(&place, "--drain --concurrency 4", program));
    for worker in &mut workers {
        assert!(worker.ended().success());
    }
    let seen = lines(&place, "seen");
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (count, count));
    assert_eq!((place.queue()["done"].as_u64(), &place.queue()["dead"]), (Some(count as u64), &0.into()));
}

/// BR-009: a job that killed its worker was tried again for ever, with each new worker.
#[test]
fn br_009_a_poison_job_that_kills_its_worker_is_dead_after_its_attempts() {
    let place = with_queue("--attempts-max 2 --lease 2s");
    let id = place.send("1");
    let mut deaths = 0;
    while !Worker::start(&place, "--drain", "kill -9 $PPID").ended().success() {
        deaths += 1;
        assert!(deaths <= 2, "a third worker died of it");
    }
    assert_eq!(deaths, 2);
    let dead = message(&place, &id);
    assert_eq!((&dead["state"], &dead["reason"]), (&"dead".into(), &"lease-exhausted".into()));
    assert_eq!(dead["attempt"], 2);
}

/// BR-052: the neighbours that a worker had fetched with such a job were charged for its deaths, and died too.
#[test]
fn br_052_the_neighbours_of_a_poison_job_are_charged_for_nothing() {
    let place = with_queue("--attempts-max 2 --lease 2s");
    let mut ids: Vec<String> = (0..4).map(|_| place.send("\"good\"")).collect();
    let poison = place.send("\"poison\"");
    ids.extend((0..5).map(|_| place.send("\"good\"")));
    let program =
        "case $(cat) in *poison*) kill -9 $PPID;; *) sleep 0.3; echo $MILLPOND_ATTEMPT >> seen;; esac";
    let mut deaths = 0;
    while !Worker::start(&place, "--drain --concurrency 10", program).ended().success() {
        deaths += 1;
        assert!(deaths <= 6, "it was not singled out");
    }
    for id in &ids {
        let good = message(&place, id);
        assert_eq!((&good["state"], &good["attempt"]), (&"done".into(), &1.into()), "{good}");
    }
    assert!(lines(&place, "seen").iter().all(|attempt| attempt == "1"));
    let dead = message(&place, &poison);
    assert_eq!((&dead["state"], &dead["reason"]), (&"dead".into(), &"lease-exhausted".into()));
    assert_eq!(place.queue()["dead"], 1);
}

/// BR-054: a delay of another type was ignored without a word, and the job ran at once.
#[test]
fn br_054_a_delay_that_is_no_duration_is_refused() {
    let place = Place::with_queue();
    let wrong = [
        "",
        " ",
        "60000",
        "-1",
        "-1s",
        "1.5",
        "1.5s",
        "null",
        "NaN",
        "inf",
        "1e308",
        "1e3s",
        "60 s",
        "s",
        "60x",
        "0x10s",
        "4294967296",
        "18446744073709551616ms",
        "999999d",
        "\u{661}s",
    ];
    for text in wrong {
        let mut command = place.command("queue send mail 1");
        let output = command.arg(format!("--delay={text}")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{text:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
    assert_eq!(place.queue()["sent"], 0, "none became a delay of zero");
    for text in ["60s", "60000ms", "1m"] {
        let sent = place.json(&format!("queue send mail 1 --delay {text}"));
        let waiting = message(&place, sent["messages"][0]["id"].as_str().unwrap());
        assert_eq!(waiting["state"], "scheduled", "{text}");
    }
}

/// BR-106: a task that ended while its worker was shutting down was not acknowledged, and ran again.
#[test]
fn br_106_what_ends_during_a_stop_is_acknowledged() {
    let place = with_queue("--attempts-max 3 --backoff 0s");
    let id = place.send("1");
    let program = "echo run >> seen; while [ ! -e go ]; do sleep 0.02; done; echo end >> seen";
    let mut worker = Worker::start(&place, "", program);
    eventually("the program runs", || line_count(&place, "seen") == 1);
    worker.signal(Signal::TERM);
    eventually("the worker has heard it", || {
        lines(&place, "said").iter().any(|line| line.contains("stopping"))
    });
    place.write("go", "");
    assert!(worker.ended().success());
    let done = message(&place, &id);
    assert_eq!((&done["state"], &done["attempt"], &done["releases"]), (&"done".into(), &1.into(), &0.into()));
    assert_eq!(place.json("work mail --exec 'echo again >> seen' --drain")["done"], 0);
    assert_eq!(lines(&place, "seen"), ["run", "end"]);
}

/// BR-108: a stop that was meant to be kind ended jobs for good which a kill would have brought back.
#[test]
fn br_108_what_a_stop_interrupts_runs_on_another_worker() {
    let place = with_queue("--attempts-max 1");
    let id = place.send("1");
    let mut worker = Worker::start(&place, "--shutdown-timeout 100ms", "echo run >> seen; exec sleep 1000");
    eventually("the program runs", || line_count(&place, "seen") == 1);
    worker.signal(Signal::TERM);
    worker.ended();
    let waiting = message(&place, &id);
    // Due at once: in the log already, if the worker that stopped had time to move it.
    assert!(["ready", "scheduled"].iter().any(|state| waiting["state"] == *state), "{waiting}");
    assert_eq!(waiting["attempt"], 0, "{waiting}");
    assert_eq!(place.json("work mail --exec true --drain")["done"], 1);
    assert_eq!(message(&place, &id)["attempt"], 1);
}

/// BR-114: bytes that are no UTF-8 in an error broke the recording of the failure.
#[test]
fn br_114_an_error_that_is_no_utf8_is_recorded_all_the_same() {
    let place = Place::with_queue();
    let id = place.send("1");
    let summary = place.json(r#"work mail --drain --exec 'printf "\222\351 no route" >&2; exit 1'"#);
    assert_eq!(summary["failed"], 2);
    let dead = message(&place, &id);
    assert_eq!((&dead["state"], &dead["error"]), (&"dead".into(), &"\u{fffd}\u{fffd} no route".into()));
    assert!(place.ok("dead-letter list -o table").contains("no route"));
}

/// BR-116 and BR-111, for programs: what they say is cut, and what no text may hold is replaced.
#[test]
fn br_116_a_program_that_says_too_much_has_failed_like_any_other() {
    let place = Place::with_queue();
    for (program, end) in [
        ("head -c 65536 /dev/zero | tr '\\0' x >&2; exit 1", "x"),
        ("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 65", "x"),
        ("head -c 1000 /dev/zero >&2; exit 1", "\u{fffd}"),
        ("i=0; while [ $i -lt 3000 ]; do echo '🦆 no route'; i=$((i+1)); done >&2; exit 1", "no route"),
    ] {
        let id = place.send("1");
        let mut worker = Worker::start(&place, "--drain", program);
        assert!(worker.ended().success());
        let dead = message(&place, &id);
        let error = dead["error"].as_str().unwrap();
        assert_eq!(dead["state"], "dead");
        assert!(error.ends_with(end) && error.chars().count() <= 2_000, "{program}: {error}");
        assert!(!error.contains('\0'));
    }
}

/// BR-118: a number of 64 bits was shown rounded to what a double holds.
#[test]
fn br_118_a_number_is_shown_as_it_was_sent() {
    let place = with_queue("--attempts-max 1 --backoff 0s");
    for number in [
        "1234567890123456789",
        "9007199254740993",
        "-9223372036854775808",
        "18446744073709551615",
        "340282366920938463463374607431768211456",
        "1.0",
        "1.10",
        "-0.0",
        "1e400",
    ] {
        let body = format!("{{\"id\":{number}}}");
        let one = place.send(&body);
        let many = place.with_input("queue send mail - --ndjson", format!("{body}\n").as_bytes());
        assert!(many.status.success(), "{}", stderr(&many));
        let shows = |line: &str| {
            let shown = place.ok(line);
            assert!(shown.contains(number), "{number} in {line}:\n{shown}");
        };
        for form in ["table", "json", "ndjson"] {
            shows(&format!("message get {one} -o {form}"));
        }
        for form in ["json", "ndjson"] {
            shows(&format!("message list --bodies -n 1 -o {form}"));
        }
        place.write("got", "");
        assert_eq!(place.json("work mail --exec 'cat >> got; exit 65' --drain")["refused"], 2);
        let got = fs::read_to_string(place.path().join("got")).unwrap();
        assert_eq!(got, format!("{body}{body}"), "as its program reads it");
        for form in ["json", "ndjson"] {
            shows(&format!("dead-letter list --bodies -n 1 -o {form}"));
            shows(&format!("dead-letter get {one} -o {form}"));
        }
        assert_eq!(place.json("dead-letter redrive --all --yes")["done"], 2);
        place.write("got", "");
        assert_eq!(place.json("work mail --exec 'cat >> got' --drain")["done"], 2);
        assert_eq!(fs::read_to_string(place.path().join("got")).unwrap(), format!("{body}{body}"));
    }
}

/// BR-130: a due time that is none was stored, and its job waited for ever.
#[test]
fn br_130_a_time_that_is_none_is_refused() {
    let place = Place::with_queue();
    let wrong = [
        "",
        " ",
        "NaN",
        "1e308",
        "0",
        "1700000000",
        "0000-00-00",
        "0000-00-00T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "+10000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "2027-02-30T00:00:00Z",
        "2027-13-01T00:00:00Z",
        "2027-01-01T25:00:00Z",
        "2027-01-01T00:00:00",
        "+",
        "-",
        "+4000d",
        "+1e3s",
        "tomorrow",
    ];
    for text in wrong {
        let mut command = place.command("queue send mail 1");
        let output = command.arg(format!("--at={text}")).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{text:?}: {}{}", text_of(&output), stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
    assert_eq!(place.queue()["sent"], 0, "no row has a time that cannot be read");
}

/// BR-159: the deadline of a stop did not hold for a job that could not be interrupted.
#[test]
fn br_159_a_program_that_ignores_every_signal_holds_no_stop_up() {
    let place = with_queue("--attempts-max 1");
    let id = place.send("1");
    let program = "trap '' TERM INT HUP; echo $$ >> seen; while :; do sleep 0.05; done";
    let mut worker = Worker::start(&place, "--shutdown-timeout 60s", program);
    eventually("the program runs", || line_count(&place, "seen") == 1);
    worker.signal(Signal::TERM);
    eventually("the worker has heard it", || {
        lines(&place, "said").iter().any(|line| line.contains("stopping"))
    });
    let hurried = Instant::now();
    worker.signal(Signal::TERM);
    worker.ended();
    assert!(hurried.elapsed() < Duration::from_secs(10), "it took {:?}", hurried.elapsed());
    let pid = Pid::from_raw(lines(&place, "seen")[0].parse().unwrap()).unwrap();
    rustix::process::test_kill_process(pid).unwrap_err();
    assert_eq!(message(&place, &id)["attempt"], 0, "its only attempt is not spent");
    assert_eq!(place.json("work mail --exec true --drain")["done"], 1);
}

/// BR-160: half of a surrogate pair was taken, and failed far from who had sent it.
#[test]
fn br_160_half_a_surrogate_pair_in_a_file_is_refused_with_its_line() {
    let place = Place::with_queue();
    let text = b"\"\\ud83e\\udd86\"\n\"\\\\u0000\"\n\"\\ud800\"\n";
    let output = place.with_input("queue send mail - --ndjson", text);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.starts_with("error: line 3: ") && said.contains("surrogate"), "{said}");
    assert_eq!(place.queue()["sent"], 0, "all of a batch or none");
    let output = place.run(r#"queue send mail '"\ud800"'"#);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let id = place.send(r#""\\u0000""#);
    assert!(
        place.ok(&format!("message get {id} --json")).contains(r#""\\u0000""#),
        "six characters stay six"
    );
}

/// BR-162: numbers beyond 2⁵³ came back as others. What is tailed, and what goes out as lines and comes in again, are the
/// bytes that were sent.
#[test]
fn br_162_numbers_that_leave_as_lines_come_back_as_they_were() {
    let place = with_queue("--attempts-max 1");
    let body = r#"{"a":9007199254740993,"b":-9223372036854775808,"c":18446744073709551615,"d":1.0,"e":1e400,"f":-0.0}"#;
    let mut tail = place.command("queue tail mail --bodies -n 1 -o ndjson").spawn().unwrap();
    // It shows what arrives after it began; nothing says when that is, so something arrives until it has ended.
    eventually("a message is tailed", || {
        place.send(body);
        tail.try_wait().unwrap().is_some()
    });
    let shown = text_of(&tail.wait_with_output().unwrap());
    assert!(shown.contains(body), "{shown}");

    let lines = place.ok("store export --queue mail");
    let other = with_queue("--attempts-max 1");
    let again = other.with_input("queue send mail - --ndjson --envelopes", lines.as_bytes());
    assert!(again.status.success(), "{}", stderr(&again));
    let newest = other.ok("message list --bodies -n 1 -o ndjson");
    assert!(newest.contains(body), "{newest}");
    assert_eq!(other.queue()["ready"], place.queue()["ready"]);
}

/// BR-164: a password with `#` in it could not be used, and the error printed it.
#[test]
fn br_164_a_raw_password_in_a_url_is_named_and_never_printed() {
    let place = Place::empty();
    let words = [
        "queue list",
        "queue add mail",
        "queue send mail 1",
        "work mail --exec true",
        "health",
        "migrate up",
    ];
    for scheme in ["postgres", "postgresql", "mysql", "mariadb"] {
        for (raw, code) in [('#', "%23"), ('@', "%40"), ('/', "%2F"), ('%', "%25"), ('?', "%3F")] {
            let url = |middle: &str| format!("{scheme}://ada:tulip{middle}rose@db:5432/app");
            for line in words {
                let mut command = place.command(line);
                let output = command.env("DATABASE_URL", url(&raw.to_string())).output().unwrap();
                let said = text_of(&output) + &stderr(&output);
                assert_eq!(output.status.code(), Some(2), "{line}: {said}");
                let named =
                    format!("the password in the URL has a `{raw}` as it stands: write it as `{code}`");
                assert!(said.contains(&named), "{line}: {said}");
                assert!(!said.contains("tulip") && !said.contains("rose"), "{line}: {said}");
            }
            let mut encoded = place.command("queue list");
            let output = encoded.env("MILLPOND_STORE", url(code)).output().unwrap();
            let said = stderr(&output);
            assert!(said.contains("(store-unreachable)"), "read, and not there: {said}");
            assert!(!said.contains("tulip") && !said.contains("rose"), "{said}");
            let mut config = place.command("config --json");
            let shown = config.env("DATABASE_URL", url(&raw.to_string())).output().unwrap();
            let shown = text_of(&shown) + &stderr(&shown);
            assert!(!shown.contains("tulip") && !shown.contains("rose"), "{shown}");
        }
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

/// BR-165: a number without a unit was taken for another unit, and what had been acknowledged came again.
#[test]
fn br_165_a_duration_has_a_unit_and_is_read_back_as_it_was_given() {
    let place = Place::empty();
    let wrong =
        ["20", "20000", "20000000000", "0.5s", "1ms", "999us", "0s", "1s", "1999ms", "20000000000s", "s", ""];
    let other = Place::with_queue();
    for text in wrong {
        for (place, line) in
            [(&place, "queue add mail"), (&other, "queue add mail"), (&other, "work mail --exec true")]
        {
            let output = place.command(line).arg(format!("--lease={text}")).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{line} {text}: {}", stderr(&output));
        }
    }
    assert_eq!(other.queue()["settings"]["leaseMs"], 30_000);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    for (text, ms) in
        [("20s", 20_000), ("20000ms", 20_000), ("2s", 2_000), ("2500ms", 2_500), ("1h30m", 5_400_000)]
    {
        let added =
            place.json(&format!("queue add mail --lease {text} --timeout {text} --dedup-window {text}"));
        for setting in ["leaseMs", "timeoutMs", "dedupWindowMs"] {
            assert_eq!(added["settings"][setting], ms, "{text}: {added}");
            assert_eq!(place.queue()["settings"][setting], ms, "{text}: {}", place.queue());
        }
        place.write("millpond.toml", &format!("[worker]\nlease = \"{text}\"\nsnooze = \"{text}\"\n"));
        let shown = place.json("config");
        for key in ["worker.lease", "worker.snooze"] {
            let item = shown["items"].as_array().unwrap().iter().find(|item| item["key"] == key).unwrap();
            assert_eq!(item["value"], text, "{item}");
        }
    }
    for (value, line) in [("20", 2), ("\"20\"", 2), ("20000000000", 2), ("\"1ms\"", 2), ("0.5", 2)] {
        place.write("millpond.toml", &format!("[worker]\nlease = {value}\n"));
        let output = place.run("queue list");
        assert_eq!(output.status.code(), Some(2), "{value}");
        assert!(
            stderr(&output).contains(&format!("millpond.toml:{line}: worker.lease: ")),
            "{}",
            stderr(&output)
        );
    }
}

/// BR-185: a worker that was stopped for longer than its lease finished, when it went on, what another had done, and
/// gave back a slot that was not its own.
#[test]
fn br_185_a_worker_that_was_stopped_past_its_lease_finishes_nothing() {
    let place = with_queue("--attempts-max 5 --lease 2s");
    let id = place.send("1");
    let program = "echo $MILLPOND_ATTEMPT >> seen; while [ ! -e go-$MILLPOND_ATTEMPT ]; do sleep 0.02; done";
    let stale = Worker::start(&place, "--concurrency 1", program);
    eventually("the first one runs it", || lines(&place, "seen") == ["1"]);
    stale.signal(Signal::STOP);
    let fresh = Worker::start(&place, "--concurrency 1", program);
    eventually("the second one runs it", || lines(&place, "seen") == ["1", "2"]);
    // The first one goes on, its program ends well, and its word counts for nothing: the second one still runs.
    place.write("go-1", "");
    stale.signal(Signal::CONT);
    stale.stop();
    let running = message(&place, &id);
    assert_eq!((&running["state"], &running["attempt"]), (&"leased".into(), &2.into()), "{running}");
    let counts = place.queue();
    assert_eq!((&counts["leased"], &counts["done"]), (&1.into(), &0.into()));
    place.write("go-2", "");
    eventually("it is done", || place.queue()["done"] == 1);
    fresh.stop();
    assert_eq!(lines(&place, "seen"), ["1", "2"]);
    assert_eq!(place.queue()["done"], 1);
}

/// BR-189: the work was done, what was to be recorded of it was refused, and so it was done hundreds of times.
#[test]
fn br_189_what_a_program_says_never_undoes_that_it_succeeded() {
    let place = with_queue("--attempts-max 3 --backoff 0s");
    let id = place.send("1");
    let program = "echo run >> seen; printf '🦆\\000\\377' >&2; head -c 3000000 /dev/zero >&2; exit 0";
    let mut worker = Worker::start(&place, "--drain", program);
    assert!(worker.ended().success());
    assert_eq!(message(&place, &id)["state"], "done");
    assert_eq!(place.json("work mail --exec 'echo again >> seen' --drain")["done"], 0);
    assert_eq!(lines(&place, "seen"), ["run"]);
}

/// BR-191: a signal at a bad moment lost one job in a million. In full 50,000 jobs; a stop after every few of them.
#[test]
fn br_191_stops_at_any_moment_lose_and_repeat_nothing() {
    let (count, patience) = scaled(240, 50_000);
    let place = with_queue("--attempts-max 1");
    send_many(&place, count);
    let began = Instant::now();
    let mut stops = 0;
    while line_count(&place, "seen") < count {
        assert!(began.elapsed() < patience, "{stops} stops, {} done", line_count(&place, "seen"));
        let before = line_count(&place, "seen");
        let worker = Worker::start(&place, "--concurrency 3", "echo $MILLPOND_ID >> seen");
        // Each time at another moment of its life, the first of them before it has done anything.
        let more = stops % 7 * 7;
        eventually_within(patience, "the work goes on", || {
            let after = line_count(&place, "seen");
            after == count || before + more <= after
        });
        worker.stop();
        stops += 1;
    }
    place.json("work mail --exec 'echo $MILLPOND_ID >> seen' --drain");
    assert!(5 <= stops, "{stops} stops");
    let seen = lines(&place, "seen");
    assert_eq!(
        (seen.len(), seen.iter().collect::<BTreeSet<_>>().len()),
        (count, count),
        "after {stops} stops"
    );
    let counts = place.queue();
    assert_eq!((counts["done"].as_u64(), &counts["dead"]), (Some(count as u64), &0.into()), "{counts}");
}

/// BR-199: workers that were killed while the database could not be written left jobs that nobody owned.
#[test]
fn br_199_workers_killed_while_nobody_can_write_leave_no_message_behind() {
    let place = with_queue("--attempts-max 5 --lease 2s");
    send_many(&place, 60);
    let program = "echo $MILLPOND_ID >> seen; sleep 0.05";
    let workers = [(); 2].map(|()| Worker::start(&place, "--concurrency 4", program));
    eventually("both are in the middle of it", || 20 <= line_count(&place, "seen"));
    let store = Connection::open(place.path().join("millpond.db")).unwrap();
    store.busy_timeout(PATIENCE).unwrap();
    store.execute_batch("begin immediate").unwrap();
    // Now claims and settlements are under way that will never be answered.
    workers.into_iter().for_each(Worker::kill);
    store.execute_batch("rollback").unwrap();
    drop(store);
    let mut worker = Worker::start(&place, "--drain", program);
    assert!(worker.ended().success());
    let counts = place.queue();
    assert_eq!((&counts["done"], &counts["dead"], &counts["leased"]), (&60.into(), &0.into(), &0.into()));
    assert_eq!(lines(&place, "seen").iter().collect::<BTreeSet<_>>().len(), 60);
}

/// BR-213: a producer kept an object for each job that it had sent. In full two million.
#[test]
#[cfg(target_os = "linux")]
fn br_213_a_sender_does_not_grow_with_what_it_has_sent() {
    let (count, patience) = scaled(60_000, 2_000_000);
    let place = Place::with_queue();
    let mut sender = place.command("queue send mail - --ndjson").stdin(Stdio::piped()).spawn().unwrap();
    let mut input = BufWriter::new(sender.stdin.take().unwrap());
    let status = format!("/proc/{}/status", sender.id());
    let resident_kb = || -> u64 {
        let text = fs::read_to_string(&status).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let began = Instant::now();
    let mut warm = 0;
    for number in 0..count {
        if number == count / 3 {
            warm = resident_kb();
        }
        writeln!(
            input,
            "{{\"user\":{number},\"text\":\"some hundred bytes of a body that is like many others\"}}"
        )
        .unwrap();
        assert!(began.elapsed() < patience);
    }
    let after = resident_kb();
    drop(input);
    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(place.queue()["sent"].as_u64(), Some(count as u64));
    assert!(after < warm + 10 * 1024, "from {warm} kB to {after} kB");
}

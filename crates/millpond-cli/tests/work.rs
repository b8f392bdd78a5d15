//! `millpond work`: what a program is told, how it is ended, and what becomes of its message.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::{Place, stderr};
use millpond::sqlite::rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::{Pid, Signal, kill_process};

/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(30);

/// Lines of a pipe as they come, and its end.
struct Lines(Receiver<String>);

impl Lines {
    fn of(open: impl FnOnce() -> Box<dyn Read> + Send + 'static) -> Self {
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(open()).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The next line that says so.
    #[track_caller]
    fn until(&self, said: &str) -> String {
        let until = Instant::now() + LIMIT;
        let mut seen = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.0.recv_timeout(left) {
                Ok(line) if line.contains(said) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no `{said}` ({error}): {seen:#?}"),
            }
        }
    }

    /// Waits for the end: whoever held the other side is gone.
    #[track_caller]
    fn ended(&self) -> Vec<String> {
        let until = Instant::now() + LIMIT;
        let mut seen = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.0.recv_timeout(left) {
                Ok(line) => seen.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return seen,
                Err(_) => panic!("it is still held open: {seen:#?}"),
            }
        }
    }
}

/// A named pipe that programs hold open: it ends with the last of them.
fn held(place: &Place) -> Lines {
    let path = path(place, "held");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    Lines::of(move || Box::new(File::open(path).unwrap()))
}

/// A named pipe at which a program waits until a test lets it pass.
fn gate(place: &Place) -> PathBuf {
    let path = path(place, "gate");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

fn path(place: &Place, name: &str) -> PathBuf {
    place.path().join(name)
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(path(place, name)).unwrap()
}

/// A worker that runs.
struct Live {
    process: Child,
    said: Lines,
}

impl Live {
    fn start(place: &Place, line: &str, exec: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = place.command(line);
        command.args(["--exec", exec]).envs(settings.iter().copied());
        let mut process = command.spawn().unwrap();
        let stderr = process.stderr.take().unwrap();
        Self { process, said: Lines::of(move || Box::new(stderr)) }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Sends SIGTERM, and waits until it was heard.
    #[track_caller]
    fn terminate(&self) {
        self.signal(Signal::TERM);
        self.said.until("stopping");
    }

    /// Its end, and what it printed.
    fn end(mut self) -> (ExitStatus, String) {
        let mut stdout = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        (self.process.wait().unwrap(), stdout)
    }
}

/// A test that fails leaves no worker behind.
impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn database(place: &Place) -> Connection {
    let store = Connection::open(path(place, "millpond.db")).unwrap();
    store.busy_timeout(LIMIT).unwrap();
    store
}

/// What the run log keeps: kind, reason and attempt.
fn events(place: &Place) -> Vec<(String, String, u32)> {
    let store = database(place);
    let mut statement =
        store.prepare("select kind, reason, attempt from millpond_event order by id").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// How many of them are of this kind, for this reason, and counted this attempt.
fn count(events: &[(String, String, u32)], kind: &str, reason: &str, attempt: u32) -> usize {
    let is = |event: &&(String, String, u32)| (&*event.0, &*event.1, event.2) == (kind, reason, attempt);
    events.iter().filter(is).count()
}

/// A program that hears no SIGTERM, with a child of its group and one that left it. All hold the pipe.
const STUBBORN: &str =
    "exec 9>held; trap '' TERM; sleep 1000 & setsid sleep 1000 & echo running >&9; wait; wait; wait";

const SOON: (&str, &str) = ("MILLPOND_WORKER__CANCEL_GRACE", "50ms");

#[test]
fn at_its_timeout_a_program_ends_with_all_that_it_started_and_the_attempt_counts() {
    let place = Place::with_queue();
    let held = held(&place);
    let id = place.send("1");
    let mut command = place.command("work mail --timeout 200ms --drain --json");
    let exec = format!("[ $MILLPOND_ATTEMPT = 1 ] && exec sleep 1000; {STUBBORN}");
    let output = command.args(["--exec", &exec]).env(SOON.0, SOON.1).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    held.ended();
    let message = place.json(&format!("message get {id}"));
    assert_eq!((&message["state"], &message["reason"]), (&"dead".into(), &"exhausted".into()));
    assert_eq!(message["error"], "timeout; ended by signal 9");
    let events = events(&place);
    assert_eq!(count(&events, "RETRY", "timeout", 1), 1, "{events:?}");
    assert_eq!(count(&events, "DLQ", "exhausted", 2), 1, "{events:?}");
}

#[test]
fn the_timeout_of_the_queue_ends_a_run_too() {
    let place = Place::with_queue();
    place.ok("queue add mail --timeout 200ms");
    let id = place.send("1");
    let summary = place.json("work mail --exec 'echo said >&2; exec sleep 1000' --drain");
    assert_eq!(summary["failed"], 2);
    assert_eq!(place.json(&format!("message get {id}"))["error"], "timeout; said");
    place.refused(
        "work mail --exec true --timeout 0s",
        2,
        "error: --timeout 0s would end every run before it begins (invalid-parameter)",
    );
}

/// What a program left in its group ends with it. One that left the group may live on: it holds stderr open, and
/// that holds up nobody.
#[test]
fn a_run_is_over_when_its_program_is() {
    let place = Place::with_queue();
    let (held, gate) = (held(&place), gate(&place));
    place.send("1");
    let exec = "setsid sh -c 'touch away; read x < gate' & exec 9>held; sleep 1000 &
                while ! [ -e away ]; do :; done";
    let summary = Live::start(&place, "work mail --drain --json", exec, &[]).end().1;
    assert!(summary.contains("\"done\": 1"), "{summary}");
    held.ended();
    let mut gate = File::from(
        rustix::fs::open(gate, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())
            .expect("who left the group waits at the gate"),
    );
    gate.write_all(b"pass\n").unwrap();
}

#[test]
fn the_programs_of_a_worker_that_is_killed_end_too() {
    let place = Place::with_queue();
    let held = held(&place);
    place.send("1");
    let worker = Live::start(&place, "work mail", STUBBORN, &[SOON]);
    held.until("running");
    worker.signal(Signal::KILL);
    held.ended();
    assert_eq!(worker.end().0.signal(), Some(9));
}

#[test]
fn a_guard_that_was_killed_is_replaced_and_knows_every_program() {
    let place = Place::with_queue();
    let (held, gate) = (held(&place), gate(&place));
    place.send("1");
    let exec = format!("[ $MILLPOND_KIND = first ] && {{ read x < gate; exit 0; }}; {STUBBORN}");
    let worker = Live::start(&place, "work mail --concurrency 2", &exec, &[SOON]);
    held.until("running");
    kill_process(guard_of(worker.pid()), Signal::KILL).unwrap();
    place.ok("queue send mail 2 --kind first");
    fs::write(gate, "pass\n").unwrap();
    worker.said.until("done");
    worker.signal(Signal::KILL);
    held.ended();
}

/// The worker may be killed between the start of a program and the word of it: the guard finds the program by the mark
/// that was announced, wherever it is.
#[test]
fn a_program_of_which_the_guard_has_not_heard_is_found_by_its_mark() {
    let place = Place::empty();
    let held = held(&place);
    let mut guard = place.command("work-guard --grace-ms 20").stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = guard.stdin.take().unwrap();
    // Two test runs on one host must not end each other's programs.
    let [live, over] = ["live", "over"].map(|name| format!("{}-{name}", std::process::id()));
    pipe.write_all(format!("? {live}\n? {over}\n- {over}\n").as_bytes()).unwrap();
    let exec = |mark: &str, line: &str| {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", line]).current_dir(place.path()).env("MILLPOND_RUN", mark);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut other = exec(&over, "exec sleep 1000");
    let mut program = exec(&live, "exec 9>held; trap '' TERM; setsid sleep 1000 & echo running >&9; wait");
    held.until("running");
    drop(pipe);
    held.ended();
    assert_eq!(guard.wait().unwrap().code(), Some(0));
    program.wait().unwrap();
    assert!(other.try_wait().unwrap().is_none(), "its run was over");
    other.kill().unwrap();
    other.wait().unwrap();
}

/// The guard among the children of a worker.
fn guard_of(worker: Pid) -> Pid {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_guard = |pid: &i32| {
        let read = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        read("cmdline").contains("work-guard")
            && read("status").contains(&format!("PPid:\t{}\n", worker.as_raw_nonzero()))
    };
    Pid::from_raw(pids.find(is_guard).expect("the worker has a guard")).unwrap()
}

#[test]
fn a_first_signal_lets_programs_end() {
    let place = Place::with_queue();
    let (held, gate) = (held(&place), gate(&place));
    place.send("1");
    let exec = "exec 9>held; echo running >&9; read x < gate";
    let worker = Live::start(&place, "work mail --json", exec, &[]);
    held.until("running");
    worker.terminate();
    place.send("2");
    fs::write(gate, "pass\n").unwrap();
    let (status, summary) = worker.end();
    assert_eq!(status.code(), Some(0));
    assert!(summary.contains("\"done\": 1"), "{summary}");
    assert_eq!(place.queue()["ready"], 1, "nothing more was begun");
}

/// A program that hears no SIGTERM for a minute, a patience of 10 s, and a second signal.
#[test]
fn a_second_signal_ends_programs_and_gives_their_attempts_back() {
    let place = Place::with_queue();
    let held = held(&place);
    let id = place.send("1");
    let exec = "exec 9>held; trap '' TERM; echo running >&9; sleep 60; sleep 60";
    let worker = Live::start(&place, "work mail --shutdown-timeout 10s --json", exec, &[SOON]);
    held.until("running");
    let begun = Instant::now();
    worker.terminate();
    worker.terminate();
    let (status, summary) = worker.end();
    assert!(begun.elapsed() < Duration::from_secs(10), "it hurried");
    assert_eq!(status.code(), Some(0), "everything was given back");
    assert!(summary.contains("\"givenBack\": 1"), "{summary}");
    held.ended();
    let events = events(&place);
    assert_eq!(count(&events, "RECOVER", "shutdown", 1), 1, "{events:?}");
    let message = place.json(&format!("message get {id}"));
    assert_eq!((&message["attempt"], &message["releases"]), (&0.into(), &1.into()));
    assert_eq!(place.json("work mail --exec true --drain")["done"], 1, "it is due at once");
}

#[test]
fn a_third_signal_waits_for_nothing_and_the_message_comes_back_with_the_lease() {
    let place = Place::with_queue();
    place.ok("queue add mail --lease 2s");
    let held = held(&place);
    place.send("1");
    let patient = ("MILLPOND_WORKER__CANCEL_GRACE", "1h");
    let worker = Live::start(&place, "work mail", STUBBORN, &[patient]);
    held.until("running");
    worker.terminate();
    worker.terminate();
    worker.signal(Signal::TERM);
    let last = worker.said.ended().join("\n");
    assert!(
        last.contains("error: the worker was told not to wait: its programs are killed (shutting-down)"),
        "{last}"
    );
    assert_eq!(worker.end().0.code(), Some(130));
    held.ended();
    assert_eq!(place.json("work mail --exec true --drain")["done"], 1);
}

/// The worker is suspended until another one has its message.
#[test]
fn a_program_whose_lease_was_lost_is_stopped_and_its_result_ignored() {
    let place = Place::with_queue();
    place.ok("queue add mail --lease 2s");
    let held = held(&place);
    let id = place.send("1");
    let exec = "exec 9>held; echo running >&9; exec sleep 1000";
    let worker = Live::start(&place, "work mail --json", exec, &[]);
    held.until("running");
    worker.signal(Signal::STOP);
    assert_eq!(place.json("work mail --exec true --drain")["done"], 1);
    worker.signal(Signal::CONT);
    assert!(worker.said.until("lease lost").contains("the lease was lost; ended by signal 15"));
    held.ended();
    worker.terminate();
    let (status, summary) = worker.end();
    assert_eq!(status.code(), Some(0));
    assert!(summary.contains("\"lost\": 1") && summary.contains("\"failed\": 0"), "{summary}");
    assert_eq!(place.json(&format!("message get {id}"))["state"], "done");
}

#[test]
fn a_program_is_told_about_its_message() {
    let place = Place::with_queue();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let line = format!(
        "queue send mail hello -o id --kind mail.x --key 'a=b c' --header ld-preload=/tmp/x.so \
         --header path=/nowhere --header traceparent={trace}"
    );
    let id = place.ok(&line);
    let mut command = place.command("work mail --exec 'env -0 > told; exec true' --drain --json");
    // What an outer worker told is not true here.
    command.env("MILLPOND_HEADER_OTHER", "x").env("MILLPOND_RUN", "x");
    assert!(command.output().unwrap().status.success());
    let told = read(&place, "told");
    let value = |name: &str| {
        let mut found =
            told.split('\0').filter_map(|entry| entry.split_once('=')).filter(|entry| entry.0 == name);
        let value = found.next().map(|entry| entry.1);
        assert!(found.next().is_none(), "{name} is told twice");
        value
    };
    for (name, expected) in [
        ("ID", id.trim()),
        ("QUEUE", "mail"),
        ("KIND", "mail.x"),
        ("KEY", "a=b c"),
        ("ATTEMPT", "1"),
        ("ATTEMPTS_MAX", "2"),
        ("DELIVERY", "1"),
        ("CONTENT_TYPE", "text/plain; charset=utf-8"),
        ("TRACEPARENT", trace),
        ("HEADER_LD_PRELOAD", "/tmp/x.so"),
        ("HEADER_PATH", "/nowhere"),
    ] {
        assert_eq!(value(&format!("MILLPOND_{name}")), Some(expected), "{name}");
    }
    assert!(value("MILLPOND_SENT_AT").unwrap().ends_with('Z'), "{told}");
    assert_eq!((value("LD_PRELOAD"), value("MILLPOND_HEADER_OTHER")), (None, None));
    assert_ne!(value("PATH"), Some("/nowhere"));
}

/// Rows that were written by hand hold what the library would refuse.
#[test]
fn headers_that_no_environment_can_hold_fail_the_attempt_and_say_so() {
    let place = Place::with_queue();
    for (headers, error) in [
        (
            r#"{"LD_PRELOAD=/tmp/x.so\nA": "1"}"#,
            "header `LD_PRELOAD=/tmp/x.so\\nA` cannot be the name of a variable",
        ),
        (r#"{"x": "a\u0000b"}"#, "`MILLPOND_HEADER_X` has a NUL, which no variable can hold"),
        (&format!("{{\"x\": \"{}\"}}", "y".repeat(500_000)), "what is said of it has more than 65536 bytes"),
    ] {
        let id = place.send("1");
        database(&place).execute("update millpond_log set headers = ?1", [headers]).unwrap();
        assert_eq!(place.json("work mail --exec 'touch ran' --drain")["failed"], 2);
        let found = place.json(&format!("message get {id}"));
        assert_eq!(found["error"], format!("the program cannot be told of the message: {error}"));
    }
    assert!(!path(&place, "ran").exists());
    // A value with lines is one value.
    place.send("1");
    database(&place)
        .execute("update millpond_log set headers = ?1", [r#"{"x": "a\nLD_PRELOAD=b"}"#])
        .unwrap();
    let exec = "work mail --exec 'printf %s \"$MILLPOND_HEADER_X\" > told; test -z \"$LD_PRELOAD\"' --drain";
    assert_eq!(place.json(exec)["done"], 1);
    assert_eq!(read(&place, "told"), "a\nLD_PRELOAD=b");
}

#[test]
fn a_program_may_be_named_with_its_arguments_instead_of_a_line_for_the_shell() {
    let place = Place::with_queue();
    place.write("args.sh", "for arg; do echo \"$arg\"; done > args");
    place.send("1");
    let mut command = place.command("work mail --drain --");
    assert!(command.args(["sh", "args.sh", "a b", "$HOME", "*", ""]).output().unwrap().status.success());
    assert_eq!(read(&place, "args"), "a b\n$HOME\n*\n\n");
    let id = place.send("1");
    let output = place.run("work mail --drain --json -- ./nope");
    let error = "cannot start `./nope`: No such file or directory (os error 2)";
    assert!(stderr(&output).contains(&format!("{error}: check the words after `--`")), "{}", stderr(&output));
    assert_eq!(place.json(&format!("message get {id}"))["error"], error);
    for line in ["work mail", "work mail --exec true -- true"] {
        assert_eq!(place.run(line).status.code(), Some(2), "{line}");
    }
}

/// What the worker needed at most is read from the program, while both live.
#[test]
fn a_flood_of_output_is_not_kept() {
    let place = Place::with_queue();
    place.send("1");
    let exec =
        "head -c 1000000000 /dev/zero; head -c 100000000 /dev/zero >&2; grep VmHWM /proc/$PPID/status > high";
    let output = run_exec(&place, exec);
    assert!(output.status.success());
    assert!(output.stderr.len() < 4_000_000, "{} bytes were passed on", output.stderr.len());
    let high = read(&place, "high");
    let kib: u64 = high.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 100 * 1024, "{high}");
}

#[track_caller]
fn run_exec(place: &Place, exec: &str) -> Output {
    place.command("work mail --drain --json").args(["--exec", exec]).output().unwrap()
}

#[test]
fn lines_of_programs_that_print_at_once_are_not_mixed() {
    let place = Place::with_queue();
    let letters = ["a", "b", "c", "d"];
    for letter in letters {
        place.send(letter);
    }
    // In pieces that are no lines.
    let exec = "read x <&0 || :; line=$x$x$x$x$x$x$x$x; for i in $(seq 300); do printf $line; printf $line; echo $x; done";
    let output = run_exec(&place, exec);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stderr(&output);
    for letter in letters {
        let line = letter.repeat(17);
        assert_eq!(text.lines().filter(|found| *found == line).count(), 300, "{letter}");
    }
}

#[test]
fn the_log_has_a_line_for_each_run_unless_less_is_asked_for() {
    let place = Place::with_queue();
    let id = place.send("1");
    let output = place.run("work mail --exec true --drain");
    let line = stderr(&output).lines().find(|line| line.contains(&id)).map(str::to_owned).unwrap();
    assert!(line.contains(" done id=") && line.contains("attempt=1 ms="), "{line}");
    place.send("2");
    let output = place.command("work mail --exec true --drain").env("MILLPOND_LOG", "warn").output().unwrap();
    assert!(!stderr(&output).contains(" INFO "), "{}", stderr(&output));
    let output =
        place.command("work mail --exec true --drain").env("MILLPOND_LOG", "a=b=c").output().unwrap();
    common::refused(&output, 2, "error: MILLPOND_LOG says nothing that can be logged (invalid-parameter)");
}

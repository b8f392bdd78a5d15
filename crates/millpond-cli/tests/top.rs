//! `millpond top`: frames for programs, and a screen that leaves the terminal as it was.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::process::{Child, ExitStatus};

use common::{Place, stderr};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";

#[test]
fn frames_are_documents() {
    let place = Place::with_queue();
    place.ok("queue add calm");
    place.send("1");
    let one = place.json("top");
    assert_eq!((&one["totals"]["ready"], &one["totals"]["queues"]), (&1.into(), &2.into()));
    assert_eq!(
        (&one["queues"][0]["name"], &one["queues"][0]["problems"][0]),
        (&"mail".into(), &"no-listener".into())
    );
    assert_eq!(one["queues"][0]["inPerSecond"], Value::Null);
    let two = place.ok("top -o ndjson --count 2 --every 100ms");
    let frames: Vec<Value> = two.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1]["queues"][0]["inPerSecond"], 0.0);
    let table = place.ok("top -o table --sort name");
    assert!(table.contains("\nQUEUE  READY  LEASED"), "{table}");
    let names: Vec<&str> = table.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.iter().position(|name| *name == "calm") < names.iter().position(|name| *name == "mail"));
    assert!(!table.contains('\u{1b}'), "no colour and no screen without a terminal");
    let output = place.run("top --sort sideways");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

/// A terminal with `top` in it.
struct Screen {
    child: Child,
    terminal: File,
    /// Our end of the other side, so that what was set can be read after the child has ended.
    side: File,
    seen: String,
}

impl Screen {
    fn open(place: &Place, line: &str) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let side = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        resize(&side, 100, 20);
        let mut command = place.command(line);
        let end = || side.try_clone().unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm").spawn().unwrap();
        Self { child, terminal: File::from(terminal), side, seen: String::new() }
    }

    /// Reads until the text is there, once more than it was.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let from = self.seen.len();
        while !self.seen[from..].contains(text) {
            let mut bytes = [0; 4096];
            match self.terminal.read(&mut bytes) {
                Ok(count) if 0 < count => self.seen.push_str(&String::from_utf8_lossy(&bytes[..count])),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => panic!("the terminal ended without {text:?}: {}", self.seen),
            }
        }
    }

    fn key(&mut self, key: &[u8]) {
        self.terminal.write_all(key).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        self.wait_for(LEAVE);
        self.child.wait().unwrap()
    }
}

fn resize(side: &File, columns: u16, rows: u16) {
    tcsetwinsize(side, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

#[test]
fn the_terminal_is_as_it_was_however_it_ends() {
    let place = Place::with_queue();
    type End = fn(&mut Screen);
    let ways: [(&str, End); 4] = [
        ("q", |screen| screen.key(b"q")),
        ("Ctrl-C", |screen| screen.key(b"\x03")),
        ("SIGTERM", |screen| screen.signal(Signal::TERM)),
        ("SIGINT", |screen| screen.signal(Signal::INT)),
    ];
    for (name, end) in ways {
        let mut screen = Screen::open(&place, "top --every 100ms");
        let before = format!("{:?}", tcgetattr(&screen.side).unwrap().local_modes);
        screen.wait_for("QUEUE");
        assert_ne!(format!("{:?}", tcgetattr(&screen.side).unwrap().local_modes), before, "{name}");
        end(&mut screen);
        assert!(screen.ended().success(), "{name}");
        assert_eq!(format!("{:?}", tcgetattr(&screen.side).unwrap().local_modes), before, "{name}");
        assert_eq!(screen.seen.matches(ENTER).count(), 1);
    }
}

#[test]
fn a_screen_goes_with_keys_and_with_its_size() {
    let place = Place::with_queue();
    let mut screen = Screen::open(&place, "top --every 1h");
    screen.wait_for("sort: problems");
    screen.key(b"s");
    screen.wait_for("sort: name");
    resize(&screen.side, 12, 20);
    screen.signal(Signal::WINCH);
    screen.wait_for("q quit  s s…");
    place.send("1");
    resize(&screen.side, 100, 20);
    screen.key(b"r");
    screen.wait_for("1 queue: 1 ready");
    screen.key(b"q");
    assert!(screen.ended().success());
}

#[test]
fn a_store_that_goes_away_gives_the_terminal_back() {
    let place = Place::with_queue();
    let mut screen = Screen::open(&place, "top --every 100ms --count 2");
    screen.wait_for("QUEUE");
    assert!(screen.ended().success());
    let mut screen = Screen::open(&place, "top --store sqlite://nowhere.db");
    screen.wait_for("there is no store at sqlite://nowhere.db");
    assert_eq!(screen.child.wait().unwrap().code(), Some(3));
    assert!(!screen.seen.contains(ENTER));
}

//! The binary on a terminal: what it asks, and how wide its tables are.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Stdio};

use common::Place;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A command on a terminal of its own.
struct OnTerminal {
    child: Child,
    screen: File,
    said: String,
}

impl OnTerminal {
    fn run(place: &Place, line: &str, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = place.command(line);
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        Self { child, screen: File::from(master), said: String::new() }
    }

    /// Reads until it has said this, and answers.
    fn answer(mut self, question: &str, answer: &str) -> Self {
        while !self.said.contains(question) {
            assert!(self.read(), "it ended without asking: {}", self.said);
        }
        writeln!(self.screen, "{answer}").unwrap();
        self
    }

    /// Everything that it has said, and how it ended.
    fn end(mut self) -> (String, Option<i32>) {
        while self.read() {}
        (self.said, self.child.wait().unwrap().code())
    }

    /// Whether there was something: a terminal that nobody writes to any more answers an error.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let read = self.screen.read(&mut bytes).unwrap_or(0);
        self.said.push_str(&String::from_utf8_lossy(&bytes[..read]));
        0 < read
    }
}

fn with_three() -> Place {
    let place = Place::with_queue();
    for body in ["1", "2", "3"] {
        place.send(body);
    }
    place
}

#[test]
fn a_person_is_asked_before_many_rows_are_changed() {
    let place = with_three();
    let run = || OnTerminal::run(&place, "message cancel queue:mail", 100);
    let question = "cancel 3 messages (mail 3)? [y/N] ";
    let (said, code) = run().answer(question, "").end();
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("nothing was done"), "{said}");
    assert_eq!(place.queue()["ready"], 3);
    let (said, code) = run().answer(question, "y").end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("cancelled 3 messages"), "{said}");
    assert_eq!(place.queue()["ready"], 0);
}

#[test]
fn a_queue_is_purged_when_its_name_was_typed() {
    let place = with_three();
    let run = || OnTerminal::run(&place, "queue purge mail", 100);
    let question = "purge 3 messages of queue `mail` for good? Type the name `mail` to go on: ";
    let (said, code) = run().answer(question, "y").end();
    assert_eq!(code, Some(4), "{said}");
    assert_eq!(place.queue()["ready"], 3);
    let (said, code) = run().answer(question, "mail").end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.queue()["ready"], 0);
}

#[test]
fn a_table_is_no_wider_than_its_terminal() {
    let place = with_three();
    place.ok(&format!("queue send mail 4 --delay 1h --key {} --kind {}", "k".repeat(80), "n".repeat(80)));
    for columns in [80, 100, 160] {
        for line in ["message list", "outbox list", "queue list", "worker list", "dead-letter list"] {
            let (said, code) = OnTerminal::run(&place, line, columns).end();
            assert_eq!(code, Some(0), "{said}");
            let widest = said.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns), "{line} has {widest} of {columns} columns:\n{said}");
        }
    }
    let (narrow, _) = OnTerminal::run(&place, "message list", 80).end();
    assert!(narrow.starts_with("ID ") && !narrow.contains("WORKER"), "{narrow}");
    let (wide, _) = OnTerminal::run(&place, "message list", 250).end();
    assert!(wide.contains("WORKER"), "{wide}");
}

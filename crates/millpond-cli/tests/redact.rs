//! `millpond redact`: a text as it would be stored.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

use common::{Place, stderr};

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_file_or_stdin_is_one_text() {
    let place = Place::empty();
    place.write("error.txt", "login failed: password=tulip\nat postgres://ada:daisy@db/app\n");
    let expected = "login failed: password=***\nat postgres://ada:***@db/app\n";
    assert_eq!(place.ok("redact error.txt"), expected);
    let input = std::fs::read(place.path().join("error.txt")).unwrap();
    for line in ["redact", "redact -"] {
        assert_eq!(stdout(&place.with_input(line, &input)), expected);
    }
    let again = place.with_input("redact", expected.as_bytes());
    assert_eq!(stdout(&again), expected, "it changes nothing a second time");
    place.refused("redact nope.txt", 2, "error: cannot read nope.txt (invalid-parameter)");
    place.refused("redact .", 2, "error: cannot read . (invalid-parameter)");
}

#[test]
fn secrets_of_one_s_own_are_masked_here_and_in_what_work_stores() {
    let place = Place::with_queue();
    place.write("millpond.toml", "redact.literals = [\"rose garden\"]\n");
    let output = place.with_input("redact", b"cannot reach the rose garden, cm9zZSBnYXJkZW4=");
    assert_eq!(stdout(&output), "cannot reach the ***, ***\n");
    let mut command = place.command("redact");
    command.env("MILLPOND_STORE", "postgres://ada:tulips@db/app").stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"dial tulips: refused").unwrap();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), "dial ***: refused\n");
    let id = place.send("1");
    place.ok("work mail --exec 'echo no rose garden here >&2; exit 65' --drain");
    assert_eq!(place.json(&format!("message get {id}"))["error"], "no *** here");
}

#[test]
fn a_long_input_is_read_to_its_end_and_cut() {
    let place = Place::empty();
    let input = "token=tulip x ".repeat(200_000);
    let text = stdout(&place.with_input("redact", input.as_bytes()));
    assert!(text.trim_end().chars().count() <= 2_000 && text.ends_with(" …\n"), "{} bytes", text.len());
    let lines = "token=tulip x\n".repeat(50_000);
    place.write("app.log", &lines);
    assert_eq!(place.ok("redact --lines app.log"), "token=*** x\n".repeat(50_000));
}

#[test]
fn a_line_of_a_log_is_answered_when_it_comes() {
    let place = Place::empty();
    let mut child = place.command("redact --lines").stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        stdin.write_all(b"password=tulip\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "password=***");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

//! `docs/walk.md`, run as it stands: its exit codes, and the words of its output that do not depend on the machine.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::Place;

/// What the document says of sizes, and what is run, since each order is a process: 100,000 take minutes.
const SUBSTITUTIONS: [(&str, &str); 3] = [("100000", "1000"), ("99999", "999"), ("73512", "735")];

/// A command with what was recorded below it.
#[derive(Default)]
struct Step {
    command: String,
    recorded: Vec<String>,
    exit: i32,
}

/// The commands of the document. Output is what follows one until its block ends.
fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            steps.push(Step { command: command.to_owned(), ..Step::default() });
        } else if let (true, Some(step)) = (inside, steps.last_mut()) {
            read(step, line);
        }
    }
    steps
}

/// A line below a command: more of it, its exit code, or its output.
fn read(step: &mut Step, line: &str) {
    if let Some(more) = line.strip_prefix("> ") {
        step.command.push('\n');
        step.command.push_str(more);
    } else if let Some(exit) = line.strip_prefix("[exit ") {
        step.exit = exit.trim_end_matches(']').parse().unwrap();
    } else {
        step.recorded.push(line.to_owned());
    }
}

/// The words that must come again: those of letters alone, and the counts of the story. Of `top` only the headings of
/// its queues, since what else it sees depends on the moment. Of the log nothing: which message ends last does too.
fn words(step: &Step) -> Vec<&str> {
    let log = step.command.starts_with("tail");
    let top = step.command.contains("millpond top");
    let lines = step.recorded.iter().filter(|line| !log && (!top || line.starts_with("QUEUE")));
    lines.flat_map(|line| line.split_whitespace()).filter(|word| must_come_again(word)).collect()
}

fn must_come_again(word: &str) -> bool {
    let letters = word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    (4 <= word.len() && letters) || ["300", "500"].contains(&word)
}

/// The binary as a program `millpond` that writes tables, as on a terminal.
fn program(place: &Place) -> String {
    let folder = place.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let binary = env!("CARGO_BIN_EXE_millpond");
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *'-o '*) exec '{binary}' \"$@\";; *) exec '{binary}' -o table \"$@\";; esac\n"
    );
    let file = folder.join("millpond");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// Runs a command in the folder; its exit code, and stdout with stderr.
fn run(place: &Place, path: &str, command: &str) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(place.path()).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MILLPOND_")) {
        shell.env_remove(name);
    }
    shell.env("PATH", path).env("TZ", "UTC").env_remove("DATABASE_URL");
    let output = shell.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_walk_is_true() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/walk.md");
    let document = fs::read_to_string(file).unwrap();
    let (_, story) = document.split_once("\n## ").unwrap();
    let story = SUBSTITUTIONS.iter().fold(story.to_owned(), |text, (from, to)| text.replace(from, to));
    let steps = steps(&story);
    assert!(20 < steps.len(), "the document has lost its commands");

    let place = Place::empty();
    let path = program(&place);
    for step in &steps {
        let (exit, said) = run(&place, &path, &step.command);
        assert_eq!(exit, Some(step.exit), "{}\n{said}", step.command);
        for word in words(step) {
            assert!(said.contains(word), "`{word}` is not said by\n{}\n{said}", step.command);
        }
    }
}

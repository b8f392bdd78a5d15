//! The binary in a folder of its own: what every test of it needs.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A folder in which the binary runs; its store is `millpond.db` there.
pub(crate) struct Place(TempDir);

impl Place {
    /// An empty folder.
    pub(crate) fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With a queue `mail` that does not wait between attempts.
    pub(crate) fn with_queue() -> Self {
        let place = Self::empty();
        place.ok("queue add mail --attempts-max 2 --backoff 0s");
        place
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// The binary with the words of `line`, and nothing of our own environment.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
        command.args(words(line)).current_dir(self.path());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MILLPOND_")) {
            command.env_remove(name);
        }
        command.env_remove("DATABASE_URL").env("TZ", "UTC");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a line.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a line with `input` on its stdin.
    #[track_caller]
    pub(crate) fn with_input(&self, line: &str, input: &[u8]) -> Output {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs a line that must end well; answers its stdout.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}\n{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a line with `--json`; answers the document.
    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// Runs a line that must fail like this.
    #[track_caller]
    pub(crate) fn refused(&self, line: &str, exit: i32, first_line: &str) {
        refused(&self.run(line), exit, first_line);
    }

    /// Sends a body to `mail`; answers the id.
    #[track_caller]
    pub(crate) fn send(&self, body: &str) -> String {
        let mut command = self.command("queue send mail -o id");
        let output = command.arg(body).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// What is said about the queue `mail`.
    pub(crate) fn queue(&self) -> Value {
        self.json("queue show mail")
    }
}

/// Words between spaces; what stands in quotes is one word.
pub(crate) fn words(line: &str) -> Vec<String> {
    let pieces = line.split('\'').enumerate();
    pieces
        .flat_map(|(index, piece)| match index % 2 {
            1 => vec![piece.to_owned()],
            _ => piece.split_whitespace().map(str::to_owned).collect(),
        })
        .collect()
}

/// What was said on stderr.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An error in at most three lines, with this exit code and first line.
#[track_caller]
pub(crate) fn refused(output: &Output, exit: i32, first_line: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(exit), "{text}");
    assert_eq!(text.lines().next(), Some(first_line), "{text}");
    assert!(text.lines().count() <= 3, "more than three lines:\n{text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(output.stdout.is_empty(), "an error is no data");
}

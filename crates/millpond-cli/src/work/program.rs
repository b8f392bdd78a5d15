//! The program that a worker runs.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::environment;
use super::guard::{MARK, Run};

const SHELL: &str = "/bin/sh";

/// What is run.
#[derive(Debug)]
pub(super) enum What {
    /// A line for `/bin/sh -c`.
    Line(OsString),
    /// A program and its arguments, as they are.
    Words(Vec<OsString>),
}

/// What is run, and how.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) what: What,
    /// From SIGTERM to SIGKILL.
    pub(super) grace: Duration,
    /// The wait of a snooze.
    pub(super) snooze: Duration,
    /// Deliveries in all of a message that has no number of its own.
    pub(super) attempts_max: u32,
    /// Whether what programs print may go to our stdout; else that belongs to our own answer.
    pub(super) stdout_is_data: bool,
    /// Secrets that are masked in what is kept of its stderr.
    pub(super) literals: Vec<String>,
}

impl Program {
    /// What is started, for an error.
    pub(super) fn name(&self) -> Cow<'_, str> {
        match &self.what {
            What::Line(_) => Cow::Borrowed(SHELL),
            What::Words(words) => words.first().map(|word| word.to_string_lossy()).unwrap_or_default(),
        }
    }

    /// Where it was named, for a hint.
    pub(super) const fn place(&self) -> &'static str {
        match self.what {
            What::Line(_) => "--exec",
            What::Words(_) => "the words after `--`",
        }
    }

    /// The command of a run, told so much, with its body as standard input. It leads a process group of its own: a
    /// Ctrl-C at the worker's terminal is for the worker, and a signal to the program reaches what it started.
    pub(super) fn command(&self, told: Vec<(String, String)>, body: File, run: &Run) -> Command {
        let mut command = match &self.what {
            What::Line(line) => {
                let mut command = Command::new(SHELL);
                command.arg("-c").arg(line);
                command
            }
            What::Words(words) => {
                let mut command = Command::new(words.first().cloned().unwrap_or_default());
                command.args(words.iter().skip(1));
                command
            }
        };
        command.stdin(body).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        // What an outer handler was told is not true of this message.
        for (name, _) in std::env::vars_os().filter(|(name, _)| environment::is_told(name)) {
            command.env_remove(name);
        }
        command.envs(told).env(MARK, run.mark());
        command
    }
}

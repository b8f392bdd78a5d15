//! The program that a worker runs, and what it is told about a message.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use millpond::{Job, Raw};
use tokio::process::Command;

/// What is run, and how.
#[derive(Debug)]
pub(super) struct Program {
    /// For `/bin/sh -c`.
    pub(super) command: String,
    /// From SIGTERM to SIGKILL.
    pub(super) grace: Duration,
    /// How long one run may take, beside what the queue says.
    pub(super) timeout: Option<Duration>,
    /// The wait of a snooze.
    pub(super) snooze: Duration,
    /// Whether what programs print may go to our stdout; else that belongs to our own answer.
    pub(super) stdout_is_data: bool,
    /// Secrets that are masked in what is kept of its stderr.
    pub(super) literals: Vec<String>,
}

impl Program {
    /// The command for a message, with its body as standard input. It leads a process group of its own: a Ctrl-C
    /// at the worker's terminal is for the worker, and a signal to the program reaches what it started.
    pub(super) fn command(&self, job: &Job<Raw>, body: File) -> Command {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command);
        command.stdin(body).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        // What an outer handler was told is not true of this message.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_told(name)) {
            command.env_remove(name);
        }
        command.env("MILLPOND_ID", job.id.to_string());
        command.env("MILLPOND_QUEUE", &*job.queue);
        command.env("MILLPOND_KIND", &*job.kind);
        command.env("MILLPOND_ATTEMPT", job.attempt.to_string());
        if let Some(key) = &job.key {
            command.env("MILLPOND_KEY", key);
        }
        for (name, value) in job.headers() {
            command.env(format!("MILLPOND_HEADER_{}", name.to_uppercase().replace('-', "_")), value);
            if name == "traceparent" {
                command.env("MILLPOND_TRACEPARENT", value);
            }
        }
        command
    }
}

fn is_told(name: &std::ffi::OsStr) -> bool {
    let told = ["ID", "QUEUE", "KIND", "ATTEMPT", "KEY", "TRACEPARENT"];
    let rest = name.to_str().and_then(|name| name.strip_prefix("MILLPOND_"));
    rest.is_some_and(|rest| told.contains(&rest) || rest.starts_with("HEADER_"))
}

//! Runs one command of a step, shows its output, and reads from it how many tests passed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::repo;

/// How long a command may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// A command that takes longer hangs.
    pub command: Duration,
    /// How long its output may stay open after its end: if longer, something still runs that holds it.
    pub output: Duration,
}

/// Ample on a slow machine.
pub const LIMITS: Limits = Limits { command: Duration::from_secs(45 * 60), output: Duration::from_secs(10) };

/// How often it is looked whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the commands have said so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that were left out.
    pub ignored: u64,
}

impl Tally {
    /// Adds what a line of a test program's output says.
    pub fn read(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ok. ") else { return };
        for part in result.split(';') {
            let mut words = part.split_whitespace();
            let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += count,
                Some("ignored") => self.ignored += count,
                _ => {}
            }
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.ignored += other.ignored;
    }
}

/// What a command that went well has said.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Said {
    /// The tests it ran.
    pub tally: Tally,
    /// The last line of its output that is not empty.
    pub last_line: String,
}

/// Runs `command` at the root of the repository.
///
/// # Errors
///
/// Why it did not go well: its exit code, or that it hangs or has left something running.
pub fn run(command: &mut Command, limits: Limits) -> Result<Said, String> {
    let started = command.current_dir(repo::root()).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child =
        started.map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    let (tell, read) = mpsc::channel();
    let output = child.stdout.take().map(BufReader::new);
    std::thread::spawn(move || {
        let mut said = Said::default();
        let lines = output.into_iter().flat_map(|output| output.split(b'\n')).map_while(Result::ok);
        for line in lines {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            said.tally.read(&line);
            if !line.trim().is_empty() {
                said.last_line = line.into_owned();
            }
        }
        // Nobody listens any more if the command was given up.
        let _ = tell.send(said);
    });
    let (status, said) = watch(&mut child, limits, &read)?;
    if status.success() { Ok(said) } else { Err(status.to_string()) }
}

/// Waits for the end of the command and of its output.
fn watch(
    child: &mut Child,
    limits: Limits,
    read: &mpsc::Receiver<Said>,
) -> Result<(ExitStatus, Said), String> {
    let (started, mut ended) = (Instant::now(), None);
    loop {
        match read.recv_timeout(LOOK_EVERY) {
            Ok(said) => return Ok((child.wait().map_err(|error| error.to_string())?, said)),
            Err(RecvTimeoutError::Disconnected) => return Err("its output cannot be shown".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if ended.is_none() && child.try_wait().is_ok_and(|status| status.is_some()) {
            ended = Some(now);
        }
        if ended.is_some_and(|ended| limits.output < now - ended) {
            return Err("it has ended and left something running that holds its output".to_owned());
        }
        if limits.command < now - started {
            let _ = child.kill();
            return Err(format!("it was given up after {} minutes", limits.command.as_secs() / 60));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Limits = Limits { output: Duration::from_millis(200), ..LIMITS };

    fn shell(script: &str) -> Result<Said, String> {
        run(Command::new("bash").args(["-c", script]), SHORT)
    }

    #[test]
    fn passed_and_ignored_tests_are_added_up() {
        let line = |passed, ignored| {
            format!("test result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured")
        };
        let script = format!("echo '{}'; echo test a ... ok; echo '{}'; echo", line(12, 1), line(3, 0));
        let tally = Tally { passed: 15, ignored: 1 };
        assert_eq!(shell(&script), Ok(Said { tally, last_line: line(3, 0) }));
    }

    #[test]
    fn a_command_that_fails_says_how() {
        assert_eq!(shell("exit 3"), Err("exit status: 3".to_owned()));
        let gone = run(&mut Command::new("no-such-program-of-ours"), SHORT);
        assert!(gone.unwrap_err().starts_with("cannot start no-such-program-of-ours"));
    }

    #[test]
    fn a_command_that_hangs_is_given_up() {
        let limits = Limits { command: Duration::ZERO, ..LIMITS };
        assert!(run(Command::new("sleep").arg("60"), limits).unwrap_err().starts_with("it was given up"));
    }

    #[test]
    fn a_command_that_leaves_something_running_fails() {
        assert!(shell("sleep 2 &").unwrap_err().contains("left something running"));
    }
}

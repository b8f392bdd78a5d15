//! One run of a program: its pipes, its end, and how it is told to stop.
//!
//! Its life: *running* → it exits, or it is *told to stop* (SIGTERM to its process group) → it exits, or is *killed*
//! after the grace. What is left of its group is killed with its end, so that a run never outlives its message; a
//! child that wants to must leave the group (`setsid`), and even then it ends with a run that was told to stop. If
//! the handler is dropped at any point, the group is killed.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond::{CancelCause, Job, Raw};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::environment;
use super::guard::{Guard, Run, kill_marked, signal_group};
use super::printer::Printer;
use super::program::Program;
use super::tail::Tail;
use super::verdict::Ended;

/// Bytes of one output of one run that are passed on; the rest is read and dropped.
const PASSED_ON_BYTES_MAX: usize = 1024 * 1024;

/// A line that is longer is passed on in pieces, each a line.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// How long outputs may go on after the program ended: what it left behind may hold them open for ever.
const OUTPUT_AFTER_END: Duration = Duration::from_millis(500);

/// The process group of a run, killed when this is dropped.
struct Group {
    id: Option<Pid>,
    run: Run,
}

impl Group {
    fn of(child: &Child, run: Run) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        run.started(id);
        Self { id, run }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.id {
            signal_group(group, signal);
        }
    }

    /// Kills what is left of it, wherever it went.
    async fn kill(&self) {
        self.signal(Signal::KILL);
        let marks = [self.run.mark()];
        // Where nobody runs blocking work any more, the process ends, and the guard does this.
        let _ = spawn_blocking(move || kill_marked(&marks)).await;
    }
}

/// The number of a group is free only when its last process is gone; numbers come round after thousands of others.
impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Runs the program for a message.
pub(super) async fn run(program: &Program, job: &Job<Raw>, guard: &Arc<Guard>, printer: &Printer) -> Ended {
    let run = guard.announce();
    let mut child = match start(program, job, &run) {
        Ok(child) => child,
        Err(error) => return Ended::NotStarted { error },
    };
    let group = Group::of(&child, run);
    let said = Arc::new(Mutex::new(Tail::default()));
    // Both at once: a program may print to one while the other is full. Dropping the set ends them.
    let mut pipes = JoinSet::new();
    let pass = |tail, to_stdout| PassOn { tail, to_stdout, printer: printer.clone() };
    pipes.spawn(pass(None, program.stdout_is_data).all(child.stdout.take()));
    pipes.spawn(pass(Some(Arc::clone(&said)), false).all(child.stderr.take()));
    let (status, told) = tokio::select! {
        status = child.wait() => (status.ok(), None),
        () = job.cancelled() => {
            (end(&mut child, &group, program.grace).await, Some(job.cancel_cause()))
        }
    };
    drop(group);
    let _ = timeout(OUTPUT_AFTER_END, async { while pipes.join_next().await.is_some() {} }).await;
    let stderr = std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner)).text();
    match (status, told) {
        (status, Some(cause)) => {
            Ended::Cancelled { status, stderr, cause: cause.unwrap_or(CancelCause::Requested) }
        }
        (Some(status), None) => Ended::Exited { status, stderr },
        (None, None) => Ended::NotStarted { error: "its end was not seen".to_owned() },
    }
}

fn start(program: &Program, job: &Job<Raw>, run: &Run) -> Result<Child, String> {
    let told = environment::of(job, program.attempts_max)
        .map_err(|error| format!("the program cannot be told of the message: {error}"))?;
    let body = in_memory(&job.body.bytes).map_err(|error| format!("cannot hand over the body: {error}"))?;
    let started = program.command(told, body, run).spawn();
    started.map_err(|error| format!("cannot start `{}`: {error}", program.name()))
}

/// SIGTERM, the grace, SIGKILL. What the program leaves behind does not outlive it.
async fn end(child: &mut Child, group: &Group, grace: Duration) -> Option<ExitStatus> {
    group.signal(Signal::TERM);
    let ended = timeout(grace, child.wait()).await;
    group.kill().await;
    match ended {
        Ok(status) => status.ok(),
        Err(_) => child.wait().await.ok(),
    }
}

/// The body as a file that is complete before the program begins. A pipe would be fed meanwhile: were this worker
/// killed then, the program would take the end of an empty or cut body for its end.
fn in_memory(body: &[u8]) -> io::Result<File> {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    let mut file = File::from(rustix::fs::memfd_create("millpond-body", rustix::fs::MemfdFlags::CLOEXEC)?);
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    let mut file = tempfile::tempfile()?;
    file.write_all(body)?;
    file.rewind()?;
    Ok(file)
}

/// Where an output goes.
struct PassOn {
    tail: Option<Arc<Mutex<Tail>>>,
    to_stdout: bool,
    printer: Printer,
}

impl PassOn {
    /// Reads an output to its end, keeps its tail, and passes whole lines on.
    async fn all<R: AsyncRead + Unpin>(self, output: Option<R>) {
        let Some(mut output) = output else { return };
        let (mut chunk, mut line) = ([0; 8 * 1024], Vec::new());
        let mut left = PASSED_ON_BYTES_MAX;
        while let Ok(count @ 1..) = output.read(&mut chunk).await {
            let bytes = &chunk[..count];
            if let Some(tail) = &self.tail {
                tail.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
            }
            line.extend_from_slice(&bytes[..count.min(left)]);
            if left <= count && 0 < left {
                line.extend_from_slice(b"\n[the rest of this output is not passed on]\n");
            }
            left = left.saturating_sub(count);
            if let Some(lines) = whole_lines(&mut line) {
                self.printer.print(lines, self.to_stdout).await;
            }
        }
        if !line.is_empty() {
            line.push(b'\n');
            self.printer.print(line, self.to_stdout).await;
        }
    }
}

/// Takes the whole lines from `text`, or all of it as a line if it is too long to wait for its end.
fn whole_lines(text: &mut Vec<u8>) -> Option<Vec<u8>> {
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    if whole != 0 {
        let rest = text.split_off(whole);
        return Some(std::mem::replace(text, rest));
    }
    if text.len() <= LINE_BYTES_MAX {
        return None;
    }
    text.push(b'\n');
    Some(std::mem::take(text))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_body_is_complete_before_the_program_begins() {
        // Longer than a pipe holds.
        let body = vec![7; 1024 * 1024];
        let mut read = Vec::new();
        in_memory(&body).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == body);
    }

    #[test]
    fn only_whole_lines_are_passed_on_and_a_very_long_one_in_pieces() {
        let mut text = b"one\ntwo\nthr".to_vec();
        assert_eq!(whole_lines(&mut text).as_deref(), Some(&b"one\ntwo\n"[..]));
        assert_eq!((text.as_slice(), whole_lines(&mut text.clone())), (&b"thr"[..], None));
        let mut text = vec![b'x'; LINE_BYTES_MAX + 1];
        let piece = whole_lines(&mut text).unwrap();
        assert_eq!((piece.len(), piece.last(), text.len()), (LINE_BYTES_MAX + 2, Some(&b'\n'), 0));
    }
}

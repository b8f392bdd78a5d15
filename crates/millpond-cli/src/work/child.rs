//! One run of a program: its pipes, its end, and how it is told to stop.
//!
//! Its life: *running* → it exits, or it is *told to stop* (SIGTERM to its process group) → it exits, or is *killed*
//! (SIGKILL to the group) after the grace. If the handler is dropped at any point, the group is killed.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond::{Job, Raw};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::program::Program;
use super::tail::Tail;
use super::verdict::Ended;

/// Bytes of one output of one run that are passed on; the rest is read and dropped.
const PASSED_ON_BYTES_MAX: usize = 1024 * 1024;

/// A line that is longer is passed on in pieces.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// How long outputs may go on after the program ended: what it left behind may hold them open for ever.
const OUTPUT_AFTER_END: Duration = Duration::from_millis(500);

/// The process group of a run, killed when this is dropped before the program has ended.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // A group that is gone has got what we wanted.
            let _ = kill_process_group(group, signal);
        }
    }

    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Runs the program for a message.
pub(super) async fn run(program: &Program, job: &Job<Raw>) -> Ended {
    let started = match in_memory(&job.body.bytes) {
        Ok(body) => {
            program.command(job, body).spawn().map_err(|error| format!("cannot start `/bin/sh`: {error}"))
        }
        Err(error) => Err(format!("cannot hand over the body: {error}")),
    };
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return Ended::NotStarted { error },
    };
    let group = Group::of(&child);
    let said = Arc::new(Mutex::new(Tail::default()));
    // Both at once: a program may print to one while the other is full. Dropping the set ends them.
    let mut pipes = JoinSet::new();
    pipes.spawn(pass_on(child.stdout.take(), None, program.stdout_is_data));
    pipes.spawn(pass_on(child.stderr.take(), Some(Arc::clone(&said)), false));
    let (status, cancelled) = tokio::select! {
        status = child.wait() => (status.ok(), None),
        why = told_to_stop(job, program.timeout) => (end(&mut child, &group, program.grace).await, Some(why)),
    };
    group.has_ended();
    let _ = timeout(OUTPUT_AFTER_END, async { while pipes.join_next().await.is_some() {} }).await;
    let stderr = std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner)).text();
    match (status, cancelled) {
        (status, Some(why)) => Ended::Cancelled { status, stderr, why },
        (Some(status), None) => Ended::Exited { status, stderr },
        (None, None) => Ended::NotStarted { error: "its end was not seen".to_owned() },
    }
}

/// Resolves when the run must stop.
async fn told_to_stop(job: &Job<Raw>, limit: Option<Duration>) -> &'static str {
    let own_limit = async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = job.cancelled() => "told to stop: timeout, lost lease or the worker's stop",
        () = own_limit => "timeout",
    }
}

/// SIGTERM, the grace, SIGKILL. What the program leaves in its group does not outlive it.
async fn end(child: &mut Child, group: &Group, grace: Duration) -> Option<ExitStatus> {
    group.signal(Signal::TERM);
    let ended = timeout(grace, child.wait()).await;
    group.signal(Signal::KILL);
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

/// Reads an output to its end, keeps its tail, and passes whole lines on to ours.
async fn pass_on<R: AsyncRead + Unpin>(output: Option<R>, tail: Option<Arc<Mutex<Tail>>>, to_stdout: bool) {
    let Some(mut output) = output else { return };
    let (mut chunk, mut line) = ([0; 8 * 1024], Vec::new());
    let mut left = PASSED_ON_BYTES_MAX;
    while let Ok(count @ 1..) = output.read(&mut chunk).await {
        let bytes = &chunk[..count];
        if let Some(tail) = &tail {
            tail.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        }
        line.extend_from_slice(&bytes[..count.min(left)]);
        if left <= count && 0 < left {
            line.extend_from_slice(b"\n[the rest of this output is not passed on]\n");
        }
        left = left.saturating_sub(count);
        let whole = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        let whole = if LINE_BYTES_MAX < line.len() { line.len() } else { whole };
        print(&line[..whole], to_stdout);
        line.drain(..whole);
    }
    if !line.is_empty() {
        line.push(b'\n');
        print(&line, to_stdout);
    }
}

/// If nobody reads it, the work goes on all the same.
fn print(lines: &[u8], to_stdout: bool) {
    let _ = match to_stdout {
        _ if lines.is_empty() => Ok(()),
        true => io::stdout().lock().write_all(lines),
        false => io::stderr().lock().write_all(lines),
    };
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
}

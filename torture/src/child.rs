//! A child process: this binary again in one of its roles, and the thread that reads what it reports.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millpond_testkit::judge::history::{Event, Op, Phase};
use rustix::process::{Pid, Signal, kill_process};
use uuid::Uuid;

use crate::Outcome;
use crate::chronicle::Chronicle;
use crate::wire::Report;

/// How often an ending child is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What the parent hears. Everything in it stands in the history already.
#[derive(Debug)]
pub(crate) enum Notice {
    Report(u32, Report),
    /// Everything that the process reported was read.
    Ended(u32),
}

/// A child that was started.
pub(crate) struct Running {
    pub(crate) node: u32,
    pub(crate) role: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    chronicle: Arc<Chronicle>,
}

impl Running {
    pub(crate) fn new(
        mut child: Child,
        role: &'static str,
        chronicle: Arc<Chronicle>,
        notices: Sender<Notice>,
    ) -> Self {
        let (node, stdin) = (child.id(), child.stdin.take());
        let reader = child.stdout.take().map(|stdout| {
            let reader = Reader { node, role, chronicle: Arc::clone(&chronicle), open: HashMap::new() };
            std::thread::spawn(move || reader.run(stdout, &notices))
        });
        Self { node, role, child, stdin, reader, chronicle }
    }

    /// Gives it a line.
    pub(crate) fn tell(&mut self, line: &impl serde::Serialize) -> Outcome<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let stdin = self.stdin.as_mut().ok_or("its pipe is closed")?;
        Ok(stdin.write_all(&bytes)?)
    }

    /// kill -9. What it had reported is in the history when this returns.
    pub(crate) fn kill(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.chronicle.fault(self.node, self.role, "kill");
        self.reap()
    }

    /// The same, as part of a fault that counts as one.
    pub(crate) fn kill_in_company(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.chronicle.fault(self.node, self.role, "death");
        self.reap()
    }

    /// It ended by itself.
    pub(crate) fn ended(&mut self) -> Outcome<ExitStatus> {
        self.chronicle.fault(self.node, self.role, "death");
        self.reap()?;
        Ok(self.child.wait()?)
    }

    /// Asks it to end, by closing its pipe; kills it when it does not. Answers whether it ended well.
    pub(crate) fn close(mut self, limit: Duration) -> Outcome<bool> {
        drop(self.stdin.take());
        let until = Instant::now() + limit;
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break Some(status),
                None if until <= Instant::now() => break None,
                None => std::thread::sleep(LOOK_EVERY),
            }
        };
        if status.is_none() {
            self.child.kill()?;
        }
        self.reap()?;
        Ok(status.is_some_and(|status| status.success()))
    }

    /// SIGSTOP.
    pub(crate) fn pause(&self) -> Outcome<()> {
        self.chronicle.fault(self.node, self.role, "pause");
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) -> Outcome<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Outcome<()> {
        let pid = i32::try_from(self.node).ok().and_then(Pid::from_raw).ok_or("no process has this id")?;
        Ok(kill_process(pid, signal)?)
    }

    fn reap(&mut self) -> Outcome<()> {
        self.child.wait()?;
        if let Some(reader) = self.reader.take() {
            reader.join().map_err(|_| "the thread that read a child panicked")?;
        }
        Ok(())
    }
}

impl Drop for Running {
    /// No child outlives its parent's interest, whatever went wrong.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the reports of one child.
struct Reader {
    node: u32,
    role: &'static str,
    chronicle: Arc<Chronicle>,
    /// Sends and settlements that were begun and not answered. A send has no token.
    open: HashMap<(Uuid, Option<Uuid>), Event>,
}

impl Reader {
    fn run(mut self, stdout: ChildStdout, notices: &Sender<Notice>) {
        let mut lines = BufReader::with_capacity(1 << 18, stdout);
        let mut line = Vec::new();
        while matches!(lines.read_until(b'\n', &mut line), Ok(length) if length != 0) {
            // The last line of a killed child may be cut short: it was about to happen, and did not.
            match line.ends_with(b"\n").then(|| serde_json::from_slice(&line)) {
                Some(Ok(report)) => self.take(report, notices),
                Some(Err(error)) => self.chronicle.spoil(error.into()),
                None => {}
            }
            line.clear();
        }
        let unanswered: Vec<Event> =
            self.open.values().map(|event| Event { ph: Phase::Info, ..event.clone() }).collect();
        self.chronicle.write(self.node, self.role, &unanswered);
        let _ = notices.send(Notice::Ended(self.node));
    }

    fn take(&mut self, report: Report, notices: &Sender<Notice>) {
        if let Report::Events(events) = &report {
            self.chronicle.write(self.node, self.role, events);
            events.iter().for_each(|event| self.follow(event));
        }
        let _ = notices.send(Notice::Report(self.node, report));
    }

    fn follow(&mut self, event: &Event) {
        let (Op::Send | Op::Settle, Some(id)) = (event.op, event.id) else { return };
        let key = (id, event.token);
        if event.ph == Phase::Invoke {
            self.open.insert(key, event.clone());
        } else {
            self.open.remove(&key);
        }
    }
}

//! The history of a run, as the parent writes it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millpond_testkit::judge::history::{Event, Op, Phase, Reader, Run, write_line};
use millpond_testkit::judge::{Verdict, judge_lines};

use crate::Outcome;
use crate::stalls::Stalls;

/// The history.
pub(crate) struct Chronicle {
    path: PathBuf,
    /// A crash of the server may undo what was leased and settled right before it.
    forgets_leases: bool,
    inner: Mutex<Inner>,
}

/// How long before its death a server that does not flush leases and settlements may have forgotten them: three times
/// the longest nap of its writer, and the way of a report.
const FORGOTTEN: Duration = Duration::from_millis(1_500);

struct Inner {
    file: BufWriter<File>,
    started: Instant,
    last: u64,
    /// When the server was killed: before, and when it was dead.
    server_deaths: Vec<(u64, u64)>,
    /// The first error of the file; a history with a hole must not be judged.
    failed: Option<std::io::Error>,
}

impl Chronicle {
    pub(crate) fn create(path: &Path, run: &Run, forgets_leases: bool) -> Outcome<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        write_line(&mut file, run)?;
        let inner = Inner { file, started: Instant::now(), last: 0, server_deaths: Vec::new(), failed: None };
        Ok(Self { path: path.to_owned(), forgets_leases, inner: Mutex::new(inner) })
    }

    /// Writes what a process reported, or what was done to it.
    pub(crate) fn write(&self, node: u32, proc: &str, events: &[Event]) {
        let mut inner = self.lock();
        for event in events {
            let t = inner.now();
            inner.line(&Event { t, node: Some(node), proc: Some(proc.to_owned()), ..event.clone() });
        }
    }

    pub(crate) fn fault(&self, node: u32, proc: &str, kind: &str) {
        let fault = Event { kind: Some(kind.to_owned()), ..Event::new(0, Op::Fault, Phase::Ok) };
        self.write(node, proc, &[fault]);
    }

    /// Writes a checkpoint. Nothing is written while it is read, so that everything above it in the history
    /// happened before.
    pub(crate) fn checkpoint(&self, read: impl FnOnce() -> Outcome<Vec<Event>>) -> Outcome<()> {
        let mut inner = self.lock();
        let events = read()?;
        let t = inner.now();
        for event in events {
            inner.line(&Event { t, ..event });
        }
        Ok(())
    }

    /// Writes lines that are about no process.
    pub(crate) fn append(&self, events: impl IntoIterator<Item = Event>) {
        let mut inner = self.lock();
        for event in events {
            let t = inner.now();
            inner.line(&Event { t, ..event });
        }
    }

    /// Writes that the server is killed, by `kill`.
    pub(crate) fn server_dies(&self, kill: impl FnOnce()) {
        let before = self.lock().now();
        kill();
        let after = self.lock().now();
        self.lock().server_deaths.push((before, after));
        self.fault(0, "server", "death");
    }

    /// How often the server was killed.
    pub(crate) fn server_kills(&self) -> u64 {
        self.lock().server_deaths.len() as u64
    }

    /// A report could not be read: the history has a hole.
    pub(crate) fn spoil(&self, error: std::io::Error) {
        self.lock().failed.get_or_insert(error);
    }

    pub(crate) fn judge(&self) -> Outcome<Verdict> {
        let mut inner = self.lock();
        inner.file.flush()?;
        if let Some(error) = inner.failed.take() {
            return Err(error.into());
        }
        if !self.forgets_leases || inner.server_deaths.is_empty() {
            return Ok(judge_lines(|| self.open())?);
        }
        let judged = self.path.with_extension("judged.jsonl");
        self.write_uncertain(&inner.server_deaths, &judged)?;
        Ok(judge_lines(|| open(&judged))?)
    }

    /// Writes the history again, in which nobody is sure of what the server may have forgotten.
    fn write_uncertain(&self, deaths: &[(u64, u64)], judged: &Path) -> Outcome<()> {
        let reader = Reader::open(self.open()?)?;
        let mut file = BufWriter::with_capacity(1 << 20, File::create(judged)?);
        write_line(&mut file, reader.run())?;
        let window = u64::try_from(FORGOTTEN.as_nanos()).unwrap_or(u64::MAX);
        let is_forgotten = |t: u64| {
            // What was answered before the death is read from its pipe a little later.
            deaths.iter().any(|(before, after)| before.saturating_sub(window) <= t && t <= after + window)
        };
        for event in reader {
            let mut event = event?;
            let is_soft = matches!(event.op, Op::Lease | Op::Settle | Op::Reclaim)
                || event.op == Op::Cursor && event.node.is_some();
            if is_soft && event.ph == Phase::Ok && is_forgotten(event.t) {
                event.ph = Phase::Info;
            }
            write_line(&mut file, &event)?;
        }
        Ok(file.flush()?)
    }

    /// The longest wait from a death to the takeover of what it left.
    pub(crate) fn longest_stall(&self) -> Outcome<Option<Duration>> {
        let mut stalls = Stalls::default();
        for event in Reader::open(self.open()?)? {
            stalls.take(&event?);
        }
        Ok(stalls.longest())
    }

    fn open(&self) -> std::io::Result<BufReader<File>> {
        open(&self.path)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> std::io::Result<BufReader<File>> {
    Ok(BufReader::with_capacity(1 << 20, File::open(path)?))
}

impl Inner {
    /// Nanoseconds since the start, never the same twice.
    fn now(&mut self) -> u64 {
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last = now.max(self.last + 1);
        self.last
    }

    fn line(&mut self, event: &Event) {
        if let Err(error) = write_line(&mut self.file, event) {
            self.failed.get_or_insert(error);
        }
    }
}

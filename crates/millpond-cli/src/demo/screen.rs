//! What a person sees of a demo while it runs: a live line on a terminal, at most a line a second, when something
//! changed, without one.
//! All of it goes to standard error.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use millpond::view::QueueView;

use crate::progress;

/// How often a line is written without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Where the messages of the demo are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// Stored so far.
    pub(crate) sent: u64,
    /// Acknowledged.
    pub(crate) done: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Ready for a worker.
    pub(crate) ready: u64,
    /// With a worker.
    pub(crate) leased: u64,
    /// Waiting after a failure.
    pub(crate) retrying: u64,
    /// Due later.
    pub(crate) scheduled: u64,
}

impl Whereabouts {
    /// The sums of some queues.
    pub(crate) fn of<'q>(queues: impl Iterator<Item = &'q QueueView>) -> Self {
        queues.fold(Self::default(), |sum, queue| Self {
            sent: sum.sent + queue.sent,
            done: sum.done + queue.done,
            dead: sum.dead + queue.dead,
            ready: sum.ready + queue.ready,
            leased: sum.leased + queue.leased,
            retrying: sum.retrying + queue.retrying,
            scheduled: sum.scheduled + queue.scheduled,
        })
    }

    /// Messages that are neither done nor dead.
    pub(crate) const fn open(&self) -> u64 {
        self.ready + self.leased + self.retrying + self.scheduled
    }

    /// The same without what was there before.
    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            done: self.done.saturating_sub(before.done),
            dead: self.dead.saturating_sub(before.dead),
            ..self
        }
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, done, dead, ready, leased, retrying, scheduled } = self;
        write!(
            f,
            "sent {sent}  ready {ready}  leased {leased}  retrying {retrying}  scheduled {scheduled}  \
             done {done}  dead {dead}"
        )
    }
}

/// The screen of one demo.
#[derive(Debug)]
pub(crate) struct Screen {
    began: Instant,
    /// `None`: nobody looks at one.
    bar: Option<ProgressBar>,
    last_line: Mutex<Option<(Instant, Whereabouts)>>,
}

impl Screen {
    /// A screen for so many messages.
    pub(crate) fn new(messages: u64) -> Self {
        let bar = progress::is_shown().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {elapsed}  {wide_msg}");
            ProgressBar::new(messages).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { began: Instant::now(), bar, last_line: Mutex::new(None) }
    }

    /// Shows where the messages are.
    pub(crate) fn progress(&self, now: &Whereabouts) {
        if let Some(bar) = &self.bar {
            bar.set_position(now.done + now.dead);
            bar.set_message(now.to_string());
            return;
        }
        let mut last = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|(at, shown)| LINE_EVERY <= at.elapsed() && shown != *now) {
            *last = Some((Instant::now(), *now));
            self.line(&now.to_string());
        }
    }

    /// Shows that something happened.
    pub(crate) fn event(&self, what: &str) {
        self.line(what);
    }

    /// Takes the live line away.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        let line = format!("{:6.1} s  {text}", self.began.elapsed().as_secs_f64());
        match &self.bar {
            Some(bar) => bar.println(line),
            // A demo that nobody watches goes on.
            None => drop(writeln!(std::io::stderr().lock(), "{line}")),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end();
    }
}

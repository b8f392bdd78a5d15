//! The judge: reads the history of a run and says which invariants held.
//!
//! It is pure: no clock, no store, nothing random. The history is read once, line by line; what is kept is a
//! few hundred bytes per message. Only if something is broken is it read again, for the lines that show it.
//!
//! Lines of different processes come through different pipes, so their order proves nothing between
//! processes. What happened to a message is therefore told from tokens and delivery numbers, at the end.
//!
//! Not judged here: order per key, occurrences, limits of concurrency, cost. Runs with seeks must leave out
//! their `cursor` lines.

mod breach;
mod counts;
pub mod history;
mod leases;
mod log;
mod messages;
mod record;
pub mod self_test;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::io::{self, BufRead};

use serde::Serialize;

use breach::Breaches;
use history::{Event, Reader, Run};
use record::Record;

/// The reasons for which a message may leave without an ack, and no other.
pub const REASONS: [&str; 14] = [
    "exhausted",
    "refused",
    "undecodable",
    "unsupported-payload",
    "lease-exhausted",
    "retry-until",
    "releases-exhausted",
    "no-listener-expired",
    "too-old",
    "cancelled",
    "purged",
    "ignored",
    "commit-unknown",
    "handoff-failed",
];

/// An invariant that is judged here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Invariant {
    /// Nothing acknowledged is lost.
    I1,
    /// Nothing from nowhere.
    I2,
    /// What certainly was not sent is never delivered.
    I3,
    /// Effect once.
    I4,
    /// The log reads cleanly.
    I6,
    /// The watermark never passes the unsettled.
    I7,
    /// No stale finalisation.
    I8,
    /// One live lease, one accepted verdict.
    I9,
    /// Attempts.
    I11,
    /// Liveness: the run was finished.
    I12,
    /// Conservation.
    I13,
    /// Closed reasons.
    I14,
}

impl Invariant {
    /// All of them, in order.
    pub const ALL: [Invariant; 12] = [
        Invariant::I1,
        Invariant::I2,
        Invariant::I3,
        Invariant::I4,
        Invariant::I6,
        Invariant::I7,
        Invariant::I8,
        Invariant::I9,
        Invariant::I11,
        Invariant::I12,
        Invariant::I13,
        Invariant::I14,
    ];

    /// What it promises, for reports.
    pub fn title(self) -> &'static str {
        match self {
            Invariant::I1 => "nothing acknowledged is lost",
            Invariant::I2 => "nothing from nowhere",
            Invariant::I3 => "what was not sent is never delivered",
            Invariant::I4 => "effect once",
            Invariant::I6 => "the log reads cleanly",
            Invariant::I7 => "the watermark never passes the unsettled",
            Invariant::I8 => "no stale finalisation",
            Invariant::I9 => "one live lease, one accepted verdict",
            Invariant::I11 => "attempts",
            Invariant::I12 => "the run was finished",
            Invariant::I13 => "conservation",
            Invariant::I14 => "closed reasons",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What the judge says about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// One finding for each of [`Invariant::ALL`], in that order.
    pub findings: Vec<Finding>,
    /// What was counted.
    pub counters: Counters,
}

impl Verdict {
    /// Whether every invariant held.
    pub fn held(&self) -> bool {
        self.findings.iter().all(Finding::held)
    }

    /// The findings that are broken.
    pub fn broken(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.held())
    }
}

/// What the judge says about one invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which one.
    pub invariant: Invariant,
    /// How often it was broken.
    pub breaches: u64,
    /// What is wrong with the breach that is shown; empty if it held.
    pub why: String,
    /// The lines about the offending message, offsets or checkpoint, at most 50.
    pub slice: Vec<Line>,
}

impl Finding {
    /// Whether it held.
    pub fn held(&self) -> bool {
        self.breaches == 0
    }
}

/// One line, or if it is broken also the lines that show it, as they stand in the history.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (invariant, title) = (self.invariant, self.invariant.title());
        if self.held() {
            return write!(f, "{invariant} held: {title}");
        }
        write!(f, "{invariant} broken {} times: {title}: {}", self.breaches, self.why)?;
        for line in &self.slice {
            let event = serde_json::to_string(&line.event).map_err(|_| fmt::Error)?;
            write!(f, "\n  line {}: {event}", line.number)?;
        }
        Ok(())
    }
}

/// A line of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: u64,
    /// What it says.
    pub event: Event,
}

/// What a run amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Messages whose send returned.
    pub sent: u64,
    /// Of those, once per subscription: neither done nor dead nor cancelled.
    pub lost: u64,
    /// Effects beyond the first of a message.
    pub double_effects: u64,
    /// Deliveries beyond the first of a message.
    pub redelivered: u64,
    /// Faults of kind "kill".
    pub kills: u64,
    /// Whether a backlog was left, or nobody counted it.
    pub unfinished: bool,
}

/// Judges a history that is in memory.
pub fn judge(run: &Run, events: &[Event]) -> Verdict {
    let mut record = Record::new(run);
    for event in events {
        record.take(event);
    }
    let (breaches, counters) = record.close();
    match slices(&breaches, events.iter().map(Ok::<_, Infallible>)) {
        Ok(slices) => verdict(&breaches, counters, slices),
        Err(never) => match never {},
    }
}

/// Judges a history as it is read. `open` starts it from the beginning, and is called again if something is
/// broken.
///
/// # Errors
///
/// Those of `open` and of its reader, and `InvalidData` for a line that cannot be parsed.
pub fn judge_lines<R: BufRead>(open: impl Fn() -> io::Result<R>) -> io::Result<Verdict> {
    let reader = Reader::open(open()?)?;
    let mut record = Record::new(reader.run());
    for event in reader {
        record.take(&event?);
    }
    let (breaches, counters) = record.close();
    let slices = slices(&breaches, Reader::open(open()?)?)?;
    Ok(verdict(&breaches, counters, slices))
}

type Slices = BTreeMap<Invariant, Vec<Line>>;

fn slices<B: Borrow<Event>, E>(
    breaches: &Breaches,
    events: impl Iterator<Item = Result<B, E>>,
) -> Result<Slices, E> {
    if breaches.is_empty() { Ok(Slices::new()) } else { breaches.slices(events) }
}

fn verdict(breaches: &Breaches, counters: Counters, mut slices: Slices) -> Verdict {
    let finding = |invariant| {
        let breach = breaches.get(invariant);
        Finding {
            invariant,
            breaches: breach.map_or(0, |breach| breach.count),
            why: breach.map_or_else(String::new, |breach| breach.why.clone()),
            slice: slices.remove(&invariant).unwrap_or_default(),
        }
    };
    Verdict { findings: Invariant::ALL.map(finding).into(), counters }
}

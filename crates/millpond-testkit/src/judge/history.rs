//! The record of a run: one JSON object per line, first the [`Run`], then its [`Event`]s.
//!
//! The parent process writes it from what its children reported over pipes. What it had read before it
//! killed a child is fact; the order of lines from different children is not.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version of the format that this code writes and reads.
pub const HISTORY_VERSION: u32 = 1;

/// What was run: the first line of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`HISTORY_VERSION`].
    pub version: u32,
    /// The seed of everything random in the run.
    pub seed: u64,
    /// The commit that was run.
    pub commit: String,
    /// The store's URL without secrets.
    pub store: String,
    /// Server version and settings that affect durability.
    #[serde(default)]
    pub server: String,
    /// The faults that were caused, "F01" and so on.
    #[serde(default)]
    pub faults: Vec<String>,
    /// The queues and topics of the workload.
    pub queues: Vec<QueuePlan>,
    /// What the handler of each kind does. A kind that is not listed is [`Plan::Ack`].
    #[serde(default)]
    pub kinds: BTreeMap<String, Plan>,
    /// Messages that kill their process, whatever their kind.
    #[serde(default)]
    pub killing: Vec<Uuid>,
    /// The most messages that one worker has in hand.
    #[serde(default)]
    pub in_flight_max: u32,
}

/// What the judge knows of a queue or topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePlan {
    /// Its name.
    pub name: String,
    /// The durable subscriptions of a topic; empty for a queue.
    #[serde(default)]
    pub subs: Vec<String>,
    /// The most attempts on one message.
    pub attempts_max: u32,
    /// How an effect shows.
    pub effects: Effects,
}

/// How a handler's effect shows in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effects {
    /// It does not: a message is done when its ack was accepted.
    None,
    /// The worker reported its commit ([`Op::Effect`]).
    Reported,
    /// It is a row in the business table at the end ([`Op::Table`]).
    Table,
}

/// What the handler does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plan {
    /// It acknowledges; whatever else happens to the message is not its own fault.
    Ack,
    /// It may retry or dead-letter.
    Fail,
    /// It kills its process, on every attempt.
    Kill,
}

/// Whether something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It was begun.
    Invoke,
    /// It happened.
    Ok,
    /// It certainly did not happen.
    Fail,
    /// It may have happened. After an `ok` of the same lease or settle it takes that certainty back.
    Info,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// A message was sent: `queue`, `id`, `kind`, `val` (amount of its effect).
    Send,
    /// A delivery: `queue`, `sub`, `id`, `token`, `attempt`, `delivery`, and where known `part`, `off`.
    Lease,
    /// A worker reported that the effect of `id` was committed: `queue`, `sub`, `id`.
    Effect,
    /// A verdict under a token: `queue`, `sub`, `id`, `token`, `attempt`, `delivery`, `verdict`, `reason`.
    Settle,
    /// A takeover of one unsettled message: `old` and new `token`, `delivery` that was lost, `val` (how many
    /// messages the dead worker had in hand). To be reported before the message is put back.
    Reclaim,
    /// A claim of offsets `off..to` of `part`. `info`: seen by a reclaimer, perhaps reported before.
    Cursor,
    /// A figure of a checkpoint: `queue`, `sub`, `state`, `val`.
    Count,
    /// The low watermark of a subscription, in a checkpoint: `queue`, `sub`, `part`, `off`.
    Watermark,
    /// An offset that is not settled, in a checkpoint: `queue`, `sub`, `part`, `off`.
    Unsettled,
    /// The lowest offset that retention kept, in a checkpoint: `queue`, `part`, `off`.
    Kept,
    /// A row of the business table at the end: `queue`, `sub`, `id`, `val`.
    Table,
    /// A message that left without an ack, as kept at the end: `queue`, `sub`, `id`, `reason`, `attempt`.
    Dead,
    /// A fault that was caused: `kind` ("kill", "pause", "cut"), `proc`.
    Fault,
}

/// A figure of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Every message the store ever took.
    Sent,
    /// Acknowledged.
    Done,
    /// Dead letters.
    Dead,
    /// Cancelled by a person, or purged.
    Cancelled,
    /// In the log, beyond the cursor.
    Ready,
    /// Under a lease.
    Leased,
    /// In the outbox, due later.
    Scheduled,
    /// Waiting for another attempt.
    Retrying,
    /// The sum of the business table; not a number of messages.
    Sum,
}

/// One line of a history after the first.
///
/// The lines of one *checkpoint* (`count`, `watermark`, `unsettled`, `kept`) were read in one transaction,
/// have one `t` that nothing else has, and stand together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The parent's monotonic clock, in nanoseconds.
    pub t: u64,
    /// What it is about.
    pub op: Op,
    /// Whether it happened.
    pub ph: Phase,
    /// Process id of this start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Role of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proc: Option<String>,
    /// Queue or topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Subscription of a topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    /// Partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Offset in the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<u64>,
    /// End of a claimed range, exclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    /// Ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The sender's counter in that key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Message id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Kind of the message, or of the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Attempts charged so far, this one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Number of the delivery: attempt plus releases. Without it the attempt counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<u32>,
    /// Token of the lease; of a takeover, the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Uuid>,
    /// Token that a takeover made void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Uuid>,
    /// "ack", "retry", "snooze", "release" or "dead-letter".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Why the message left without an ack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Trigger and occurrence of a firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occ: Option<String>,
    /// Which figure `val` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Amount of an effect, or a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val: Option<i64>,
    /// Kind of the error. "crc": the body is not what was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub err: Option<String>,
}

impl Event {
    /// An event with nothing but its three required fields; the others are filled in by struct update.
    pub fn new(t: u64, op: Op, ph: Phase) -> Self {
        Event {
            t,
            op,
            ph,
            node: None,
            proc: None,
            queue: None,
            sub: None,
            part: None,
            off: None,
            to: None,
            key: None,
            seq: None,
            id: None,
            kind: None,
            attempt: None,
            delivery: None,
            token: None,
            old: None,
            verdict: None,
            reason: None,
            occ: None,
            state: None,
            val: None,
            err: None,
        }
    }
}

/// Writes a [`Run`] or an [`Event`] as one line.
///
/// # Errors
///
/// Those of the writer.
pub fn write_line(writer: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")
}

/// A history that is being read line by line: the run, then an iterator over its events.
#[derive(Debug)]
pub struct Reader<R> {
    run: Run,
    lines: Lines<R>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    ///
    /// Those of the reader, and `InvalidData` if the line is not a run of a version that can be read.
    pub fn open(reader: R) -> io::Result<Self> {
        let mut lines = Lines { reader, text: String::new(), number: 0 };
        let run: Run = lines.read()?.ok_or_else(|| lines.invalid("is missing"))?;
        if run.version != HISTORY_VERSION {
            return Err(lines.invalid(format!("has version {}, not {HISTORY_VERSION}", run.version)));
        }
        Ok(Reader { run, lines })
    }

    /// What was run.
    pub fn run(&self) -> &Run {
        &self.run
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        self.lines.read().transpose()
    }
}

#[derive(Debug)]
struct Lines<R> {
    reader: R,
    text: String,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        self.text.clear();
        self.number += 1;
        if self.reader.read_line(&mut self.text)? == 0 {
            return Ok(None);
        }
        serde_json::from_str(&self.text).map(Some).map_err(|error| self.invalid(error))
    }

    fn invalid(&self, what: impl std::fmt::Display) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("history line {}: {what}", self.number))
    }
}

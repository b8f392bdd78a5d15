//! What people see of a store.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::MessageId;
use crate::query::Query;
use crate::queue::QueueSettings;
use crate::reason::{DropReason, EventKind};
use crate::state::State;
use crate::time::Timestamp;

/// The part of a list that is asked for.
#[derive(Debug, Clone, Default)]
pub struct Find {
    /// What belongs to the answer.
    pub query: Query,
    /// Goes on after an earlier answer: its [`Found::next`].
    pub after: Option<String>,
    /// Items at most.
    pub rows_max: usize,
    /// Bodies and headers come along; otherwise they are empty.
    pub bodies: bool,
    /// How far matches are counted.
    pub count: Count,
}

/// How far matches are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Count {
    /// Not at all.
    #[default]
    No,
    /// Up to this many: a list says "10 000+".
    UpTo(u64),
    /// All of them: before a bulk action.
    All,
}

/// A part of a list, newest first.
#[derive(Debug, Clone)]
pub struct Found<T> {
    /// The items.
    pub items: Vec<T>,
    /// Matches in all, as far as they were counted.
    pub matched: u64,
    /// `matched` is all there are.
    pub counted_all: bool,
    /// The search ended at its own limit of rows or time before it had seen everything.
    pub cut_short: bool,
    /// For [`Find::after`]; `None`: there is nothing more.
    pub next: Option<String>,
}

/// A queue with its counts.
#[derive(Debug, Clone)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Its stored settings.
    pub settings: QueueSettings,
    /// In the log, beyond the cursor. Exact.
    pub ready: u64,
    /// With a worker.
    pub leased: u64,
    /// In the outbox, due later.
    pub scheduled: u64,
    /// In the outbox after an attempt.
    pub retrying: u64,
    /// Dead letters, cancelled ones among them.
    pub dead: u64,
    /// Acknowledged since the queue was declared.
    pub done: u64,
    /// Stored since the queue was declared, redriven ones among them.
    pub sent: u64,
    /// When the oldest ready message was published.
    pub oldest_ready: Option<Timestamp>,
    /// Live workers that listen to it.
    pub listeners: u64,
    /// What an operator changed at run time; `settings` has it already.
    pub changes: Vec<SettingChange>,
    /// Everything that holds it.
    pub paused_by: Vec<Pause>,
}

/// A setting that an operator changed at run time. It wins over the declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingChange {
    /// The name of the setting, as in [`QueueSettings`].
    pub setting: String,
    /// Its value, as it is stored.
    pub value: Value,
    /// Who changed it.
    pub actor: String,
    /// When.
    pub at: Timestamp,
}

/// What a pause holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every queue of the store.
    Global,
    /// One queue, by its name.
    Queue(String),
}

/// A pause. While one lasts nothing is leased; sending goes on and what runs goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What it holds.
    pub scope: Scope,
    /// Why, if the one who paused said so.
    pub reason: Option<String>,
    /// Who paused it.
    pub actor: String,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

/// One entry of the run log. Those of a message come oldest first, lists newest first.
#[derive(Debug, Clone)]
pub struct EventView {
    /// Orders entries of one instant, and names the entry.
    pub id: String,
    /// The message; `None`: a bulk drop of `count` messages.
    pub message: Option<MessageId>,
    /// The queue.
    pub queue: String,
    /// The name of the work.
    pub name: String,
    /// Which of the six.
    pub kind: EventKind,
    /// Why.
    pub reason: Option<String>,
    /// The attempt it belongs to.
    pub attempt: u32,
    /// The delivery it belongs to: attempts and releases.
    pub delivery: u32,
    /// Messages it speaks of: 1, but for bulk drops.
    pub count: u64,
    /// Database time.
    pub at: Timestamp,
    /// The worker, where one was concerned.
    pub worker: Option<String>,
    /// How long the run took that it ends.
    pub run: Option<Duration>,
    /// Redacted.
    pub error: Option<String>,
    /// The message that this one is a new life of.
    pub retry_of: Option<MessageId>,
}

/// A message with where it is.
#[derive(Debug, Clone)]
pub struct MessageView {
    /// Its id.
    pub id: MessageId,
    /// Its queue.
    pub queue: String,
    /// Derived from where it is.
    pub state: State,
    /// The name of the work.
    pub kind: String,
    /// As sent.
    pub key: Option<String>,
    /// As sent.
    pub headers: Value,
    /// Of the body.
    pub content_type: String,
    /// Byte for byte.
    pub body: Vec<u8>,
    /// The priority class.
    pub priority: u8,
    /// Attempts so far, the one under way included.
    pub attempt: u32,
    /// Deliveries given back.
    pub releases: u32,
    /// Deliveries in all.
    pub attempts_max: Option<u32>,
    /// No attempt is made after this. Of a dead letter it is not kept.
    pub retry_until: Option<Timestamp>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When it entered this state, where that is known.
    pub since: Option<Timestamp>,
    /// When it is due, while it waits in the outbox.
    pub ready_at: Option<Timestamp>,
    /// Why it waits or left, by a word of the closed sets.
    pub reason: Option<String>,
    /// The last error, redacted.
    pub error: Option<String>,
    /// The worker that holds it.
    pub worker: Option<String>,
    /// Until when that worker's lease lasts.
    pub lease_until: Option<Timestamp>,
    /// The suspect group it is in; 0: none.
    pub suspect: u16,
    /// Ready messages of its part of the queue before it.
    pub behind: Option<u64>,
    /// The message that was made of it by a redrive.
    pub redriven_as: Option<MessageId>,
    /// The message that it is a new life of.
    pub retry_of: Option<MessageId>,
    /// Somebody wants it stopped: it is leased, and any end but an acknowledgement makes it `cancelled`.
    pub cancel_asked: bool,
    /// Its run log, oldest first.
    pub events: Vec<EventView>,
}

/// A message in a list: what can be told without its whole story.
#[derive(Debug, Clone)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// Its queue.
    pub queue: String,
    /// The name of the work.
    pub kind: String,
    /// As sent.
    pub key: Option<String>,
    /// The priority class.
    pub priority: u8,
    /// Derived from where it is.
    pub state: State,
    /// Attempts so far, the one under way included.
    pub attempt: u32,
    /// Deliveries in all.
    pub attempts_max: Option<u32>,
    /// No attempt is made after this. Of a dead letter it is not kept.
    pub retry_until: Option<Timestamp>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When it is due, while it waits in the outbox.
    pub ready_at: Option<Timestamp>,
    /// How long it waited from due to leased; while it waits, how long by now.
    pub wait: Option<Duration>,
    /// How long its last run took; while it runs, how long by now.
    pub run: Option<Duration>,
    /// Why it waits or left.
    pub reason: Option<String>,
    /// The last error, redacted.
    pub error: Option<String>,
    /// The worker that has or had it last.
    pub worker: Option<String>,
    /// As sent, if it was asked for.
    pub headers: Value,
    /// Of the body.
    pub content_type: String,
    /// Byte for byte, if it was asked for.
    pub body: Vec<u8>,
}

/// A dead letter.
#[derive(Debug, Clone)]
pub struct DeadLetterView {
    /// The id of the message.
    pub id: MessageId,
    /// Its queue.
    pub queue: String,
    /// The name of the work.
    pub kind: String,
    /// As sent.
    pub key: Option<String>,
    /// The priority class.
    pub priority: u8,
    /// Of the closed set.
    pub reason: String,
    /// What the handler said, or the last error, redacted.
    pub detail: Option<String>,
    /// The class of the last error: its type in code, how the program ended, or how the run failed.
    pub class: Option<String>,
    /// The group of like errors ([`crate::fingerprint`]).
    pub fingerprint: Option<String>,
    /// Attempts used up.
    pub attempt: u32,
    /// Deliveries in all.
    pub attempts_max: Option<u32>,
    /// The worker that had it last.
    pub worker: Option<String>,
    /// As sent, if it was asked for.
    pub headers: Value,
    /// Of the body.
    pub content_type: String,
    /// Byte for byte, if it was asked for.
    pub body: Vec<u8>,
    /// The size of the body.
    pub body_bytes: u64,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When it died.
    pub died_at: Timestamp,
    /// The message that was made of it by a redrive.
    pub redriven_as: Option<MessageId>,
    /// The message that it was a new life of.
    pub retry_of: Option<MessageId>,
}

impl DeadLetterView {
    /// What became of it: `open`, `retried` or `cancelled`.
    pub fn status(&self) -> &'static str {
        dead_letter_status(&self.reason, self.redriven_as)
    }
}

/// What became of a dead letter: `open`, `retried` or `cancelled`.
pub fn dead_letter_status(reason: &str, redriven_as: Option<MessageId>) -> &'static str {
    match redriven_as {
        Some(_) => "retried",
        None if reason == DropReason::Cancelled.as_str() => "cancelled",
        None => "open",
    }
}

/// What dead letters are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// Like errors.
    Fingerprint,
    /// The queue.
    Queue,
    /// The name of the work.
    Kind,
    /// The reason.
    Reason,
    /// The worker that had it last.
    Worker,
}

/// Dead letters that have something in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureGroup {
    /// The common value.
    pub key: String,
    /// `None` where they differ, here and below.
    pub fingerprint: Option<String>,
    /// Their queue.
    pub queue: Option<String>,
    /// The name of their work.
    pub kind: Option<String>,
    /// Their reason.
    pub reason: Option<String>,
    /// The class of their errors.
    pub class: Option<String>,
    /// The error of the newest.
    pub example: Option<String>,
    /// How many.
    pub count: u64,
    /// When the first died.
    pub first: Timestamp,
    /// When the last died.
    pub last: Timestamp,
    /// How many died in each of the last seven spans of 24 hours, the oldest first.
    pub per_day: [u64; 7],
}

/// A row of the outbox.
#[derive(Debug, Clone)]
pub struct OutboxRow {
    /// The id of the message.
    pub id: MessageId,
    /// Where it goes.
    pub queue: String,
    /// The name of the work.
    pub kind: String,
    /// As sent.
    pub key: Option<String>,
    /// Why it waits.
    pub reason: String,
    /// When it is due.
    pub ready_at: Timestamp,
    /// Since when it waits here.
    pub since: Timestamp,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Attempts used up.
    pub attempt: u32,
    /// The last error, redacted.
    pub error: Option<String>,
    /// As sent, if it was asked for.
    pub headers: Value,
    /// Of the body.
    pub content_type: String,
    /// Byte for byte, if it was asked for.
    pub body: Vec<u8>,
}

/// The outbox towards one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxSummary {
    /// Where the rows go.
    pub queue: String,
    /// Rows in all.
    pub rows: u64,
    /// Rows that are due and not moved yet.
    pub due: u64,
    /// When the oldest of those was due.
    pub oldest_due: Option<Timestamp>,
    /// When the next one is due.
    pub next_due: Option<Timestamp>,
    /// The most attempts of one of them.
    pub attempts_max: u32,
}

/// How often what happened in one span of time: the six of the run log, and the times of what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// When the span begins.
    pub at: Timestamp,
    /// ENQUEUE.
    pub sent: u64,
    /// START.
    pub leased: u64,
    /// SUCCESS.
    pub done: u64,
    /// RETRY.
    pub retried: u64,
    /// DLQ.
    pub dead: u64,
    /// RECOVER.
    pub recovered: u64,
    /// Run times of everything that ended in it, together.
    pub run: Duration,
}

/// Which counters, and by how much time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tallies {
    /// Of this queue only.
    pub queue: Option<String>,
    /// Of this work only.
    pub kind: Option<String>,
    /// From here, at the beginning of a span.
    pub from: Timestamp,
    /// To here, not included.
    pub to: Timestamp,
    /// By the minute: kept 24 h. Otherwise by the quarter of an hour: kept 90 days.
    pub by_minute: bool,
}

/// One line of the audit: who changed what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// Counts from 1 without gaps.
    pub number: u64,
    /// Database time.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// What was done, such as `queue pause`.
    pub verb: String,
    /// To what: a name, an id or a filter.
    pub object: String,
    /// Rows that it changed.
    pub count: u64,
    /// Why, if it was said.
    pub reason: Option<String>,
    /// The chain up to and with this line is as it was written.
    pub intact: bool,
}

/// What a store tells about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreInfo {
    /// The kind of store: `sqlite`, `postgres` or `mysql`.
    pub kind: String,
    /// Named facts, in the order in which they are shown: version, place, durability, sizes, snapshots.
    pub facts: Vec<Fact>,
    /// Tables with their rows, estimated where counting would be slow.
    pub tables: Vec<(String, u64)>,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
    /// What the runtime may do and no more: SQL, or sentences where there are no roles.
    pub grants: Vec<String>,
}

/// A named fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its name, such as `size_bytes`.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// What it means, in a few words.
    pub about: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Work does not get done, or may be lost.
    Critical,
    /// Somebody should look.
    Warn,
    /// Worth knowing.
    Info,
}

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A word that does not change.
    pub code: String,
    /// How bad it is.
    pub severity: Severity,
    /// What is the case.
    pub text: String,
    /// What to do.
    pub action: Option<String>,
}

/// A worker, by its last heartbeat.
#[derive(Debug, Clone)]
pub struct WorkerView {
    /// Unique per process start.
    pub id: String,
    /// The host it runs on.
    pub host: String,
    /// The queues it listens to.
    pub queues: Vec<String>,
    /// Handlers it can run at once.
    pub slots: u32,
    /// Handlers it ran at its last heartbeat.
    pub busy: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// Its last heartbeat.
    pub seen_at: Timestamp,
    /// Until when its lease lasts.
    pub lease_until: Timestamp,
    /// Whether it stopped by itself.
    pub stopped: bool,
    /// What is wrong with it.
    pub error: Option<String>,
    /// What it knows of itself.
    pub facts: WorkerFacts,
    /// What an operator wants of it.
    pub wish: Option<Wish>,
}

/// What a worker says of itself in its heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFacts {
    /// Of its process.
    pub pid: u32,
    /// Of its program.
    pub version: String,
    /// The names of the work it has handlers for; empty: any.
    pub kinds: Vec<String>,
    /// Slots whose handler is past its timeout and cannot be stopped.
    pub stuck: u32,
    /// Messages acknowledged since it started.
    pub processed: u64,
    /// Attempts failed since it started.
    pub failed: u64,
    /// It leases nothing more.
    pub draining: bool,
}

/// What an operator wants of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Lease nothing more, and stay.
    Drain,
    /// Stop as on a first signal, so that whoever started it starts it again.
    Restart,
}

impl Wish {
    /// The word that is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Wish::Drain => "drain",
            Wish::Restart => "restart",
        }
    }

    /// The wish of this word.
    pub fn parse(text: &str) -> Option<Self> {
        [Wish::Drain, Wish::Restart].into_iter().find(|wish| wish.as_str() == text)
    }
}

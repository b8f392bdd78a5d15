//! Messages: one with its story, rows of lists, and the entries of the run log.

use std::time::Duration;

use serde_json::Value;

use crate::message::MessageId;
use crate::reason::EventKind;
use crate::state::State;
use crate::time::Timestamp;

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

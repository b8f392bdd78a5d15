//! What people see of a store.

use serde_json::Value;

use crate::message::MessageId;
use crate::queue::QueueSettings;
use crate::state::State;
use crate::time::Timestamp;

/// The part of a list that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Rows to pass over.
    pub skip: u64,
    /// Rows at most.
    pub rows_max: usize,
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
}

/// One entry of the run log of a message.
#[derive(Debug, Clone)]
pub struct EventView {
    /// One of the six kinds.
    pub kind: String,
    /// Why.
    pub reason: Option<String>,
    /// The attempt it belongs to.
    pub attempt: u32,
    /// Database time.
    pub at: Timestamp,
    /// The worker, where one was concerned.
    pub worker: Option<String>,
    /// Redacted.
    pub error: Option<String>,
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
    /// Its run log, oldest first.
    pub events: Vec<EventView>,
}

/// Which dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadFilter {
    /// Of this queue.
    pub queue: Option<String>,
    /// With this reason.
    pub reason: Option<String>,
    /// Exactly these; empty: all that match.
    pub ids: Vec<MessageId>,
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
    /// Of the closed set.
    pub reason: String,
    /// What the handler said, or the last error, redacted.
    pub detail: Option<String>,
    /// Attempts used up.
    pub attempt: u32,
    /// Of the body.
    pub content_type: String,
    /// Byte for byte.
    pub body: Vec<u8>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When it died.
    pub died_at: Timestamp,
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
}

//! Dead letters, and groups of them.

use serde_json::Value;

use crate::message::MessageId;
use crate::reason::DropReason;
use crate::time::Timestamp;

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

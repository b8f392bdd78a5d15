//! What has happened: counters by time, and the audit.

use std::time::Duration;

use crate::time::Timestamp;

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

//! Workers, and what an operator wants of them.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

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

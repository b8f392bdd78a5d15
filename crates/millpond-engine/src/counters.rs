//! What a process counts about the ways beside the good one. In memory: since the pond was made.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is counted, for each queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// Hooks that failed, panicked, took too long, or were begun too often.
    OnErrorFailed,
    /// Hooks that were not called, because the success of the message is recorded.
    OnErrorSuppressed,
    /// Flushes of a buffer that panicked; what they held is kept.
    FlusherRestarts,
    /// Messages that a queue's dedup function removed.
    Deduplicated,
    /// Messages that were in a buffer when the process ended and nothing could be reached, or that the store refused.
    HandoffFailed,
}

impl Counter {
    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Counter::OnErrorFailed => "on_error_failed",
            Counter::OnErrorSuppressed => "on_error_suppressed",
            Counter::FlusherRestarts => "flusher_restarts",
            Counter::Deduplicated => "messages_deduplicated",
            Counter::HandoffFailed => "handoff_failed",
        }
    }
}

/// The counters of a pond. Bounded by its queues.
#[derive(Debug, Default)]
pub struct QueueCounts(Mutex<BTreeMap<(Counter, String), u64>>);

impl QueueCounts {
    pub(crate) fn add(&self, counter: Counter, queue: &str, count: usize) {
        if 0 < count {
            *self.lock().entry((counter, queue.to_owned())).or_default() += count as u64;
        }
    }

    /// What was counted of a queue.
    pub fn get(&self, counter: Counter, queue: &str) -> u64 {
        self.lock().get(&(counter, queue.to_owned())).copied().unwrap_or_default()
    }

    /// Everything that was counted, by counter and queue.
    pub fn all(&self) -> Vec<(Counter, String, u64)> {
        self.lock().iter().map(|((counter, queue), count)| (*counter, queue.clone(), *count)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Counter, String), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

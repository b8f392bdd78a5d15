//! What a process counts about the ways beside the good one. In memory: since the pond was made.
//!
//! It is one table, by what is counted and by queue: [`Pond::counts`](crate::pond::Pond::counts).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is counted, for each queue where there is one.
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
    /// Hooks, and sends to a [`FastQueue`](crate::queue::FastQueue), that failed after a commit. Hooks are of no queue.
    AfterCommitFailed,
    /// Commits of which nobody knows whether they happened. They are of no queue.
    CommitOutcomeUnknown,
    /// Messages of a [`FastQueue`](crate::queue::FastQueue) that were discarded with such a commit.
    CommitUnknown,
    /// Sends outside of a unit of work that was open in the same task.
    SendOutsideOpenTx,
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
            Counter::AfterCommitFailed => "after_commit_failed",
            Counter::CommitOutcomeUnknown => "commit_outcome_unknown",
            Counter::CommitUnknown => "commit_unknown",
            Counter::SendOutsideOpenTx => "send_outside_open_tx",
        }
    }
}

/// The counters of a pond. Bounded by its queues.
///
/// ```
/// # use millpond_engine::pond::Pond;
/// use millpond_engine::counters::Counter;
///
/// # fn example(pond: &Pond) {
/// let counts = pond.counts();
/// let lost = counts.of(Counter::HandoffFailed, "mail") + counts.of(Counter::CommitUnknown, "mail");
/// println!("{lost} messages of `mail` and {} hooks are lost", counts.total(Counter::AfterCommitFailed));
/// for (counter, queue, count) in counts.all() {
///     println!("{}{{queue={queue:?}}} {count}", counter.as_str());
/// }
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<(Counter, String), u64>>);

/// What is counted of no queue.
pub(crate) const NO_QUEUE: &str = "";

impl Counts {
    pub(crate) fn add(&self, counter: Counter, queue: &str, count: usize) {
        if 0 < count {
            *self.lock().entry((counter, queue.to_owned())).or_default() += count as u64;
        }
    }

    /// What was counted of a queue.
    pub fn of(&self, counter: Counter, queue: &str) -> u64 {
        self.lock().get(&(counter, queue.to_owned())).copied().unwrap_or_default()
    }

    /// What was counted of all queues, and of none.
    pub fn total(&self, counter: Counter) -> u64 {
        self.lock().iter().filter(|((own, _), _)| *own == counter).map(|(_, count)| count).sum()
    }

    /// Everything that was counted, by counter and queue; the queue is empty where it is of none.
    pub fn all(&self) -> Vec<(Counter, String, u64)> {
        self.lock().iter().map(|((counter, queue), count)| (*counter, queue.clone(), *count)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Counter, String), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_that_of_all_queues_and_of_none() {
        let counts = Counts::default();
        counts.add(Counter::CommitUnknown, "a", 2);
        counts.add(Counter::CommitUnknown, NO_QUEUE, 1);
        counts.add(Counter::HandoffFailed, "a", 4);
        counts.add(Counter::HandoffFailed, "b", 0);
        assert_eq!((counts.of(Counter::CommitUnknown, "a"), counts.total(Counter::CommitUnknown)), (2, 3));
        assert_eq!(counts.all().len(), 3, "what did not happen has no line");
    }
}

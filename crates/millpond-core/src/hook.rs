//! The port of hooks: which drops somebody wants to be told of, and which of those were told.
//!
//! A queue that a worker has a hook for is marked for good. From then on each of its dead letters is written, in the
//! transaction that settles it and whoever settles it, with the word that its hook is pending. A node that has the hook
//! takes it for a while, calls the hook, and says how that ended; if the node dies, another takes it when the while is
//! over. So no drop is lost between the dead letter and the hook, and a hook may be called more than once.

use std::time::Duration;

use crate::error::Result;
use crate::message::MessageId;
use crate::store::{BoxFuture, QueueId};
use crate::time::Timestamp;

/// How long a hook may take.
pub const HOOK_LIMIT: Duration = Duration::from_secs(30);

/// How long a node has for the hooks that it took, before another may take them: their limit, and time to say so.
pub const HOOK_LEASE: Duration = Duration::from_secs(60);

/// How often a hook is begun at most. One that ended, in whatever way, is not called again; what is repeated is one whose
/// process died.
pub const HOOK_TRIES_MAX: u32 = 3;

/// Asks for dead letters whose hook is pending.
#[derive(Debug, Clone)]
pub struct TakeHooks {
    /// Of this queue.
    pub queue: QueueId,
    /// How long nobody else gets them.
    pub lease: Duration,
    /// At most this many.
    pub rows_max: usize,
}

/// A dead letter whose hook is pending.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its number in the store.
    pub number: i64,
    /// The message.
    pub id: MessageId,
    /// Of the closed set.
    pub reason: String,
    /// The last error, or what the handler said.
    pub detail: Option<String>,
    /// The class of the error.
    pub class: Option<String>,
    /// Deliveries that counted.
    pub attempt: u32,
    /// The name of the work; `None`: the queue's own.
    pub kind: Option<String>,
    /// As sent.
    pub key: Option<String>,
    /// As sent, in JSON.
    pub headers: Option<String>,
    /// `None` is JSON.
    pub content_type: Option<String>,
    /// The bytes that were sent.
    pub body: Vec<u8>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When it was dropped.
    pub died_at: Timestamp,
    /// How often its hook was taken, this time included.
    pub tries: u32,
    /// The success of the message is recorded after all: no hook may be called for it.
    pub acknowledged: bool,
}

/// How a hook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookEnd {
    /// It was called and returned.
    Done,
    /// It failed, panicked, took too long, or was begun too often.
    Failed,
    /// It was not called, because the message was acknowledged.
    Suppressed,
}

impl HookEnd {
    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            HookEnd::Done => "done",
            HookEnd::Failed => "failed",
            HookEnd::Suppressed => "suppressed",
        }
    }
}

/// What is to be done about a dead letter that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookStep {
    /// Its hook is called.
    Call,
    /// It is not, and that was the end.
    End(HookEnd),
}

/// Decides whether a hook is called.
pub const fn step(tries: u32, acknowledged: bool) -> HookStep {
    if acknowledged {
        HookStep::End(HookEnd::Suppressed)
    } else if HOOK_TRIES_MAX < tries {
        HookStep::End(HookEnd::Failed)
    } else {
        HookStep::Call
    }
}

/// Hooks of dead letters.
pub trait Hooks: Send + Sync {
    /// From now on, and for good, the dead letters of a queue wait for a hook.
    fn expect_hooks(&self, queue: QueueId) -> BoxFuture<'_, Result<()>>;

    /// Takes dead letters whose hook is pending and that nobody else has, those that have waited longest first.
    fn take_hooks(&self, take: TakeHooks) -> BoxFuture<'_, Result<Vec<Pending>>>;

    /// Records how hooks ended, by the numbers of their dead letters.
    fn finish_hooks(&self, ends: Vec<(i64, HookEnd)>) -> BoxFuture<'_, Result<()>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_begun_three_times_at_most_and_never_for_a_success() {
        assert_eq!(step(1, false), HookStep::Call);
        assert_eq!(step(3, false), HookStep::Call);
        assert_eq!(step(4, false), HookStep::End(HookEnd::Failed));
        assert_eq!(step(1, true), HookStep::End(HookEnd::Suppressed));
    }

    #[test]
    fn who_has_taken_a_hook_has_time_for_it() {
        assert!(HOOK_LIMIT < HOOK_LEASE);
    }
}

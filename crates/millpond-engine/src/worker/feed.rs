//! The leased messages of one queue that wait for a slot.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millpond_core::message::{Leased, Offset, Token};
use millpond_core::store::ClaimRef;
use tokio::sync::Notify;

/// A leased message that no handler has seen yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) held: ClaimRef,
    pub(crate) message: Leased,
    pub(crate) since: Instant,
    /// Taking it out told the worker to lease more.
    pub(crate) told_low: bool,
}

/// First in, first out. Bounded by what [`next_lease`](super::plan::next_lease) asks for.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    inner: Mutex<Inner>,
    filled: Notify,
    /// Told when little is left, and the worker should lease more.
    pub(crate) low: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Below this number of messages, `low` is told.
    low_water: usize,
    closed: bool,
}

impl Feed {
    pub(crate) fn new(low: Arc<Notify>) -> Self {
        Self { low, ..Self::default() }
    }

    /// Adds the messages of a claim; answers them back if the feed is closed.
    pub(crate) fn fill(&self, messages: Vec<Waiting>) -> Vec<Waiting> {
        {
            let mut inner = self.lock();
            if inner.closed {
                return messages;
            }
            inner.bytes += messages.iter().map(|waiting| waiting.message.body.len()).sum::<usize>();
            inner.waiting.extend(messages);
            inner.low_water = inner.waiting.len() / 2;
        }
        self.filled.notify_one();
        Vec::new()
    }

    /// The next message; `None` when the feed is closed and empty.
    pub(crate) async fn next(&self) -> Option<Waiting> {
        loop {
            let filled = self.filled.notified();
            match self.pop() {
                Popped::Message(waiting) => return Some(waiting),
                Popped::Closed => return None,
                Popped::Empty => filled.await,
            }
        }
    }

    fn pop(&self) -> Popped {
        let mut inner = self.lock();
        let Some(mut waiting) = inner.waiting.pop_front() else {
            return if inner.closed { Popped::Closed } else { Popped::Empty };
        };
        inner.bytes = inner.bytes.saturating_sub(waiting.message.body.len());
        let left = inner.waiting.len();
        waiting.told_low = left == 0 || left == inner.low_water;
        drop(inner);
        if waiting.told_low {
            self.low.notify_one();
        }
        // One slot wakes the next: a single hint may stand for many messages.
        if left != 0 {
            self.filled.notify_one();
        }
        Popped::Message(waiting)
    }

    /// Takes out at most `most` of those that come next, as long as they are of the same claim and kind as `first`: they
    /// are handled in one call.
    pub(crate) fn take_like(&self, first: &Waiting, most: usize) -> Vec<Waiting> {
        let mut inner = self.lock();
        let is_like = |waiting: &&Waiting| {
            waiting.held.token == first.held.token && waiting.message.kind == first.message.kind
        };
        let count = inner.waiting.iter().take(most).take_while(is_like).count();
        let taken: Vec<Waiting> = inner.waiting.drain(..count).collect();
        let bytes: usize = taken.iter().map(|waiting| waiting.message.body.len()).sum();
        inner.bytes = inner.bytes.saturating_sub(bytes);
        let is_low = inner.waiting.len() <= inner.low_water;
        drop(inner);
        if is_low && !taken.is_empty() {
            self.low.notify_one();
        }
        taken
    }

    /// Puts back what a slot took that it may not work on.
    pub(crate) fn put_back(&self, waiting: Waiting) {
        let mut inner = self.lock();
        inner.bytes += waiting.message.body.len();
        inner.waiting.push_front(waiting);
        drop(inner);
        self.filled.notify_one();
    }

    /// Takes out those that somebody wants stopped.
    pub(crate) fn take_out(&self, unwanted: &[(Token, Offset)]) -> VecDeque<Waiting> {
        let is_unwanted =
            |waiting: &Waiting| unwanted.contains(&(waiting.held.token, waiting.message.offset));
        let mut inner = self.lock();
        let (taken, kept) = inner.waiting.drain(..).partition::<VecDeque<_>, _>(is_unwanted);
        inner.waiting = kept;
        let bytes: usize = taken.iter().map(|waiting| waiting.message.body.len()).sum();
        inner.bytes = inner.bytes.saturating_sub(bytes);
        taken
    }

    /// Takes out everything that waits.
    pub(crate) fn drain(&self) -> Vec<Waiting> {
        let mut inner = self.lock();
        inner.bytes = 0;
        inner.waiting.drain(..).collect()
    }

    /// Nothing more is started; answers what waited.
    pub(crate) fn close(&self) -> Vec<Waiting> {
        self.lock().closed = true;
        self.filled.notify_waiters();
        self.drain()
    }

    /// Whether the worker stops: what is in a slot's hand and has not begun is given back.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Messages and bytes that wait.
    pub(crate) fn size(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.waiting.len(), inner.bytes)
    }

    /// When the message that has waited longest was leased.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.lock().waiting.front().map(|waiting| waiting.since)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::large_enum_variant, reason = "it is looked at once, on the stack, for every message")]
enum Popped {
    Message(Waiting),
    Empty,
    Closed,
}

//! Tells the workers of this process what was sent in this process.
//!
//! A hint, never a promise: whoever misses one finds the messages by polling.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use millpond_core::store::QueueId;
use tokio::sync::watch;

/// The queues that were sent to, for any number of listeners.
///
/// - **Limit:** one number for each queue; pokes of the same queue become one.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    /// The number of the last poke.
    version: watch::Sender<u64>,
    /// The number of the last poke of each queue.
    last: Mutex<HashMap<QueueId, u64>>,
}

impl Wakes {
    /// Wakes whoever listens. Does next to nothing while nobody does.
    pub(crate) fn poke(&self, queue: QueueId) {
        if self.version.receiver_count() == 0 {
            return;
        }
        // The number is raised under the lock, so that a listener that sees it finds the queue too.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.version.send_modify(|version| {
            *version += 1;
            last.insert(queue, *version);
        });
    }

    /// A listener to the pokes from now on.
    pub(crate) fn listen(&self) -> Listener<'_> {
        let version = self.version.subscribe();
        let seen = *version.borrow();
        Listener { wakes: self, version, seen }
    }
}

/// Hears the pokes of one [`Wakes`].
#[derive(Debug)]
pub(crate) struct Listener<'a> {
    wakes: &'a Wakes,
    version: watch::Receiver<u64>,
    seen: u64,
}

impl Listener<'_> {
    /// Waits for a poke and answers the queues that were poked since the last call. Dropping the future
    /// loses nothing.
    pub(crate) async fn next(&mut self) -> Vec<QueueId> {
        let seen = self.seen;
        if self.version.wait_for(|version| seen < *version).await.is_err() {
            // Cannot happen: the sender outlives this borrow of it.
            return std::future::pending().await;
        }
        let last = self.wakes.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.seen = *self.version.borrow_and_update();
        last.iter().filter(|(_, poke)| seen < **poke).map(|(queue, _)| *queue).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: QueueId = QueueId(1);
    const THUMBNAILS: QueueId = QueueId(2);

    #[tokio::test]
    async fn pokes_of_one_queue_become_one_and_reach_every_listener() {
        let wakes = Wakes::default();
        let (mut first, mut second) = (wakes.listen(), wakes.listen());
        wakes.poke(MAIL);
        wakes.poke(MAIL);
        assert_eq!(first.next().await, [MAIL]);
        wakes.poke(THUMBNAILS);
        assert_eq!(first.next().await, [THUMBNAILS]);
        let mut both = second.next().await;
        both.sort();
        assert_eq!(both, [MAIL, THUMBNAILS]);
    }

    #[tokio::test]
    async fn a_poke_wakes_a_waiting_listener() {
        let wakes = Wakes::default();
        let mut listener = wakes.listen();
        let (woken, ()) = tokio::join!(listener.next(), async { wakes.poke(MAIL) });
        assert_eq!(woken, [MAIL]);
    }

    #[tokio::test]
    async fn what_was_poked_before_is_not_heard() {
        let wakes = Wakes::default();
        let mut early = wakes.listen();
        wakes.poke(MAIL);
        let mut late = wakes.listen();
        wakes.poke(THUMBNAILS);
        assert_eq!(late.next().await, [THUMBNAILS]);
        assert_eq!(early.next().await.len(), 2);
    }
}

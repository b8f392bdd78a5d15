//! The last step of a send: the queue's dedup function, then the buffer or the store.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use millpond_core::error::Result;
use millpond_core::store::{self, Stored};

use crate::body::Body;
use crate::buffers::{Buffers, Gathering};
use crate::counters::Counts;
use crate::dedup::{Dedup, Deduplicated, Removed};
use crate::lost::OwnHooks;
use crate::pond::{Batch, Path, Pond, Sent, SentMessage};
use crate::queue::{Declaration, Mode};

/// What a pond has beside its store.
#[derive(Debug, Default)]
pub(crate) struct Side {
    buffers: Buffers,
    counts: Counts,
    hooks: OwnHooks,
    /// By name: of the queues whose constants say so. Where a message is stored, the constant is not at hand.
    ways: RwLock<HashMap<String, Way>>,
}

/// What is done with the messages of a queue before they are stored.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) gathering: Option<Gathering>,
    pub(crate) dedup: Option<Dedup>,
}

impl Pond {
    /// What went otherwise than wished in this process since it opened the pond, by queue.
    pub fn counts(&self) -> &Counts {
        &self.side().counts
    }

    /// The hooks that this process knows.
    pub(crate) fn hooks(&self) -> &OwnHooks {
        &self.side().hooks
    }

    /// How many messages of each buffered queue are in this process's memory. For a gauge.
    pub fn buffered(&self) -> Vec<(String, usize)> {
        self.buffers().counts()
    }

    /// Writes out what is in the buffers now, without waiting for their windows, and returns when it is stored. For tests,
    /// and before a process does something that may end it.
    pub async fn flush(&self) {
        self.buffers().flush(self).await;
    }

    /// What is in memory, of buffered queues.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.side().buffers
    }

    /// Remembers what a constant says about how its messages are sent.
    pub(crate) fn learn<B: Body, M: Mode>(&self, queue: &Declaration<B, M>) {
        let Some(way) = queue.way() else { return };
        let known = |ways: &HashMap<String, Way>| ways.contains_key(queue.name());
        let ways = &self.side().ways;
        if !known(&ways.read().unwrap_or_else(PoisonError::into_inner)) {
            ways.write().unwrap_or_else(PoisonError::into_inner).insert(queue.name().to_owned(), way);
        }
    }

    fn way(&self, queue: &str) -> Option<Way> {
        self.side().ways.read().unwrap_or_else(PoisonError::into_inner).get(queue).cloned()
    }

    /// Removes what the queue's dedup function finds needless.
    pub(crate) fn deduplicate(&self, queue: &store::Queue, batch: Batch) -> (Batch, Removed) {
        let Some(dedup) = self.way(&queue.name).and_then(|way| way.dedup) else {
            return (batch, Removed::default());
        };
        let Deduplicated { kept, removed } = dedup.apply(self, &queue.name, batch.messages);
        (Batch { messages: kept }, removed)
    }

    /// Sends messages that were checked, outside of a transaction.
    pub(crate) async fn publish(&self, queue: &Arc<store::Queue>, batch: Batch) -> Result<Sent> {
        let (batch, removed) = self.deduplicate(queue, batch);
        Ok(removed.merge(self.gather_or_append(queue, batch).await?))
    }

    async fn gather_or_append(&self, queue: &Arc<store::Queue>, batch: Batch) -> Result<Sent> {
        if batch.messages.is_empty() {
            return Ok(Sent::default());
        }
        // What a dedup key says is known to the store alone.
        let has_keys = batch.messages.iter().any(|message| message.dedup.is_some());
        // What is sent in a test is undone with it, so it must not wait for longer.
        let is_direct = has_keys || self.test_root().is_some();
        let gathering = self.way(&queue.name).and_then(|way| way.gathering).filter(|_| !is_direct);
        let Some(how) = gathering else { return self.append(queue, batch).await };
        let ids = batch.ids();
        match self.buffers().add(self, queue, &how, batch.messages) {
            Ok(()) => {
                let buffered = |id| SentMessage { id, stored: Stored::Buffered };
                Ok(Sent { messages: ids.into_iter().map(buffered).collect(), path: Path::Buffer })
            }
            Err(messages) => self.append(queue, Batch { messages }).await,
        }
    }
}

//! The last step of a send outside of a transaction: the queue's dedup function, then the buffer or the store.

use std::sync::Arc;

use millpond_core::error::Result;
use millpond_core::message::{MessageId, NewMessage};
use millpond_core::store::{self, Stored};

use crate::buffers::{Buffers, Gathering};
use crate::counters::QueueCounts;
use crate::dedup::{Dedup, Deduplicated};
use crate::pond::{Batch, Pond, Sent, SentMessage};

/// What a pond has beside its store.
#[derive(Debug, Default)]
pub(crate) struct Side {
    buffers: Buffers,
    counts: QueueCounts,
}

impl Pond {
    /// What this process has counted of each queue about the ways beside the good one.
    pub fn queue_counts(&self) -> &QueueCounts {
        &self.side().counts
    }

    /// What is in memory, of buffered queues.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.side().buffers
    }

    /// Sends messages that were checked.
    pub(crate) async fn publish(
        &self,
        dedup: Option<Dedup>,
        gathering: Option<Gathering>,
        queue: &Arc<store::Queue>,
        batch: Batch,
    ) -> Result<Sent> {
        let Batch { messages } = batch;
        let (messages, removed) = match dedup {
            Some(dedup) => dedup.apply(self, &queue.name, messages).split(),
            None => (messages, Vec::new()),
        };
        let sent = self.store_or_gather(gathering, queue, messages).await?;
        if removed.is_empty() {
            return Ok(sent);
        }
        let stored = sent.messages.iter().map(|message| (message.id, message.stored)).collect();
        let merged = Deduplicated::merge(removed, stored).into_iter();
        Ok(Sent { messages: merged.map(|(id, stored)| SentMessage { id, stored }).collect(), ..sent })
    }

    async fn store_or_gather(
        &self,
        gathering: Option<Gathering>,
        queue: &Arc<store::Queue>,
        messages: Vec<NewMessage>,
    ) -> Result<Sent> {
        if messages.is_empty() {
            return Ok(Sent::default());
        }
        // What a dedup key says is known to the store alone.
        let has_keys = messages.iter().any(|message| message.dedup.is_some());
        let Some(how) = gathering.filter(|_| !has_keys) else {
            return self.append(queue, Batch { messages }).await;
        };
        let ids: Vec<MessageId> = messages.iter().map(|message| message.id).collect();
        match self.buffers().add(self, queue, &how, messages) {
            Ok(()) => {
                let buffered = |id| SentMessage { id, stored: Stored::Buffered };
                Ok(Sent { messages: ids.into_iter().map(buffered).collect(), ..Sent::default() })
            }
            Err(messages) => self.append(queue, Batch { messages }).await,
        }
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
}

//! The job's own transaction: effects once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use millpond_core::error::{Code, Error, Result};
use millpond_core::store::{self, EffectTx, QueueId};

use crate::body::Body;
use crate::item::Item;
use crate::job::OpenUnit;
use crate::pond::{Pond, Sent};
use crate::queue::Queue;

/// The answer to [`Job::begin`](crate::job::Job::begin).
#[derive(Debug)]
pub enum Begun {
    /// The effect of this message was committed before: acknowledge it.
    AlreadyDone,
    /// The transaction is open.
    Open(UnitOfWork),
}

/// The job's own transaction. Everything in it is committed together with the fact that the message is done,
/// and only while the lease is held. Dropping it rolls back.
///
/// ```no_run
/// # // A unit of work needs a store and a worker.
/// use millpond_core::{Result, Verdict};
/// use millpond_engine::job::Job;
/// use millpond_engine::queue::Queue;
/// use millpond_engine::unit::Begun;
///
/// const RECEIPTS: Queue<u64> = Queue::new("receipts");
///
/// async fn pay(job: Job<u64>) -> Result<(), millpond_core::Error> {
///     if let Begun::Open(mut unit) = job.begin().await? {
///         unit.send(&RECEIPTS, [job.body]).await?;
///         unit.commit().await?;
///     }
///     Ok(())
/// }
/// ```
pub struct UnitOfWork {
    tx: Box<dyn EffectTx>,
    open: OpenUnit,
    pond: Pond,
    /// Queues that were sent to.
    sent_to: BTreeSet<QueueId>,
}

impl UnitOfWork {
    pub(crate) fn new(tx: Box<dyn EffectTx>, open: OpenUnit, pond: Pond) -> Self {
        Self { tx, open, pond, sent_to: BTreeSet::new() }
    }

    /// Stores messages that exist exactly if the unit commits. All of `items` pass their checks, or none is
    /// stored.
    ///
    /// # Errors
    ///
    /// As for [`Pond::send`]. `unknown-queue`: a queue is not declared from inside a transaction; declare it
    /// at start, with [`Pond::declare`].
    pub async fn send<B, I>(&mut self, queue: &Queue<B>, items: I) -> Result<Sent>
    where
        B: Body,
        I: IntoIterator,
        I::Item: Into<Item<B>>,
    {
        let Some(batch) = self.pond.encode(queue, items)? else { return Ok(Sent::default()) };
        let stored_queue = self.queue(queue.name()).await?;
        let batch = self.pond.check(&stored_queue, batch)?;
        let ids = batch.ids();
        let stored = self.tx.send(&stored_queue, batch.messages).await?;
        self.sent_to.insert(stored_queue.id);
        Ok(Sent::of(ids, stored))
    }

    /// The stored queue of this name. The store itself is not asked: in memory it has one connection, and the
    /// transaction holds it.
    async fn queue(&mut self, name: &str) -> Result<Arc<store::Queue>> {
        if let Some(met) = self.pond.met(name) {
            return Ok(met);
        }
        let found = self.tx.queue(name.to_owned()).await?.map(Arc::new);
        found.ok_or_else(|| {
            Error::new(Code::UnknownQueue, format!("send to queue `{name}`"))
                .because("no queue of this name is declared; declare it before the transaction")
        })
    }

    /// The store's own transaction, for the crate of that store.
    pub fn tx_mut(&mut self) -> &mut dyn EffectTx {
        &mut *self.tx
    }

    /// Commits, if the lease is still held. Then return `Ack`: the message is done whatever the verdict says.
    ///
    /// # Errors
    ///
    /// `lease-lost`: nothing was committed, stop. `unknown-outcome`: return an error; the next delivery finds
    /// out.
    pub async fn commit(self) -> Result<()> {
        let Self { tx, open, pond, sent_to } = self;
        tx.commit().await?;
        open.committed();
        if !sent_to.is_empty() {
            // A store may leave to the relay what was sent in a transaction, also when it is due at once.
            pond.nudge();
        }
        sent_to.into_iter().for_each(|queue| pond.wake(queue));
        Ok(())
    }
}

impl fmt::Debug for UnitOfWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnitOfWork").field("sent_to", &self.sent_to).finish_non_exhaustive()
    }
}

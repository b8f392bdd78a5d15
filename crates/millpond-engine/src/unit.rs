//! The unit of work: statements and messages that become true together, or not at all.
//!
//! What is sent in it waits in memory and is written just before the commit. `docs/transactions.md` says what holds when
//! something breaks on the way.

use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::NewMessage;
use millpond_core::queue::Transactional;
use millpond_core::store::{self, BoxFuture, EffectTx, Stored};

use crate::body::Body;
use crate::counters::NO_QUEUE;
use crate::item::Item;
use crate::job::OpenUnit;
use crate::pond::{Batch, Mark, Path, Pond, Sent, SentMessage};
use crate::queue::{Declaration, Mode};

/// The answer to [`Job::begin`](crate::job::Job::begin).
#[derive(Debug)]
pub enum Begun {
    /// The effect of this message was committed before: acknowledge it.
    AlreadyDone,
    /// The transaction is open.
    Open(UnitOfWork),
}

/// A transaction on a connection of the store: your statements, and messages that exist exactly if it commits. Dropping
/// it rolls back.
///
/// [`Pond::begin`] opens one; [`Job::begin`](crate::job::Job::begin) opens that of a job, which commits only while the
/// job's lease is held, together with the fact that its message is done.
///
/// Messages are kept in memory and written just before the commit, so a transaction sends no statement for them until
/// then. How the driver's connection is reached is in the crate of the store: `unit.postgres().await?`,
/// `unit.mysql().await?`, `unit.sqlite(|db| …).await?`.
///
/// ```no_run
/// # // A unit of work needs a store.
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
    open: Open,
    pond: Pond,
    /// The unit, and the savepoints that are open in it.
    frames: Vec<Collected>,
    /// The lowest savepoint that was dropped without a word: it is rolled back before anything else.
    dropped: Option<usize>,
    before: Vec<Before>,
    after: Vec<After>,
}

/// What says that the unit is open, until it is over.
pub(crate) enum Open {
    Job(OpenUnit),
    /// `None` from the commit on, which waits for nothing that its caller does.
    Plain(Option<Mark>),
}

type Before = Box<dyn for<'u> FnOnce(&'u mut UnitOfWork) -> BoxFuture<'u, Result<()>> + Send>;
type After = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), String>> + Send>;

/// Messages that wait for the commit, and how many hooks there were when their frame began.
#[derive(Default)]
struct Collected {
    /// By queue, in the order of the first send to each.
    sends: Vec<(Arc<store::Queue>, Vec<NewMessage>)>,
    hooks: (usize, usize),
}

impl Collected {
    fn add(&mut self, queue: &Arc<store::Queue>, messages: Vec<NewMessage>) {
        match self.sends.iter_mut().find(|(known, _)| known.id == queue.id) {
            Some((_, waiting)) => waiting.extend(messages),
            None => self.sends.push((Arc::clone(queue), messages)),
        }
    }
}

/// What was committed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// What became of each message that was sent in the unit, those of one queue together: only now it is known which of
    /// them a dedup key had stored before.
    pub messages: Vec<SentMessage>,
}

impl UnitOfWork {
    pub(crate) fn new(tx: Box<dyn EffectTx>, open: Open, pond: Pond) -> Self {
        let frames = vec![Collected::default()];
        Self { tx, open, pond, frames, dropped: None, before: Vec::new(), after: Vec::new() }
    }

    /// Keeps messages that exist exactly if the unit commits; those of a [`FastQueue`](crate::queue::FastQueue) are stored
    /// after the commit, and lost if the process dies in between. All of `items` pass their checks, or none is kept.
    ///
    /// The answer says `New` of every message; a dedup key is asked for at the commit, which says what became of each.
    ///
    /// # Errors
    ///
    /// As for [`Pond::send`], without those of the store. `unknown-queue`: a queue is not declared from inside a
    /// transaction; declare it at start, with [`Pond::declare`].
    pub async fn send<B, M, I>(&mut self, queue: &Declaration<B, M>, items: I) -> Result<Sent>
    where
        B: Body,
        M: Mode,
        I: IntoIterator,
        I::Item: Into<Item<B>>,
    {
        let Some(batch) = self.pond.encode(queue.name(), items)? else { return Ok(Sent::default()) };
        let stored_queue = self.queue(queue.name()).await?;
        self.pond.learn(queue);
        let batch = self.pond.check(&stored_queue, batch)?;
        Ok(self.keep(&stored_queue, batch))
    }

    /// Adds checked messages to the innermost frame.
    pub(crate) fn keep(&mut self, queue: &Arc<store::Queue>, batch: Batch) -> Sent {
        let ids = batch.ids();
        let stored = vec![Stored::New; ids.len()];
        let path = match queue.settings.transactional {
            Transactional::Never => Path::Memory,
            Transactional::Require | Transactional::Try => Path::Outbox,
        };
        if let Some(frame) = self.innermost() {
            frame.add(queue, batch.messages);
        }
        Sent::of(ids, stored, path)
    }

    fn innermost(&mut self) -> Option<&mut Collected> {
        self.frames.last_mut()
    }

    /// The stored queue of this name. The store itself is not asked: in memory it has one connection, and the
    /// transaction holds it.
    pub(crate) async fn queue(&mut self, name: &str) -> Result<Arc<store::Queue>> {
        if let Some(met) = self.pond.met(name) {
            return Ok(met);
        }
        self.settle_frames().await?;
        let found = self.tx.queue(name.to_owned()).await?;
        found.map(|found| self.pond.remember(found)).ok_or_else(|| undeclared(name))
    }

    /// Opens a frame within the transaction: what is done and sent through it can be undone alone.
    ///
    /// ```no_run
    /// # // It needs a store.
    /// # use millpond_engine::{pond::Pond, queue::Queue};
    /// # const MAIL: Queue<u64> = Queue::new("mail");
    /// # async fn charge(_: &mut millpond_engine::unit::UnitOfWork) -> bool { true }
    /// # async fn example(pond: Pond) -> millpond_core::Result<()> {
    /// let mut unit = pond.begin().await?;
    /// let mut frame = unit.savepoint().await?;
    /// frame.send(&MAIL, [7]).await?;
    /// if charge(&mut frame).await {
    ///     frame.release().await?;
    /// } else {
    ///     frame.roll_back().await?; // Message 7 is gone, and what `charge` wrote.
    /// }
    /// unit.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn savepoint(&mut self) -> Result<Savepoint<'_>> {
        self.settle_frames().await?;
        let depth = self.frames.len();
        self.tx.frame(store::Frame::Open(depth)).await?;
        let hooks = (self.before.len(), self.after.len());
        self.frames.push(Collected { sends: Vec::new(), hooks });
        Ok(Savepoint { unit: self, depth, is_over: false })
    }

    /// Runs before the commit, after what was registered before; it may write and send. If it fails, nothing is committed.
    /// One that was registered within a frame that was rolled back does not run.
    pub fn before_commit(
        &mut self,
        hook: impl for<'u> FnOnce(&'u mut UnitOfWork) -> BoxFuture<'u, Result<()>> + Send + 'static,
    ) {
        self.before.push(Box::new(hook));
    }

    /// Runs after the commit, after what was registered before, whether or not anybody still waits for the commit. The
    /// transaction is gone then: what the hook needs it brings along. If it fails, that is logged and counted, and
    /// the commit is one all the same.
    pub fn after_commit<E, F>(&mut self, hook: impl FnOnce() -> F + Send + 'static)
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.after.push(Box::new(move || {
            let done = hook();
            Box::pin(async move {
                let shown = |error: E| error.into().to_string();
                done.await.map_err(shown)
            })
        }));
    }

    /// The store's own transaction, for the crate of that store.
    ///
    /// # Errors
    ///
    /// What the store says when it rolls back a savepoint that was dropped before.
    pub async fn tx(&mut self) -> Result<&mut dyn EffectTx> {
        self.settle_frames().await?;
        Ok(&mut *self.tx)
    }

    /// Whether it is a unit of this pond.
    pub(crate) fn is_of(&self, pond: &Pond) -> bool {
        self.pond.is_same(pond)
    }

    /// Writes what was sent, and commits; that of a job only if its lease is still held. It is done to its end, hooks and all, whether
    /// or not the returned future is still waited for.
    ///
    /// After that of a job return `Ack`: the message is done whatever the verdict says.
    ///
    /// # Errors
    ///
    /// All but the last say that nothing was committed: those of a hook; `dedup-conflict`; `lease-lost`: stop; what the
    /// store says. `unknown-outcome`: it may have been. The messages exist exactly if it was, and [`Pond::find`] says so
    /// later; those of a [`FastQueue`](crate::queue::FastQueue) are discarded, counted, and told to the `on_error` of a
    /// worker on this pond. In a job return an error: the next delivery finds out. `statement-failed`: a statement of the
    /// transaction had failed, and the database rolled all of it back.
    pub async fn commit(mut self) -> Result<Committed> {
        let pond = self.pond.clone();
        if let Open::Plain(mark) = &mut self.open {
            *mark = None;
        }
        let running = pond.track(self.run_to_its_end());
        running.await.unwrap_or_else(|ended| {
            let code = if ended.is_panic() { Code::Internal } else { Code::UnknownOutcome };
            Err(Error::new(code, COMMIT).because(ended))
        })
    }

    /// Rolls back, which dropping it does too.
    pub fn roll_back(self) {
        drop(self);
    }

    async fn run_to_its_end(mut self) -> Result<Committed> {
        self.settle_frames().await?;
        // A hook's `pond.send` stands beside the open unit, as one of the task that began it does.
        let beside = self.pond.mark();
        while !self.before.is_empty() {
            // What a hook registers runs too.
            for hook in std::mem::take(&mut self.before) {
                hook(&mut self).await?;
                self.settle_frames().await?;
            }
        }
        drop(beside);
        let mut committed = Committed::default();
        let mut later = Vec::new();
        let (mut waits, mut is_relayed) = (false, false);
        for (queue, messages) in self.frames.drain(..).flat_map(|frame| frame.sends) {
            if queue.settings.transactional == Transactional::Never {
                later.push((queue, Batch { messages }));
                continue;
            }
            let (batch, removed) = self.pond.deduplicate(&queue, Batch { messages });
            (waits, is_relayed) = (waits || batch.waits(), true);
            let ids = batch.ids();
            let stored =
                if ids.is_empty() { Vec::new() } else { self.tx.send(&queue, batch.messages).await? };
            committed.messages.extend(removed.merge(Sent::of(ids, stored, Path::Outbox)).messages);
        }
        let Self { tx, open, pond, after, .. } = self;
        if let Err(error) = tx.commit().await {
            if error.code() == Code::UnknownOutcome {
                pond.outcome_is_unknown(later);
            }
            return Err(error);
        }
        match open {
            Open::Job(open) => open.committed(),
            Open::Plain(_) => {}
        }
        // From here nothing turns the commit into an error.
        if is_relayed {
            pond.relay_soon();
        }
        for (queue, batch) in later {
            let ids = batch.ids();
            match pond.publish(&queue, batch).await {
                Ok(sent) => committed.messages.extend(sent.messages),
                Err(error) => {
                    let causes = error.causes();
                    let why = format!("{error}: {causes}; {} messages are lost", ids.len());
                    pond.after_commit_failed(&queue.name, &why);
                }
            }
        }
        if waits {
            pond.nudge();
        }
        for hook in after {
            // In a task of its own: one that panics takes nothing else along.
            match pond.track(async move { hook().await }).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => pond.after_commit_failed(NO_QUEUE, &error),
                Err(ended) => pond.after_commit_failed(NO_QUEUE, &ended.to_string()),
            }
        }
        Ok(committed)
    }

    /// Rolls back the savepoint that was dropped without a word, if one was.
    async fn settle_frames(&mut self) -> Result<()> {
        if let Some(depth) = self.dropped {
            self.tx.frame(store::Frame::RollBack(depth)).await?;
            self.dropped = None;
        }
        Ok(())
    }

    /// Forgets what was sent and registered in the frame of this depth and within it.
    fn forget(&mut self, depth: usize) {
        if let Some(frame) = self.frames.get(depth) {
            let (before, after) = frame.hooks;
            self.before.truncate(before);
            self.after.truncate(after);
        }
        self.frames.truncate(depth);
    }
}

const COMMIT: &str = "commit the unit of work";

impl fmt::Debug for UnitOfWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent = self.frames.iter().flat_map(|frame| &frame.sends).map(|(_, messages)| messages.len());
        f.debug_struct("UnitOfWork")
            .field("messages", &sent.sum::<usize>())
            .field("savepoints", &self.frames.len().saturating_sub(1))
            .finish_non_exhaustive()
    }
}

/// A frame within a [`UnitOfWork`], and that unit as long as the frame lasts. Dropping it without a word rolls it back.
pub struct Savepoint<'u> {
    unit: &'u mut UnitOfWork,
    depth: usize,
    is_over: bool,
}

impl Savepoint<'_> {
    /// Ends the frame and keeps what was done and sent in it: it belongs to the unit, or to the frame around.
    ///
    /// # Errors
    ///
    /// What the store says; then it is rolled back.
    pub async fn release(mut self) -> Result<()> {
        self.unit.settle_frames().await?;
        self.unit.tx.frame(store::Frame::Release(self.depth)).await?;
        self.is_over = true;
        let ended: Vec<Collected> = self.unit.frames.drain(self.depth..).collect();
        if let Some(outer) = self.unit.innermost() {
            for (queue, messages) in ended.into_iter().flat_map(|frame| frame.sends) {
                outer.add(&queue, messages);
            }
        }
        Ok(())
    }

    /// Ends the frame and undoes what was done and sent in it.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn roll_back(mut self) -> Result<()> {
        self.mark_dropped();
        self.is_over = true;
        self.unit.settle_frames().await
    }

    fn mark_dropped(&mut self) {
        self.unit.forget(self.depth);
        self.unit.dropped = Some(self.unit.dropped.map_or(self.depth, |lowest| lowest.min(self.depth)));
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.mark_dropped();
        }
    }
}

impl Deref for Savepoint<'_> {
    type Target = UnitOfWork;

    fn deref(&self) -> &UnitOfWork {
        self.unit
    }
}

impl DerefMut for Savepoint<'_> {
    fn deref_mut(&mut self) -> &mut UnitOfWork {
        self.unit
    }
}

impl fmt::Debug for Savepoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Savepoint").field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// The error for a queue that is not declared, from inside a transaction.
pub(crate) fn undeclared(name: &str) -> Error {
    Error::new(Code::UnknownQueue, format!("send to queue `{name}`"))
        .because("no queue of this name is declared; declare it before the transaction")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use millpond_core::store::Frame;
    use tokio::sync::Notify;

    use super::*;
    use crate::counters::Counter;
    use crate::fake::FakeStore;
    use crate::queue::{FastQueue, Queue, TxQueue};

    const MAIL: Queue<u32> = Queue::new("mail");
    const PINGS: FastQueue<u32> = FastQueue::new("pings");
    const REPORTS: TxQueue<u32> = TxQueue::new("reports");

    async fn pond() -> (Arc<FakeStore>, Pond) {
        let store = Arc::new(FakeStore::default());
        let pond = Pond::new(Arc::clone(&store) as _);
        pond.declare(&MAIL).await.unwrap();
        pond.declare(&PINGS).await.unwrap();
        pond.declare(&REPORTS).await.unwrap();
        (store, pond)
    }

    #[tokio::test]
    async fn what_is_sent_in_it_is_written_by_the_commit_and_relayed_at_once() {
        let (store, pond) = pond().await;
        let mut unit = pond.begin().await.unwrap();
        let sent = unit.send(&REPORTS, [1]).await.unwrap();
        assert_eq!(sent.path, Path::Outbox);
        unit.send(&MAIL, [2, 3]).await.unwrap();
        unit.send(&REPORTS, [4]).await.unwrap();
        assert!(store.bodies().is_empty());
        let committed = unit.commit().await.unwrap();
        assert_eq!(store.bodies(), [b"1", b"4", b"2", b"3"], "queue by queue");
        assert_eq!(committed.messages.len(), 4);
        store.relayed().await;
        assert_eq!(store.relays(), 1);
    }

    #[tokio::test]
    async fn what_is_dropped_is_never_sent() {
        let (store, pond) = pond().await;
        let mut unit = pond.begin().await.unwrap();
        unit.send(&MAIL, [1]).await.unwrap();
        unit.after_commit(|| async { panic!("it was not committed") as Result<(), Error> });
        drop(unit);
        assert!(store.bodies().is_empty());
        pond.send(&MAIL, [2]).await.unwrap();
        assert_eq!(store.bodies(), [b"2"]);
    }

    #[tokio::test]
    async fn a_savepoint_drops_or_merges_its_messages_and_hooks() {
        let (store, pond) = pond().await;
        let ran = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let ran = Arc::clone(&ran);
            move || async move {
                ran.lock().unwrap().push(what);
                Ok::<(), Error>(())
            }
        };
        let mut unit = pond.begin().await.unwrap();
        unit.send(&MAIL, [1]).await.unwrap();
        unit.after_commit(note("outer"));
        let mut kept = unit.savepoint().await.unwrap();
        kept.send(&MAIL, [2]).await.unwrap();
        kept.after_commit(note("kept"));
        let mut undone = kept.savepoint().await.unwrap();
        undone.send(&MAIL, [3]).await.unwrap();
        undone.after_commit(note("undone"));
        undone.roll_back().await.unwrap();
        kept.release().await.unwrap();
        let mut dropped = unit.savepoint().await.unwrap();
        dropped.send(&MAIL, [4]).await.unwrap();
        drop(dropped);
        unit.commit().await.unwrap();
        assert_eq!(store.bodies(), [b"1", b"2"]);
        assert_eq!(*ran.lock().unwrap(), ["outer", "kept"]);
        let frames = [
            Frame::Open(1),
            Frame::Open(2),
            Frame::RollBack(2),
            Frame::Release(1),
            Frame::Open(1),
            Frame::RollBack(1),
        ];
        assert_eq!(store.frames(), frames);
    }

    #[tokio::test]
    async fn messages_of_a_fast_queue_wait_in_memory_for_the_commit() {
        let (store, pond) = pond().await;
        let mut unit = pond.begin().await.unwrap();
        assert_eq!(unit.send(&PINGS, [1]).await.unwrap().path, Path::Memory);
        unit.send(&MAIL, [2]).await.unwrap();
        unit.commit().await.unwrap();
        assert_eq!(store.bodies(), [b"2", b"1"], "after the commit");
    }

    #[tokio::test]
    async fn an_unknown_outcome_discards_and_counts_what_was_in_memory() {
        let (store, pond) = pond().await;
        store.commits_fail(Code::UnknownOutcome);
        let mut unit = pond.begin().await.unwrap();
        unit.send(&PINGS, [1, 2]).await.unwrap();
        unit.after_commit(|| async { panic!("nobody knows") as Result<(), Error> });
        assert_eq!(unit.commit().await.unwrap_err().code(), Code::UnknownOutcome);
        assert!(store.bodies().is_empty());
        assert_eq!(pond.counts().of(Counter::CommitUnknown, "pings"), 2);
        assert_eq!(pond.counts().total(Counter::CommitOutcomeUnknown), 1);
    }

    #[tokio::test]
    async fn a_hook_before_the_commit_may_send_and_may_refuse() {
        let (store, pond) = pond().await;
        let mut unit = pond.begin().await.unwrap();
        unit.before_commit(|unit| Box::pin(async move { unit.send(&MAIL, [1]).await.map(drop) }));
        unit.commit().await.unwrap();
        assert_eq!(store.bodies(), [b"1"]);
        let mut unit = pond.begin().await.unwrap();
        unit.send(&MAIL, [2]).await.unwrap();
        unit.before_commit(|_| Box::pin(async { Err(Error::new(Code::InvalidOption, "look at the whole")) }));
        assert_eq!(unit.commit().await.unwrap_err().code(), Code::InvalidOption);
        assert_eq!(store.bodies(), [b"1"]);
    }

    #[tokio::test]
    async fn a_hook_that_a_hook_registers_runs_too() {
        let (store, pond) = pond().await;
        let mut unit = pond.begin().await.unwrap();
        unit.send(&MAIL, [1]).await.unwrap();
        unit.before_commit(|unit| {
            unit.before_commit(|_| Box::pin(async { Err(Error::new(Code::InvalidOption, "look again")) }));
            Box::pin(async { Ok(()) })
        });
        assert_eq!(unit.commit().await.unwrap_err().code(), Code::InvalidOption);
        assert!(store.bodies().is_empty());
    }

    #[tokio::test]
    async fn on_one_writer_a_hook_that_sends_beside_its_unit_is_refused_at_once() {
        let (store, pond) = pond().await;
        let mut unit = pond.begin().await.unwrap();
        let beside = pond.clone();
        unit.before_commit(move |_| Box::pin(async move { beside.send(&MAIL, [1]).await.map(drop) }));
        assert_eq!(unit.commit().await.unwrap_err().code(), Code::SendInsideTransaction);
        assert!(store.bodies().is_empty());
    }

    #[tokio::test]
    async fn a_hook_after_the_commit_undoes_nothing_and_the_next_one_runs() {
        let (store, pond) = pond().await;
        let ran = Arc::new(Mutex::new(false));
        let mut unit = pond.begin().await.unwrap();
        unit.send(&MAIL, [1]).await.unwrap();
        unit.after_commit(|| async { Err::<(), _>("it failed") });
        unit.after_commit(|| async { panic!("it panicked") as Result<(), Error> });
        unit.after_commit(|| -> std::future::Ready<Result<(), Error>> { panic!("before its future") });
        let last = Arc::clone(&ran);
        unit.after_commit(move || async move {
            *last.lock().unwrap() = true;
            Ok::<(), Error>(())
        });
        unit.commit().await.unwrap();
        assert_eq!(store.bodies(), [b"1"]);
        assert!(*ran.lock().unwrap());
        assert_eq!(pond.counts().total(Counter::AfterCommitFailed), 3);
    }

    #[tokio::test]
    async fn a_commit_that_nobody_waits_for_runs_to_its_end() {
        let (store, pond) = pond().await;
        let done = Arc::new(Notify::new());
        let mut unit = pond.begin().await.unwrap();
        unit.send(&MAIL, [1]).await.unwrap();
        let told = Arc::clone(&done);
        unit.after_commit(move || async move {
            told.notify_one();
            Ok::<(), Error>(())
        });
        let mut commit = Box::pin(unit.commit());
        assert!(futures_poll(&mut commit).await, "it is not done at once");
        drop(commit);
        // Its caller may begin the next one, and waits for the writer.
        pond.begin().await.unwrap().roll_back();
        done.notified().await;
        assert_eq!(store.bodies(), [b"1"]);
        pond.close().await;
    }

    /// Polls once; true if it is not done.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())
        })
        .await
    }

    #[tokio::test]
    async fn on_one_writer_a_send_beside_an_open_unit_is_refused_at_once() {
        let (_, pond) = pond().await;
        let unit = pond.begin().await.unwrap();
        assert_eq!(pond.send(&MAIL, [1]).await.unwrap_err().code(), Code::SendInsideTransaction);
        assert_eq!(pond.begin().await.unwrap_err().code(), Code::SendInsideTransaction);
        let elsewhere = pond.clone();
        tokio::spawn(async move { elsewhere.send(&MAIL, [1]).await.map(drop) }).await.unwrap().unwrap();
        drop(unit);
        pond.send(&MAIL, [1]).await.unwrap();
    }
}

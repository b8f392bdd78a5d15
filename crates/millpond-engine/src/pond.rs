//! The pond: one process's handle on one store.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Duration;

use millpond_core::check;
use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{Due, MessageId, NewMessage};
use millpond_core::queue::{QueueSettings, Transactional};
use millpond_core::store::{self, Act, Changed, QueueId, Store, Stored};
use millpond_core::text::nearest;
use millpond_core::time::Timestamp;
use millpond_core::view::{MessageView, Pause, Scope};
use millpond_core::within::Dialect;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::{Body, Encoded, Raw};
use crate::counters::Counter;
use crate::ids::IdSource;
use crate::item::{Item, Options};
use crate::job::JobContext;
use crate::publish::Side;
use crate::pulse::RELAY_ROWS_MAX;
use crate::queue::{Declaration, Mode, Outside, Queue};
use crate::test_root::{self, Root};
use crate::unit::{Open, UnitOfWork};
use crate::wake::{Listener, Wakes};
use crate::watch::Watch;

/// How long a send waits for its store.
pub const SEND_DEADLINE: Duration = Duration::from_secs(10);

/// How long a [`UnitOfWork`] may be open: on SQLite it holds the one writer.
pub const UNIT_LIMIT: Duration = Duration::from_secs(10);

/// How long closing waits for commits and what runs after them.
const CLOSE_WAIT: Duration = Duration::from_secs(30);

/// Who changed something, if it was the application itself.
const BY_CODE: &str = "local";

/// A handle on one store, shared by senders, workers and upkeep. Cloning it is cheap.
///
/// ```no_run
/// # // It needs a store, which is in a crate of its own.
/// # use std::sync::Arc;
/// # async fn example(store: Arc<dyn millpond_core::store::Store>) -> millpond_core::Result<()> {
/// use millpond_engine::item::ItemOptions;
/// use millpond_engine::pond::Pond;
/// use millpond_engine::queue::Queue;
///
/// const MAIL: Queue<String> = Queue::new("mail");
///
/// let pond = Pond::new(store);
/// let sent = pond.send(&MAIL, ["Ada".to_owned(), "Grace".to_owned()]).await?;
/// assert_eq!(sent.messages.len(), 2);
/// pond.send(&MAIL, ["Edsger".to_owned().priority(0)]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pond {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    ids: IdSource,
    /// By name. Bounded by the queues that this process names and that exist.
    queues: RwLock<HashMap<String, Known>>,
    side: Side,
    wakes: Wakes,
    outbox: Notify,
    closed: AtomicBool,
    /// Commits and what runs after them, to their end.
    tasks: TaskTracker,
    closing: CancellationToken,
    relay_is_wanted: AtomicBool,
    relay_turn: tokio::sync::Mutex<()>,
    watch: Mutex<Watch>,
    awaited: Notify,
    /// The transaction of a test, in which everything is done while it is open.
    test_root: Mutex<Option<Root>>,
    /// Plain units of work that are open, by where they were begun.
    units: Mutex<HashMap<Here, usize>>,
}

/// Where code runs: a task, or a thread that runs no task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Here {
    Task(tokio::task::Id),
    Thread(ThreadId),
}

impl Here {
    fn now() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Thread(std::thread::current().id()), Self::Task)
    }
}

/// Says that a unit of work is open, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mark {
    pond: Pond,
    here: Here,
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut units = self.pond.inner.units.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = units.get_mut(&self.here) {
            *open -= 1;
            if *open == 0 {
                units.remove(&self.here);
            }
        }
    }
}

/// A queue that this process has met.
#[derive(Clone)]
struct Known {
    queue: Arc<store::Queue>,
    /// The settings of the constant that declared it, if one did.
    declared: Option<QueueSettings>,
}

impl Pond {
    /// A handle on `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let inner = Inner {
            store,
            ids: IdSource::new(),
            queues: RwLock::default(),
            side: Side::default(),
            wakes: Wakes::default(),
            outbox: Notify::new(),
            closed: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            relay_is_wanted: AtomicBool::new(false),
            relay_turn: tokio::sync::Mutex::default(),
            watch: Mutex::default(),
            awaited: Notify::new(),
            test_root: Mutex::default(),
            units: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What it has beside its store.
    pub(crate) fn side(&self) -> &Side {
        &self.inner.side
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Declares a queue, or gives its stored declaration these settings. A constant that this process declared
    /// before is not written again.
    ///
    /// # Errors
    ///
    /// `send-inside-transaction`: from a handler with an open unit of work, which holds the one writer.
    /// `invalid-name` or `invalid-config`: the declaration cannot work, or two constants of one name differ.
    /// What the store says.
    pub async fn declare<B, M: Mode>(&self, queue: &Declaration<B, M>) -> Result<Arc<store::Queue>> {
        let (name, settings) = (queue.name(), *queue.settings());
        if let Some(known) = self.declared(queue)? {
            return Ok(known);
        }
        settings.check(name)?;
        if JobContext::unit_is_open_here(self) || self.waits_for_itself() || self.test_root().is_some() {
            return Err(Error::new(Code::SendInsideTransaction, format!("declare queue `{name}`")));
        }
        let stored = Arc::new(self.store().declare(name.to_owned(), settings).await?);
        self.hear_time().await;
        let mut queues = self.inner.queues.write().unwrap_or_else(PoisonError::into_inner);
        let before = queues.get(name).and_then(|known| known.declared);
        if queue.declared_by_use() {
            differs(name, before, settings)?;
        }
        let declared = if queue.declared_by_use() { Some(settings) } else { before };
        queues.insert(name.to_owned(), Known { queue: Arc::clone(&stored), declared });
        Ok(stored)
    }

    /// The stored queue of this name, with its stored settings and bodies that are not looked into.
    ///
    /// # Errors
    ///
    /// `unknown-queue`. What the store says.
    pub async fn queue(&self, name: &str) -> Result<Queue<Raw>> {
        let stored = self.look_up(name).await?;
        Ok(Queue::named(stored.name.clone()).with_settings(stored.settings))
    }

    /// Stores all of `items` or none, durably when it returns. An item is a body, or a body with options
    /// ([`ItemOptions`](crate::item::ItemOptions)). A queue that is a constant is declared by its first use;
    /// one that is [`named`](Queue::named) must be stored.
    ///
    /// The bodies are encoded by the call; nothing else happens before the future is polled. A dropped future
    /// may have stored its messages.
    ///
    /// # Errors
    ///
    /// - A bad item refuses the whole batch, with its index: `not-serialisable`, `body-too-large`,
    ///   `invalid-name`, `invalid-key`, `invalid-header`, `invalid-option`. `batch-too-large` has none.
    /// - `dedup-conflict`: the dedup key of an item is held by a message with another body; nothing was stored.
    /// - `unknown-queue`, `queue-conflict`, `invalid-config`: the declaration.
    /// - `transaction-required`: the queue is named at run time, and declared `require`.
    /// - `send-inside-transaction`: from a handler with an open unit of work; on SQLite also from a task that has begun
    ///   one, which would wait for itself. `shutting-down`.
    /// - `store-unavailable`, `storage-full`: nothing was stored.
    /// - `unknown-outcome`: no answer within [`SEND_DEADLINE`]; the messages may be stored.
    pub fn send<'a, B, M, I>(
        &'a self,
        queue: &'a Declaration<B, M>,
        items: I,
    ) -> impl Future<Output = Result<Sent>> + Send + use<'a, B, M, I>
    where
        B: Body,
        M: Outside,
        I: IntoIterator,
        I::Item: Into<Item<B>>,
    {
        let batch = self.encode(queue.name(), items);
        async move {
            self.may_send(queue.name())?;
            let Some(batch) = batch? else { return Ok(Sent::default()) };
            let stored_queue = self.resolve_outside(queue).await?;
            let batch = self.check(&stored_queue, batch)?;
            self.learn(queue);
            self.publish(&stored_queue, batch).await
        }
    }

    /// Opens a [`UnitOfWork`] on a connection of the store, for at most [`UNIT_LIMIT`].
    ///
    /// ```no_run
    /// # // It needs a store, which is in a crate of its own.
    /// # async fn example(pond: millpond_engine::pond::Pond) -> millpond_core::Result<()> {
    /// use millpond_engine::queue::TxQueue;
    ///
    /// const REPORTS: TxQueue<u64> = TxQueue::new("reports");
    ///
    /// pond.declare(&REPORTS).await?; // Once, at start.
    /// let mut unit = pond.begin().await?;
    /// // Statements of yours, through the driver.
    /// unit.send(&REPORTS, [7]).await?;
    /// unit.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `shutting-down`. `send-inside-transaction`: on SQLite, from a task that has one open. What the store says.
    pub async fn begin(&self) -> Result<UnitOfWork> {
        self.begin_for(UNIT_LIMIT).await
    }

    /// The same for another time: when it passes, the transaction is rolled back.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    pub async fn begin_for(&self, limit: Duration) -> Result<UnitOfWork> {
        self.may_begin("begin a unit of work")?;
        if let Some(root) = self.test_root() {
            let tx = test_root::begin(root).await?;
            return Ok(UnitOfWork::new(tx, Open::Plain(Some(self.mark())), self.clone()));
        }
        self.trust_the_time().await;
        let tx = self.store().open(limit).await?;
        Ok(UnitOfWork::new(tx, Open::Plain(Some(self.mark())), self.clone()))
    }

    /// Whether a unit of work may begin here.
    pub(crate) fn may_begin(&self, doing: &str) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(Code::ShuttingDown, doing));
        }
        if self.waits_for_itself() || JobContext::unit_is_open_here(self) && self.has_one_writer() {
            let why = "one is open here, and holds the one writer: commit or drop it first";
            return Err(Error::new(Code::SendInsideTransaction, doing).because(why));
        }
        Ok(())
    }

    /// The transaction of a test, while one is open.
    pub(crate) fn test_root(&self) -> Option<Root> {
        self.inner.test_root.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does everything in this transaction from now on, or no longer.
    pub(crate) fn set_test_root(&self, root: Option<Root>) {
        *self.inner.test_root.lock().unwrap_or_else(PoisonError::into_inner) = root;
    }

    /// Where a message is and how it fared: after an `unknown-outcome` it says whether the commit happened.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn find(&self, id: MessageId) -> Result<Option<MessageView>> {
        self.store().message(id).await
    }

    /// Pauses a queue, or all: nothing more is leased, what runs ends, and sending goes on. It holds on every node and
    /// after a restart, until `until` or until it is resumed. Answers all pauses that hold the scope.
    ///
    /// ```no_run
    /// # // It needs a store, which is in a crate of its own.
    /// # async fn example(pond: millpond_engine::pond::Pond) -> millpond_core::Result<()> {
    /// use std::time::Duration;
    /// use millpond_core::message::Due;
    /// use millpond_core::view::Scope;
    ///
    /// let mail = || Scope::Queue("mail".to_owned());
    /// pond.pause(mail(), Some("the mail server is repaired"), Some(Due::In(Duration::from_secs(3600)))).await?;
    /// pond.resume(mail()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `unknown-queue`. What the store says.
    pub async fn pause(&self, scope: Scope, reason: Option<&str>, until: Option<Due>) -> Result<Vec<Pause>> {
        let act = Act { reason: reason.map(str::to_owned), ..by_code("pause", &scope) };
        self.changed(self.store().pause(scope, until, act).await)
    }

    /// Ends a pause, and wakes the workers. Answers the pauses that are left.
    ///
    /// # Errors
    ///
    /// `unknown-queue`. What the store says.
    pub async fn resume(&self, scope: Scope) -> Result<Vec<Pause>> {
        let act = by_code("resume", &scope);
        self.changed(self.store().resume(scope, act).await)
    }

    /// Cancels messages, at most 1,000 in one call. What waits becomes a dead letter with the reason `cancelled`; what
    /// runs is told to stop ([`CancelCause::Requested`](crate::job::CancelCause)), and is cancelled unless it ends with
    /// an acknowledgement. Answers what became of each.
    ///
    /// ```no_run
    /// # // It needs a store, which is in a crate of its own.
    /// # async fn example(pond: millpond_engine::pond::Pond) -> millpond_core::Result<()> {
    /// use std::time::Duration;
    /// use millpond_core::store::Changed;
    /// use millpond_engine::item::ItemOptions;
    /// use millpond_engine::queue::Queue;
    ///
    /// const REMINDERS: Queue<String> = Queue::new("reminders");
    ///
    /// let reminder = "Ada".to_owned().delay(Duration::from_secs(86_400));
    /// let sent = pond.send(&REMINDERS, [reminder]).await?;
    /// let cancelled = pond.cancel(sent.ids()).await?;
    /// assert_eq!(cancelled, [Changed::Done]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `batch-too-large`. What the store says.
    pub async fn cancel(&self, ids: impl IntoIterator<Item = MessageId>) -> Result<Vec<Changed>> {
        let ids: Vec<MessageId> = ids.into_iter().collect();
        let object = match ids[..] {
            [id] => id.to_string(),
            _ => format!("{} messages", ids.len()),
        };
        let act = Act { actor: BY_CODE.to_owned(), verb: "message cancel".to_owned(), object, reason: None };
        self.changed(self.store().cancel(ids, act).await)
    }

    /// The workers of this process look at once what was changed.
    fn changed<T>(&self, answer: Result<T>) -> Result<T> {
        if answer.is_ok() {
            self.nudge();
        }
        answer
    }

    /// The store says something new of a queue that this process has met.
    pub(crate) fn refresh(&self, queue: store::Queue) {
        let mut queues = self.inner.queues.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = queues.get_mut(&queue.name)
            && *known.queue != queue
        {
            known.queue = Arc::new(queue);
        }
    }

    /// Closes the store, once everything is written out: refuses further sends of every clone, writes what is in a buffer,
    /// for 30 s at most, and waits for commits and what runs after them.
    pub async fn close(self) {
        self.inner.closed.store(true, Ordering::Release);
        self.buffers().close(&self).await;
        self.inner.closing.cancel();
        self.inner.tasks.close();
        if timeout(CLOSE_WAIT, self.inner.tasks.wait()).await.is_err() {
            let left = self.inner.tasks.len();
            tracing::warn!(left, "the pond closes while commits, or what runs after them, go on");
        }
        self.store().close().await;
    }

    /// Runs a task to its end, whoever waits for it; closing waits too.
    pub(crate) fn track<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.inner.tasks.spawn(task)
    }

    /// Marks that a unit of work is open here.
    pub(crate) fn mark(&self) -> Mark {
        let here = Here::now();
        *self.inner.units.lock().unwrap_or_else(PoisonError::into_inner).entry(here).or_default() += 1;
        Mark { pond: self.clone(), here }
    }

    /// Whether this task has begun a unit of work that is open still.
    fn has_open_unit(&self) -> bool {
        let units = self.inner.units.lock().unwrap_or_else(PoisonError::into_inner);
        !units.is_empty() && units.contains_key(&Here::now())
    }

    /// Whether a transaction holds the only connection that writes.
    fn has_one_writer(&self) -> bool {
        self.store().dialect() == Dialect::Sqlite || self.test_root().is_some()
    }

    pub(crate) fn waits_for_itself(&self) -> bool {
        self.has_open_unit() && self.has_one_writer()
    }

    /// Something that was to follow a commit did not.
    pub(crate) fn after_commit_failed(&self, queue: &str, error: &str) {
        self.counts().add(Counter::AfterCommitFailed, queue, 1);
        tracing::warn!(queue, error, "after a commit");
    }

    /// Moves what is due to the log now, whether or not this process runs a worker. One such call runs at a time, and one
    /// waits; more are the same.
    pub(crate) fn relay_soon(&self) {
        // What is sent in a test is not committed.
        if self.test_root().is_some() || self.inner.relay_is_wanted.swap(true, Ordering::AcqRel) {
            return;
        }
        let pond = self.clone();
        self.track(async move { pond.relay().await });
    }

    async fn relay(&self) {
        let _turn = self.inner.relay_turn.lock().await;
        self.inner.relay_is_wanted.store(false, Ordering::Release);
        loop {
            match self.store().relay(RELAY_ROWS_MAX).await {
                Ok(relayed) => {
                    relayed.queues.iter().for_each(|queue| self.wake(*queue));
                    if relayed.moved < RELAY_ROWS_MAX {
                        return;
                    }
                }
                Err(error) => {
                    // The rows stay for the next relay of any node.
                    tracing::debug!(%error, cause = error.causes(), "cannot relay after a commit");
                    return;
                }
            }
        }
    }

    /// Looks for messages of a transaction whose commit nobody tells us of.
    pub(crate) fn await_commit(&self, ids: Vec<MessageId>) {
        if ids.is_empty() || self.is_closed() || tokio::runtime::Handle::try_current().is_err() {
            // Without a runtime here: polling finds them.
            return;
        }
        let mut watch = self.inner.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.add(ids, Instant::now());
        if std::mem::replace(&mut watch.is_running, true) {
            self.inner.awaited.notify_one();
            return;
        }
        drop(watch);
        let pond = self.clone();
        self.track(async move { pond.look_for_commits().await });
    }

    async fn look_for_commits(&self) {
        loop {
            let next = {
                let mut watch = self.inner.watch.lock().unwrap_or_else(PoisonError::into_inner);
                let next = watch.next();
                watch.is_running = next.is_some();
                next
            };
            let Some(next) = next else { return };
            tokio::select! {
                () = self.inner.closing.cancelled() => return,
                () = self.inner.awaited.notified() => continue,
                () = sleep_until(next) => {}
            }
            let due = {
                let mut watch = self.inner.watch.lock().unwrap_or_else(PoisonError::into_inner);
                watch.due(Instant::now())
            };
            if due.is_empty() {
                continue;
            }
            match self.store().arrived(due).await {
                Ok(arrived) if !arrived.is_empty() => {
                    self.inner.watch.lock().unwrap_or_else(PoisonError::into_inner).arrived(&arrived);
                    self.relay().await;
                    // Some may be due later.
                    self.nudge();
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, cause = error.causes(), "cannot look for committed messages");
                }
            }
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::Acquire)
    }

    /// Makes this process's relay look at once what is due, instead of at the moment it planned: something was put
    /// into the outbox, or the store's clock was moved.
    pub fn nudge(&self) {
        self.inner.outbox.notify_one();
    }

    /// Whether both are clones of one pond.
    pub(crate) fn is_same(&self, other: &Pond) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Asks what time it is in the store. Without an answer the ids go by what was known before.
    async fn hear_time(&self) {
        if let Ok(now) = self.store().now().await {
            self.heard(now);
        }
    }

    /// What time it is in the store, as far as this process knows.
    pub(crate) fn time(&self) -> Timestamp {
        self.inner.ids.now()
    }

    /// The store has said what time it is.
    pub(crate) fn heard(&self, now: Timestamp) {
        self.inner.ids.heard(now);
    }

    /// The next ids, in rising order.
    pub(crate) fn ids(&self, count: usize) -> Result<Vec<MessageId>> {
        self.inner.ids.ids(count)
    }

    /// Tells the workers of this process that `queue` was written to.
    pub(crate) fn wake(&self, queue: QueueId) {
        self.inner.wakes.poke(queue);
    }

    /// Hears of the queues that this process writes to from now on.
    pub(crate) fn woken(&self) -> Listener<'_> {
        self.inner.wakes.listen()
    }

    /// Waits until this process has written to the outbox since the last call. For one relay.
    pub(crate) async fn outbox_written(&self) {
        self.inner.outbox.notified().await;
    }

    /// The encoded items of a call; `None` if there are none.
    pub(crate) fn encode<B, I>(&self, queue: &str, items: I) -> Result<Option<EncodedBatch>>
    where
        B: Body,
        I: IntoIterator,
        I::Item: Into<Item<B>>,
    {
        let encode = |(index, item): (usize, I::Item)| {
            let Item { body, options } = item.into();
            let encoded = body
                .encode()
                .map_err(|why| Error::new(Code::NotSerialisable, sending(queue)).because(why).at(index))?;
            Ok((encoded, options))
        };
        let items: Vec<_> = items.into_iter().enumerate().map(encode).collect::<Result<_>>()?;
        Ok((!items.is_empty()).then_some(EncodedBatch { items }))
    }

    /// Gives the items their ids, and checks them against the rules of their queue.
    pub(crate) fn check(&self, queue: &store::Queue, batch: EncodedBatch) -> Result<Batch> {
        let ids = self.ids(batch.items.len())?;
        let window = queue.settings.dedup_window;
        let message =
            |((encoded, options), id): ((Encoded, Options), _)| options.message(id, encoded, window);
        let messages: Vec<_> = batch.items.into_iter().zip(ids).map(message).collect();
        check::batch(&queue.name, &queue.settings, &messages, self.inner.ids.now())?;
        Ok(Batch { messages })
    }

    /// The stored queue of this name, from memory if it was met before.
    pub(crate) async fn known(&self, name: &str) -> Result<Arc<store::Queue>> {
        match self.met(name) {
            Some(queue) => Ok(queue),
            None => self.look_up(name).await,
        }
    }

    /// Whether it takes messages still.
    pub(crate) fn is_open(&self, queue: &str) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(Code::ShuttingDown, sending(queue)));
        }
        Ok(())
    }

    fn may_send(&self, queue: &str) -> Result<()> {
        self.is_open(queue)?;
        if JobContext::unit_is_open_here(self) {
            return Err(Error::new(Code::SendInsideTransaction, sending(queue)));
        }
        if self.has_open_unit() {
            if self.has_one_writer() {
                let why = "this task has a unit of work open, which holds the one writer";
                return Err(Error::new(Code::SendInsideTransaction, sending(queue)).because(why));
            }
            self.counts().add(Counter::SendOutsideOpenTx, queue, 1);
            tracing::warn!(queue, "sent outside of the unit of work that is open in the same task");
        }
        Ok(())
    }

    /// Asks for the time if ids could not be made from what is known.
    pub(crate) async fn trust_the_time(&self) {
        if self.inner.ids.is_doubtful() {
            self.hear_time().await;
        }
    }

    /// The queue of a send outside of any transaction.
    pub(crate) async fn resolve_outside<B, M: Mode>(
        &self,
        queue: &Declaration<B, M>,
    ) -> Result<Arc<store::Queue>> {
        let stored = self.resolve(queue).await?;
        if stored.settings.transactional == Transactional::Require {
            let why = "it is declared `require`: its messages exist exactly if a transaction commits, and there is none";
            return Err(Error::new(Code::TransactionRequired, sending(queue.name())).because(why));
        }
        self.trust_the_time().await;
        Ok(stored)
    }

    /// Stores what a scope has collected.
    pub(crate) async fn append_outside(&self, queue: &Arc<store::Queue>, batch: Batch) -> Result<Sent> {
        self.may_send(&queue.name)?;
        self.publish(queue, batch).await
    }

    pub(crate) async fn append(&self, queue: &store::Queue, batch: Batch) -> Result<Sent> {
        if let Some(root) = self.test_root() {
            return test_root::send(root, queue, batch).await;
        }
        let (ids, waits) = (batch.ids(), batch.waits());
        // The store finishes what it was asked, whoever still waits for it.
        let Ok(stored) = timeout(SEND_DEADLINE, self.store().append(queue.id, batch.messages)).await else {
            let why = format!("the store did not answer within {SEND_DEADLINE:?}");
            return Err(Error::new(Code::UnknownOutcome, sending(&queue.name)).because(why));
        };
        let stored = stored?;
        self.wake(queue.id);
        if waits {
            self.nudge();
        }
        Ok(Sent::of(ids, stored, Path::Log))
    }

    /// The queue that a send goes to.
    pub(crate) async fn resolve<B, M: Mode>(&self, queue: &Declaration<B, M>) -> Result<Arc<store::Queue>> {
        let name = queue.name();
        let found = async {
            if queue.declared_by_use() { self.declare(queue).await } else { self.known(name).await }
        };
        timeout(SEND_DEADLINE, found).await.unwrap_or_else(|_| {
            let why =
                format!("the store did not answer within {SEND_DEADLINE:?} whether the queue is declared");
            Err(Error::new(Code::StoreUnavailable, sending(name)).because(why))
        })
    }

    async fn look_up(&self, name: &str) -> Result<Arc<store::Queue>> {
        let Some(found) = self.store().queue(name.to_owned()).await? else {
            return Err(self.unknown(name).await);
        };
        self.hear_time().await;
        Ok(self.remember(found))
    }

    /// The store has said what a queue is, here or in somebody's transaction: the next send need not ask.
    pub(crate) fn remember(&self, found: store::Queue) -> Arc<store::Queue> {
        let stored = Arc::new(found);
        let mut queues = self.inner.queues.write().unwrap_or_else(PoisonError::into_inner);
        let known = Known { queue: Arc::clone(&stored), declared: None };
        queues
            .entry(stored.name.clone())
            .and_modify(|known| known.queue = Arc::clone(&stored))
            .or_insert(known);
        stored
    }

    /// The error for a queue that is not declared, with the nearest name that is.
    async fn unknown(&self, name: &str) -> Error {
        let error = Error::new(Code::UnknownQueue, format!("look up queue `{name}`"));
        let declared = self.store().queues().await.unwrap_or_default();
        let names: Vec<&str> = declared.iter().map(|queue| queue.name.as_str()).collect();
        match nearest(name, &names) {
            Some(near) => error.because(format!("no queue of this name is declared; did you mean `{near}`?")),
            None => error.because("no queue of this name is declared"),
        }
    }

    /// The queue of a constant that was declared before; an error if that was another constant.
    fn declared<B, M: Mode>(&self, queue: &Declaration<B, M>) -> Result<Option<Arc<store::Queue>>> {
        let Some(known) = self.cached(queue.name()).filter(|_| queue.declared_by_use()) else {
            return Ok(None);
        };
        differs(queue.name(), known.declared, *queue.settings())?;
        Ok(known.declared.map(|_| known.queue))
    }

    /// The stored queue of this name, if this process has met it.
    pub(crate) fn met(&self, name: &str) -> Option<Arc<store::Queue>> {
        self.cached(name).map(|known| known.queue)
    }

    fn cached(&self, name: &str) -> Option<Known> {
        self.inner.queues.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl fmt::Debug for Pond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store().capabilities().store;
        f.debug_struct("Pond")
            .field("store", &store)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// Refuses a second constant of a name that does not say the same.
fn differs(name: &str, declared: Option<QueueSettings>, settings: QueueSettings) -> Result<()> {
    if declared.is_none_or(|declared| declared == settings) {
        return Ok(());
    }
    let why = "another constant of this name in this program has other settings: use one constant";
    Err(Error::new(Code::InvalidConfig, format!("declare queue `{name}`")).because(why))
}

/// A change that code of the application made.
fn by_code(verb: &str, scope: &Scope) -> Act {
    let (verb, object) = match scope {
        Scope::Global => (verb.to_owned(), "every queue".to_owned()),
        Scope::Queue(name) => (format!("queue {verb}"), name.clone()),
    };
    Act { actor: BY_CODE.to_owned(), verb, object, reason: None }
}

pub(crate) fn sending(queue: &str) -> String {
    format!("send to queue `{queue}`")
}

/// What became of a send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// One for each item, in order.
    pub messages: Vec<SentMessage>,
    /// Where the messages of the call were put.
    pub path: Path,
}

/// Where a send put its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Path {
    /// Into the log; those that are due later into the outbox until then. They are durable.
    #[default]
    Log,
    /// Into the outbox, as a part of a transaction: they exist exactly if it commits.
    Outbox,
    /// Into the memory of a unit of work, which stores them after its commit.
    Memory,
    /// Into the buffer of their queue: stored soon, and lost if the process dies before.
    Buffer,
}

/// What became of one item of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentMessage {
    /// The id it was given.
    pub id: MessageId,
    /// Whether it is new.
    pub stored: Stored,
}

impl Sent {
    pub(crate) fn of(ids: Vec<MessageId>, stored: Vec<Stored>, path: Path) -> Self {
        let messages = ids.into_iter().zip(stored).map(|(id, stored)| SentMessage { id, stored }).collect();
        Self { messages, path }
    }

    /// The ids of the items, in order.
    pub fn ids(&self) -> impl Iterator<Item = MessageId> + '_ {
        self.messages.iter().map(|message| message.id)
    }
}

/// Items of a call that are encoded and not checked.
pub(crate) struct EncodedBatch {
    items: Vec<(Encoded, Options)>,
}

/// Messages of a call that passed every check.
pub(crate) struct Batch {
    pub(crate) messages: Vec<NewMessage>,
}

impl Batch {
    pub(crate) fn ids(&self) -> Vec<MessageId> {
        self.messages.iter().map(|message| message.id).collect()
    }

    /// Whether something goes to the outbox.
    pub(crate) fn waits(&self) -> bool {
        self.messages.iter().any(|message| message.due.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeStore;
    use crate::item::ItemOptions;

    const MAIL: Queue<f64> = Queue::new("mail").message_limit(10);

    fn pond() -> (Arc<FakeStore>, Pond) {
        let store = Arc::new(FakeStore::default());
        (Arc::clone(&store), Pond::new(store))
    }

    #[tokio::test]
    async fn a_send_declares_its_constant_once_and_stores_in_order() {
        let (store, pond) = pond();
        let sent = pond.send(&MAIL, [1.0, 2.0]).await.unwrap();
        pond.send(&MAIL, vec![3.0.priority(0)]).await.unwrap();
        assert_eq!(store.bodies(), [b"1.0", b"2.0", b"3.0"]);
        assert_eq!(store.declarations(), 1);
        assert_eq!(sent.ids().collect::<Vec<_>>(), store.ids()[..2]);
        assert_eq!(sent.messages[1].stored, Stored::New);
    }

    #[tokio::test]
    async fn one_bad_item_refuses_the_batch_with_its_index() {
        let (store, pond) = pond();
        let error = pond.send(&MAIL, [1.0, f64::NAN]).await.unwrap_err();
        assert_eq!((error.code(), error.index()), (Code::NotSerialisable, Some(1)));
        assert_eq!(error.causes(), "body: NaN has no JSON form");
        let error = pond.send(&MAIL, [1.0, 2.0, 0.123_456_789_01]).await.unwrap_err();
        assert_eq!((error.code(), error.index()), (Code::BodyTooLarge, Some(2)));
        assert!(store.bodies().is_empty());
    }

    #[tokio::test]
    async fn an_empty_batch_does_not_touch_the_store() {
        let (store, pond) = pond();
        assert_eq!(pond.send(&MAIL, Vec::<f64>::new()).await.unwrap(), Sent::default());
        assert_eq!(store.declarations(), 0);
    }

    #[tokio::test]
    async fn a_named_queue_is_never_declared_by_a_send() {
        let (store, pond) = pond();
        let named = Queue::named("mail".to_owned());
        assert_eq!(pond.send(&named, [1.0]).await.unwrap_err().code(), Code::UnknownQueue);
        assert_eq!(pond.queue("mail").await.unwrap_err().code(), Code::UnknownQueue);
        pond.declare(&MAIL).await.unwrap();
        pond.send(&named, [1.0]).await.unwrap();
        let raw = pond.queue("mail").await.unwrap();
        assert_eq!(raw.settings(), MAIL.settings());
        pond.send(&raw, [Raw::json("2")]).await.unwrap();
        assert_eq!(store.bodies(), [&b"1.0"[..], b"2"]);
    }

    #[tokio::test]
    async fn two_constants_of_one_name_must_agree() {
        let (_, pond) = pond();
        pond.send(&MAIL, [1.0]).await.unwrap();
        let error = pond.send(&MAIL.attempts_max(9), [1.0]).await.unwrap_err();
        assert_eq!((error.code(), error.doing()), (Code::InvalidConfig, "declare queue `mail`"));
        let named = Queue::<f64>::named("mail".to_owned()).attempts_max(9);
        assert_eq!(pond.declare(&named).await.unwrap().settings.attempts_max, 9, "an operator may change it");
    }

    #[tokio::test]
    async fn settings_that_cannot_work_never_reach_the_store() {
        let (store, pond) = pond();
        assert_eq!(pond.send(&MAIL.attempts_max(0), [1.0]).await.unwrap_err().code(), Code::InvalidConfig);
        assert_eq!(store.declarations(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_in_time_is_an_unknown_outcome() {
        let (store, pond) = pond();
        pond.declare(&MAIL).await.unwrap();
        store.hang();
        let error = pond.send(&MAIL, [1.0]).await.unwrap_err();
        assert_eq!(error.code(), Code::UnknownOutcome);
        assert_eq!(error.causes(), "the store did not answer within 10s");
        let error = pond.send(&Queue::<f64>::new("other"), [1.0]).await.unwrap_err();
        assert_eq!(error.code(), Code::StoreUnavailable);
    }

    #[tokio::test]
    async fn a_closed_pond_refuses_the_sends_of_its_clones() {
        let (store, pond) = pond();
        pond.clone().close().await;
        assert!(store.is_closed());
        assert_eq!(pond.send(&MAIL, [1.0]).await.unwrap_err().code(), Code::ShuttingDown);
    }

    #[tokio::test]
    async fn a_send_wakes_the_workers_and_a_delayed_one_the_relay_too() {
        let (_, pond) = pond();
        let id = pond.declare(&MAIL).await.unwrap().id;
        let mut woken = pond.woken();
        pond.send(&MAIL, [1.0]).await.unwrap();
        assert_eq!(woken.next().await, [id]);
        pond.send(&MAIL, [1.0.delay(Duration::from_secs(1))]).await.unwrap();
        pond.outbox_written().await;
    }

    #[tokio::test]
    async fn a_send_can_be_spawned_with_a_borrowing_iterator() {
        let (store, pond) = pond();
        let task = tokio::spawn(async move {
            let rates = [1.0, 2.0];
            pond.send(&MAIL, rates.iter().map(|rate| rate.priority(1))).await.map(|_| ())
        });
        task.await.unwrap().unwrap();
        assert_eq!(store.bodies().len(), 2);
    }
}

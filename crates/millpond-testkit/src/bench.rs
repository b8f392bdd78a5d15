//! The bench: a fresh store with nodes on it, on which a scenario of the contract is played.

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::backoff::Backoff;
use millpond_core::capability::Capabilities;
use millpond_core::error::Result;
use millpond_core::message::MessageId;
use millpond_core::query::{Field, Query};
use millpond_core::queue::QueueSettings;
use millpond_core::store::{self, BoxFuture, Clock, EffectTx, Store, TakeOver, TakenOver};
use millpond_core::time::Timestamp;
use millpond_core::view::{DeadLetterView, Find, MessageView, QueueView};
use millpond_engine::body::Body;
pub use millpond_engine::item::Item;
pub use millpond_engine::pond::{Pond, Sent};
pub use millpond_engine::queue::Queue;
use millpond_engine::reclaim::verdicts;
pub use millpond_engine::unit::UnitOfWork;
use millpond_engine::worker::Worker;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::clock::VirtualClock;
use crate::holder::{Holder, number};
use crate::recorder::Recorder;
use crate::wire::Wire;

/// How long [`Bench::eventually`] waits.
pub const EVENTUALLY: Duration = Duration::from_secs(10);

/// How often it looks again without a signal.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Most claims of one takeover.
const CLAIMS_MAX: usize = 100;

/// What is declared if a scenario does not care: under virtual time no worker's lease is over by accident.
pub const SETTINGS: QueueSettings = QueueSettings {
    lease: Duration::from_secs(3_600),
    backoff: Backoff::fixed(Duration::from_secs(1)),
    ..QueueSettings::DEFAULT
};

/// One fresh place for a store, given by the crate of that store. It is gone when it is dropped.
pub trait Provider: Send + Sync {
    /// What its stores can do. They must say the same of themselves.
    fn declared(&self) -> Capabilities;

    /// Opens the store; every further call opens what another process would find there.
    ///
    /// # Errors
    ///
    /// What the store says.
    fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>>;

    /// Keeps everybody else from writing until what is answered is dropped. `None`: nobody else can.
    fn occupy(&self) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// A connection of the store's driver, as a program opens it, with a transaction or without. `None`: no other
    /// connection reaches the store.
    fn transaction(&self, _open: bool) -> Option<Box<dyn DriverTx>> {
        None
    }

    /// A table of a program's own beside the store.
    fn effects(&self) -> Option<Arc<dyn Effects>> {
        None
    }

    /// Sends with plain SQL in a transaction of another program, which is committed or rolled back. Answers the text of a
    /// refusal. `None`: no other program reaches it.
    fn publish(
        &self,
        _queue: &str,
        _body: &[u8],
        _options: &str,
        _commit: bool,
    ) -> Option<std::result::Result<(), String>> {
        None
    }
}

/// A transaction of a driver, as a program opens it.
pub trait DriverTx: Send {
    /// Sends within it.
    fn send<'a>(
        &'a mut self,
        pond: &'a Pond,
        queue: &'a Queue<u32>,
        items: Vec<Item<u32>>,
    ) -> BoxFuture<'a, Result<Sent>>;

    /// Commits it, or rolls it back.
    fn end(self: Box<Self>, commit: bool) -> BoxFuture<'static, ()>;

    /// Hands it over to a unit of work.
    fn adopt<'p>(self: Box<Self>, pond: &'p Pond) -> BoxFuture<'p, Result<UnitOfWork>>;
}

/// A table of a program's own in the database of the store, `effect`, which holds ids of messages: each as often as
/// somebody wrote it.
pub trait Effects: Send + Sync {
    /// Makes it.
    fn make(&self, store: Arc<dyn Store>) -> BoxFuture<'_, ()>;

    /// Writes an id, as a handler does, in a transaction of the store or in one that was adopted.
    fn add<'a>(&'a self, tx: &'a mut dyn EffectTx, id: MessageId) -> BoxFuture<'a, Result<()>>;

    /// Runs a statement that the database refuses, and says nothing of it: the answer of the commit is what counts.
    fn fail<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, ()>;

    /// How many rows there are, and of how many messages.
    fn count<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, Result<(i64, i64)>>;
}

/// A place with a store and its first node.
pub struct Bench {
    provider: Box<dyn Provider>,
    clock: Arc<VirtualClock>,
    signal: Arc<Notify>,
    first: Node,
    nodes: Mutex<Vec<Node>>,
}

/// What one process has of a store.
#[derive(Clone)]
pub struct Node {
    /// For senders and workers.
    pub pond: Pond,
    /// The same store, at the level of the ports.
    pub store: Arc<dyn Store>,
    wire: Arc<Wire>,
}

/// A queue that is declared, with its bodies' type.
pub struct TestQueue<B> {
    declared: Queue<B>,
    /// As it is stored.
    pub stored: Arc<store::Queue>,
}

/// A worker that runs.
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    hurry: Option<oneshot::Sender<()>>,
    stopping: Arc<Notify>,
    task: JoinHandle<Result<()>>,
}

impl Bench {
    /// A bench on a place. Its clock stands still.
    ///
    /// # Panics
    ///
    /// When the store cannot be opened, or says something else of itself than its provider.
    pub fn new(provider: impl Provider + 'static) -> Self {
        let clock = Arc::new(VirtualClock::new());
        let store = provider.open(clock.clone()).expect("a fresh store is opened");
        assert_eq!(store.capabilities(), provider.declared(), "what the store says of itself");
        let first = Node::on(store);
        let nodes = Mutex::new(vec![first.clone()]);
        Self { provider: Box::new(provider), clock, signal: Arc::default(), first, nodes }
    }

    /// Its first node.
    pub fn node(&self) -> &Node {
        &self.first
    }

    /// The time of its stores.
    pub fn clock(&self) -> &Arc<VirtualClock> {
        &self.clock
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.provider.declared()
    }

    /// A second node: another process's view of the same data. Where there can be none, it is checked that there
    /// is none, and a second node in the same process stands for it.
    pub async fn second_node(&self) -> Node {
        let node = if self.capabilities().many_processes {
            self.opened()
        } else {
            self.nobody_else_sees_it().await;
            Node::on(self.first.wire.store().expect("the first node is connected"))
        };
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(node.clone());
        node
    }

    /// Another node in this process, on the very store of the first one.
    ///
    /// # Panics
    ///
    /// When the first one is cut off from it.
    pub fn shared_node(&self) -> Node {
        let node = Node::on(self.first.wire.store().expect("the first node is connected"));
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(node.clone());
        node
    }

    /// Closes the store and opens it again, as a restart of every process does. `None` where nothing survives
    /// that; then it was checked that nothing did.
    pub async fn restart(&self) -> Option<Node> {
        let nodes = std::mem::take(&mut *self.nodes.lock().unwrap_or_else(PoisonError::into_inner));
        let survives = self.capabilities().survives_restart;
        if !survives {
            self.nobody_else_sees_it().await;
        }
        for node in nodes {
            if let Some(store) = node.wire.cut() {
                store.close().await;
            }
        }
        let node = survives.then(|| self.opened())?;
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(node.clone());
        Some(node)
    }

    /// Checks what a provider declares whose data is its process's alone: another one opens nothing of it.
    ///
    /// # Panics
    ///
    /// When it does.
    pub async fn nobody_else_sees_it(&self) {
        let other = self.open();
        let (own, theirs) = (self.first.store.queues().await, other.queues().await);
        let names = |queues: Result<Vec<QueueView>>| -> Vec<String> {
            queues.expect("the queues are listed").into_iter().map(|queue| queue.name).collect()
        };
        let (own, theirs) = (names(own), names(theirs));
        assert!(!own.is_empty(), "declare a queue first");
        assert!(theirs.iter().all(|name| !own.contains(name)), "{theirs:?}");
        other.close().await;
        println!("{}: shared with nobody, as declared", self.capabilities().store);
    }

    /// Connects a node that was cut off to the data again, through a store that is opened anew.
    pub fn reconnect(&self, node: &Node) {
        node.wire.connect(self.open());
    }

    /// Keeps everybody from writing until what is answered is dropped. `None`: the provider says that nobody
    /// else can write.
    pub fn occupy(&self) -> Option<Box<dyn Any + Send>> {
        let occupied = self.provider.occupy();
        let many = self.capabilities().many_processes;
        assert_eq!(occupied.is_some(), many, "several processes may share it");
        occupied
    }

    /// Sends with plain SQL in a transaction of another program, which is committed or rolled back. Answers the text of a
    /// refusal. `None`: the provider says that no other program reaches it.
    ///
    /// # Panics
    ///
    /// When the provider says otherwise than it declared.
    pub fn publish(
        &self,
        queue: &str,
        body: &[u8],
        options: &str,
        commit: bool,
    ) -> Option<std::result::Result<(), String>> {
        let published = self.provider.publish(queue, body, options, commit);
        assert_eq!(published.is_some(), self.capabilities().many_processes, "several processes may share it");
        published
    }

    /// A connection of the store's driver, with a transaction or without. `None`: the provider says that there is none.
    ///
    /// # Panics
    ///
    /// When the provider says otherwise than it declared.
    pub fn transaction(&self, open: bool) -> Option<Box<dyn DriverTx>> {
        let transaction = self.provider.transaction(open);
        assert_eq!(
            transaction.is_some(),
            self.capabilities().many_processes,
            "several processes may share it"
        );
        transaction
    }

    /// A table of a program's own beside the store, which is there.
    ///
    /// # Panics
    ///
    /// When the provider has none.
    pub fn effects(&self) -> Arc<dyn Effects> {
        self.provider.effects().expect("a program has tables in every store")
    }

    /// The same, made now.
    pub async fn make_effects(&self) -> Arc<dyn Effects> {
        let effects = self.effects();
        effects.make(Arc::clone(&self.first.store)).await;
        effects
    }

    /// How many effects there are, and of how many messages.
    ///
    /// # Panics
    ///
    /// When the store does not answer.
    pub async fn effect_counts(&self, effects: &dyn Effects) -> (i64, i64) {
        let mut unit = self.first.pond.begin().await.expect("a unit is begun");
        let tx = unit.tx().await.expect("it is open");
        effects.count(tx).await.expect("they are counted")
    }

    /// A queue that nobody else has.
    pub async fn queue<B>(&self, settings: QueueSettings) -> TestQueue<B> {
        let name = format!("bench-{}-{}-{}", self.clock.now().as_micros(), std::process::id(), number());
        self.named_queue(name, settings).await
    }

    /// A queue of this name.
    ///
    /// # Panics
    ///
    /// When it is refused.
    pub async fn named_queue<B>(&self, name: String, settings: QueueSettings) -> TestQueue<B> {
        let declared = Queue::named(name).with_settings(settings);
        let stored = self.first.pond.declare(&declared).await.expect("the queue is declared");
        TestQueue { declared, stored }
    }

    /// A recorder by the clock of this bench; what it sees wakes [`eventually`](Self::eventually).
    pub fn recorder<B: Clone>(&self) -> Arc<Recorder<B>> {
        Arc::new(Recorder::new(Arc::clone(&self.clock), Arc::clone(&self.signal)))
    }

    /// A worker without an engine.
    pub fn holder<B>(&self, queue: &TestQueue<B>) -> Holder {
        self.holder_on(&self.first, queue)
    }

    /// A worker without an engine, on another node.
    pub fn holder_on<B>(&self, node: &Node, queue: &TestQueue<B>) -> Holder {
        Holder::new(Arc::clone(&node.store), Arc::clone(&queue.stored))
    }

    /// Sends, and answers the ids.
    ///
    /// # Panics
    ///
    /// When it is refused.
    pub async fn send<B, I>(&self, queue: &TestQueue<B>, items: I) -> Vec<MessageId>
    where
        B: Body,
        I: IntoIterator,
        I::Item: Into<Item<B>>,
    {
        let sent = self.first.pond.send(queue, items).await.expect("the messages are stored");
        sent.messages.iter().map(|message| message.id).collect()
    }

    /// Lets time pass, and makes the nodes look what is due.
    pub fn advance(&self, time: Duration) {
        self.clock.advance(time);
        for node in self.nodes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            node.pond.nudge();
        }
    }

    /// Moves what is due; answers how much.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn relay(&self) -> usize {
        self.first.store.relay(1_000).await.expect("the relay answers").moved
    }

    /// Takes over what may be taken over, and nothing more.
    pub async fn take_over(&self) -> Vec<TakenOver> {
        self.take_over_on(&self.first).await
    }

    /// Takes over what may be taken over, as another node.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn take_over_on(&self, node: &Node) -> Vec<TakenOver> {
        let request = TakeOver {
            worker: None,
            lease: Duration::from_secs(10),
            in_touch_since: Timestamp::from_secs(0),
            claims_max: CLAIMS_MAX,
        };
        node.store.take_over(request).await.expect("a takeover is answered")
    }

    /// What every node does each second: takes over what was lost, settles it, and moves what is due. Answers
    /// how many messages were lost.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn reclaim(&self) -> usize {
        self.reclaim_on(&self.first).await
    }

    /// The same, as another node.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn reclaim_on(&self, node: &Node) -> usize {
        let taken = self.take_over_on(node).await;
        for claim in &taken {
            let verdicts = verdicts(claim, self.clock.now());
            let answers = node.store.settle(vec![verdicts]).await.expect("a settlement is answered");
            assert!(matches!(answers[..], [store::Settled::Applied { .. }]), "the claim was just taken over");
        }
        node.store.relay(1_000).await.expect("the relay answers");
        taken.iter().map(|claim| claim.unsettled.len()).sum()
    }

    /// The counts of a queue.
    ///
    /// # Panics
    ///
    /// When the store does not answer, or does not list it.
    pub async fn counts<B>(&self, queue: &TestQueue<B>) -> QueueView {
        let queues = self.first.store.queues().await.expect("the queues are listed");
        queues.into_iter().find(|view| view.name == queue.name()).expect("the queue is listed")
    }

    /// Where a message is.
    ///
    /// # Panics
    ///
    /// When it is not found.
    pub async fn look(&self, id: MessageId) -> MessageView {
        self.first.store.message(id).await.expect("a look-up is answered").expect("the message is found")
    }

    /// The events of a message, as kind and reason.
    pub async fn events(&self, id: MessageId) -> Vec<(String, String)> {
        let events = self.look(id).await.events;
        events
            .into_iter()
            .map(|event| (event.kind.as_str().to_owned(), event.reason.unwrap_or_default()))
            .collect()
    }

    /// Deletes what is past its retention, at most this many rows of each table; answers how many went.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn retain(&self, rows_max: usize) -> u64 {
        self.first.store.retain("bench".to_owned(), rows_max).await.expect("retention answers")
    }

    /// The dead letters of a queue.
    ///
    /// # Panics
    ///
    /// When the store does not answer.
    pub async fn dead<B>(&self, queue: &TestQueue<B>) -> Vec<DeadLetterView> {
        let query = Query::default().and(Field::Queue, [queue.name().to_owned()]);
        let find = Find { query, rows_max: 1_000, bodies: true, ..Find::default() };
        self.first.store.dead_letters(find).await.expect("the dead letters are listed").items
    }

    /// Waits until nothing of a queue is ready, leased or waiting, and this many messages are done.
    pub async fn drained<B>(&self, queue: &TestQueue<B>, done: u64) -> QueueView {
        self.eventually(&format!("{done} messages of {} are done, none is left", queue.name()), async || {
            let counts = self.counts(queue).await;
            let left = counts.ready + counts.leased + counts.scheduled + counts.retrying;
            (left == 0 && counts.done == done).then_some(counts)
        })
        .await
    }

    /// Asks again and again, after every signal of a recorder and each few milliseconds, until there is an
    /// answer.
    pub async fn eventually<T>(&self, what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
        self.eventually_within(EVENTUALLY, what, ask).await
    }

    /// The same with a limit of its own.
    ///
    /// # Panics
    ///
    /// When the limit passes, with `what` was not met.
    pub async fn eventually_within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut ask: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let began = Instant::now();
        loop {
            let signal = self.signal.notified();
            if let Some(answer) = ask().await {
                return answer;
            }
            assert!(began.elapsed() < limit, "not met within {limit:?}: {what}");
            let _ = timeout(LOOK_EVERY, signal).await;
        }
    }

    /// Closes the stores of every node.
    pub async fn close(self) {
        for node in self.nodes.into_inner().unwrap_or_else(PoisonError::into_inner) {
            node.pond.close().await;
        }
    }

    fn open(&self) -> Arc<dyn Store> {
        self.provider.open(self.clock.clone()).expect("the store is opened again")
    }

    fn opened(&self) -> Node {
        Node::on(self.open())
    }
}

impl Node {
    fn on(store: Arc<dyn Store>) -> Self {
        let wire = Arc::new(Wire::to(store));
        let store: Arc<dyn Store> = wire.clone();
        Self { pond: Pond::new(Arc::clone(&store)), store, wire }
    }

    /// A worker of this node.
    pub fn worker(&self) -> Worker {
        Worker::new(&self.pond)
    }

    /// What lies between it and its store: faults, and messages that are stored twice.
    pub const fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    /// Cuts the node off from its store: nothing that it does reaches it any more.
    pub fn cut(&self) -> Option<Arc<dyn Store>> {
        self.wire.cut()
    }

    /// How many hold on to its store. A worker with a pond of its own does, as long as anything of it is left.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.wire)
    }

    /// Connects it again.
    pub fn connect(&self, store: Arc<dyn Store>) {
        self.wire.connect(store);
    }
}

impl<B> Deref for TestQueue<B> {
    type Target = Queue<B>;

    fn deref(&self) -> &Queue<B> {
        &self.declared
    }
}

impl Running {
    /// Runs a worker on the runtime of the scenario.
    pub fn start(worker: Worker) -> Self {
        Self::start_on(&tokio::runtime::Handle::current(), worker)
    }

    /// Runs a worker on another runtime.
    pub fn start_on(runtime: &tokio::runtime::Handle, worker: Worker) -> Self {
        let ((stop, stopped), (hurry, hurried)) = (oneshot::channel(), oneshot::channel::<()>());
        let stopping = Arc::new(Notify::new());
        let heard = Arc::clone(&stopping);
        let shutdown = async move {
            let _ = stopped.await;
            heard.notify_one();
        };
        let hurried = async move {
            if hurried.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let task = runtime.spawn(worker.run_until_hurried(shutdown, hurried));
        Self { stop: Some(stop), hurry: Some(hurry), stopping, task }
    }

    /// Tells it to stop, and waits until it has heard it.
    pub async fn signal(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
            let _ = timeout(EVENTUALLY, self.stopping.notified()).await;
        }
    }

    /// Tells it to hurry.
    pub fn hurry(&mut self) {
        if let Some(hurry) = self.hurry.take() {
            let _ = hurry.send(());
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    ///
    /// When it does not, or with an error.
    pub async fn ended(self) {
        let Self { task, hurry, .. } = self;
        let ended = timeout(EVENTUALLY, task).await.expect("the worker ends in time");
        ended.expect("the worker does not panic").expect("the worker ends without an error");
        drop(hurry);
    }

    /// Tells it to stop and waits until it has.
    pub async fn stop(mut self) {
        self.signal().await;
        self.ended().await;
    }

    /// Drops it where it is.
    pub fn abort(&self) {
        self.task.abort();
    }
}

//! The kit: a pond in memory with a clock, faults, and as many nodes as a test wants.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond::sqlite::{Options, SqliteStore};
use millpond::view::{DeadLetterView, QueueView};
use millpond::{Pond, Result, Store, Timestamp, Worker};
use millpond_core::capability::Capabilities;
use millpond_core::query::{Field, Query};
use millpond_core::store::Clock;
use millpond_core::view::Find;
use millpond_testkit::bench::{Bench, Node, Provider, Running};
use millpond_testkit::faults::Faults;
use millpond_testkit::recorder::Recorder;

/// How long [`TestPond::eventually`] and [`TestPond::wait_for_idle`] wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// SQLite in memory: every store is another one.
struct Memory;

impl Provider for Memory {
    fn declared(&self) -> Capabilities {
        Capabilities { store: "sqlite", survives_restart: false, many_processes: false, effects_once: true }
    }

    fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(SqliteStore::open("sqlite::memory:", Options { clock, ..Options::default() })?))
    }
}

/// How a [`TestPond`] is made.
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "nothing is there before `start`"]
pub struct Builder {
    duplicate: bool,
    real_time: bool,
}

impl Builder {
    /// Every message that is sent is stored twice, as two independent messages with two ids and two budgets. It finds
    /// handlers that assume that a piece of work comes once. What a unit of work sends is stored once.
    pub const fn duplicate(mut self, duplicate: bool) -> Self {
        self.duplicate = duplicate;
        self
    }

    /// The time of the store goes on by itself. By default it stands still until [`TestPond::advance`].
    pub const fn real_time(mut self, real: bool) -> Self {
        self.real_time = real;
        self
    }

    /// The pond, on a store of its own in memory.
    pub fn start(self) -> TestPond {
        let bench = Bench::new(Memory);
        bench.node().wire().double(self.duplicate);
        if self.real_time {
            bench.clock().run();
        }
        let pond = Pond::from(bench.node().pond.clone());
        TestPond { bench, pond, workers: Mutex::default() }
    }
}

/// A pond for one test: a store in memory that nobody else sees, with a clock that the test moves.
///
/// It is a [`Pond`] for everything else: send to it, give it to the code under test.
pub struct TestPond {
    pub(crate) bench: Bench,
    pond: Pond,
    workers: Mutex<Vec<Running>>,
}

impl std::fmt::Debug for TestPond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestPond").field("pond", &self.pond).finish_non_exhaustive()
    }
}

impl Deref for TestPond {
    type Target = Pond;

    fn deref(&self) -> &Pond {
        &self.pond
    }
}

impl TestPond {
    /// With a clock that stands still, and every message stored once.
    pub fn start() -> Self {
        Builder::default().start()
    }

    /// With other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A worker of this pond, to be given handlers, and to [`run`](Self::run).
    pub fn worker(&self) -> Worker {
        Worker::new(&self.pond)
    }

    /// Runs a worker until [`close`](Self::close), or until [`stop_workers`](Self::stop_workers).
    pub fn run(&self, worker: Worker) {
        self.workers().push(Running::start(worker));
    }

    /// Stops every worker that was run, in an orderly way.
    ///
    /// # Panics
    ///
    /// When one has ended with an error: it was set up wrongly.
    pub async fn stop_workers(&self) {
        let workers = std::mem::take(&mut *self.workers());
        for worker in workers {
            worker.stop().await;
        }
    }

    /// Kills every worker that was run, in the middle of what it does. Its messages are delivered again when its lease is
    /// over, which [`advance`](Self::advance) brings about if another worker runs.
    pub fn kill_workers(&self) {
        std::mem::take(&mut *self.workers()).iter().for_each(Running::abort);
    }

    /// Another node: a pond as a second process would have one, on the same store, with faults of its own.
    pub async fn second_node(&self) -> (Pond, Node) {
        let node = self.bench.shared_node();
        (Pond::from(node.pond.clone()), node)
    }

    /// The time of the store.
    pub fn now(&self) -> Timestamp {
        self.bench.clock().now()
    }

    /// Lets time pass for the store: delays, backoff, deadlines and pauses that are over take effect. The leases of
    /// workers are renewed by real time; one that sleeps for longer than its lease in store time may lose it.
    pub async fn advance(&self, time: Duration) {
        self.bench.advance(time);
        tokio::task::yield_now().await;
    }

    /// The faults of the store, as seen from this node.
    pub fn faults(&self) -> &Faults {
        self.bench.node().wire().faults()
    }

    /// What handlers saw, for those that enter it: order, attempts, how many at once.
    pub fn recorder<B: Clone>(&self) -> Arc<Recorder<B>> {
        self.bench.recorder()
    }

    /// Asks again and again, after every signal of a recorder and each few milliseconds, until there is an answer.
    ///
    /// # Panics
    ///
    /// When there is none within 10 s, with `what` was not met.
    pub async fn eventually<T>(&self, what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
        self.bench.eventually_within(LIMIT, what, ask).await
    }

    /// The counts of a queue.
    ///
    /// # Panics
    ///
    /// When it is not declared: nothing was sent to it and no worker has it.
    pub async fn counts(&self, queue: &str) -> QueueView {
        let queues = self.store().queues().await.expect("the store in memory answers");
        let found = queues.into_iter().find(|view| view.name == queue);
        found.unwrap_or_else(|| panic!("no queue `{queue}` is declared"))
    }

    /// The dead letters of a queue, newest first.
    ///
    /// # Panics
    ///
    /// When the store does not answer.
    pub async fn dead_letters(&self, queue: &str) -> Vec<DeadLetterView> {
        let query = Query::default().and(Field::Queue, [queue.to_owned()]);
        let find = Find { query, rows_max: 1_000, bodies: true, ..Find::default() };
        self.store().dead_letters(find).await.expect("the store in memory answers").items
    }

    /// Stops the workers, writes the buffers, and closes the store.
    ///
    /// # Panics
    ///
    /// When a worker has ended with an error.
    pub async fn close(self) {
        self.stop_workers().await;
        self.bench.close().await;
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Running>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

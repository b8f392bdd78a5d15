//! The worker: leases messages, runs their handlers, and records how they ended.
//!
//! Its life: *registered* (its lease is in the store) → *running* → *draining* (leases nothing more, handlers end)
//! → *cancelling* (handlers are told to stop) → *ended* (what was not finished is given back). It leaves a state
//! only forward.

mod board;
mod call;
mod feed;
pub(crate) mod hands;
pub(crate) mod hooks;
mod kinds;
mod limited;
mod line;
pub(crate) mod orders;
mod plan;
mod run;
pub(crate) mod settler;
pub(crate) mod slot;
mod start;
mod suspects;
mod watchdog;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::poll::PollSettings;
use millpond_core::store::CLAIM_MESSAGES_MAX;

use crate::batch::BatchHandler;
use crate::body::{Body, Raw};
use crate::handler::{Bound, Handler, States};
use crate::hook::{BoundHook, Hook};
use crate::pond::Pond;
use crate::queue::{Declaration, Mode, Queue};
use crate::worker::kinds::Kinds;

/// Handlers of one queue that run at once, if nobody says otherwise.
pub const CONCURRENCY_DEFAULT: usize = 10;

/// Most handlers of one queue that may run at once in a worker.
pub const CONCURRENCY_MAX: usize = 256;

/// A worker of this process. It consumes nothing before it is run.
///
/// ```no_run
/// # // It needs a store, which is in a crate of its own.
/// # use millpond_engine::{job::Job, pond::Pond, queue::Queue, worker::Worker};
/// # use millpond_core::settle::Verdict;
/// # async fn example(pond: Pond) -> millpond_core::Result<()> {
/// const MAIL: Queue<String> = Queue::new("mail");
///
/// async fn greet(job: Job<String>) -> Verdict {
///     println!("hello {}", job.body);
///     Verdict::Ack
/// }
///
/// Worker::new(&pond).handle(&MAIL, greet).concurrency(20).run().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    pub(crate) pond: Pond,
    pub(crate) states: States,
    pub(crate) registrations: Vec<Registration>,
    pub(crate) hooks: Vec<HookRegistration>,
    pub(crate) concurrency: usize,
    pub(crate) lease: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) cancel_grace: Duration,
    pub(crate) poll: PollSettings,
    pub(crate) version: String,
}

/// What a worker had to leave behind when it stopped. Nothing of it is lost: it is delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stopped {
    /// Handlers that were told to stop and did not: their messages were given back while they ran.
    pub given_up: usize,
    /// Messages whose end could not be recorded: they are delivered again when the lease is over.
    pub unrecorded: usize,
}

impl Stopped {
    /// Whether everything was settled or given back.
    pub const fn is_clean(self) -> bool {
        self.given_up == 0 && self.unrecorded == 0
    }
}

/// A handler that is bound to its states when the worker starts.
type Bind = Box<dyn FnOnce(&States) -> Result<Bound> + Send>;

pub(crate) struct Registration {
    queue: Queue<Raw>,
    kind: KindOf,
    bind: Bind,
    batch_max: Option<usize>,
}

/// A hook that is bound to its states when the worker starts.
type BindHook = Box<dyn FnOnce(&States) -> Result<BoundHook> + Send>;

pub(crate) struct HookRegistration {
    pub(crate) queue: Queue<Raw>,
    /// `None`: of every kind that has no hook of its own.
    pub(crate) kind: Option<String>,
    pub(crate) bind: BindHook,
}

enum KindOf {
    Own,
    Named(String),
    Any,
}

impl Worker {
    /// A worker on the store of `pond`.
    pub fn new(pond: &Pond) -> Self {
        Self {
            pond: pond.clone(),
            states: States::default(),
            registrations: Vec::new(),
            hooks: Vec::new(),
            concurrency: CONCURRENCY_DEFAULT,
            lease: None,
            timeout: None,
            shutdown_timeout: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(5),
            poll: PollSettings::default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Gives handlers a value of this type; they get a clone of it.
    pub fn state<S: Clone + Send + Sync + 'static>(mut self, value: S) -> Self {
        self.states.insert(value);
        self
    }

    /// Registers the handler of a queue: of messages that name no kind of their own.
    pub fn handle<B: Body, M: Mode, A>(self, queue: &Declaration<B, M>, handler: impl Handler<B, A>) -> Self {
        self.register(queue, KindOf::Own, Box::new(|states| handler.bind(states)))
    }

    /// Registers the handler of one kind of a queue.
    pub fn handle_kind<B: Body, C, M: Mode, A>(
        self,
        queue: &Declaration<C, M>,
        kind: impl Into<String>,
        handler: impl Handler<B, A>,
    ) -> Self {
        self.register(queue, KindOf::Named(kind.into()), Box::new(|states| handler.bind(states)))
    }

    /// Registers the handler of every kind of a queue that has none of its own here.
    pub fn handle_any<B: Body, C, M: Mode, A>(
        self,
        queue: &Declaration<C, M>,
        handler: impl Handler<B, A>,
    ) -> Self {
        self.register(queue, KindOf::Any, Box::new(|states| handler.bind(states)))
    }

    /// Registers the batch handler of a queue, of messages that name no kind of their own: it gets up to
    /// [`batch_max`](Self::batch_max) jobs in one call, each with its own verdict.
    ///
    /// ```no_run
    /// # // It needs a store, which is in a crate of its own.
    /// # use millpond_engine::{batch::Jobs, pond::Pond, queue::Queue, worker::Worker};
    /// # use millpond_core::settle::Verdict;
    /// # async fn example(pond: Pond) -> millpond_core::Result<()> {
    /// const ROWS: Queue<String> = Queue::new("rows");
    ///
    /// async fn import(rows: Jobs<String>) -> Verdict {
    ///     println!("{} rows at once", rows.len());
    ///     Verdict::Ack
    /// }
    ///
    /// Worker::new(&pond).handle_batch(&ROWS, import).batch_max(500).run().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn handle_batch<B: Body, M: Mode, A>(
        self,
        queue: &Declaration<B, M>,
        handler: impl BatchHandler<B, A>,
    ) -> Self {
        self.register(queue, KindOf::Own, Box::new(|states| handler.bind(states)))
    }

    /// Registers the batch handler of one kind of a queue. A call gets messages of this kind alone.
    pub fn handle_kind_batch<B: Body, C, M: Mode, A>(
        self,
        queue: &Declaration<C, M>,
        kind: impl Into<String>,
        handler: impl BatchHandler<B, A>,
    ) -> Self {
        self.register(queue, KindOf::Named(kind.into()), Box::new(|states| handler.bind(states)))
    }

    /// Most jobs of one call of a batch handler that was registered before, from 1 to 1,024. Default: 100. A call gets
    /// what is there: fewer in a quiet queue, and never more than one lease holds.
    pub fn batch_max(mut self, jobs: usize) -> Self {
        self.registrations.last_mut().into_iter().for_each(|last| last.batch_max = Some(jobs));
        self
    }

    /// Registers the hook of a queue: it is called for every message of it that is dropped, with the reason, whoever
    /// dropped it. See [`Hook`] for what it may rely on.
    ///
    /// ```no_run
    /// # // It needs a store, which is in a crate of its own.
    /// # use millpond_engine::{hook::Dropped, job::Job, pond::Pond, queue::Queue, worker::Worker};
    /// # use millpond_core::settle::Verdict;
    /// # async fn example(pond: Pond) -> millpond_core::Result<()> {
    /// const REPORTS: Queue<u64> = Queue::new("reports");
    ///
    /// async fn run(job: Job<u64>) -> Verdict {
    ///     Verdict::DeadLetter { reason: format!("there is no report {}", job.body) }
    /// }
    ///
    /// async fn mark_failed(report: Dropped<u64>) {
    ///     println!("{:?}: {}", report.message.body(), report.reason);
    /// }
    ///
    /// Worker::new(&pond).handle(&REPORTS, run).on_error(&REPORTS, mark_failed).run().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// From the first worker with a hook on, drops of the queue wait until a worker has called it. Every worker that has
    /// a hook of a queue should have all of them.
    pub fn on_error<B: Body, M: Mode, A>(mut self, queue: &Declaration<B, M>, hook: impl Hook<B, A>) -> Self {
        let bind = Box::new(|states: &States| hook.bind(states));
        self.hooks.push(HookRegistration { queue: queue.untyped(), kind: None, bind });
        self
    }

    /// Registers the hook of one kind of a queue.
    pub fn on_error_of_kind<B: Body, C, M: Mode, A>(
        mut self,
        queue: &Declaration<C, M>,
        kind: impl Into<String>,
        hook: impl Hook<B, A>,
    ) -> Self {
        let bind = Box::new(|states: &States| hook.bind(states));
        self.hooks.push(HookRegistration { queue: queue.untyped(), kind: Some(kind.into()), bind });
        self
    }

    /// How many handlers of a queue run at once here, from 1 to 256. Default: 10. A queue's own
    /// `concurrency_per_node` lowers it.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How long this worker may be silent before its messages are given to another. At least 2 s. Default: the
    /// shortest lease of its queues.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long one run may take here. A shorter timeout of the queue counts. Default: the queue's.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// How long running handlers may take to end after the worker was told to stop. Default: 30 s.
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.shutdown_timeout = limit;
        self
    }

    /// How long a handler that was told to stop may take to do so. Default: 5 s.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.cancel_grace = grace;
        self
    }

    /// How often an idle worker looks for messages. Default: every 25 ms at first, every 500 ms after a minute;
    /// hints wake it in between.
    pub fn poll(mut self, settings: PollSettings) -> Self {
        self.poll = settings;
        self
    }

    /// The version of the program, as lists of workers show it. Default: that of Millpond.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Runs until `shutdown` resolves, or an operator wishes a restart, then ends in two phases: first it leases nothing more and lets handlers
    /// end; after [`shutdown_timeout`](Self::shutdown_timeout) it tells them to stop, waits
    /// [`cancel_grace`](Self::cancel_grace), and gives back what is left, without an attempt.
    ///
    /// # Errors
    ///
    /// Before it leases anything: `handler-missing` (none, or two for one kind), `unknown-queue`,
    /// `invalid-config`, or what the store says. Once it runs, no error of the store ends it.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        run::run(self, shutdown, std::future::pending()).await.map(drop)
    }

    /// The same, but when `hurry` resolves too, handlers are told to stop at once.
    ///
    /// # Errors
    ///
    /// As for [`run_until`](Self::run_until).
    pub async fn run_until_hurried(
        self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<()> {
        run::run(self, shutdown, hurry).await.map(drop)
    }

    /// The same, and says what the stop had to leave behind.
    ///
    /// # Errors
    ///
    /// As for [`run_until`](Self::run_until).
    pub async fn run_until_stopped(
        self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<Stopped> {
        run::run(self, shutdown, hurry).await
    }

    /// Runs until SIGTERM or SIGINT; a second signal makes it hurry.
    ///
    /// # Errors
    ///
    /// As for [`run_until`](Self::run_until), and if the signals cannot be listened to.
    pub async fn run(self) -> Result<()> {
        let failed = |error: std::io::Error| Error::new(Code::Internal, "listen to signals").because(error);
        let (mut first, mut second) =
            (Signals::listen().map_err(failed)?, Signals::listen().map_err(failed)?);
        let hurry = async {
            second.next().await;
            second.next().await;
        };
        run::run(self, async { first.next().await }, hurry).await.map(drop)
    }

    fn register<C, M: Mode>(mut self, queue: &Declaration<C, M>, kind: KindOf, bind: Bind) -> Self {
        self.registrations.push(Registration { queue: queue.untyped(), kind, bind, batch_max: None });
        self
    }

    /// Binds the handlers: the kinds of each queue, in the order of their names.
    fn bind(&mut self) -> Result<Vec<(Queue<Raw>, Kinds)>> {
        let mut queues: BTreeMap<String, (Queue<Raw>, Kinds)> = BTreeMap::new();
        for Registration { queue, kind, bind, batch_max } in std::mem::take(&mut self.registrations) {
            let mut bound = bind(&self.states)?;
            let doing = format!("start a worker of queue `{}`", queue.name());
            if let Some(jobs) = batch_max {
                if !(1..=CLAIM_MESSAGES_MAX).contains(&jobs) {
                    let why = format!("batch_max is {jobs}; it is from 1 to {CLAIM_MESSAGES_MAX}");
                    return Err(Error::new(Code::InvalidConfig, doing).because(why));
                }
                bound = bound.with_messages_max(jobs);
            }
            let name = queue.name().to_owned();
            let (_, kinds) = queues.entry(name).or_insert_with(|| (queue, Kinds::default()));
            let (added, shown) = match &kind {
                KindOf::Own => (kinds.add(None, bound), "its own kind".to_owned()),
                KindOf::Named(kind) => (kinds.add(Some(kind), bound), format!("kind `{kind}`")),
                KindOf::Any => (kinds.add_any(bound), "every other kind".to_owned()),
            };
            if !added {
                let why = format!("{shown} has two handlers");
                return Err(Error::new(Code::HandlerMissing, doing).because(why));
            }
        }
        if queues.is_empty() {
            let doing = "start a worker";
            return Err(
                Error::new(Code::HandlerMissing, doing).because("it has no handler: add `.handle(…)`")
            );
        }
        Ok(queues.into_values().collect())
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

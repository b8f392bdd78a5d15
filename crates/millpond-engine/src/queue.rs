//! Declarations of queues: constants in code, with the type of the body they carry.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::batch::BATCH_DEFAULT;
use crate::body::{Body, Raw};
use crate::buffers::Gathering;
use crate::dedup::Dedup;
use crate::publish::Way;
use millpond_core::Backoff;
use millpond_core::buffer::Buffer;
use millpond_core::limit::Rate;
use millpond_core::queue::{HistoryLevel, QueueSettings, Transactional};

/// How a send to a queue stands to the sender's transaction: [`Require`], [`Try`] or [`Never`].
pub trait Mode: sealed::Sealed + 'static {
    /// As it is stored with the queue.
    const TRANSACTIONAL: Transactional;
}

/// A mode that may be sent outside of any transaction.
#[diagnostic::on_unimplemented(
    message = "a queue that requires a transaction cannot be sent to without one",
    label = "this queue is a `TxQueue`",
    note = "send within a transaction: `pond.begin()` and `unit.send(…)`, or `pond.within(&mut tx).send(…)`"
)]
pub trait Outside: Mode {}

/// A mode whose messages are rows of the sender's own transaction.
#[diagnostic::on_unimplemented(
    message = "a queue that is never part of a transaction cannot be sent to in a driver's own",
    label = "this queue is a `FastQueue`",
    note = "we are not told of that commit: use a unit of work, `pond.begin()`, or send after the commit"
)]
pub trait Inside: Mode {}

/// The mode of a [`TxQueue`]: only within a transaction.
#[derive(Debug)]
pub enum Require {}

/// The mode of a [`Queue`]: within a transaction if there is one.
#[derive(Debug)]
pub enum Try {}

/// The mode of a [`FastQueue`]: never a part of a transaction.
#[derive(Debug)]
pub enum Never {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Require {}
    impl Sealed for super::Try {}
    impl Sealed for super::Never {}
}

impl Mode for Require {
    const TRANSACTIONAL: Transactional = Transactional::Require;
}

impl Mode for Try {
    const TRANSACTIONAL: Transactional = Transactional::Try;
}

impl Mode for Never {
    const TRANSACTIONAL: Transactional = Transactional::Never;
}

impl Outside for Try {}
impl Outside for Never {}
impl Inside for Require {}
impl Inside for Try {}

/// A queue that may be sent to within a transaction and outside of one.
///
/// A declaration is a constant. It is stored when a pond first uses it; the settings that were stored last
/// are the ones that hold.
///
/// ```
/// use std::time::Duration;
/// use millpond_engine::queue::Queue;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Welcome {
///     user: u64,
/// }
///
/// const MAIL: Queue<Welcome> = Queue::new("mail").attempts_max(5).lease(Duration::from_secs(30));
///
/// assert_eq!(MAIL.name(), "mail");
/// assert_eq!(MAIL.settings().attempts_max, 5);
/// ```
pub type Queue<B> = Declaration<B, Try>;

/// A queue that is sent to within a transaction only: what cannot be sent by mistake outside of one, does not compile
/// there.
///
/// ```compile_fail,E0277
/// # use millpond_engine::{pond::Pond, queue::TxQueue};
/// const REPORTS: TxQueue<u64> = TxQueue::new("reports");
///
/// async fn report(pond: &Pond) -> millpond_core::Result<()> {
///     pond.send(&REPORTS, [7]).await?; // There is no transaction.
///     Ok(())
/// }
/// ```
///
/// ```
/// # use millpond_engine::{pond::Pond, queue::TxQueue};
/// const REPORTS: TxQueue<u64> = TxQueue::new("reports");
///
/// async fn report(pond: &Pond) -> millpond_core::Result<()> {
///     let mut unit = pond.begin().await?;
///     unit.send(&REPORTS, [7]).await?;
///     unit.commit().await?;
///     Ok(())
/// }
/// ```
pub type TxQueue<B> = Declaration<B, Require>;

/// A queue that is never part of a transaction: a message costs no row of the outbox, and is lost if the process dies
/// between a commit and storing it.
///
/// It can be sent to in a unit of work, which keeps the message in memory and stores it after the commit. In a
/// transaction of a driver it cannot, since nobody tells us of that commit:
///
/// ```compile_fail,E0277
/// # use millpond_core::within::UserTx;
/// # use millpond_engine::{pond::Pond, queue::FastQueue};
/// const PINGS: FastQueue<u64> = FastQueue::new("pings");
///
/// async fn ping<T: UserTx<Of>, Of>(pond: &Pond, tx: &mut T) -> millpond_core::Result<()> {
///     pond.within(tx).send(&PINGS, [7]).await?;
///     Ok(())
/// }
/// ```
///
/// ```
/// # use millpond_engine::{pond::Pond, queue::FastQueue};
/// const PINGS: FastQueue<u64> = FastQueue::new("pings");
///
/// async fn ping(pond: &Pond) -> millpond_core::Result<()> {
///     pond.send(&PINGS, [7]).await?;
///     let mut unit = pond.begin().await?;
///     unit.send(&PINGS, [8]).await?;
///     unit.commit().await?;
///     Ok(())
/// }
/// ```
pub type FastQueue<B> = Declaration<B, Never>;

/// The declaration of a queue whose messages have bodies of type `B`: a [`Queue`], a [`TxQueue`] or a [`FastQueue`], by
/// its mode `M`. They are built alike.
pub struct Declaration<B, M> {
    name: Cow<'static, str>,
    settings: QueueSettings,
    declared_by_use: bool,
    gathered: Gathered<B>,
    body: PhantomData<fn(B) -> B>,
    mode: PhantomData<fn() -> M>,
}

impl<B, M: Mode> Declaration<B, M> {
    /// A queue with every setting at its default. A pond declares it when it first uses it.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            settings: QueueSettings { transactional: M::TRANSACTIONAL, ..QueueSettings::DEFAULT },
            declared_by_use: true,
            gathered: Gathered::DEFAULT,
            body: PhantomData,
            mode: PhantomData,
        }
    }

    /// A queue whose name is known at run time only. Using it never makes a queue, so that a name from
    /// outside cannot: it is looked up, or declared by an explicit [`Pond::declare`](crate::pond::Pond::declare).
    /// What is stored says how it stands to transactions.
    pub const fn named(name: String) -> Self {
        Self {
            name: Cow::Owned(name),
            settings: QueueSettings { transactional: M::TRANSACTIONAL, ..QueueSettings::DEFAULT },
            declared_by_use: false,
            gathered: Gathered::DEFAULT,
            body: PhantomData,
            mode: PhantomData,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings of this declaration.
    pub const fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Whether sending to it may declare it.
    pub(crate) const fn declared_by_use(&self) -> bool {
        self.declared_by_use
    }

    /// The same declaration, whatever its bodies and its mode are.
    pub(crate) fn untyped(&self) -> Queue<Raw> {
        let Self { name, settings, declared_by_use, .. } = self.clone();
        let gathered = Gathered::DEFAULT;
        Declaration { name, settings, declared_by_use, gathered, body: PhantomData, mode: PhantomData }
    }

    /// The same queue with all of these settings. A constant keeps the mode of its type.
    #[must_use]
    pub const fn with_settings(mut self, settings: QueueSettings) -> Self {
        self.settings = settings;
        if self.declared_by_use {
            self.settings.transactional = M::TRANSACTIONAL;
        }
        self
    }

    /// This many messages in a buffer are written at the next tick. Default: 100.
    #[must_use]
    pub const fn batch_max(mut self, messages: usize) -> Self {
        self.gathered.batch_max = messages;
        self
    }

    /// A pure function that removes waste from the list of bodies of one send, and of what a buffer writes together. It
    /// may drop bodies, never add or change one; if it does, or panics, that is logged and everything is sent. What it
    /// dropped is answered as [`Stored::Duplicate`](millpond_core::store::Stored).
    ///
    /// ```
    /// use millpond_engine::queue::Queue;
    ///
    /// fn once(mut users: Vec<u64>) -> Vec<u64> {
    ///     users.sort_unstable();
    ///     users.dedup();
    ///     users
    /// }
    ///
    /// const REFRESH: Queue<u64> = Queue::new("refresh").dedup(once);
    /// ```
    #[must_use]
    pub const fn dedup(mut self, function: fn(Vec<B>) -> Vec<B>) -> Self {
        self.gathered.dedup = Some(function);
        self
    }

    /// Deliveries in all, at least 1. Default: 5.
    #[must_use]
    pub const fn attempts_max(mut self, attempts: u32) -> Self {
        self.settings.attempts_max = attempts;
        self
    }

    /// The wait after a failed attempt. Default: 10 s doubling to 10 min, ± 10 %.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// How long a silent worker is waited for, at least 2 s. Default: 30 s.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long one run may take. Default: 5 min.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// Lets a run take as long as it takes.
    #[must_use]
    pub const fn no_timeout(mut self) -> Self {
        self.settings.timeout = None;
        self
    }

    /// A body of this many bytes or more is refused. Default: 1 MiB.
    #[must_use]
    pub const fn message_limit(mut self, bytes: u64) -> Self {
        self.settings.message_limit = Some(bytes);
        self
    }

    /// How long settled messages are kept. Default: 24 h.
    #[must_use]
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Deliveries given back before the message dies. Default: 1,000.
    #[must_use]
    pub const fn releases_max(mut self, releases: u32) -> Self {
        self.settings.releases_max = releases;
        self
    }

    /// Handlers of this queue that one worker runs at once, at least 1. Default: what the worker says.
    #[must_use]
    pub const fn concurrency_per_node(mut self, handlers: u32) -> Self {
        self.settings.concurrency_per_node = Some(handlers);
        self
    }

    /// One message at a time over all nodes: at most one live claim, its messages handled one after the other. It
    /// excludes [`concurrency`](Self::concurrency) and [`concurrency_per_node`](Self::concurrency_per_node).
    ///
    /// The mark is stored with the queue and sticky: a node that does not declare it, such as one of an earlier version,
    /// does not lower it; an operator does, with `millpond queue set NAME exclusive=false`. What a dead worker had in hand
    /// holds the queue until its lease is over and another node has taken it over. From then on the next message may run
    /// while a worker that was only cut off still works on the last one. No order comes from this.
    ///
    /// ```
    /// use millpond_engine::queue::Queue;
    ///
    /// const LEDGER: Queue<u64> = Queue::new("ledger").exclusive();
    ///
    /// assert!(LEDGER.settings().exclusive);
    /// ```
    #[must_use]
    pub const fn exclusive(mut self) -> Self {
        self.settings.exclusive = true;
        self
    }

    /// Messages of this queue that are in hand at once over all nodes, at least 1: exactly, also while nodes come, go and
    /// die. Messages that a worker has leased and not begun count. Default: as many as the workers take.
    ///
    /// Waiting for room uses up no attempt.
    #[must_use]
    pub const fn concurrency(mut self, messages: u32) -> Self {
        self.settings.concurrency = Some(messages);
        self
    }

    /// At most `messages`, at least 1, in each `period`, from 1 ms to a day, over all nodes and by the clock of the store.
    /// Default: no limit.
    ///
    /// After a rest `messages` are leased at once, and from then on one each `period / messages`: in any span of time
    /// there are at most `messages` more than that pace alone would give. A message counts when it is leased, and again
    /// at its next attempt; one that is given back unstarted, such as by a worker that stops, is not taken off.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millpond_engine::queue::Queue;
    ///
    /// const SMS: Queue<String> = Queue::new("sms").concurrency(4).rate(30, Duration::from_secs(60));
    ///
    /// assert_eq!(SMS.settings().concurrency, Some(4));
    /// ```
    #[must_use]
    pub const fn rate(mut self, messages: u32, period: Duration) -> Self {
        self.settings.rate = Some(Rate { count: messages, period });
        self
    }

    /// How long a dedup key is held after sending. Default: 24 h.
    #[must_use]
    pub const fn dedup_window(mut self, window: Duration) -> Self {
        self.settings.dedup_window = window;
        self
    }

    /// How much of the run log is kept. Default: all.
    #[must_use]
    pub const fn events(mut self, level: HistoryLevel) -> Self {
        self.settings.events = level;
        self
    }
}

impl<B, M: Outside> Declaration<B, M> {
    /// Gathers what is sent in memory and writes it together: a send returns before its message is stored, and what is in
    /// memory when the process dies is lost. [`Pond::close`](crate::pond::Pond::close) writes it out.
    ///
    /// ```
    /// use millpond_core::buffer::Buffer;
    /// use millpond_engine::queue::Queue;
    ///
    /// const PINGS: Queue<u64> = Queue::new("pings").buffered(Buffer::DEFAULT);
    /// ```
    ///
    /// A message with a dedup key is not gathered: it is answered by the store.
    #[must_use]
    pub const fn buffered(mut self, buffer: Buffer) -> Self {
        self.gathered.buffer = Some(buffer);
        self
    }
}

impl<B: Body, M> Declaration<B, M> {
    /// What is done with its messages before they are stored; `None`: nothing.
    pub(crate) fn way(&self) -> Option<Way> {
        let Gathered { buffer, batch_max, dedup } = self.gathered;
        let dedup = dedup.map(Dedup::of);
        let gathering = buffer.map(|buffer| Gathering { buffer, batch_max, dedup: dedup.clone() });
        (dedup.is_some() || gathering.is_some()).then_some(Way { gathering, dedup })
    }
}

/// What is said in code about how messages are sent, and is not stored.
struct Gathered<B> {
    buffer: Option<Buffer>,
    batch_max: usize,
    dedup: Option<fn(Vec<B>) -> Vec<B>>,
}

impl<B> Gathered<B> {
    const DEFAULT: Self = Self { buffer: None, batch_max: BATCH_DEFAULT, dedup: None };
}

impl<B> Clone for Gathered<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Gathered<B> {}

impl<B, M> Clone for Declaration<B, M> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            settings: self.settings,
            declared_by_use: self.declared_by_use,
            gathered: self.gathered,
            body: PhantomData,
            mode: PhantomData,
        }
    }
}

impl<B, M> fmt::Debug for Declaration<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .field("body", &std::any::type_name::<B>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Welcome;

    const MAIL: Queue<Welcome> = Queue::new("mail")
        .attempts_max(7)
        .backoff(Backoff::fixed(Duration::from_secs(1)))
        .lease(Duration::from_secs(3))
        .timeout(Duration::from_secs(4))
        .message_limit(5)
        .retention(Duration::from_secs(6))
        .releases_max(8)
        .concurrency_per_node(9)
        .exclusive()
        .concurrency(11)
        .rate(12, Duration::from_secs(13))
        .dedup_window(Duration::from_secs(10))
        .events(HistoryLevel::Failures);

    #[test]
    fn a_constant_carries_every_setting() {
        let expected = QueueSettings {
            delivery: QueueSettings::DEFAULT.delivery,
            transactional: Transactional::Try,
            attempts_max: 7,
            backoff: Backoff::fixed(Duration::from_secs(1)),
            lease: Duration::from_secs(3),
            timeout: Some(Duration::from_secs(4)),
            message_limit: Some(5),
            retention: Duration::from_secs(6),
            releases_max: 8,
            concurrency_per_node: Some(9),
            exclusive: true,
            concurrency: Some(11),
            rate: Some(Rate { count: 12, period: Duration::from_secs(13) }),
            dedup_window: Duration::from_secs(10),
            events: HistoryLevel::Failures,
        };
        assert_eq!(*MAIL.settings(), expected);
        assert_eq!(MAIL.no_timeout().settings().timeout, None);
    }

    #[test]
    fn a_type_is_a_mode() {
        const REPORTS: TxQueue<Welcome> = TxQueue::new("reports").attempts_max(3);
        const PINGS: FastQueue<Welcome> = FastQueue::new("pings").with_settings(QueueSettings::DEFAULT);
        assert_eq!(REPORTS.settings().transactional, Transactional::Require);
        assert_eq!(PINGS.settings().transactional, Transactional::Never);
        let stored = QueueSettings { transactional: Transactional::Require, ..QueueSettings::DEFAULT };
        let named = Queue::<Welcome>::named("mail".to_owned()).with_settings(stored);
        assert_eq!(named.settings().transactional, Transactional::Require, "as it is stored");
    }

    #[test]
    fn only_a_constant_is_declared_by_its_use() {
        assert!(MAIL.declared_by_use());
        assert!(!Queue::<Welcome>::named("mail".to_owned()).declared_by_use());
    }
}

//! The work that is done: queues, kinds of messages and their bodies. Shared by senders, workers and the parent.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond::{Backoff, Queue};
use millpond_testkit::judge::history::{Effects, Plan, QueuePlan};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The shortest lease that is allowed, so that a death is noticed soon.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

const BACKOFF: Backoff = Backoff::fixed(Duration::from_millis(150));

const fn queue(name: &'static str) -> Queue<Work> {
    Queue::new(name).lease(LEASE).attempts_max(5).backoff(BACKOFF).no_timeout()
}

/// A queue whose handler has no effects.
pub(crate) const PLAIN: Queue<Work> = queue("plain");

/// A queue whose handler writes through the job's own transaction.
pub(crate) const EFFECTS: Queue<Work> = queue("effects");

/// A queue whose settled messages are deleted soon, while its neighbours are still in hand.
pub(crate) const BRIEF: Queue<Work> = queue("brief").retention(Duration::from_secs(3));

/// A queue with effects whose messages have one attempt.
pub(crate) const ONCE: Queue<Work> = queue("once").attempts_max(1);

/// All of them.
pub(crate) const QUEUES: [Queue<Work>; 4] = [PLAIN, EFFECTS, BRIEF, ONCE];

/// Whether the handler of a queue writes a row of `torture_effect` for each message.
pub(crate) fn has_effects(queue: &str) -> bool {
    queue == EFFECTS.name() || queue == ONCE.name()
}

/// The queues as the judge knows them.
pub(crate) fn queue_plans() -> Vec<QueuePlan> {
    let plan = |queue: &Queue<Work>| QueuePlan {
        name: queue.name().to_owned(),
        subs: Vec::new(),
        attempts_max: queue.settings().attempts_max,
        effects: if has_effects(queue.name()) { Effects::Table } else { Effects::None },
    };
    QUEUES.iter().map(plan).collect()
}

/// What a handler does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// It acknowledges.
    Steady,
    /// It says "not now" the first time.
    Sleepy,
    /// It fails the first time.
    Shaky,
    /// It writes its effect the first time, and drops the transaction.
    Fickle,
    /// It fails always.
    Doomed,
    /// It kills its process, always.
    Killer,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Steady, Kind::Sleepy, Kind::Shaky, Kind::Fickle, Kind::Doomed, Kind::Killer];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Steady => "steady",
            Kind::Sleepy => "sleepy",
            Kind::Shaky => "shaky",
            Kind::Fickle => "fickle",
            Kind::Doomed => "doomed",
            Kind::Killer => "killer",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its own number of attempts, if it has one.
    pub(crate) const fn attempts_max(self) -> Option<u32> {
        match self {
            Kind::Doomed => Some(3),
            Kind::Killer => Some(2),
            _ => None,
        }
    }

    const fn plan(self) -> Plan {
        match self {
            Kind::Steady | Kind::Sleepy | Kind::Fickle => Plan::Ack,
            Kind::Shaky | Kind::Doomed => Plan::Fail,
            Kind::Killer => Plan::Kill,
        }
    }
}

/// The kinds as the judge knows them.
pub(crate) fn kind_plans() -> BTreeMap<String, Plan> {
    Kind::ALL.map(|kind| (kind.name().to_owned(), kind.plan())).into()
}

/// The body of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// Which batch it was sent in, and its place there.
    pub(crate) batch: u64,
    pub(crate) place: u32,
    /// What its effect is worth.
    pub(crate) amount: i64,
    /// How long its handler works before the effect, and after it.
    pub(crate) before_ms: u64,
    pub(crate) after_ms: u64,
    /// Of the id and everything above.
    check: u32,
}

impl Work {
    pub(crate) fn new(id: Uuid, batch: u64, place: u32, order: &MessageOrder) -> Self {
        let MessageOrder { amount, before_ms, after_ms, .. } = *order;
        let mut work = Self { batch, place, amount, before_ms, after_ms, check: 0 };
        work.check = work.checksum(id);
        work
    }

    /// Whether it is the body that was sent with this id.
    pub(crate) fn belongs_to(&self, id: Uuid) -> bool {
        self.check == self.checksum(id)
    }

    fn checksum(&self, id: Uuid) -> u32 {
        let Self { batch, place, amount, before_ms, after_ms, .. } = self;
        crc32fast::hash(format!("{id} {batch} {place} {amount} {before_ms} {after_ms}").as_bytes())
    }
}

/// A batch that a sender is told to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) batch: u64,
    pub(crate) queue: String,
    /// Each message has a dedup key, so that the batch may be repeated.
    pub(crate) dedup: bool,
    /// The ids of an earlier call, whose answer nobody has seen. Empty: new ones.
    #[serde(default)]
    pub(crate) ids: Vec<Uuid>,
    pub(crate) messages: Vec<MessageOrder>,
}

/// One message of an [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MessageOrder {
    pub(crate) kind: Kind,
    pub(crate) amount: i64,
    pub(crate) delay_ms: u64,
    pub(crate) before_ms: u64,
    pub(crate) after_ms: u64,
}

impl MessageOrder {
    pub(crate) const fn steady(amount: i64) -> Self {
        Self { kind: Kind::Steady, amount, delay_ms: 0, before_ms: 0, after_ms: 0 }
    }
}

//! What a demo sends: six kinds of messages, each in a queue of its own, and in which order. Pure.

use std::ops::Range;
use std::time::Duration;

use millpond::{Backoff, Queue};
use serde::{Deserialize, Serialize};

/// Messages of one send.
pub(crate) const BATCH: usize = 1_000;

/// How long a silent worker is waited for: the shortest lease there is, so that the demo ends in seconds.
const LEASE: Duration = Duration::from_secs(2);

/// The wait after a failed attempt.
const BACKOFF: Backoff = Backoff::fixed(Duration::from_millis(200));

/// The shortest and the longest wait of a delayed message, in milliseconds.
const DELAY_MS: Range<u64> = 1_000..3_000;

/// Deliveries of a flaky message that fail before one works.
pub(crate) const FLAKY_FAILURES: u32 = 2;

/// The body of every message of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Its place in the demo.
    pub(crate) number: u64,
    /// How long it was delayed by its sender; 0: not at all.
    pub(crate) delay_ms: u64,
}

/// What a message does to the worker that gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// It works.
    Work,
    /// It works, and writes a row in the transaction of its acknowledgement.
    Booking,
    /// It works, and is due later.
    Delayed,
    /// It fails at first, and recovers.
    Flaky,
    /// It always fails.
    Broken,
    /// It kills its worker.
    Killer,
}

static QUEUES: [Queue<Task>; 6] = [
    Queue::new("demo-work").lease(LEASE).backoff(BACKOFF),
    Queue::new("demo-booking").lease(LEASE).backoff(BACKOFF),
    Queue::new("demo-delayed").lease(LEASE).backoff(BACKOFF),
    Queue::new("demo-flaky").lease(LEASE).backoff(BACKOFF).attempts_max(FLAKY_FAILURES + 1),
    Queue::new("demo-broken").lease(LEASE).backoff(BACKOFF).attempts_max(3),
    Queue::new("demo-killer").lease(LEASE).backoff(BACKOFF).attempts_max(2),
];

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Kind; 6] =
        [Kind::Work, Kind::Booking, Kind::Delayed, Kind::Flaky, Kind::Broken, Kind::Killer];

    /// Its queue.
    pub(crate) fn queue(self) -> &'static Queue<Task> {
        &QUEUES[self as usize]
    }

    /// What it does, in a few words.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Kind::Work => "works",
            Kind::Booking => "works and writes a row",
            Kind::Delayed => "works, is due later",
            Kind::Flaky => "fails twice, recovers",
            Kind::Broken => "always fails",
            Kind::Killer => "kills its worker",
        }
    }

    /// The reason of the dead letter that it must become; `None`: it must be done.
    pub(crate) const fn dies_of(self) -> Option<&'static str> {
        match self {
            Kind::Work | Kind::Booking | Kind::Delayed | Kind::Flaky => None,
            Kind::Broken => Some("exhausted"),
            Kind::Killer => Some("lease-exhausted"),
        }
    }
}

/// One send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    /// To which queue.
    pub(crate) kind: Kind,
    /// At least one, at most [`BATCH`].
    pub(crate) tasks: Vec<Task>,
}

/// All that a demo sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    /// The load: everything but what kills.
    pub(crate) load: Vec<Batch>,
    /// What kills, and the ordinary messages that keep it company.
    pub(crate) poison: Vec<Batch>,
    /// A worker is killed when so many deliveries have worked.
    pub(crate) kill_at: usize,
}

impl Workload {
    /// A workload of exactly so many messages, at least one. The same seed gives the same one.
    pub(crate) fn new(messages: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut maker = Maker::default();
        let share = |part: usize, most: usize| (messages / part).clamp(1, most);
        // One that works there must be, or no worker could be killed in the middle of its work.
        let mut left = messages.saturating_sub(1);
        let mut take = |wanted: usize| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        let killers = take(share(1_000, 2));
        let broken = take(share(200, 50));
        let flaky = take(share(100, 200));
        let delayed = take(share(50, 50));
        let bookings = take(share(10, 2_000));
        let company = take(share(100, 100));
        let work = 1 + take(usize::MAX);

        let mut load = maker.batches(Kind::Delayed, delayed, || random.within(DELAY_MS));
        load.extend(maker.batches(Kind::Flaky, flaky, || 0));
        load.extend(maker.batches(Kind::Broken, broken, || 0));
        let works = maker.batches(Kind::Work, work, || 0);
        let each = bookings.div_ceil(works.len().max(1)).max(1);
        let bookings = maker.chunks(Kind::Booking, bookings, each, || 0);
        load.extend(alternate(works, bookings));
        let mut poison = maker.batches(Kind::Killer, killers, || 0);
        poison.extend(maker.batches(Kind::Work, company, || 0));
        let middle = usize_of(random.within(35..55));
        Self { load, poison, kill_at: (work * middle / 100).max(1) }
    }
}

/// Numbers the tasks.
#[derive(Debug, Default)]
struct Maker {
    next: u64,
}

impl Maker {
    fn batches(&mut self, kind: Kind, count: usize, delay_ms: impl FnMut() -> u64) -> Vec<Batch> {
        self.chunks(kind, count, BATCH, delay_ms)
    }

    fn chunks(
        &mut self,
        kind: Kind,
        count: usize,
        each: usize,
        mut delay_ms: impl FnMut() -> u64,
    ) -> Vec<Batch> {
        let mut task = || {
            self.next += 1;
            Task { number: self.next, delay_ms: delay_ms() }
        };
        let tasks: Vec<Task> = (0..count).map(|_| task()).collect();
        tasks.chunks(each.min(BATCH)).map(|tasks| Batch { kind, tasks: tasks.to_vec() }).collect()
    }
}

/// One of each in turn, then what is left.
fn alternate(first: Vec<Batch>, second: Vec<Batch>) -> Vec<Batch> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut both = Vec::new();
    loop {
        let before = both.len();
        both.extend(first.next());
        both.extend(second.next());
        if both.len() == before {
            return both;
        }
    }
}

/// SplitMix64: enough to vary a demo.
struct Random(u64);

impl Random {
    fn within(&mut self, range: Range<u64>) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        range.start + (mixed ^ (mixed >> 31)) % (range.end - range.start)
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn batches(workload: &Workload) -> impl Iterator<Item = &Batch> {
        workload.load.iter().chain(&workload.poison)
    }

    #[test]
    fn exactly_as_many_messages_as_asked_for_in_batches_that_a_send_accepts() {
        for messages in [1, 2, 7, 40, 100, 999, 1_000, 1_001, 20_000, 50_000, 123_457] {
            let workload = Workload::new(messages, 1);
            let numbers: Vec<u64> =
                batches(&workload).flat_map(|batch| &batch.tasks).map(|task| task.number).collect();
            assert_eq!(numbers.len(), messages);
            assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), messages);
            assert!(batches(&workload).all(|batch| (1..=BATCH).contains(&batch.tasks.len())));
        }
    }

    #[test]
    fn a_small_demo_has_every_kind() {
        for messages in [7, 20, 20_000] {
            let workload = Workload::new(messages, 1);
            for kind in Kind::ALL {
                assert!(batches(&workload).any(|batch| batch.kind == kind), "{kind:?} of {messages}");
            }
        }
    }

    #[test]
    fn only_delayed_messages_wait_and_the_seed_decides_how_long() {
        let workload = Workload::new(2_000, 7);
        for batch in batches(&workload) {
            let waits = |task: &Task| DELAY_MS.contains(&task.delay_ms);
            assert_eq!(batch.tasks.iter().all(waits), batch.kind == Kind::Delayed);
        }
        assert_eq!(workload, Workload::new(2_000, 7));
        assert_ne!(workload, Workload::new(2_000, 8));
    }

    #[test]
    fn each_kind_has_the_queue_of_its_name() {
        for kind in Kind::ALL {
            let name = format!("demo-{kind:?}").to_lowercase();
            assert_eq!(kind.queue().name(), name);
            kind.queue().settings().check(&name).unwrap();
        }
    }
}

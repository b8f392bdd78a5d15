//! How much a worker leases: enough to keep its handlers busy, never so much that a message waits long behind a
//! slow one. Pure.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use millpond_core::queue::QueueSettings;
use millpond_core::store::CLAIM_MESSAGES_MAX;

/// Work that a slot may have waiting, in time.
const WORK_AHEAD: Duration = Duration::from_millis(100);

/// Most messages of one queue in a worker's hands, whatever their number of slots.
const AHEAD_MAX: usize = 2 * CLAIM_MESSAGES_MAX;

/// Most bytes of bodies of one queue that wait in a worker.
pub(crate) const AHEAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How quickly the mean follows a new run time.
const WEIGHT: f64 = 0.1;

/// Run times of handlers, added up by their slots until the next lease is planned.
#[derive(Debug, Default)]
pub(crate) struct RunTimes {
    runs: AtomicU32,
    nanos: AtomicU64,
}

impl RunTimes {
    pub(crate) fn add(&self, run: Duration) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(run.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was added since the last call. A run that is added meanwhile may count with one half here and the other
    /// next time; a mean over hundreds does not mind.
    pub(crate) fn take(&self) -> (u32, Duration) {
        let runs = self.runs.swap(0, Ordering::Relaxed);
        (runs, Duration::from_nanos(self.nanos.swap(0, Ordering::Relaxed)))
    }
}

/// The speed of the handlers of one queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Speed {
    /// `None`: no run was measured yet.
    mean: Option<Duration>,
    /// How far the prefetch has grown: one quick run does not make a fast handler.
    grown: usize,
}

/// How much the prefetch may grow from one measurement to the next.
const GROWTH: usize = 4;

impl Speed {
    /// `runs` handlers have taken `total` together.
    pub(crate) fn measured(&mut self, runs: u32, total: Duration) {
        if runs == 0 {
            return;
        }
        let each = total / runs;
        let weight = 1.0 - (1.0 - WEIGHT).powi(i32::try_from(runs).unwrap_or(i32::MAX));
        self.mean = Some(match self.mean {
            None => each,
            Some(mean) => mean.mul_f64(1.0 - weight) + each.mul_f64(weight),
        });
        self.grown = self.fit().min(self.grown.max(1).saturating_mul(GROWTH));
    }

    /// A handler has been running for this long: the mean is no shorter.
    pub(crate) fn at_least(&mut self, running: Duration) {
        self.mean = Some(self.mean.unwrap_or_default().max(running));
        self.grown = self.grown.min(self.fit());
    }

    /// Messages that each slot may have in hand: one for handlers that are slow or unknown, hundreds for fast
    /// ones.
    fn prefetch(self) -> usize {
        self.grown.max(1)
    }

    /// Messages that a slot can do in the time it may have ahead.
    fn fit(self) -> usize {
        let Some(mean) = self.mean else { return 1 };
        let fit = WORK_AHEAD.as_nanos() / mean.as_nanos().max(1);
        usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, CLAIM_MESSAGES_MAX)
    }
}

/// What one queue of a worker has in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InHand {
    /// Handlers that may run at once.
    pub(crate) slots: usize,
    /// Messages that one call may take.
    pub(crate) each: usize,
    /// Slots that are of no use: a blocking handler outlived its timeout.
    pub(crate) stuck: usize,
    /// Leased, not started.
    pub(crate) waiting: usize,
    /// Bytes of bodies of those.
    pub(crate) waiting_bytes: usize,
    /// Calls that have started and not ended.
    pub(crate) running: usize,
    /// How far it may lease ahead.
    pub(crate) ahead: Ahead,
}

/// How far a queue may lease ahead of its handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// As far as they are fast.
    Far,
    /// No further than its slots: what waits here takes room from other nodes.
    NoFurther,
    /// As far as they are fast, and not again before that is done: it has one claim at a time.
    OneClaim,
}

impl Ahead {
    /// By the settings of the queue.
    pub(crate) const fn of(settings: &QueueSettings) -> Self {
        match settings {
            QueueSettings { exclusive: true, .. } => Ahead::OneClaim,
            QueueSettings { concurrency: Some(_), .. } => Ahead::NoFurther,
            _ => Ahead::Far,
        }
    }
}

/// The next lease of a queue: messages and bytes at most. `None`: it has enough.
pub(crate) fn next_lease(hand: InHand, speed: Speed) -> Option<(usize, usize)> {
    let slots = hand.slots.saturating_sub(hand.stuck).saturating_mul(hand.each);
    let prefetch = if hand.ahead == Ahead::NoFurther { 1 } else { speed.prefetch() };
    let target = slots.saturating_mul(prefetch).min(AHEAD_MAX);
    let have = hand.waiting + hand.running.saturating_mul(hand.each);
    if hand.ahead == Ahead::OneClaim && have != 0 {
        return None;
    }
    // Half of it may be used up before more is asked for, so that fast handlers are fed in large claims.
    let enough = if target <= slots { target } else { target / 2 + 1 };
    if enough <= have || AHEAD_BYTES_MAX <= hand.waiting_bytes {
        return None;
    }
    Some(((target - have).min(CLAIM_MESSAGES_MAX), AHEAD_BYTES_MAX - hand.waiting_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: InHand =
        InHand { slots: 10, each: 1, stuck: 0, waiting: 0, waiting_bytes: 0, running: 0, ahead: Ahead::Far };

    /// A handler that has shown its speed for a while.
    fn speed(mean: Duration) -> Speed {
        let mut speed = Speed::default();
        (0..10).for_each(|_| speed.measured(1, mean));
        speed
    }

    #[track_caller]
    fn check(hand: InHand, speed: Speed, expected: Option<usize>) {
        assert_eq!(next_lease(hand, speed).map(|(messages, _)| messages), expected);
    }

    #[test]
    fn an_unknown_or_slow_handler_gets_one_message_for_each_free_slot() {
        check(IDLE, Speed::default(), Some(10));
        check(IDLE, speed(Duration::from_secs(3)), Some(10));
        check(InHand { running: 9, ..IDLE }, speed(Duration::from_secs(3)), Some(1));
        check(InHand { running: 10, ..IDLE }, speed(Duration::from_secs(3)), None);
    }

    #[test]
    fn a_fast_handler_gets_as_much_as_it_can_do_in_a_tenth_of_a_second() {
        check(IDLE, speed(Duration::from_millis(10)), Some(100));
        check(IDLE, speed(Duration::from_micros(1)), Some(1_024));
        check(InHand { waiting: 1_024, ..IDLE }, speed(Duration::from_micros(1)), Some(1_024));
        check(InHand { waiting: 1_500, ..IDLE }, speed(Duration::from_micros(1)), None);
    }

    #[test]
    fn a_batch_handler_gets_full_calls_for_its_free_slots() {
        let batches = InHand { slots: 3, each: 100, ..IDLE };
        check(batches, Speed::default(), Some(300));
        check(InHand { running: 2, ..batches }, Speed::default(), Some(100));
        check(InHand { running: 3, ..batches }, Speed::default(), None);
        check(InHand { slots: 100, ..batches }, Speed::default(), Some(CLAIM_MESSAGES_MAX));
    }

    #[test]
    fn what_a_limit_counts_is_not_leased_ahead() {
        let quick = speed(Duration::from_micros(1));
        let limited = InHand { ahead: Ahead::NoFurther, ..IDLE };
        check(limited, quick, Some(10));
        check(InHand { waiting: 4, running: 3, ..limited }, quick, Some(3));
        check(InHand { running: 10, ..limited }, quick, None);
    }

    #[test]
    fn an_exclusive_queue_is_asked_when_its_claim_is_done() {
        let exclusive = InHand { slots: 1, ahead: Ahead::OneClaim, ..IDLE };
        check(exclusive, Speed::default(), Some(1));
        check(exclusive, speed(Duration::from_millis(10)), Some(10));
        check(InHand { running: 1, ..exclusive }, speed(Duration::from_millis(10)), None);
        check(InHand { waiting: 1, ..exclusive }, speed(Duration::from_millis(10)), None);
    }

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        check(InHand { waiting_bytes: AHEAD_BYTES_MAX, ..IDLE }, speed(Duration::from_micros(1)), None);
    }

    #[test]
    fn a_stuck_slot_is_not_fed() {
        check(InHand { stuck: 10, ..IDLE }, Speed::default(), None);
        check(InHand { stuck: 8, ..IDLE }, Speed::default(), Some(2));
    }

    #[test]
    fn the_prefetch_grows_step_by_step_and_falls_at_once() {
        let mut speed = Speed::default();
        let mut grown = || {
            speed.measured(10, Duration::from_micros(10));
            speed.prefetch()
        };
        assert_eq!([grown(), grown(), grown(), grown(), grown(), grown()], [4, 16, 64, 256, 1_024, 1_024]);
        speed.at_least(Duration::from_secs(2));
        assert_eq!(speed.prefetch(), 1);
    }

    #[test]
    fn the_mean_follows_the_runs() {
        let mut speed = speed(Duration::from_millis(10));
        assert_eq!(speed.prefetch(), 10);
        speed.measured(1_000, Duration::from_millis(50_000));
        assert_eq!(speed.prefetch(), 2);
    }
}

//! Limits of a queue over all nodes: how much of it may be in hand at once, and how much of it may be leased in a time.
//! A store asks behind the queue's one claim lock, so the answer is exact. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{Timestamp, micros};

/// At most this many messages in each period, over all nodes.
///
/// It is a bucket: after a rest `count` messages are leased at once, and from then on one each `period / count`. So in
/// any span of time there are at most `count` more than the rate alone would give. A message counts when it is leased,
/// and again when it is leased again, whatever became of it.
///
/// ```
/// use std::time::Duration;
/// use millpond_core::limit::Rate;
///
/// let rate = Rate { count: 30, period: Duration::from_secs(60) };
/// assert_eq!(rate.check(), Ok(()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Messages, at least 1.
    pub count: u32,
    /// In this time: from 1 ms to a day.
    pub period: Duration,
}

impl Rate {
    /// The shortest period.
    pub const PERIOD_MIN: Duration = Duration::from_millis(1);

    /// The longest period.
    pub const PERIOD_MAX: Duration = Duration::from_secs(24 * 3600);

    /// Says why a rate cannot be.
    ///
    /// # Errors
    ///
    /// The sentence, with the range.
    pub fn check(self) -> Result<(), String> {
        if self.count == 0 {
            return Err("rate has the count 0; it is at least 1 (a pause stops a queue)".to_owned());
        }
        if self.period < Self::PERIOD_MIN || Self::PERIOD_MAX < self.period {
            return Err(format!("rate has the period {:?}; it is from 1 ms to a day", self.period));
        }
        Ok(())
    }

    /// How many messages may be leased now, where the bucket will be full at `full_at`.
    pub fn room(self, full_at: Timestamp, now: Timestamp) -> usize {
        let there = i128::from(self.period_micros() - self.lacking(full_at, now));
        let room = there * i128::from(self.count) / i128::from(self.period_micros());
        usize::try_from(room).unwrap_or(0)
    }

    /// How long it takes until one may be leased; zero: there is room now.
    pub fn wait(self, full_at: Timestamp, now: Timestamp) -> Duration {
        if 0 < self.room(full_at, now) {
            return Duration::ZERO;
        }
        let wait = self.lacking(full_at, now) - (self.period_micros() - self.price(1));
        Duration::from_micros(wait.max(0).unsigned_abs())
    }

    /// When the bucket will be full, after this many were leased.
    pub fn charged(self, full_at: Timestamp, now: Timestamp, messages: usize) -> Timestamp {
        let after = self.lacking(full_at, now).saturating_add(self.price(messages));
        Timestamp::from_micros(now.as_micros().saturating_add(after))
    }

    /// The time in which what the bucket lacks comes back. Never more than a period: not when the rate was another, nor
    /// when the clock went back.
    fn lacking(self, full_at: Timestamp, now: Timestamp) -> i64 {
        full_at.as_micros().saturating_sub(now.as_micros()).clamp(0, self.period_micros())
    }

    /// The time in which this many messages come back, rounded up: never more than the rate.
    fn price(self, messages: usize) -> i64 {
        let (messages, count) = (messages as i128, i128::from(self.count.max(1)));
        let price = (messages * i128::from(self.period_micros()) + count - 1) / count;
        i64::try_from(price).unwrap_or(i64::MAX)
    }

    /// At least 1, so that a rate that was never checked divides by nothing.
    fn period_micros(self) -> i64 {
        micros(self.period).max(1)
    }
}

/// What holds a message back that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A claim of the queue is live.
    Exclusive,
    /// As many messages are in hand as may be.
    Concurrency,
    /// As many were leased as may be, for now.
    Rate,
}

/// What a queue limits over all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// One live claim.
    pub exclusive: bool,
    /// Messages in hand.
    pub concurrency: Option<u32>,
    /// Messages in a time.
    pub rate: Option<Rate>,
}

/// What the live claims of a queue hold, those of dead workers among them until they are taken over and settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Live claims.
    pub claims: usize,
    /// Unsettled messages in them.
    pub messages: usize,
}

/// How much a lease may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// At most this many messages, at least 1.
    Messages(usize),
    /// Nothing. With a rate it is known for how long; the other limits have room when something is settled.
    None {
        /// The first limit that says so.
        limit: Limit,
        /// For how long there is none.
        wait: Option<Duration>,
    },
}

impl Limits {
    /// Whether there is a limit: without one, no lease asks.
    pub const fn any(&self) -> bool {
        self.exclusive || self.concurrency.is_some() || self.rate.is_some()
    }

    /// How much a lease may take that asks for `asked` messages, and handles them one after the other or not. The
    /// bucket of the rate is full at `full_at`.
    pub fn room(
        &self,
        held: Held,
        (full_at, now): (Timestamp, Timestamp),
        asked: usize,
        one_by_one: bool,
    ) -> Room {
        let mut most = asked.max(1);
        if self.exclusive {
            if held.claims != 0 {
                return Room::None { limit: Limit::Exclusive, wait: None };
            }
            if !one_by_one {
                most = 1;
            }
        }
        if let Some(concurrency) = self.concurrency {
            let free = (concurrency as usize).saturating_sub(held.messages);
            if free == 0 {
                return Room::None { limit: Limit::Concurrency, wait: None };
            }
            most = most.min(free);
        }
        if let Some(rate) = self.rate {
            let room = rate.room(full_at, now);
            if room == 0 {
                return Room::None { limit: Limit::Rate, wait: Some(rate.wait(full_at, now)) };
            }
            most = most.min(room);
        }
        Room::Messages(most)
    }

    /// Until when the rate has no room; `None`: it has, or there is no rate.
    pub fn rate_until(&self, full_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let wait = self.rate?.wait(full_at, now);
        (!wait.is_zero()).then(|| now + wait)
    }

    /// When the bucket of the rate is full after a lease; `None`: there is no rate to charge.
    pub fn charged(&self, full_at: Timestamp, now: Timestamp, messages: usize) -> Option<Timestamp> {
        self.rate.map(|rate| rate.charged(full_at, now, messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Timestamp = Timestamp::from_secs(0);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + millis * 1_000)
    }

    fn rate(count: u32, period_ms: u64) -> Rate {
        Rate { count, period: Duration::from_millis(period_ms) }
    }

    /// Leases as much as there is room for each so many milliseconds; answers when, and how many.
    fn drive(rate: Rate, each_ms: i64, until_ms: i64) -> Vec<(i64, usize)> {
        let (mut full_at, mut leased) = (NEVER, Vec::new());
        for now in (0..until_ms).step_by(each_ms as usize) {
            let room = rate.room(full_at, at(now));
            if room != 0 {
                full_at = rate.charged(full_at, at(now), room);
                leased.push((now, room));
            }
        }
        leased
    }

    #[test]
    fn a_rested_bucket_is_full_and_then_they_come_one_by_one() {
        let leased = drive(rate(4, 1_000), 1, 1_600);
        assert_eq!(leased, [(0, 4), (250, 1), (500, 1), (750, 1), (1_000, 1), (1_250, 1), (1_500, 1)]);
    }

    #[test]
    fn any_span_has_at_most_the_count_more_than_the_rate_gives() {
        for (rate, each_ms) in
            [(rate(1, 100), 7), (rate(3, 1_000), 1), (rate(7, 50), 1), (rate(1_000, 10), 3)]
        {
            let leased = drive(rate, each_ms, 2_000);
            for (place, (from, _)) in leased.iter().enumerate() {
                let mut sum = 0;
                for (to, count) in &leased[place..] {
                    sum += count;
                    let span = Duration::from_millis((to - from).unsigned_abs());
                    let by_rate = span.as_micros() * u128::from(rate.count) / rate.period.as_micros();
                    let most = by_rate + u128::from(rate.count);
                    assert!(sum as u128 <= most, "{rate:?}: {sum} in {span:?}");
                }
            }
        }
    }

    #[test]
    fn the_wait_ends_when_there_is_room_and_not_before() {
        for rate in [rate(1, 1), rate(3, 1_000), rate(7, 50), rate(1_000, 10), rate(60, 86_400_000)] {
            let mut full_at = rate.charged(NEVER, at(0), rate.room(NEVER, at(0)));
            let mut now = at(0);
            for _ in 0..20 {
                let wait = rate.wait(full_at, now);
                assert!(!wait.is_zero() && wait <= rate.period, "{rate:?}: {wait:?}");
                assert_eq!(rate.room(full_at, now + wait - Duration::from_micros(1)), 0, "{rate:?}");
                now = now + wait;
                assert_eq!(rate.room(full_at, now), 1, "{rate:?}");
                assert_eq!(rate.wait(full_at, now), Duration::ZERO);
                full_at = rate.charged(full_at, now, 1);
            }
        }
    }

    #[test]
    fn another_rate_or_a_clock_that_went_back_empties_it_for_one_period_at_most() {
        let slow = rate(1, 86_400_000).charged(NEVER, at(0), 1);
        let quick = rate(10, 1_000);
        assert_eq!(quick.room(slow, at(0)), 0);
        assert!(quick.wait(slow, at(0)) <= Duration::from_secs(1));
        let charged = quick.charged(NEVER, at(50_000), 10);
        assert_eq!(quick.wait(charged, at(0)), Duration::from_millis(100));
    }

    #[test]
    fn a_rate_that_cannot_be_says_why() {
        for (rate, part) in [
            (rate(0, 1_000), "count 0"),
            (rate(1, 0), "from 1 ms to a day"),
            (rate(1, 86_400_001), "from 1 ms to a day"),
        ] {
            let why = rate.check().unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        for rate in [rate(1, 1), rate(u32::MAX, 86_400_000)] {
            assert_eq!(rate.check(), Ok(()));
        }
    }

    #[track_caller]
    fn check(limits: Limits, held: (usize, usize), asked: usize, expected: Room) {
        let held = Held { claims: held.0, messages: held.1 };
        assert_eq!(limits.room(held, (NEVER, at(0)), asked, true), expected);
    }

    const fn none(limit: Limit) -> Room {
        Room::None { limit, wait: None }
    }

    #[test]
    fn an_exclusive_queue_has_one_live_claim() {
        let limits = Limits { exclusive: true, ..Limits::default() };
        check(limits, (0, 0), 50, Room::Messages(50));
        check(limits, (1, 1), 50, none(Limit::Exclusive));
        let at_once = limits.room(Held::default(), (NEVER, at(0)), 50, false);
        assert_eq!(at_once, Room::Messages(1), "a worker that would run them at once gets one");
    }

    #[test]
    fn what_is_in_hand_leaves_so_much_room() {
        let limits = Limits { concurrency: Some(5), ..Limits::default() };
        check(limits, (0, 0), 50, Room::Messages(5));
        check(limits, (2, 3), 50, Room::Messages(2));
        check(limits, (2, 3), 1, Room::Messages(1));
        check(limits, (2, 5), 1, none(Limit::Concurrency));
        check(limits, (2, 9), 1, none(Limit::Concurrency));
    }

    #[test]
    fn the_strictest_limit_counts() {
        let limits = Limits { exclusive: false, concurrency: Some(5), rate: Some(rate(3, 1_000)) };
        check(limits, (1, 1), 50, Room::Messages(3));
        check(limits, (1, 3), 50, Room::Messages(2));
        let full_at = limits.charged(NEVER, at(0), 3).unwrap();
        let room = limits.room(Held::default(), (full_at, at(0)), 50, true);
        assert_eq!(room, Room::None { limit: Limit::Rate, wait: Some(Duration::from_micros(333_334)) });
        assert_eq!(Limits::default().charged(NEVER, at(0), 3), None);
    }

    #[test]
    fn a_queue_without_limits_is_not_asked_for_any() {
        assert!(!Limits::default().any());
        check(Limits::default(), (9, 900), 50, Room::Messages(50));
    }
}

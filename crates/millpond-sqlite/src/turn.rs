//! When the writer leaves the lock to others.
//!
//! SQLite's lock has no queue: whoever waits for it sleeps and looks again. A writer that begins its next
//! transaction microseconds after the last one is never seen without it, if the disk makes each of them long: then
//! other processes could not send, and live workers would lose their leases.

use std::time::{Duration, Instant};

/// How long the writer may take transaction after transaction before its gaps are looked at.
const STREAK_MAX: Duration = Duration::from_millis(100);

/// One part in this many of a streak must be gaps: then whoever waits meets one after a few dozen looks.
const GAP_SHARE: u32 = 20;

/// How long it leaves the lock alone otherwise: longer than the longest sleep of a connection that waits for it.
const PAUSE: Duration = Duration::from_millis(3);

/// A streak of transactions without a pause.
#[derive(Debug)]
pub(crate) struct Turn {
    since: Instant,
    released: Instant,
    /// How long the lock was free within the streak.
    free: Duration,
}

impl Turn {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { since: now, released: now, free: Duration::ZERO }
    }

    /// Before a transaction: leaves the lock to others, if that is due.
    pub(crate) fn begin(&mut self) {
        let now = Instant::now();
        let gap = now - self.released;
        self.free += gap;
        let streak = now - self.since;
        let pause = is_due(streak, self.free) && gap < PAUSE;
        if pause {
            std::thread::sleep(PAUSE);
        }
        if pause || PAUSE <= gap || STREAK_MAX <= streak {
            (self.since, self.free) = (Instant::now(), Duration::ZERO);
        }
    }

    /// After it.
    pub(crate) fn end(&mut self) {
        self.released = Instant::now();
    }
}

/// Whether a streak has been too long, with too few gaps.
fn is_due(streak: Duration, free: Duration) -> bool {
    STREAK_MAX <= streak && free * GAP_SHARE < streak
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_streak_without_gaps_makes_room_and_one_with_gaps_need_not() {
        assert!(!is_due(ms(99), ms(0)), "the streak is short");
        assert!(is_due(ms(100), ms(1)));
        assert!(!is_due(ms(100), ms(5)), "there were gaps enough");
        assert!(is_due(ms(2_000), ms(50)));
    }
}

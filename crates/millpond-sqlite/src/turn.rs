//! When the writer leaves the lock to others.
//!
//! SQLite's lock has no queue: whoever waits for it sleeps and looks again. A writer that begins its next
//! transaction microseconds after the last one is never seen without it, if the disk makes each of them long: then
//! other processes could not send, and live workers would lose their leases.

use std::time::{Duration, Instant};

/// How long the writer may take transaction after transaction.
const STREAK_MAX: Duration = Duration::from_millis(100);

/// Transactions of a streak that leave enough gaps for a waiter to find one.
const GAPS_ENOUGH: u32 = 100;

/// How long it leaves the lock alone then: longer than the longest sleep of a connection that waits for it.
const PAUSE: Duration = Duration::from_millis(3);

/// A streak of transactions without a pause.
#[derive(Debug)]
pub(crate) struct Turn {
    since: Instant,
    released: Instant,
    transactions: u32,
}

impl Turn {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { since: now, released: now, transactions: 0 }
    }

    /// Before a transaction: leaves the lock to others, if that is due.
    pub(crate) fn begin(&mut self) {
        let now = Instant::now();
        let pause = is_due(now - self.since, self.transactions);
        let was_idle = PAUSE <= now - self.released;
        if pause && !was_idle {
            std::thread::sleep(PAUSE);
        }
        if pause || was_idle {
            (self.since, self.transactions) = (Instant::now(), 0);
        }
        self.transactions = self.transactions.saturating_add(1);
    }

    /// After it.
    pub(crate) fn end(&mut self) {
        self.released = Instant::now();
    }
}

/// Whether a streak has been too long, with too few gaps.
fn is_due(streak: Duration, transactions: u32) -> bool {
    STREAK_MAX <= streak && transactions < GAPS_ENOUGH * whole(streak)
}

/// How many times the longest streak this is.
fn whole(streak: Duration) -> u32 {
    u32::try_from(streak.as_millis() / STREAK_MAX.as_millis()).unwrap_or(u32::MAX / GAPS_ENOUGH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn long_transactions_in_a_row_make_room_and_short_ones_need_not() {
        assert!(!is_due(ms(99), 2), "the streak is short");
        assert!(is_due(ms(100), 2));
        assert!(!is_due(ms(100), 100), "there were gaps enough");
        assert!(is_due(ms(2_000), 100));
        assert!(!is_due(ms(2_000), 4_000));
    }
}

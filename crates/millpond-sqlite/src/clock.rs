//! The host's time, kept from going back. SQLite has no server whose clock could be asked.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millpond_core::store::Clock;
use millpond_core::time::micros;

/// The last time given out plus monotonic time since, corrected forward by the host's clock.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    /// The time at `started`; raised when the host's clock is ahead.
    base: AtomicI64,
}

impl SystemClock {
    /// A clock that starts at the host's time.
    pub fn new() -> Self {
        Self { started: Instant::now(), base: AtomicI64::new(host_micros()) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn micros(&self) -> i64 {
        let elapsed = micros(self.started.elapsed());
        let base = host_micros().saturating_sub(elapsed);
        self.base.fetch_max(base, Ordering::Relaxed).max(base).saturating_add(elapsed)
    }

    fn not_before(&self, floor: i64) {
        let base = floor.saturating_sub(micros(self.started.elapsed()));
        self.base.fetch_max(base, Ordering::Relaxed);
    }
}

fn host_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_a_store_has_written() {
        let clock = SystemClock::new();
        let ahead = clock.micros() + 3_600_000_000;
        clock.not_before(ahead);
        let first = clock.micros();
        assert!(ahead <= first);
        assert!(first <= clock.micros());
    }
}

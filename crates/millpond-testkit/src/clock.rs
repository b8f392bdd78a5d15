//! Time that moves when a scenario says so.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_core::store::Clock;
use millpond_core::time::{Timestamp, micros};

/// A clock for a store under test. It begins at the host's time, because ids carry that time too, and stands
/// still until it is advanced.
///
/// ```
/// # use std::time::Duration;
/// # use millpond_testkit::clock::VirtualClock;
/// let clock = VirtualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(300));
/// assert_eq!(clock.now().since(before), Duration::from_secs(300));
/// ```
#[derive(Debug)]
pub struct VirtualClock {
    micros: AtomicI64,
    running: OnceLock<Instant>,
}

impl VirtualClock {
    /// A clock that stands still.
    pub fn new() -> Self {
        let host = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros);
        Self { micros: AtomicI64::new(host), running: OnceLock::new() }
    }

    /// From now on it moves with real time too: for what the engine measures by its own clock.
    pub fn run(&self) {
        self.running.get_or_init(Instant::now);
    }

    /// Moves it forward.
    pub fn advance(&self, time: Duration) {
        self.micros.fetch_add(micros(time), Ordering::SeqCst);
    }

    /// What it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros())
    }

    fn ran(&self) -> i64 {
        self.running.get().map_or(0, |since| micros(since.elapsed()))
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn micros(&self) -> i64 {
        self.micros.load(Ordering::SeqCst) + self.ran()
    }

    fn not_before(&self, floor: i64) {
        self.micros.fetch_max(floor - self.ran(), Ordering::SeqCst);
    }
}

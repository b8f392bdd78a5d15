//! What the tests of the verbs share: a virtual clock, and numbers that are not used twice.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use millpond_core::store::Clock;

/// When a test begins.
pub(crate) const START_MICROS: i64 = 1_800_000_000_000_000;

/// Time that moves when a test says so.
pub(crate) struct VirtualClock(pub(crate) AtomicI64);

impl Clock for VirtualClock {
    fn micros(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn not_before(&self, floor: i64) {
        self.0.fetch_max(floor, Ordering::SeqCst);
    }
}

/// Numbers that no two ids or tokens of this process share.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

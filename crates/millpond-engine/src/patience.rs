//! How long a loop waits after an error: longer each time, never for ever, and not in step with others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);

/// What messages wait for goes on this soon after the store is back, however long it was away.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// What nobody waits for.
const LONGEST_UNHURRIED: Duration = Duration::from_secs(30);

/// The wait after each error in a row: 100 ms doubling to a longest one, ± 20 %.
#[derive(Debug)]
pub(crate) struct Patience {
    next: Duration,
    longest: Duration,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self::up_to(LONGEST)
    }

    /// For what nobody waits for.
    pub(crate) const fn unhurried() -> Self {
        Self::up_to(LONGEST_UNHURRIED)
    }

    pub(crate) const fn up_to(longest: Duration) -> Self {
        Self { next: FIRST, longest }
    }

    /// The wait after one more error.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait.mul_f64(0.8 + 0.4 * roll())
    }

    /// It worked: the next error waits shortly again.
    pub(crate) const fn reset(&mut self) {
        self.next = FIRST;
    }
}

/// An even number from 0 to 1, for jitter. Not for secrets.
pub(crate) fn roll() -> f64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    if STATE.load(Ordering::Relaxed) == 0 {
        let mut seed = [1; 8];
        // Without random numbers from the system the jitter is only the same in every process.
        let _ = getrandom::fill(&mut seed);
        STATE.fetch_or(u64::from_le_bytes(seed) | 1, Ordering::Relaxed);
    }
    let mut z = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_its_longest_and_starts_again() {
        let mut patience = Patience::up_to(Duration::from_millis(300));
        for expected in [100, 200, 300, 300] {
            let wait = patience.wait();
            let expected = Duration::from_millis(expected);
            assert!(expected.mul_f64(0.79) < wait && wait < expected.mul_f64(1.21), "{wait:?}");
        }
        patience.reset();
        assert!(patience.wait() < Duration::from_millis(121));
    }

    #[test]
    fn rolls_are_spread() {
        let rolls: Vec<f64> = (0..1_000).map(|_| roll()).collect();
        let mean = rolls.iter().sum::<f64>() / 1_000.0;
        assert!(rolls.iter().all(|roll| (0.0..1.0).contains(roll)) && (0.4..0.6).contains(&mean));
    }
}

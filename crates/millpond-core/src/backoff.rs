//! How long to wait after a failed attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Most waits that a list may name.
pub const LIST_MAX: usize = 16;

/// The wait after attempt *n* failed.
///
/// ```
/// # use millpond_core::backoff::Backoff;
/// # use std::time::Duration;
/// let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(10));
/// let waits: Vec<u64> = (1..=5).map(|n| backoff.without_jitter().delay(n, 0.5).as_secs()).collect();
/// assert_eq!(waits, [1, 2, 4, 8, 10]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Backoff {
    shape: Shape,
    jitter: Jitter,
}

/// How the wait grows.
#[expect(
    clippy::large_enum_variant,
    reason = "a declaration is a constant, so the list cannot be on the heap"
)]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Shape {
    Fixed {
        wait: Duration,
    },
    /// Entry *n*; the last repeats.
    List {
        waits: [Duration; LIST_MAX],
        len: u8,
    },
    /// min(max, first · factorⁿ⁻¹)
    Exponential {
        first: Duration,
        factor: f64,
        max: Duration,
    },
}

/// How the wait is spread, so that what failed together does not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Jitter {
    /// Exactly the wait.
    None,
    /// The wait · (1 ± share), evenly. The share is from 0 to 1.
    Share(f64),
    /// From zero to the wait, evenly.
    Full,
}

impl Backoff {
    /// First 10 s, doubling to 10 min, ± 10 %.
    pub const DEFAULT: Self = Self::exponential(Duration::from_secs(10), Duration::from_secs(600));

    /// The same wait every time, without jitter.
    pub const fn fixed(wait: Duration) -> Self {
        Self { shape: Shape::Fixed { wait }, jitter: Jitter::None }
    }

    /// Entry *n* after attempt *n*; the last one repeats. Without jitter. An empty list waits nothing.
    ///
    /// # Panics
    ///
    /// When the list is longer than [`LIST_MAX`]; in a constant that is a compile error.
    pub const fn list(waits: &[Duration]) -> Self {
        assert!(waits.len() <= LIST_MAX, "a backoff list has at most 16 waits");
        let mut held = [Duration::ZERO; LIST_MAX];
        let mut next = 0;
        while next < waits.len() {
            held[next] = waits[next];
            next += 1;
        }
        Self { shape: Shape::List { waits: held, len: next as u8 }, jitter: Jitter::None }
    }

    /// Doubles from `first` up to `max`, ± 10 %.
    pub const fn exponential(first: Duration, max: Duration) -> Self {
        Self { shape: Shape::Exponential { first, factor: 2.0, max }, jitter: Jitter::Share(0.1) }
    }

    /// The same with another factor; it changes only an exponential backoff.
    #[must_use]
    pub const fn factor(mut self, factor: f64) -> Self {
        if let Shape::Exponential { first, max, .. } = self.shape {
            self.shape = Shape::Exponential { first, factor, max };
        }
        self
    }

    /// The same with another jitter.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The same without jitter.
    #[must_use]
    pub const fn without_jitter(self) -> Self {
        self.jitter(Jitter::None)
    }

    /// Refuses numbers that are none: stored, nothing could read them back.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Shape::Exponential { factor, .. } = self.shape
            && !factor.is_finite()
        {
            return Err(format!("backoff has the factor {factor}; it is a number"));
        }
        match self.jitter {
            Jitter::Share(share) if !(0.0..=1.0).contains(&share) => {
                Err(format!("backoff has the jitter {share}; it is a share from 0 to 1"))
            }
            _ => Ok(()),
        }
    }

    /// The wait after `attempt` (counted from 1) failed. `roll`, from 0 to 1, is drawn by the caller.
    pub fn delay(&self, attempt: u32, roll: f64) -> Duration {
        let wait = self.shape.wait(attempt.max(1));
        let roll = roll.clamp(0.0, 1.0);
        match self.jitter {
            Jitter::None => wait,
            Jitter::Share(share) => scaled(wait, 1.0 + share.clamp(0.0, 1.0) * (2.0 * roll - 1.0)),
            Jitter::Full => scaled(wait, roll),
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Shape {
    fn wait(&self, attempt: u32) -> Duration {
        match self {
            Shape::Fixed { wait } => *wait,
            Shape::List { waits, len } => {
                let used = &waits[..usize::from(*len).min(LIST_MAX)];
                let entry = usize::try_from(attempt - 1).unwrap_or(usize::MAX);
                used.get(entry).or(used.last()).copied().unwrap_or_default()
            }
            Shape::Exponential { first, factor, max } => {
                let exponent = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
                scaled(*first, factor.max(1.0).powi(exponent)).min(*max)
            }
        }
    }
}

/// `wait · factor`, without overflow.
fn scaled(wait: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[track_caller]
    fn check(backoff: Backoff, attempt: u32, roll: f64, expected: Duration) {
        assert_eq!(backoff.delay(attempt, roll), expected);
    }

    #[test]
    fn a_fixed_wait_is_always_the_same() {
        check(Backoff::fixed(secs(3)), 1, 0.9, secs(3));
        check(Backoff::fixed(secs(3)), 99, 0.1, secs(3));
    }

    #[test]
    fn the_last_entry_of_a_list_repeats() {
        let list = Backoff::list(&[secs(1), secs(5), secs(10)]);
        for (attempt, expected) in [(1, 1), (2, 5), (3, 10), (4, 10), (u32::MAX, 10)] {
            check(list, attempt, 0.5, secs(expected));
        }
    }

    #[test]
    fn an_empty_list_waits_nothing() {
        check(Backoff::list(&[]), 1, 0.5, Duration::ZERO);
    }

    #[test]
    fn doubling_stops_at_the_cap_and_never_overflows() {
        let doubling = Backoff::exponential(secs(10), secs(600)).without_jitter();
        for (attempt, expected) in [(1, 10), (2, 20), (6, 320), (7, 600), (64, 600), (u32::MAX, 600)] {
            check(doubling, attempt, 0.5, secs(expected));
        }
        check(Backoff::exponential(secs(1), Duration::MAX).without_jitter(), u32::MAX, 0.5, Duration::MAX);
    }

    #[test]
    fn a_factor_below_one_does_not_shrink_the_wait() {
        check(Backoff::exponential(secs(8), secs(600)).factor(0.5).without_jitter(), 4, 0.5, secs(8));
    }

    #[test]
    fn a_share_of_jitter_goes_both_ways() {
        let tenth = Backoff::fixed(secs(10)).jitter(Jitter::Share(0.1));
        check(tenth, 1, 0.0, secs(9));
        check(tenth, 1, 0.5, secs(10));
        check(tenth, 1, 1.0, secs(11));
    }

    #[test]
    fn full_jitter_goes_from_zero_to_the_wait() {
        let full = Backoff::fixed(secs(10)).jitter(Jitter::Full);
        check(full, 1, 0.0, Duration::ZERO);
        check(full, 1, 0.25, Duration::from_millis(2_500));
        check(full, 1, 7.0, secs(10));
    }

    #[test]
    fn it_survives_being_stored() {
        let list = Backoff::list(&[secs(1), secs(5)]);
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<Backoff>(&text).unwrap(), list);
    }
}

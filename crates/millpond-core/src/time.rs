//! Instants of database time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant of database time.
///
/// - **Shape:** a whole number; later instants are larger.
/// - **Unit:** microseconds since 1970-01-01T00:00:00Z.
/// - **Source:** the store's clock, never a node's (M10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant `micros` microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The instant `secs` seconds after the epoch.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the end of time instead of overflowing.
    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(micros(wait)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(micros(wait)))
    }
}

/// A duration in whole microseconds, cut off at what the stores can hold.
pub fn micros(wait: Duration) -> i64 {
    i64::try_from(wait.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let end = Timestamp::from_micros(i64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(
            Timestamp::from_micros(i64::MIN) - Duration::from_secs(1),
            Timestamp::from_micros(i64::MIN)
        );
    }

    #[test]
    fn time_since_a_later_instant_is_zero() {
        assert_eq!(Timestamp::from_secs(1).since(Timestamp::from_secs(2)), Duration::ZERO);
        assert_eq!(Timestamp::from_secs(3).since(Timestamp::from_secs(2)), Duration::from_secs(1));
    }
}

//! How fast messages come and go, from the counters of minutes.

use std::time::Duration;

use millpond::Timestamp;
use millpond::view::Tally;
use serde::{Serialize, Serializer};

use crate::trend::{MINUTE, minute};

/// The longest window, in minutes.
pub(super) const MINUTES_MAX: u32 = 60;

/// Windows, in minutes.
const WINDOWS: [u32; 3] = [1, 5, MINUTES_MAX];

/// What happened in a window, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rate {
    /// Whole minutes, and as much as has passed of the one under way.
    pub(super) minutes: u32,
    /// Messages sent, a second.
    #[serde(serialize_with = "rounded")]
    pub(super) arrived_per_second: f64,
    /// Messages leased, a second.
    #[serde(serialize_with = "rounded")]
    pub(super) leased_per_second: f64,
    /// Messages that came to their end, a second: done or dead.
    #[serde(serialize_with = "rounded")]
    pub(super) ended_per_second: f64,
    /// Messages that came to their end.
    #[serde(skip)]
    pub(super) ended: u64,
    /// Attempts that failed and come again.
    pub(super) retried: u64,
    /// Dead letters.
    pub(super) dead: u64,
}

/// From where counters are needed.
pub(super) fn begin(now: Timestamp) -> Timestamp {
    minute(now) - MINUTE * MINUTES_MAX
}

/// The windows that end now, the shortest first.
pub(super) fn rates(tallies: &[Tally], now: Timestamp) -> [Rate; 3] {
    WINDOWS.map(|minutes| rate(tallies, now, minutes))
}

fn rate(tallies: &[Tally], now: Timestamp, minutes: u32) -> Rate {
    let from = minute(now) - MINUTE * minutes;
    let window = now.since(from).max(Duration::from_secs(1)).as_secs_f64();
    let within = || tallies.iter().filter(|tally| from <= tally.at && tally.at <= now);
    let sum = |count: fn(&Tally) -> u64| within().map(count).sum::<u64>();
    let per_second = |count: u64| count as f64 / window;
    let ended = sum(|tally| tally.done + tally.dead);
    Rate {
        minutes,
        arrived_per_second: per_second(sum(|tally| tally.sent)),
        leased_per_second: per_second(sum(|tally| tally.leased)),
        ended_per_second: per_second(ended),
        ended,
        retried: sum(|tally| tally.retried),
        dead: sum(|tally| tally.dead),
    }
}

/// A rate as a person reads it.
pub(super) fn shown(per_second: f64) -> String {
    match per_second {
        0.0 => "0/s".to_owned(),
        rate if 9.95 <= rate => format!("{rate:.0}/s"),
        rate if 0.095 <= rate => format!("{rate:.1}/s"),
        rate if 0.095 <= rate * 60.0 => format!("{:.1}/min", rate * 60.0),
        rate => format!("{:.1}/h", rate * 3_600.0),
    }
}

fn rounded<S: Serializer>(rate: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((rate * 10_000.0).round() / 10_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_whole_minutes_and_the_one_under_way() {
        let now = Timestamp::from_secs(6_000 + 30);
        let tally = |minute: i64, sent, done| Tally {
            at: Timestamp::from_secs(minute * 60),
            sent,
            leased: done,
            done,
            retried: 1,
            ..Tally::default()
        };
        let tallies = [tally(41, 360, 0), tally(97, 0, 1), tally(99, 60, 45), tally(100, 30, 45)];
        let [one, five, hour] = rates(&tallies, now);
        assert_eq!((one.arrived_per_second, one.ended_per_second, one.retried), (1.0, 1.0, 2));
        assert_eq!((five.ended, five.retried), (91, 3));
        assert_eq!((hour.arrived_per_second * 3_630.0).round(), 450.0);
        assert_eq!(rates(&[], now)[0].leased_per_second, 0.0);
        assert_eq!(begin(now), Timestamp::from_secs(2_400));
    }

    #[test]
    fn a_rate_has_the_unit_in_which_it_is_read() {
        for (rate, text) in [
            (0.0, "0/s"),
            (1234.5, "1234/s"),
            (12.34, "12/s"),
            (9.0, "9.0/s"),
            (0.1, "0.1/s"),
            (0.05, "3.0/min"),
            (0.001, "3.6/h"),
        ] {
            assert_eq!(shown(rate), text);
        }
    }
}

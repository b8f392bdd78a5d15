//! Waiting for room under a limit that holds over all nodes: how long until a worker asks again. Pure.

use std::time::{Duration, Instant};

/// The first wait, and the longest. Settlements of other nodes, changed settings and a clock that is moved are found by
/// asking, so no wait is longer, however long a rate says that there will be no room.
const WAIT_MIN: Duration = Duration::from_millis(25);
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Whether a queue waits for room, and what ends the wait: its time, a settlement of this worker if the limit is one
/// that a settlement frees, or a lease that is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Limited {
    /// It may ask.
    #[default]
    No,
    /// It waits.
    Until {
        /// Until then.
        at: Instant,
        /// The wait after this one.
        next: Duration,
        /// A settlement may make room.
        settling: bool,
    },
}

impl Limited {
    /// A lease found no room, for `wait` if that is known.
    pub(super) fn again(self, wait: Option<Duration>, now: Instant) -> Self {
        if let Some(wait) = wait {
            return Limited::Until {
                at: now + wait.clamp(Duration::from_millis(1), WAIT_MAX),
                next: WAIT_MIN,
                settling: false,
            };
        }
        let wait = match self {
            Limited::Until { next, settling: true, .. } => next,
            _ => WAIT_MIN,
        };
        Limited::Until { at: now + wait, next: (wait * 2).min(WAIT_MAX), settling: true }
    }

    /// Something of this worker was settled: there may be room now. What it has waited is not forgotten, in case there is
    /// none.
    pub(super) fn settled(self, now: Instant) -> Self {
        match self {
            Limited::Until { at, next, settling: true } => {
                Limited::Until { at: at.min(now), next, settling: true }
            }
            other => other,
        }
    }

    /// How long it must wait, if it must.
    pub(super) fn hold(self, now: Instant) -> Option<Duration> {
        match self {
            Limited::Until { at, .. } if now < at => Some(at - now),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(limited: Limited, now: Instant) -> u128 {
        limited.hold(now).map_or(0, |hold| hold.as_millis())
    }

    #[test]
    fn it_asks_less_and_less_often_up_to_a_limit() {
        let now = Instant::now();
        let (mut limited, mut holds) = (Limited::default(), Vec::new());
        for _ in 0..7 {
            limited = limited.again(None, now);
            holds.push(hold(limited, now));
        }
        assert_eq!(holds, [25, 50, 100, 200, 400, 500, 500]);
        assert_eq!(hold(limited, now + WAIT_MAX), 0);
        assert_eq!(hold(Limited::default().again(None, now), now), 25, "a lease was granted in between");
    }

    #[test]
    fn a_settlement_of_its_own_ends_the_wait_at_once() {
        let now = Instant::now();
        let limited = Limited::default().again(None, now).again(None, now).settled(now);
        assert_eq!(hold(limited, now), 0);
        assert_eq!(hold(limited.again(None, now), now), 100);
    }

    #[test]
    fn a_rate_is_waited_for_as_long_as_it_says_and_a_settlement_does_not_help() {
        let now = Instant::now();
        for (wait, expected) in [(0, 1), (40, 40), (90_000, 500)] {
            let limited = Limited::default().again(Some(Duration::from_millis(wait)), now).settled(now);
            assert_eq!(hold(limited, now), expected);
        }
    }
}

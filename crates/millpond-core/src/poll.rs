//! How often an idle subscriber asks for messages: at once while they come, then slower in steps.
//!
//! Waking is a hint, polling is the truth: a hint ends a wait early, and a lost one costs at most the longest
//! interval. How long a subscriber has been idle is measured by a monotonic clock that is not read here.

use std::time::Duration;

use thiserror::Error;

use crate::text::format_duration;

/// The settings `queue.poll.*` that shape the cadence. Durations count in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollSettings {
    /// The shortest wait. Default 25 ms.
    pub min: Duration,
    /// The longest wait. Default 500 ms.
    pub max: Duration,
    /// After how long without a message the longest wait is used. Default 60 s.
    pub switch: Duration,
    /// How many times the wait and the idle time are halved below that. Default 5.
    pub steps: u32,
}

/// One step of the cadence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollStep {
    /// How long to wait between two polls.
    pub interval: Duration,
    /// The step is used once a subscriber has been idle for more than this.
    pub idle_over: Duration,
}

/// Why poll settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PollError {
    /// The longest wait is shorter than the shortest.
    #[error(
        "`queue.poll.max` ({}) is less than `queue.poll.min` ({})",
        format_duration(*.max),
        format_duration(*.min)
    )]
    MaxBelowMin {
        /// The shortest wait.
        min: Duration,
        /// The longest wait.
        max: Duration,
    },
}

impl Default for PollSettings {
    fn default() -> PollSettings {
        PollSettings {
            min: Duration::from_millis(25),
            max: Duration::from_millis(500),
            switch: Duration::from_secs(60),
            steps: 5,
        }
    }
}

impl PollSettings {
    /// The steps, shortest idle time first. There is at least one.
    ///
    /// # Errors
    /// If `max` is less than `min`.
    pub fn steps(&self) -> Result<Vec<PollStep>, PollError> {
        let (min, max) = (whole_ms(self.min), whole_ms(self.max));
        if max < min {
            return Err(PollError::MaxBelowMin { min, max });
        }
        if max == min {
            return Ok(vec![PollStep { interval: min, idle_over: Duration::ZERO }]);
        }
        let mut last = PollStep { interval: max, idle_over: whole_ms(self.switch) };
        let mut steps = vec![last];
        for _ in 0..self.steps {
            let next = halved(last, min);
            // Halving does no more, so this ends after some 60 steps, whatever the setting.
            if next == last {
                break;
            }
            steps.push(next);
            last = next;
        }
        steps.reverse();
        Ok(steps)
    }
}

/// How long to wait after a poll that found nothing, `idle` after the last one that found something.
///
/// `steps` are those of [`PollSettings::steps`], and `min` is the wait before the first of them applies.
pub fn wait(steps: &[PollStep], min: Duration, idle: Duration) -> Duration {
    steps.iter().rev().find(|step| step.idle_over < idle).map_or(min, |step| step.interval)
}

fn halved(step: PollStep, min: Duration) -> PollStep {
    PollStep { interval: whole_ms(step.interval / 2).max(min), idle_over: whole_ms(step.idle_over / 2) }
}

fn whole_ms(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn settings(min_ms: u64, max_ms: u64) -> PollSettings {
        PollSettings { min: ms(min_ms), max: ms(max_ms), ..PollSettings::default() }
    }

    fn check(settings: PollSettings, expected: &[(u64, u64)]) {
        let steps = settings.steps().unwrap();
        let found: Vec<_> = steps.iter().map(|step| (step.interval, step.idle_over)).collect();
        let expected: Vec<_> = expected.iter().map(|(interval, over)| (ms(*interval), ms(*over))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_default_steps_are_those_of_the_specification() {
        let expected = [(25, 1_875), (31, 3_750), (62, 7_500), (125, 15_000), (250, 30_000), (500, 60_000)];
        check(PollSettings::default(), &expected);
    }

    #[test]
    fn other_settings() {
        check(settings(25, 25), &[(25, 0)]);
        check(PollSettings { steps: 0, ..PollSettings::default() }, &[(500, 60_000)]);
        check(PollSettings { steps: 1, ..settings(25, 30) }, &[(25, 30_000), (30, 60_000)]);
        check(
            PollSettings { switch: ms(3), steps: 9, ..settings(400, 500) },
            &[(400, 0), (400, 1), (500, 3)],
        );
        let endless = PollSettings { switch: Duration::MAX, steps: u32::MAX, ..settings(0, 500) };
        assert!(endless.steps().unwrap().len() < 100);
    }

    #[test]
    fn an_idle_subscriber_slows_down() {
        let settings = PollSettings::default();
        let steps = settings.steps().unwrap();
        let cases = [
            (0, 25),
            (1_875, 25),
            (3_750, 25),
            (3_751, 31),
            (7_500, 31),
            (7_501, 62),
            (15_000, 62),
            (15_001, 125),
            (30_000, 125),
            (30_001, 250),
            (60_000, 250),
            (60_001, 500),
            (86_400_000, 500),
        ];
        for (idle, expected) in cases {
            assert_eq!(wait(&steps, settings.min, ms(idle)), ms(expected), "idle for {idle} ms");
        }
    }

    #[test]
    fn max_below_min_is_refused_with_both() {
        let error = settings(500, 25).steps().unwrap_err();
        assert_eq!(error.to_string(), "`queue.poll.max` (25ms) is less than `queue.poll.min` (500ms)");
    }
}

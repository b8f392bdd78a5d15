//! Where to begin in the outbox (R13). While somebody holds an old snapshot, what was moved stays at the low end of the
//! index, and whoever begins there walks over it each time. So nothing is looked for below a *floor*: an instant before
//! which nothing is due any more, neither a row that is seen nor one whose writer has not committed yet. It is kept in
//! memory, each node has its own, and a full sweep finds what was due before it all the same.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often what is below the floor is looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(20);

/// How often the floor is moved, while there is something to move.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A writer has read the time before it took its lock on the table, by no more than this; one that was slower is found by
/// a sweep. In microseconds.
const READ_BEFORE: i64 = 200_000;

/// From the first row there is.
const LOWEST: i64 = 0;

/// The floor of one process.
#[derive(Debug, Default)]
pub(crate) struct Floor(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Nothing is due before this instant, in microseconds of the store.
    low: i64,
    swept: Instant,
    looked: Option<Instant>,
    /// A look whose writers have not all ended.
    before: Option<Look>,
    /// Who wrote before this instant has ended: a question that is asked from now on sees all of it.
    ended: i64,
}

/// A question about what is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// Where it begins.
    pub(crate) low: i64,
    ended: i64,
}

/// Who wrote at an instant.
#[derive(Debug)]
struct Look {
    at: i64,
    writers: Vec<String>,
}

impl Default for State {
    fn default() -> Self {
        Self { low: LOWEST, swept: Instant::now(), looked: None, before: None, ended: LOWEST }
    }
}

impl Floor {
    /// A question is about to be asked.
    pub(crate) fn ask(&self, now: Instant) -> Question {
        let mut state = self.lock();
        let mut low = state.low;
        if state.swept + SWEEP_EVERY <= now {
            (state.swept, low) = (now, LOWEST);
        }
        Question { low, ended: state.ended }
    }

    /// The store has answered that it is `at`, and when the first row is due that it sees.
    pub(crate) fn answered(&self, question: Question, at: i64, next_due: Option<i64>) {
        let mut state = self.lock();
        if at < state.ended {
            // The clock of the server was set back.
            (state.low, state.before, state.ended) = (LOWEST, None, LOWEST);
            return;
        }
        let next_due = next_due.unwrap_or(i64::MAX);
        state.low = state.low.max(question.ended).min(next_due);
    }

    /// Whether the writers should be looked at, after something was moved.
    pub(crate) fn wants_a_look(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let wants = state.looked.is_none_or(|looked| looked + LOOK_EVERY <= now);
        if wants {
            state.looked = Some(now);
        }
        wants
    }

    /// At `at` these transactions could have rows that nobody sees.
    pub(crate) fn looked(&self, at: i64, writers: Vec<String>) {
        let mut state = self.lock();
        if let Some(before) = &state.before {
            if before.writers.iter().any(|writer| writers.contains(writer)) {
                return;
            }
            state.ended = before.at - READ_BEFORE;
        }
        state.before = Some(Look { at, writers });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn writers(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Where the next question begins, after one was answered.
    fn low(floor: &Floor, at: i64, next_due: Option<i64>) -> i64 {
        let now = Instant::now();
        floor.answered(floor.ask(now), at * SECOND, next_due.map(|due| due * SECOND));
        floor.ask(now).low / SECOND
    }

    #[test]
    fn it_rises_once_all_have_ended_who_wrote_before() {
        let floor = Floor::default();
        assert_eq!(low(&floor, 99, None), 0);
        floor.looked(100 * SECOND, writers(&["3/7", "4/1"]));
        assert_eq!(low(&floor, 100, None), 0, "one look says nothing");
        floor.looked(101 * SECOND, writers(&["4/1", "5/2"]));
        assert_eq!(low(&floor, 101, None), 0, "4/1 may have written before the first");
        floor.looked(103 * SECOND, writers(&["5/2"]));
        assert_eq!(low(&floor, 103, None), 99);
        floor.looked(110 * SECOND, writers(&[]));
        assert_eq!(low(&floor, 110, None), 102);
    }

    #[test]
    fn it_rises_by_a_question_that_was_asked_after_the_look() {
        let floor = Floor::default();
        floor.looked(100 * SECOND, writers(&["3/7"]));
        let early = floor.ask(Instant::now());
        floor.looked(110 * SECOND, writers(&[]));
        floor.answered(early, 110 * SECOND, None);
        assert_eq!(floor.ask(Instant::now()).low, LOWEST, "it may not have seen what 3/7 wrote");
        assert_eq!(low(&floor, 110, None), 99);
    }

    #[test]
    fn it_passes_no_row_that_is_seen() {
        let floor = Floor::default();
        floor.looked(100 * SECOND, writers(&[]));
        floor.looked(200 * SECOND, writers(&[]));
        assert_eq!(low(&floor, 200, Some(50)), 50);
        assert_eq!(low(&floor, 201, Some(60)), 60);
        assert_eq!(low(&floor, 202, None), 99);
    }

    #[test]
    fn a_sweep_begins_at_the_first_row_and_what_it_finds_lowers_the_floor() {
        let floor = Floor::default();
        floor.looked(100 * SECOND, writers(&[]));
        floor.looked(200 * SECOND, writers(&[]));
        assert_eq!(low(&floor, 200, None), 99);
        let later = Instant::now() + SWEEP_EVERY;
        assert_eq!(floor.ask(later).low, LOWEST);
        assert_eq!(floor.ask(later).low, 100 * SECOND - READ_BEFORE, "once");
        assert_eq!(low(&floor, 220, Some(40)), 40);
    }

    #[test]
    fn a_clock_that_was_set_back_begins_anew() {
        let floor = Floor::default();
        floor.looked(100 * SECOND, writers(&[]));
        floor.looked(200 * SECOND, writers(&[]));
        assert_eq!(low(&floor, 200, None), 99);
        assert_eq!(low(&floor, 90, None), 0);
    }

    #[test]
    fn the_writers_are_not_looked_at_each_time() {
        let (floor, now) = (Floor::default(), Instant::now());
        assert!(floor.wants_a_look(now));
        assert!(!floor.wants_a_look(now + LOOK_EVERY / 2));
        assert!(floor.wants_a_look(now + LOOK_EVERY));
    }
}

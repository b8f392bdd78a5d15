//! What becomes of the messages of one call of a batch handler. Pure.
//!
//! One message is the unit of failure: what was decided before a call broke down stands, and the rest is either handed
//! over one by one, so that the culprit is found and it alone uses up its attempt, or has failed, where the time is up.

use crate::reason::Failure;

/// How the call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// It answered one verdict for all.
    One,
    /// It answered so many verdicts, one for each message, in order.
    Each(usize),
    /// It answered an error for all.
    Error,
    /// It panicked.
    Panic,
    /// Its time was up.
    Timeout,
}

/// What becomes of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// What the handler decided about it while it ran.
    AsDecided,
    /// What the call answered: its verdict at this place.
    AsAnswered(usize),
    /// It is handed over again, alone, under the same lease.
    Alone,
    /// Its attempt has failed.
    Failed(Failure),
}

/// The fates of the messages of a call, given which of them were decided while it ran.
pub fn fates(decided: &[bool], end: CallEnd) -> Vec<Fate> {
    let count = decided.len();
    let open = |place: usize| match end {
        CallEnd::One => Fate::AsAnswered(0),
        CallEnd::Each(answers) if answers == count => Fate::AsAnswered(place),
        CallEnd::Timeout => Fate::Failed(Failure::Timeout),
        CallEnd::Panic if count == 1 => Fate::Failed(Failure::Panic),
        CallEnd::Error | CallEnd::Each(_) if count == 1 => Fate::Failed(Failure::Error),
        CallEnd::Panic | CallEnd::Error | CallEnd::Each(_) => Fate::Alone,
    };
    let fate = |(place, decided): (usize, &bool)| if *decided { Fate::AsDecided } else { open(place) };
    decided.iter().enumerate().map(fate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fate::{Alone, AsAnswered, AsDecided, Failed};

    #[track_caller]
    fn check(decided: &[bool], end: CallEnd, expected: &[Fate]) {
        assert_eq!(fates(decided, end), expected);
    }

    #[test]
    fn one_verdict_is_for_all_and_several_are_for_each() {
        check(&[false, false], CallEnd::One, &[AsAnswered(0), AsAnswered(0)]);
        check(&[false, false], CallEnd::Each(2), &[AsAnswered(0), AsAnswered(1)]);
        check(&[false], CallEnd::Each(1), &[AsAnswered(0)]);
    }

    #[test]
    fn what_was_decided_stands_however_the_call_ends() {
        check(&[true, false], CallEnd::One, &[AsDecided, AsAnswered(0)]);
        check(&[true, false], CallEnd::Each(2), &[AsDecided, AsAnswered(1)]);
        check(&[true, false], CallEnd::Panic, &[AsDecided, Alone]);
        check(&[true, false], CallEnd::Timeout, &[AsDecided, Failed(Failure::Timeout)]);
        check(&[true, true], CallEnd::Error, &[AsDecided, AsDecided]);
    }

    #[test]
    fn a_call_that_breaks_down_hands_its_messages_over_one_by_one() {
        check(&[false, false], CallEnd::Panic, &[Alone, Alone]);
        check(&[false, false], CallEnd::Error, &[Alone, Alone]);
        check(&[false, false], CallEnd::Each(1), &[Alone, Alone]);
        check(&[false, false], CallEnd::Each(3), &[Alone, Alone]);
    }

    #[test]
    fn alone_there_is_nobody_else_to_blame() {
        check(&[false], CallEnd::Panic, &[Failed(Failure::Panic)]);
        check(&[false], CallEnd::Error, &[Failed(Failure::Error)]);
        check(&[false], CallEnd::Each(2), &[Failed(Failure::Error)]);
        check(&[false], CallEnd::Timeout, &[Failed(Failure::Timeout)]);
    }

    #[test]
    fn a_timeout_counts_for_all_that_were_not_decided() {
        check(&[false, false], CallEnd::Timeout, &[Failed(Failure::Timeout), Failed(Failure::Timeout)]);
    }
}

//! What becomes of a message when its delivery ends: the one place where that is decided.
//!
//! [`settle`] is pure: it reads no clock, no store and no random source, so every rule about attempts,
//! releases, retries, deadlines and suspects is a line in a table of cases.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::message::{Due, Leased};
use crate::queue::QueueSettings;
use crate::reason::{Back, DropReason, Failure, Release};
use crate::time::Timestamp;

/// The sizes of suspect groups, largest first. A death in company sends the survivors on in a group of the
/// next size below, so that a killing body is alone after at most four deaths.
pub const SUSPECT_GROUPS: [u16; 4] = [512, 64, 8, 1];

/// The wait before a message for which nobody here has a handler is offered again.
pub const NO_HANDLER_WAIT: Duration = Duration::from_secs(30);

/// What a handler says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The work is done.
    Ack,
    /// Try again, after the given wait or the queue's backoff. It uses up an attempt.
    Retry {
        /// `None`: what the backoff says.
        after: Option<Duration>,
    },
    /// Not now. The attempt is given back.
    Snooze {
        /// When to offer it again.
        until: Due,
    },
    /// Never again.
    DeadLetter {
        /// Kept beside the dead letter.
        reason: String,
    },
}

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The handler returned its verdict.
    Returned(Verdict),
    /// The run failed.
    Failed(Failure),
    /// The body or envelope cannot be decoded; the handler never saw it.
    Undecodable,
    /// Its own deadline passed before the handler could run.
    Expired,
    /// It was given back unstarted, or by a stop.
    Released(Release),
    /// Its worker's lease was lost while it had `in_hand` messages, this one included.
    Lost {
        /// Unsettled messages of all claims of that worker.
        in_hand: u32,
    },
}

/// The rules that apply to one message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Deliveries in all; `None` if only a deadline ends it.
    pub attempts_max: Option<u32>,
    /// The wait after a failed attempt.
    pub backoff: Backoff,
    /// Deliveries that may be given back.
    pub releases_max: Option<u32>,
    /// No attempt is made after this.
    pub retry_until: Option<Timestamp>,
}

impl Policy {
    /// The rules for a message: its own settings first, then the queue's. A deadline alone replaces the
    /// number of attempts; with an explicit number, whichever comes first ends it.
    pub fn of(queue: &QueueSettings, attempts_max: Option<u32>, retry_until: Option<Timestamp>) -> Self {
        let deadline_alone = retry_until.is_some() && attempts_max.is_none();
        Self {
            attempts_max: (!deadline_alone).then_some(attempts_max.unwrap_or(queue.attempts_max)),
            backoff: queue.backoff,
            releases_max: retry_until.is_none().then_some(queue.releases_max),
            retry_until,
        }
    }

    /// Whether the deadline has passed, so that the handler must not run.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.retry_until.is_some_and(|deadline| deadline < now)
    }
}

/// The counters of a delivery that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// This delivery, counted from 1 when it was leased.
    pub attempt: u32,
    /// Deliveries given back before.
    pub releases: u32,
    /// The suspect group it was leased in; 0: none.
    pub suspect: u16,
}

impl Counters {
    /// The counters of a leased message.
    pub fn of(message: &Leased) -> Self {
        Self { attempt: message.attempt, releases: message.releases, suspect: message.suspect }
    }
}

/// What the store must record, in the transaction that checks the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Add the offset to the done set of its claim.
    Done,
    /// Write an outbox row; the relay appends it to the return lane when it is due.
    Again {
        /// When it is due.
        due: Due,
        /// Attempts used up so far.
        attempt: u32,
        /// Deliveries given back so far.
        releases: u32,
        /// The suspect group it goes to; 0: none.
        suspect: u16,
        /// Why it goes back.
        back: Back,
    },
    /// Write a dead letter.
    Dead {
        /// Of the closed set.
        reason: DropReason,
        /// What the handler said, if it did.
        detail: Option<String>,
    },
}

/// Turns the end of a delivery into what the store must record. `roll`, from 0 to 1, is drawn by the caller;
/// `now` is database time and only compared with the message's own deadline.
pub fn settle(policy: &Policy, counters: Counters, ending: Ending, now: Timestamp, roll: f64) -> Settlement {
    match ending {
        Ending::Returned(Verdict::Ack) => Settlement::Done,
        Ending::Returned(Verdict::Retry { after }) => {
            retry(policy, counters, Failure::Asked, after, now, roll)
        }
        Ending::Returned(Verdict::Snooze { until }) => give_back(policy, counters, Back::Snoozed, until),
        Ending::Returned(Verdict::DeadLetter { reason }) => {
            Settlement::Dead { reason: DropReason::Refused, detail: Some(reason) }
        }
        Ending::Failed(failure) => retry(policy, counters, failure, None, now, roll),
        Ending::Undecodable => dead(DropReason::Undecodable),
        Ending::Expired => dead(DropReason::RetryUntil),
        Ending::Released(Release::NoHandler) => {
            give_back(policy, counters, Back::Released(Release::NoHandler), Due::In(NO_HANDLER_WAIT))
        }
        Ending::Released(release) => {
            give_back(policy, counters, Back::Released(release), Due::In(Duration::ZERO))
        }
        Ending::Lost { in_hand } => lost(policy, counters, in_hand),
    }
}

/// An attempt failed: again after the wait, unless its budget or its deadline says no.
fn retry(
    policy: &Policy,
    counters: Counters,
    failure: Failure,
    after: Option<Duration>,
    now: Timestamp,
    roll: f64,
) -> Settlement {
    if spent(policy, counters.attempt) {
        return dead(DropReason::Exhausted);
    }
    let wait = after.unwrap_or_else(|| policy.backoff.delay(counters.attempt, roll));
    if policy.retry_until.is_some_and(|deadline| deadline < now + wait) {
        return dead(DropReason::RetryUntil);
    }
    Settlement::Again {
        due: Due::In(wait),
        attempt: counters.attempt,
        releases: counters.releases,
        suspect: 0,
        back: Back::Failed(failure),
    }
}

/// The delivery was no attempt: it is given back and counted as a release, except where a limit, and not
/// the message, was the cause.
fn give_back(policy: &Policy, counters: Counters, back: Back, due: Due) -> Settlement {
    let releases = match back {
        Back::Released(Release::Limited) => counters.releases,
        _ => counters.releases.saturating_add(1),
    };
    if policy.releases_max.is_some_and(|most| most < releases) {
        return dead(DropReason::ReleasesExhausted);
    }
    // A suspect that was given back unstarted has proved nothing: it stays one.
    let suspect = if matches!(back, Back::Snoozed) { 0 } else { counters.suspect };
    Settlement::Again { due, attempt: counters.attempt.saturating_sub(1), releases, suspect, back }
}

/// The lease was lost. Only a message that was alone in its worker's hands is charged (M5).
fn lost(policy: &Policy, counters: Counters, in_hand: u32) -> Settlement {
    let due = Due::In(Duration::ZERO);
    if in_hand <= 1 {
        if spent(policy, counters.attempt) {
            return dead(DropReason::LeaseExhausted);
        }
        let suspect = counters.suspect.min(1);
        let Counters { attempt, releases, .. } = counters;
        return Settlement::Again { due, attempt, releases, suspect, back: Back::Reclaimed };
    }
    let suspect = next_group(in_hand, counters.suspect);
    let releases = counters.releases.saturating_add(1);
    if policy.releases_max.is_some_and(|most| most < releases) {
        return dead(DropReason::ReleasesExhausted);
    }
    let attempt = counters.attempt.saturating_sub(1);
    Settlement::Again { due, attempt, releases, suspect, back: Back::Reclaimed }
}

/// The largest group smaller than the company in which the worker died, and than the group it was in.
fn next_group(in_hand: u32, suspect: u16) -> u16 {
    let company = if suspect == 0 { in_hand } else { in_hand.min(u32::from(suspect)) };
    SUSPECT_GROUPS.into_iter().find(|size| u32::from(*size) < company).unwrap_or(1)
}

fn spent(policy: &Policy, attempt: u32) -> bool {
    policy.attempts_max.is_some_and(|most| most <= attempt)
}

fn dead(reason: DropReason) -> Settlement {
    Settlement::Dead { reason, detail: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn policy() -> Policy {
        let backoff = Backoff::exponential(Duration::from_secs(2), Duration::from_secs(60)).without_jitter();
        Policy { attempts_max: Some(3), backoff, releases_max: Some(5), retry_until: None }
    }

    fn counters(attempt: u32, releases: u32, suspect: u16) -> Counters {
        Counters { attempt, releases, suspect }
    }

    #[track_caller]
    fn check(counters: Counters, ending: Ending, expected: Settlement) {
        assert_eq!(settle(&policy(), counters, ending, NOW, 0.5), expected);
    }

    fn again(wait_secs: u64, attempt: u32, releases: u32, suspect: u16, back: Back) -> Settlement {
        Settlement::Again { due: Due::In(Duration::from_secs(wait_secs)), attempt, releases, suspect, back }
    }

    #[test]
    fn an_ack_is_done() {
        check(counters(3, 9, 8), Ending::Returned(Verdict::Ack), Settlement::Done);
    }

    #[test]
    fn a_failure_waits_for_the_backoff_and_keeps_its_attempt() {
        let back = Back::Failed(Failure::Panic);
        check(counters(1, 0, 0), Ending::Failed(Failure::Panic), again(2, 1, 0, 0, back));
        check(counters(2, 4, 0), Ending::Failed(Failure::Panic), again(4, 2, 4, 0, back));
    }

    #[test]
    fn the_wait_of_the_verdict_wins_over_the_backoff() {
        let asked = Ending::Returned(Verdict::Retry { after: Some(Duration::from_secs(7)) });
        check(counters(1, 0, 0), asked, again(7, 1, 0, 0, Back::Failed(Failure::Asked)));
    }

    #[test]
    fn the_last_attempt_goes_to_the_dead_letters() {
        check(counters(3, 0, 0), Ending::Failed(Failure::Timeout), dead(DropReason::Exhausted));
        check(
            counters(3, 0, 0),
            Ending::Returned(Verdict::Retry { after: None }),
            dead(DropReason::Exhausted),
        );
    }

    #[test]
    fn a_snooze_never_spends_an_attempt() {
        let until = Due::At(Timestamp::from_secs(9_000));
        let expected =
            Settlement::Again { due: until, attempt: 2, releases: 1, suspect: 0, back: Back::Snoozed };
        check(counters(3, 0, 0), Ending::Returned(Verdict::Snooze { until }), expected);
    }

    #[test]
    fn nothing_circles_for_ever() {
        let until = Due::At(NOW);
        check(
            counters(1, 5, 0),
            Ending::Returned(Verdict::Snooze { until }),
            dead(DropReason::ReleasesExhausted),
        );
        check(counters(1, 5, 0), Ending::Lost { in_hand: 2 }, dead(DropReason::ReleasesExhausted));
    }

    #[test]
    fn what_a_limit_gave_back_is_no_release() {
        let back = Back::Released(Release::Limited);
        check(counters(1, 5, 0), Ending::Released(Release::Limited), again(0, 0, 5, 0, back));
    }

    #[test]
    fn a_stop_gives_the_attempt_back_at_once() {
        let back = Back::Released(Release::Shutdown);
        check(counters(2, 1, 8), Ending::Released(Release::Shutdown), again(0, 1, 2, 8, back));
    }

    #[test]
    fn a_missing_handler_gives_the_attempt_back_and_waits() {
        let back = Back::Released(Release::NoHandler);
        check(counters(1, 0, 0), Ending::Released(Release::NoHandler), again(30, 0, 1, 0, back));
    }

    #[test]
    fn an_undecodable_body_dies_on_its_first_attempt() {
        check(counters(1, 0, 0), Ending::Undecodable, dead(DropReason::Undecodable));
    }

    #[test]
    fn a_refusal_keeps_its_text() {
        let reason = "no such user".to_owned();
        let expected = Settlement::Dead { reason: DropReason::Refused, detail: Some(reason.clone()) };
        check(counters(1, 0, 0), Ending::Returned(Verdict::DeadLetter { reason }), expected);
    }

    #[test]
    fn a_message_lost_alone_is_charged_and_may_die() {
        check(counters(1, 0, 0), Ending::Lost { in_hand: 1 }, again(0, 1, 0, 0, Back::Reclaimed));
        check(counters(2, 3, 1), Ending::Lost { in_hand: 1 }, again(0, 2, 3, 1, Back::Reclaimed));
        check(counters(3, 0, 0), Ending::Lost { in_hand: 1 }, dead(DropReason::LeaseExhausted));
        check(counters(3, 3, 1), Ending::Lost { in_hand: 1 }, dead(DropReason::LeaseExhausted));
    }

    #[test]
    fn a_message_lost_in_company_is_not_charged_and_goes_on_in_a_smaller_group() {
        for (in_hand, suspect, expected) in [
            (1_024, 0, 512),
            (512, 512, 64),
            (300, 512, 64),
            (64, 64, 8),
            (8, 8, 1),
            (2, 2, 1),
            (2, 0, 1),
            (40, 0, 8),
        ] {
            let back = again(0, 2, 1, expected, Back::Reclaimed);
            check(counters(3, 0, suspect), Ending::Lost { in_hand }, back);
        }
    }

    #[test]
    fn a_killing_body_is_alone_after_at_most_four_deaths() {
        let (mut in_hand, mut suspect, mut deaths) = (u32::MAX, 0, 0);
        while suspect != 1 {
            suspect = next_group(in_hand, suspect);
            in_hand = u32::from(suspect);
            deaths += 1;
        }
        assert_eq!(deaths, 4);
    }

    #[test]
    fn a_deadline_alone_replaces_the_number_of_attempts() {
        let deadline =
            Policy { attempts_max: None, retry_until: Some(NOW + Duration::from_secs(5)), ..policy() };
        let failed = || Ending::Failed(Failure::Error);
        let late = settle(&deadline, counters(40, 0, 0), failed(), NOW, 0.5);
        assert_eq!(late, dead(DropReason::RetryUntil), "the next attempt would be after the deadline");
        let early = settle(&deadline, counters(1, 0, 0), failed(), NOW, 0.5);
        assert_eq!(early, again(2, 1, 0, 0, Back::Failed(Failure::Error)));
        assert!(!deadline.expired(NOW));
        assert!(deadline.expired(NOW + Duration::from_secs(6)));
    }
}

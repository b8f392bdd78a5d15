//! The state of a message, as people see it: derived from where it is, stored nowhere.

use crate::reason::{DropReason, OutboxReason};

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A row of the outbox.
    Outbox {
        /// Why it waits.
        reason: OutboxReason,
        /// Attempts used up.
        attempt: u32,
    },
    /// In the log beyond the cursor: nobody has leased it yet.
    Ahead,
    /// In a live claim, not settled.
    Claimed,
    /// In the log at or below the cursor, in no live claim.
    Passed,
    /// A dead letter.
    Dead {
        /// Why.
        reason: DropReason,
    },
}

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// In the outbox, due later.
    Scheduled,
    /// In the outbox after an attempt.
    Retrying,
    /// In the log, beyond the cursor.
    Ready,
    /// With a worker.
    Leased,
    /// Acknowledged.
    Done,
    /// No attempt will be made any more.
    Dead,
    /// Taken out by a person or by code.
    Cancelled,
}

impl State {
    /// The state of a message that is at `place`.
    pub const fn of(place: Place) -> Self {
        match place {
            Place::Outbox { reason: OutboxReason::Retry, .. } => State::Retrying,
            Place::Outbox { reason: OutboxReason::Snooze, .. } => State::Scheduled,
            Place::Outbox { attempt: 0, .. } => State::Scheduled,
            Place::Outbox { .. } => State::Retrying,
            Place::Ahead => State::Ready,
            Place::Claimed => State::Leased,
            Place::Passed => State::Done,
            Place::Dead { reason: DropReason::Cancelled } => State::Cancelled,
            Place::Dead { .. } => State::Dead,
        }
    }

    /// The word that is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Scheduled => "scheduled",
            State::Retrying => "retrying",
            State::Ready => "ready",
            State::Leased => "leased",
            State::Done => "done",
            State::Dead => "dead",
            State::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_decides() {
        for (place, expected) in [
            (Place::Outbox { reason: OutboxReason::Delay, attempt: 0 }, State::Scheduled),
            (Place::Outbox { reason: OutboxReason::Tx, attempt: 0 }, State::Scheduled),
            (Place::Outbox { reason: OutboxReason::Retry, attempt: 1 }, State::Retrying),
            (Place::Outbox { reason: OutboxReason::Snooze, attempt: 2 }, State::Scheduled),
            (Place::Outbox { reason: OutboxReason::Reclaim, attempt: 1 }, State::Retrying),
            (Place::Ahead, State::Ready),
            (Place::Claimed, State::Leased),
            (Place::Passed, State::Done),
            (Place::Dead { reason: DropReason::Exhausted }, State::Dead),
            (Place::Dead { reason: DropReason::Cancelled }, State::Cancelled),
        ] {
            assert_eq!(State::of(place), expected, "{place:?}");
        }
    }
}

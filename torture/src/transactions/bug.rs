//! The known bugs, each of which must be caught by the count that is named: three of the program that uses Millpond, and one
//! of the relay.

use crate::stage::SABOTAGE;
use crate::transactions::audit::{Audit, Count};

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Messages are sent beside the transaction, before it is known how it ends.
    SentOutside,
    /// Messages are sent when the commit was answered, if the program still lives and thinks so.
    SentAfterCommit,
    /// The message of a savepoint is sent in the transaction around it.
    SentAroundSavepoint,
    /// The relay deletes a row of the outbox that it did not append to the log.
    RelayForgets,
}

impl Bug {
    pub(crate) const ALL: [Bug; 4] =
        [Bug::SentOutside, Bug::SentAfterCommit, Bug::SentAroundSavepoint, Bug::RelayForgets];

    /// As it is switched on in a child.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Bug::SentOutside => "sent_outside",
            Bug::SentAfterCommit => "sent_after_commit",
            Bug::SentAroundSavepoint => "sent_around_savepoint",
            Bug::RelayForgets => "relay_forgets",
        }
    }

    /// The one that is switched on in this process.
    pub(crate) fn chosen() -> Option<Self> {
        let name = std::env::var(SABOTAGE).ok()?;
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }

    const fn caught_by(self) -> Count {
        match self {
            Bug::SentOutside | Bug::SentAroundSavepoint => Count::RolledBackDelivered,
            Bug::SentAfterCommit | Bug::RelayForgets => Count::CommittedMissing,
        }
    }

    pub(crate) fn is_caught(self, audit: &Audit) -> bool {
        audit.broken().contains(&self.caught_by())
    }
}

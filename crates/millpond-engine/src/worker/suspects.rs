//! Suspects: messages that were in the hands of a worker that died. A worker takes one group of them at a time,
//! and a group of one only when its hands are empty, so that a body that kills its process is singled out and
//! nobody else pays for it (M5). Pure.

/// Where a worker stands with suspects, and what leaves each state.
///
/// - `None`: none in hand. A pulse that shows a suspect lane leads to `Asking`.
/// - `Asking`: a lease from a suspect lane is under way, and no other is begun. Its answer decides.
/// - `Emptying`: the next group is a single message: nothing is leased until the hands are empty, and then it is
///   asked for again. Where its queue has no slot any more, because all are stuck, it leads to `None`.
/// - `Company`: a group is in hand; ordinary work goes on. It ends when the group is settled, or was taken over.
/// - `Alone`: a single suspect is in hand, and nothing else is leased until it is settled, or was taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Suspects {
    #[default]
    None,
    Asking {
        queue: usize,
    },
    Emptying {
        queue: usize,
    },
    Company,
    Alone,
}

/// The answer to a lease from a suspect lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There was nothing, or the store did not answer.
    Nothing,
    /// A group of this size.
    Group(u16),
    /// A group of one, which wants empty hands.
    EmptyHandsFirst,
}

impl Suspects {
    /// Whether ordinary messages may be leased.
    pub(crate) const fn ordinary_may_lease(self) -> bool {
        matches!(self, Suspects::None | Suspects::Company)
    }

    /// The queue whose suspect lane should be asked now, given the queues that have suspects, what is in hand and
    /// how many leases are under way; and whether the hands are empty.
    pub(crate) fn ask(
        self,
        with_suspects: Option<usize>,
        in_hand: usize,
        leases: usize,
    ) -> Option<(usize, bool)> {
        let empty = in_hand == 0 && leases == 0;
        match self {
            Suspects::None => with_suspects.map(|queue| (queue, empty)),
            Suspects::Emptying { queue } if empty => Some((queue, true)),
            _ => None,
        }
    }

    /// The state after the answer to a lease.
    pub(crate) const fn answered(self, answer: Answer) -> Self {
        match (self, answer) {
            (Suspects::Asking { queue }, Answer::EmptyHandsFirst) => Suspects::Emptying { queue },
            (Suspects::Asking { .. }, Answer::Group(1)) => Suspects::Alone,
            (Suspects::Asking { .. }, Answer::Group(_)) => Suspects::Company,
            (Suspects::Asking { .. }, Answer::Nothing) => Suspects::None,
            (other, _) => other,
        }
    }

    /// The state, given whether suspects are in hand still.
    pub(crate) const fn settled(self, suspects_in_hand: bool) -> Self {
        match self {
            Suspects::Company | Suspects::Alone if !suspects_in_hand => Suspects::None,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_worked_beside_ordinary_messages() {
        assert_eq!(Suspects::None.ask(Some(2), 7, 1), Some((2, false)));
        let group = Suspects::Asking { queue: 2 }.answered(Answer::Group(64));
        assert!(group.ordinary_may_lease());
        assert_eq!(group.ask(Some(2), 0, 0), None, "one group at a time");
        assert_eq!(group.settled(true), Suspects::Company);
        assert_eq!(group.settled(false), Suspects::None);
    }

    #[test]
    fn a_single_suspect_waits_for_empty_hands_and_nothing_joins_it() {
        let emptying = Suspects::Asking { queue: 0 }.answered(Answer::EmptyHandsFirst);
        assert!(!emptying.ordinary_may_lease());
        assert_eq!(emptying.ask(Some(0), 3, 0), None);
        assert_eq!(emptying.ask(Some(0), 0, 1), None, "a lease under way may fill them");
        assert_eq!(emptying.ask(Some(0), 0, 0), Some((0, true)));
        let alone = Suspects::Asking { queue: 0 }.answered(Answer::Group(1));
        assert!(!alone.ordinary_may_lease());
        assert_eq!(alone.settled(false), Suspects::None);
    }

    #[test]
    fn no_answer_leads_back() {
        assert_eq!(Suspects::Asking { queue: 0 }.answered(Answer::Nothing), Suspects::None);
    }
}

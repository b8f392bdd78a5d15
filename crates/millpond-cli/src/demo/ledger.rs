//! What the demo knows by itself, beside what the store says: which ids it sent, every delivery that a worker told
//! of, and which workers died.

use std::collections::{HashMap, HashSet};

use millpond::MessageId;

use crate::demo::report::{Outcome, Report};
use crate::demo::workload::Kind;

/// One start of one worker process, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Life(pub(crate) u32);

/// One delivery of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// To which process.
    pub(crate) life: Life,
    /// Counted from 1.
    pub(crate) attempt: u32,
    /// The last that was heard of it.
    pub(crate) outcome: Outcome,
}

/// Why a worker process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The demo killed it.
    Demo,
    /// A message killed it.
    Message(MessageId),
    /// Nobody knows.
    Unknown,
}

/// The book of a demo.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// In the order of sending.
    pub(crate) sent: Vec<(MessageId, Kind)>,
    /// By message, in the order in which they were told of.
    pub(crate) deliveries: HashMap<MessageId, Vec<Delivery>>,
    /// Processes that ended without being asked to.
    pub(crate) deaths: Vec<(Life, Cause)>,
    /// Deliveries that worked.
    pub(crate) worked: usize,
}

impl Ledger {
    /// A send was stored.
    pub(crate) fn sent(&mut self, kind: Kind, ids: impl Iterator<Item = MessageId>) {
        self.sent.extend(ids.map(|id| (id, kind)));
    }

    /// A worker told of a delivery.
    pub(crate) fn told(&mut self, life: Life, report: Report) {
        let Report { id, attempt, outcome } = report;
        self.worked += usize::from(outcome.is_done());
        let deliveries = self.deliveries.entry(id).or_default();
        let begun = deliveries
            .iter_mut()
            .rfind(|known| known.life == life && known.attempt == attempt && known.outcome == Outcome::Begun);
        match begun {
            Some(begun) if outcome != Outcome::Begun => begun.outcome = outcome,
            _ => deliveries.push(Delivery { life, attempt, outcome }),
        }
    }

    /// A process ended without being asked to.
    pub(crate) fn died(&mut self, life: Life, cause: Cause) {
        self.deaths.push((life, cause));
    }

    /// The message that killed this process, if one told of it.
    pub(crate) fn killer_of(&self, life: Life) -> Option<MessageId> {
        let killed = |delivery: &Delivery| delivery.life == life && delivery.outcome == Outcome::Kills;
        self.deliveries.iter().find(|(_, list)| list.iter().any(killed)).map(|(id, _)| *id)
    }

    /// The processes that died.
    pub(crate) fn dead_lives(&self) -> HashSet<Life> {
        self.deaths.iter().map(|(life, _)| *life).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> MessageId {
        format!("0198c0de-0000-7000-8000-{number:012}").parse().unwrap()
    }

    fn report(outcome: Outcome, attempt: u32) -> Report {
        Report { id: id(1), attempt, outcome }
    }

    #[test]
    fn the_second_line_of_a_delivery_says_how_the_first_went_on() {
        let mut ledger = Ledger::default();
        ledger.told(Life(1), report(Outcome::Begun, 1));
        ledger.told(Life(2), report(Outcome::Begun, 1));
        ledger.told(Life(2), report(Outcome::Booked, 1));
        let outcomes: Vec<_> = ledger.deliveries[&id(1)].iter().map(|one| (one.life, one.outcome)).collect();
        assert_eq!(outcomes, [(Life(1), Outcome::Begun), (Life(2), Outcome::Booked)]);
        assert_eq!(ledger.worked, 1);
    }

    #[test]
    fn the_killer_of_a_process_is_who_told_of_it_there() {
        let mut ledger = Ledger::default();
        ledger.told(Life(1), report(Outcome::Kills, 1));
        assert_eq!(ledger.killer_of(Life(1)), Some(id(1)));
        assert_eq!(ledger.killer_of(Life(2)), None);
    }
}

//! The judge of business transactions. The truth is the database: a row of a business table is there exactly if its
//! transaction was committed, and each announces itself with one message. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::transactions::errand::{Way, is_of_partner, number_of};
use crate::wire::Report;

/// What a clerk says of a transaction that is over. What is in neither list nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) number: u64,
    pub(crate) way: Way,
    /// Rows whose commit was answered with yes.
    pub(crate) there: Vec<u64>,
    /// Rows that were rolled back, or whose commit was refused.
    pub(crate) gone: Vec<u64>,
}

/// What was heard in a run.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Transactions that were begun.
    pub(crate) begun: BTreeSet<u64>,
    pub(crate) told: BTreeMap<u64, Told>,
    /// How often each message was delivered.
    pub(crate) delivered: BTreeMap<u64, u64>,
}

impl Books {
    /// Hears what a process reported; answers what is none of the books' business.
    pub(crate) fn hear(&mut self, report: Report) -> Option<Report> {
        match report {
            Report::Begun { number } => {
                self.begun.insert(number);
            }
            Report::Told(told) => {
                self.told.insert(told.number, told);
            }
            Report::Delivered { tag } => *self.delivered.entry(tag).or_insert(0) += 1,
            other => return Some(other),
        }
        None
    }
}

/// What must be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    RolledBackDelivered,
    CommittedMissing,
    Unkept,
}

/// The judgement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Those that were begun; where it takes two, both.
    pub(crate) transactions: u64,
    /// Those with a row.
    pub(crate) committed: u64,
    /// A savepoint counts here, and the transaction around it as committed.
    pub(crate) rolled_back: BTreeMap<Way, u64>,
    /// Messages, whatever the number of their deliveries.
    pub(crate) delivered: u64,
    /// Deliveries beyond the first one.
    pub(crate) redelivered: u64,
    /// Messages without a row.
    pub(crate) rolled_back_delivered: Vec<u64>,
    /// Rows without a message.
    pub(crate) committed_missing: Vec<u64>,
    /// Rows that are not as the answer to their commit or roll-back said.
    pub(crate) unkept: Vec<u64>,
}

impl Audit {
    /// The lists that are not empty.
    pub(crate) fn broken(&self) -> Vec<Count> {
        let lists = [
            (Count::RolledBackDelivered, &self.rolled_back_delivered),
            (Count::CommittedMissing, &self.committed_missing),
            (Count::Unkept, &self.unkept),
        ];
        lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(count, _)| count).collect()
    }

    /// Whether so many were committed as were planned, and not most refused for a reason that nobody looks at.
    pub(crate) fn is_plausible(&self) -> bool {
        self.transactions <= 2 * self.committed
    }

    /// Ways in which nothing was rolled back.
    pub(crate) fn untried(&self) -> Vec<Way> {
        let is_untried = |way: &Way| self.rolled_back.get(way).is_none_or(|count| *count == 0);
        Way::ROLLED_BACK.into_iter().filter(is_untried).collect()
    }
}

/// Judges what was heard by the rows that are there.
pub(crate) fn audit(books: &Books, rows: &BTreeSet<u64>) -> Audit {
    let with_row: BTreeSet<u64> =
        rows.iter().filter(|tag| !is_of_partner(**tag)).map(|tag| number_of(*tag)).collect();
    let told = || books.told.values();
    let partners = told().filter(|told| told.there.iter().chain(&told.gone).any(|tag| is_of_partner(*tag)));
    let unkept_yes = told().flat_map(|told| &told.there).filter(|tag| !rows.contains(tag));
    let unkept_no = told().flat_map(|told| &told.gone).filter(|tag| rows.contains(tag));
    let mut audit = Audit {
        transactions: (books.begun.len() + partners.count()) as u64,
        committed: (with_row.len() + rows.iter().filter(|tag| is_of_partner(**tag)).count()) as u64,
        delivered: books.delivered.len() as u64,
        redelivered: books.delivered.values().map(|times| times.saturating_sub(1)).sum(),
        rolled_back_delivered: books.delivered.keys().filter(|tag| !rows.contains(tag)).copied().collect(),
        committed_missing: rows.iter().filter(|tag| !books.delivered.contains_key(tag)).copied().collect(),
        unkept: unkept_yes.chain(unkept_no).copied().collect(),
        rolled_back: BTreeMap::new(),
    };
    for number in &books.begun {
        let way = match books.told.get(number).map(|told| told.way) {
            // Nobody has told, or nobody knew: its process was killed.
            None | Some(Way::Commit) if !with_row.contains(number) => Way::Killed,
            None | Some(Way::Commit) => continue,
            Some(way) => way,
        };
        *audit.rolled_back.entry(way).or_insert(0) += 1;
    }
    audit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of rows: the first of transaction 1, its savepoint, its partner; the first of transaction 2.
    const FIRST: u64 = 8;
    const FRAME: u64 = 14;
    const PARTNER: u64 = 15;
    const NEXT: u64 = 16;

    fn books(told: &[(u64, Way, &[u64], &[u64])], delivered: &[u64]) -> Books {
        let mut books = Books { begun: [1, 2].into(), ..Books::default() };
        for (number, way, there, gone) in told {
            let told = Told { number: *number, way: *way, there: there.to_vec(), gone: gone.to_vec() };
            books.told.insert(*number, told);
        }
        for tag in delivered {
            *books.delivered.entry(*tag).or_insert(0) += 1;
        }
        books
    }

    #[test]
    fn a_message_is_delivered_exactly_if_its_row_is_there() {
        use Count::{CommittedMissing, RolledBackDelivered, Unkept};
        let yes: &[u64] = &[FIRST];
        let commit = (1, Way::Commit, yes, &[] as &[u64]);
        let error = (1, Way::Error, &[] as &[u64], yes);
        let savepoint = (1, Way::Savepoint, yes, &[FRAME] as &[u64]);
        let check = |told, rows: &[u64], delivered: &[u64], broken: &[Count]| {
            let audit = audit(&books(&[told], delivered), &rows.iter().copied().collect());
            assert_eq!(audit.broken(), broken, "{told:?}, rows {rows:?}, delivered {delivered:?}");
        };
        check(commit, &[FIRST], &[FIRST], &[]);
        check(commit, &[FIRST], &[FIRST, FIRST], &[]);
        check(commit, &[FIRST], &[], &[CommittedMissing]);
        check(commit, &[], &[], &[Unkept]);
        check(commit, &[], &[FIRST], &[RolledBackDelivered, Unkept]);
        check(error, &[], &[], &[]);
        check(error, &[], &[FIRST], &[RolledBackDelivered]);
        check(error, &[FIRST], &[FIRST], &[Unkept]);
        check(savepoint, &[FIRST], &[FIRST], &[]);
        check(savepoint, &[FIRST], &[FIRST, FRAME], &[RolledBackDelivered]);
        // Nobody has told of the second one: it may be there, or not, with its message.
        check(commit, &[FIRST, NEXT], &[FIRST, NEXT], &[]);
        check(commit, &[FIRST], &[FIRST, NEXT], &[RolledBackDelivered]);
    }

    #[test]
    fn every_transaction_is_counted_once_by_what_became_of_it() {
        let deadlock = (1, Way::Deadlock, &[PARTNER] as &[u64], &[FIRST] as &[u64]);
        let audit = audit(&books(&[deadlock], &[PARTNER, PARTNER]), &[PARTNER].into());
        assert_eq!((audit.transactions, audit.committed), (3, 1));
        assert_eq!(audit.rolled_back, [(Way::Deadlock, 1), (Way::Killed, 1)].into());
        assert_eq!((audit.delivered, audit.redelivered), (1, 1));
        assert_eq!(audit.untried(), [Way::Error, Way::Dropped, Way::Savepoint, Way::Serialisation]);
    }
}

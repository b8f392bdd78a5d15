//! What a seed means for one business transaction: how it is made, and how it ends. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::database::Database;
use crate::dice::Dice;

/// Numbers that one transaction has for its rows; each row announces itself with one message of the same number.
const TAGS: u64 = 8;

/// Rows that a transaction writes at most, beside the two that follow.
const ROWS_MAX: u64 = 3;

/// The row of a savepoint that is rolled back.
const FRAME: u64 = 6;

/// The row of the other transaction, where it takes two.
const PARTNER: u64 = 7;

/// Pairs of rows of `torture_account`. Transactions that are open at once have neighbouring numbers, so no two of them
/// have one pair.
pub(crate) const PAIRS: u64 = 1_000;

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    Commit,
    /// A statement or the program itself fails, or a hook refuses.
    Error,
    /// The future or the transaction is dropped in the middle.
    Dropped,
    /// `kill -9` of the process, in the middle or during the commit.
    Killed,
    /// Two transactions lock two rows in opposite order. In SQLite one finds the writer busy.
    Deadlock,
    /// A savepoint is rolled back, and the rest is committed.
    Savepoint,
    /// Another transaction has changed what it read.
    Serialisation,
}

impl Way {
    /// Those in which something is rolled back.
    pub(crate) const ROLLED_BACK: [Way; 6] =
        [Way::Error, Way::Dropped, Way::Killed, Way::Deadlock, Way::Savepoint, Way::Serialisation];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Way::Commit => "commit",
            Way::Error => "error",
            Way::Dropped => "dropped",
            Way::Killed => "killed",
            Way::Deadlock => "deadlock",
            Way::Savepoint => "savepoint",
            Way::Serialisation => "serialisation",
        }
    }
}

/// Who holds the transaction, and what sends in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// `pond.begin()`.
    Unit,
    /// `pond.within(&mut tx)`, of a transaction of the driver.
    Driver,
    /// Plain SQL, in a transaction of the driver.
    Sql,
}

/// One business transaction.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    pub(crate) number: u64,
    pub(crate) means: Means,
    pub(crate) way: Way,
    /// Rows that it writes, and messages that it sends.
    pub(crate) rows: u64,
    /// Which of two courses, where a way has two.
    pub(crate) other_course: bool,
    /// How often a future is polled before it is dropped.
    pub(crate) polls: u64,
    /// When the process dies after the commit has begun; `None`: before.
    pub(crate) dies_after: Option<Duration>,
}

/// Transactions that a process has open at once. SQLite has one writer, and its driver no futures.
pub(crate) const fn at_once(database: Database) -> u64 {
    match database {
        Database::Sqlite => 1,
        Database::Postgres | Database::Mysql => 8,
    }
}

impl Errand {
    pub(crate) fn new(seed: u64, database: Database, number: u64) -> Self {
        let mut dice = Dice::of(seed, 7, number);
        let means = [Means::Unit, Means::Driver, Means::Sql][dice.between(0, 3) as usize];
        let way = way(dice.between(0, 1_000), database);
        let rows = dice.between(1, ROWS_MAX + 1);
        let other_course = dice.chance(500);
        let polls = dice.between(1, 14);
        let dies_after = dice.chance(600).then(|| Duration::from_micros(dice.between(0, 3_000)));
        // The unit of work of SQLite begins as a writer: it waits, and is never too late.
        let never_late = database == Database::Sqlite && matches!(way, Way::Deadlock | Way::Serialisation);
        let means = if never_late && means == Means::Unit { Means::Driver } else { means };
        Self { number, means, way, rows, other_course, polls, dies_after }
    }

    /// The numbers of its own rows.
    pub(crate) fn tags(&self) -> Vec<u64> {
        (0..self.rows).map(|row| self.number * TAGS + row).collect()
    }

    pub(crate) fn frame(&self) -> u64 {
        self.number * TAGS + FRAME
    }

    pub(crate) fn partner(&self) -> u64 {
        self.number * TAGS + PARTNER
    }

    /// Its two rows of `torture_account`.
    pub(crate) fn accounts(&self) -> (u64, u64) {
        let first = self.number % PAIRS * 2;
        (first, first + 1)
    }
}

/// Which transaction a row belongs to.
pub(crate) const fn number_of(tag: u64) -> u64 {
    tag / TAGS
}

/// Whether it is the row of the other transaction.
pub(crate) const fn is_of_partner(tag: u64) -> bool {
    tag % TAGS == PARTNER
}

/// Three in ten are rolled back, as many by each way; some of the others are the second one where it takes two. A process takes all that it has open with it when it dies, so
/// fewer kill it than are killed.
fn way(die: u64, database: Database) -> Way {
    let deadly = if at_once(database) == 1 { 58 } else { 9 };
    match die {
        0..=57 => Way::Error,
        58..=115 => Way::Dropped,
        116..=173 => Way::Deadlock,
        174..=231 => Way::Savepoint,
        232..=289 => Way::Serialisation,
        die if die < 290 + deadly => Way::Killed,
        _ => Way::Commit,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_transaction() {
        let of = |seed, number| format!("{:?}", Errand::new(seed, Database::Postgres, number));
        assert_eq!(of(1, 7), of(1, 7));
        assert!((0..100).any(|number| of(1, number) != of(2, number)));
    }

    #[test]
    fn every_way_and_means_is_taken_in_its_share() {
        let mut ways = BTreeMap::new();
        for number in 0..10_000 {
            *ways.entry(Errand::new(1, Database::Sqlite, number).way).or_insert(0) += 1;
        }
        for way in Way::ROLLED_BACK {
            assert!((500..660).contains(&ways[&way]), "{way:?}: {}", ways[&way]);
        }
        assert!((6_300..6_700).contains(&ways[&Way::Commit]));
    }

    #[test]
    fn a_unit_of_work_is_never_too_late_in_sqlite() {
        let late = |errand: &Errand| matches!(errand.way, Way::Deadlock | Way::Serialisation);
        let errands = |database| (0..1_000).map(move |number| Errand::new(1, database, number)).filter(late);
        assert!(errands(Database::Sqlite).all(|errand| errand.means != Means::Unit));
        assert!(errands(Database::Mysql).any(|errand| errand.means == Means::Unit));
    }

    #[test]
    fn no_two_transactions_share_a_number_or_open_at_once_an_account() {
        let errand = |number| Errand::new(1, Database::Postgres, number);
        let (one, next) = (errand(7), errand(8));
        let all = |errand: &Errand| [errand.tags(), vec![errand.frame(), errand.partner()]].concat();
        assert!(all(&one).iter().all(|tag| !all(&next).contains(tag) && number_of(*tag) == 7));
        assert!(is_of_partner(one.partner()) && !is_of_partner(one.frame()));
        assert_eq!((one.accounts(), next.accounts()), ((14, 15), (16, 17)));
        assert_eq!(errand(7 + PAIRS).accounts(), one.accounts());
    }
}

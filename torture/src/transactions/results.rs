//! What a run of business transactions prints.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use serde::Serialize;

use crate::Outcome;
use crate::controls::Tried;
use crate::database::Database;
use crate::report::print_control;
use crate::transactions::audit::Audit;
use crate::transactions::bug::Bug;
use crate::transactions::errand::Way;
use crate::transactions::office::Size;

/// Rows that are named of a list that should be empty.
const NAMED: usize = 10;

/// Fewer transactions need not end in every way.
const EVERY_WAY_FROM: u64 = 500;

/// What came out of a run.
pub(crate) struct Ending {
    pub(crate) audit: Audit,
    /// What is wrong beside: a damaged file, a wrong count, an error in a child.
    pub(crate) faults: Vec<String>,
    pub(crate) kills: u64,
}

impl Ending {
    pub(crate) fn good(&self) -> bool {
        self.audit.broken().is_empty() && self.faults.is_empty()
    }

    /// What is broken, in words.
    fn broken(&self) -> Vec<String> {
        let counts = self.audit.broken().into_iter().map(|count| format!("{count:?}"));
        counts.chain(self.faults.iter().cloned()).collect()
    }
}

/// Everything that came out.
pub(crate) struct Results {
    pub(crate) database: Database,
    pub(crate) size: Size,
    /// What was run.
    pub(crate) commit: String,
    /// What it was run on.
    pub(crate) server: String,
    pub(crate) ending: Outcome<Ending>,
    pub(crate) tried: Vec<Tried>,
    pub(crate) took: Duration,
}

/// The one object of the last line.
#[derive(Serialize)]
struct Summary<'r> {
    store: &'static str,
    transactions: u64,
    committed: u64,
    rolled_back: BTreeMap<&'static str, u64>,
    delivered: u64,
    redelivered: u64,
    rolled_back_delivered: usize,
    committed_missing: usize,
    unkept: usize,
    unfinished: bool,
    sabotage_caught: usize,
    sabotage_total: usize,
    kills: u64,
    seed: u64,
    seconds: u64,
    commit: &'r str,
    server: &'r str,
}

impl Results {
    /// Whether everything held, every way was taken, and every bug was caught.
    pub(crate) fn good(&self) -> bool {
        self.untried().is_empty()
            && self.is_plausible()
            && self.ending.as_ref().is_ok_and(Ending::good)
            && self.tried.iter().all(Tried::good)
    }

    fn is_plausible(&self) -> bool {
        self.ending.as_ref().is_ok_and(|ending| ending.audit.is_plausible())
    }

    fn untried(&self) -> Vec<Way> {
        match &self.ending {
            Ok(ending) if EVERY_WAY_FROM <= self.size.transactions => ending.audit.untried(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn print(&self) {
        println!("{} at {}, seed {}", self.server, self.commit, self.size.seed);
        match &self.ending {
            Ok(ending) => print_run(ending),
            Err(error) => println!("the run could not be finished: {}", causes(&**error)),
        }
        if !self.is_plausible() {
            println!("wrong: most transactions were not committed");
        }
        for way in self.untried() {
            println!("wrong: nothing was rolled back by {}", way.name());
        }
        self.tried.iter().for_each(print_control);
        println!("took {:.0?}", self.took);
    }

    pub(crate) fn json(&self) -> String {
        let (none, kills, unfinished) = (Audit::default(), 0, true);
        let (audit, kills, unfinished) = match &self.ending {
            Ok(ending) => (&ending.audit, ending.kills, !ending.faults.is_empty()),
            Err(_) => (&none, kills, unfinished),
        };
        let rolled_back = |way: Way| (way.name(), audit.rolled_back.get(&way).copied().unwrap_or(0));
        let summary = Summary {
            store: self.database.name(),
            transactions: audit.transactions,
            committed: audit.committed,
            rolled_back: Way::ROLLED_BACK.map(rolled_back).into(),
            delivered: audit.delivered,
            redelivered: audit.redelivered,
            rolled_back_delivered: audit.rolled_back_delivered.len(),
            committed_missing: audit.committed_missing.len(),
            unkept: audit.unkept.len(),
            unfinished,
            sabotage_caught: self.tried.iter().filter(|tried| tried.good()).count(),
            sabotage_total: self.tried.len(),
            kills,
            seed: self.size.seed,
            seconds: self.took.as_secs(),
            commit: &self.commit,
            server: &self.server,
        };
        serde_json::to_string(&summary).unwrap_or_default()
    }
}

fn print_run(ending: &Ending) {
    let Ending { audit, faults, kills } = ending;
    faults.iter().for_each(|fault| println!("wrong: {fault}"));
    let Audit { transactions, committed, rolled_back, delivered, redelivered, .. } = audit;
    let by_way: Vec<String> =
        rolled_back.iter().map(|(way, count)| format!("{count} by {}", way.name())).collect();
    println!("{committed} of {transactions} transactions committed; rolled back: {}", by_way.join(", "));
    let lists = [
        ("messages of what was rolled back were delivered", &audit.rolled_back_delivered),
        ("messages of what was committed are missing", &audit.committed_missing),
        ("rows are not as the answer to their transaction said", &audit.unkept),
    ];
    for (what, list) in lists {
        let named = &list[..list.len().min(NAMED)];
        println!(
            "{} {what} {}",
            list.len(),
            if named.is_empty() { String::new() } else { format!("{named:?}") }
        );
    }
    println!("{delivered} messages delivered, {redelivered} once more, over {kills} kills");
}

/// What was broken without a bug.
pub(crate) fn wrong_without(ending: &Outcome<Ending>) -> Vec<String> {
    let wrong = match ending {
        Ok(ending) => ending.broken(),
        Err(error) => vec![causes(&**error)],
    };
    wrong.iter().map(|wrong| format!("without the bug: {wrong}")).collect()
}

/// What became of a bug.
pub(crate) fn tried(bug: Bug, ending: &Outcome<Ending>, mut wrong: Vec<String>, took: Duration) -> Tried {
    let (caught, caught_by) = match ending {
        Ok(Ending { audit, .. }) => {
            (bug.is_caught(audit), audit.broken().iter().map(|count| format!("{count:?}")).collect())
        }
        Err(error) => {
            wrong.push(format!("with the bug: {}", causes(&**error)));
            (false, Vec::new())
        }
    };
    Tried { name: bug.name(), caught_by, caught, wrong, took }
}

/// An error, and what it is because of.
fn causes(error: &(dyn Error + Send + Sync + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(because) = cause {
        text = format!("{text}: {because}");
        cause = because.source();
    }
    text
}

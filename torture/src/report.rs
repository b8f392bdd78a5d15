//! What a run prints.

use std::collections::BTreeSet;
use std::time::Duration;

use millpond_testkit::judge::{Counters, Invariant, Verdict};
use serde::Serialize;

use crate::Outcome;
use crate::controls::Tried;
use crate::plan::Plan;
use crate::stage::Ending;

/// Fewer rounds bound nothing: 3/n is most of the whole.
const BOUND_FROM: u64 = 4;

/// Everything that came out.
pub(crate) struct Results {
    pub(crate) plan: Plan,
    /// What was run.
    pub(crate) commit: String,
    /// What it was run on.
    pub(crate) server: String,
    /// `None`: only controls were run.
    pub(crate) ending: Option<Outcome<Ending>>,
    /// The runs beside it: calls that are given up, connections that are scarce.
    pub(crate) others: Vec<Outcome<Ending>>,
    pub(crate) tried: Vec<Tried>,
    pub(crate) took: Duration,
}

/// The one object of the last line.
#[derive(Serialize)]
struct Summary {
    lost: u64,
    double_effects: u64,
    order_violations: u64,
    /// The invariants that did not hold.
    broken: Vec<String>,
    sent: u64,
    messages: u64,
    kills: u64,
    server_kills: u64,
    cuts: u64,
    drops: u64,
    starved: u64,
    left_in_transaction: u64,
    redelivered: u64,
    unfinished: bool,
    sabotage_caught: usize,
    sabotage_total: usize,
    seed: u64,
    commit: String,
    server: String,
}

impl Results {
    /// Whether everything held and every control was caught.
    pub(crate) fn good(&self) -> bool {
        let held = |ending: &Outcome<Ending>| ending.as_ref().is_ok_and(Ending::good);
        self.ending.as_ref().is_none_or(held)
            && self.others.iter().all(held)
            && self.tried.iter().all(Tried::good)
    }

    pub(crate) fn print(&self) {
        println!("{} at {}, seed {}", self.server, self.commit, self.plan.seed);
        for ending in self.runs() {
            match ending {
                Ok(ending) => print_run(ending),
                Err(error) => println!("the run could not be finished: {error}"),
            }
        }
        for tried in &self.tried {
            print_control(tried);
        }
        println!("took {:.0?}", self.took);
    }

    fn runs(&self) -> impl Iterator<Item = &Outcome<Ending>> {
        self.ending.iter().chain(&self.others)
    }

    pub(crate) fn json(&self) -> String {
        let mut sum = Counters::default();
        for run in self.runs() {
            let counters = match run {
                Ok(ending) => ending.verdict.counters.clone(),
                Err(_) => Counters { unfinished: true, ..Counters::default() },
            };
            sum.sent += counters.sent;
            sum.lost += counters.lost;
            sum.double_effects += counters.double_effects;
            sum.redelivered += counters.redelivered;
            sum.kills += counters.kills;
            sum.unfinished |= counters.unfinished;
        }
        let Counters { sent, lost, double_effects, redelivered, kills, unfinished } = sum;
        let of_all = |what: fn(&Ending) -> u64| -> u64 {
            self.runs().filter_map(|run| run.as_ref().ok()).map(what).sum()
        };
        let summary = Summary {
            lost,
            double_effects,
            order_violations: of_all(|ending| out_of_order(&ending.verdict)),
            broken: self.broken(),
            sent,
            messages: sent,
            kills,
            server_kills: of_all(|ending| ending.server_kills),
            cuts: of_all(|ending| ending.cuts),
            drops: of_all(|ending| ending.drops),
            starved: of_all(|ending| ending.starved),
            left_in_transaction: of_all(|ending| ending.left_in_transaction),
            redelivered,
            unfinished,
            sabotage_caught: self.tried.iter().filter(|tried| tried.good()).count(),
            sabotage_total: self.tried.len(),
            seed: self.plan.seed,
            commit: self.commit.clone(),
            server: self.server.clone(),
        };
        serde_json::to_string(&summary).unwrap_or_default()
    }
}

impl Results {
    fn broken(&self) -> Vec<String> {
        let endings = self.runs().filter_map(|run| run.as_ref().ok());
        let broken = endings.flat_map(|ending| ending.verdict.broken());
        let names: BTreeSet<_> = broken.map(|finding| format!("{:?}", finding.invariant)).collect();
        names.into_iter().collect()
    }
}

/// Offsets that were skipped, doubled or read twice.
fn out_of_order(verdict: &Verdict) -> u64 {
    let log = verdict.findings.iter().filter(|finding| finding.invariant == Invariant::I6);
    log.map(|finding| finding.breaches).sum()
}

fn print_run(ending: &Ending) {
    for finding in &ending.verdict.findings {
        println!("{finding}");
    }
    for fault in &ending.faults {
        println!("wrong: {fault}");
    }
    let Ending { server_kills, cuts, drops, starved, .. } = ending;
    if *starved != 0 {
        println!("{starved} calls found no connection");
    }
    if server_kills + cuts + drops != 0 {
        println!(
            "the server was killed {server_kills} times, {cuts} connections were cut, {drops} calls given up"
        );
    }
    let Counters { sent, lost, double_effects, redelivered, kills, .. } = &ending.verdict.counters;
    println!(
        "{lost} lost of {sent} over {kills} kills, {double_effects} double effects, {redelivered} redelivered"
    );
    if let Some(stall) = ending.longest_stall {
        println!("at most {stall:.1?} from a death to the takeover of what it left");
    }
    if ending.verdict.held() && BOUND_FROM <= *kills {
        // No failure in n independent rounds: the chance of one in a round is below 3/n, with 95 % confidence.
        let bound = 100.0 * 3.0 / *kills as f64;
        println!("no failure in {kills} rounds: with 95 % confidence, less than {bound:.1} % of rounds fail");
    }
}

pub(crate) fn print_control(tried: &Tried) {
    let Tried { name, caught, caught_by, wrong, took } = tried;
    let by = caught_by.clone();
    let by = if by.is_empty() { "nothing".to_owned() } else { by.join(", ") };
    let said = if *caught { "caught" } else { "NOT CAUGHT" };
    println!("control {name}: {said}, broken: {by}, in {took:.0?}");
    for line in wrong {
        println!("  {line}");
    }
}

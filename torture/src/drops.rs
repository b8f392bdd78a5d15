//! The run of calls that are given up: a process sends and asks, drops most of its calls before their answer, and
//! stays; others work on what it sent. Nothing that was answered may be lost, and no connection may be left in a
//! transaction.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::child::Notice;
use crate::plan::Plan;
use crate::server::Server;
use crate::stage::{Ending, Stage};
use crate::wire::Report;
use crate::worker::Setup;

const WORKERS: usize = 2;

/// How long the calls may take, and how much longer for each thousand.
const CALLS_LIMIT: Duration = Duration::from_secs(60);
const CALLS_LIMIT_PER_THOUSAND: Duration = Duration::from_secs(4);

/// Runs it in `dir`.
pub(crate) fn run(server: &Arc<Server>, dir: &Path, plan: Plan) -> Outcome<Ending> {
    let stage = Stage::set(server, dir, plan.seed, &["F11", "F25"], None)?;
    let mut children = Vec::new();
    for _ in 0..WORKERS {
        children.push(stage.worker(Setup::default())?);
    }
    children.push(stage.dropper(plan.drops, plan.seed)?);
    let limit =
        CALLS_LIMIT + CALLS_LIMIT_PER_THOUSAND * u32::try_from(plan.drops / 1_000).unwrap_or(u32::MAX);
    let until = Instant::now() + limit;
    let drops = loop {
        match stage.notice(Duration::from_millis(500)) {
            Some(Notice::Report(_, Report::Dropped { drops })) => break drops,
            Some(Notice::Ended(node)) => return Err(format!("process {node} ended by itself").into()),
            _ if until < Instant::now() => return Err("the calls were not made in time".into()),
            _ => {}
        }
    };
    eprintln!("{drops} of {} calls were given up; waiting for the backlog", plan.drops);
    let drained = stage.drained(limit, |_| Ok(()))?;
    let mut ending = stage.close(children)?;
    ending.drops = drops;
    if ending.verdict.counters.sent == 0 {
        ending.faults.push("no call was answered".to_owned());
    }
    if !drained {
        ending.faults.push("the backlog was not worked off in time".to_owned());
    }
    Ok(ending)
}

//! `millpond worker drain` and `millpond worker restart`: wishes, which a worker hears with its next heartbeat.

use std::process::ExitCode;

use millpond::Pond;
use millpond::view::Wish;
use serde::Serialize;

use super::view::State;
use super::{all, find};
use crate::act::{Reason, act};
use crate::bulk::ask;
use crate::exit::{Done, Exit, Failure};
use crate::output::counted;
use crate::{Context, open};

/// Which workers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Their ids, or the beginnings of them
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Every worker that lives
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Take the wish back
    #[arg(long)]
    undo: bool,
    /// With --all: do it without asking
    #[arg(short, long)]
    yes: bool,
    /// Show who would be told, and tell nobody
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reason: Reason,
}

pub(super) const DRAIN_EXAMPLES: &str = "\
It hears of it with its next heartbeat, within a third of its lease, and works again after --undo.

Examples:
  millpond worker drain web-1 --reason 'replacing the host'
  millpond worker drain web-1 --undo
  millpond worker drain --all --yes";

pub(super) const RESTART_EXAMPLES: &str = "\
It hears of it with its next heartbeat, within a third of its lease; what it has in hand is finished first, as far as its
own limit allows.

Examples:
  millpond worker restart web-1
  millpond worker restart --all --yes --reason 'a new release'";

/// Who was told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    wish: Option<&'static str>,
    workers: Vec<String>,
    count: u64,
    dry_run: bool,
}

/// Tells workers to lease nothing more.
pub(super) async fn drain(args: Args, context: &Context) -> Done {
    run(Wish::Drain, "worker drain", args, context).await
}

/// Tells workers to stop.
pub(super) async fn restart(args: Args, context: &Context) -> Done {
    run(Wish::Restart, "worker restart", args, context).await
}

async fn run(wish: Wish, verb: &str, args: Args, context: &Context) -> Done {
    let Args { ids, all: everybody, undo, yes, dry_run, reason } = args;
    if ids.is_empty() && !everybody {
        let tried = format!("refused to {} every worker", wish.as_str());
        let advice = "name a worker, or say --all";
        return Err(Failure::new(Exit::Refused, "invalid-parameter", tried).advice(advice));
    }
    let pond = open::to_write(context.config.store()).await?;
    let workers = chosen(&pond, &ids).await?;
    let wanted = (!undo).then_some(wish);
    let mut told = Told { wish: wanted.map(Wish::as_str), workers, count: 0, dry_run };
    if dry_run {
        told.count = told.workers.len() as u64;
    } else {
        if everybody && !yes && !told.workers.is_empty() {
            let count = told.workers.len() as u64;
            ask(&format!("{} {}", wish.as_str(), counted(count, "worker")), "", count)?;
        }
        let names: Vec<Option<String>> = match everybody {
            true => vec![None],
            false => told.workers.iter().cloned().map(Some).collect(),
        };
        for name in names {
            let object = name.clone().unwrap_or_else(|| "all".to_owned());
            let verb = if undo { format!("{verb} --undo") } else { verb.to_owned() };
            let act = act(&verb, object, reason.reason.clone());
            told.count += pond.store().steer(name, wanted, act).await?;
        }
    }
    say(&told, wish, undo, context)?;
    pond.close().await;
    Ok(ExitCode::SUCCESS)
}

/// The workers of these ids, which must live; of no ids, every one that lives.
async fn chosen(pond: &Pond, ids: &[String]) -> Result<Vec<String>, Failure> {
    let workers = all(pond).await?;
    let mut chosen = Vec::new();
    for id in ids {
        let worker = find(&workers, id)?;
        if worker.state != State::Live {
            let tried = format!("worker `{}` does not live", worker.worker_id);
            let failure = Failure::new(Exit::NotFound, "not-found", tried);
            return Err(failure.advice("`millpond worker list --state live` shows who does"));
        }
        chosen.push(worker.worker_id.clone());
    }
    if ids.is_empty() {
        chosen.extend(workers.into_iter().filter(|w| w.state == State::Live).map(|w| w.worker_id));
    }
    Ok(chosen)
}

fn say(told: &Told, wish: Wish, undo: bool, context: &Context) -> Result<(), Failure> {
    let what = match (wish, undo) {
        (_, true) => "to go on as before",
        (Wish::Drain, false) => "to lease nothing more",
        (Wish::Restart, false) => "to restart",
    };
    context.output.one(told, &told.workers.join("\n"), |_| {
        let count = counted(told.count, "worker");
        match (told.count, told.dry_run) {
            (0, _) => "no worker lives".to_owned(),
            (_, true) => format!("would tell {count} {what}: {}", told.workers.join(", ")),
            (_, false) => format!("told {count} {what}: {}", told.workers.join(", ")),
        }
    })?;
    Ok(())
}

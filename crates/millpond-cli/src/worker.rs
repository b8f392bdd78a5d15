//! `millpond worker`: who works, and telling them to stop.

mod steer;
mod view;

use std::process::ExitCode;

use millpond::Pond;
use millpond::text::nearest;

use crate::exit::{Done, Exit, Failure};
use crate::{Context, open};
use view::{COLUMNS, Shown};

/// What can be done with workers.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Workers with what they listen to, newest heartbeat first
    #[command(alias = "ls", after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// One worker with everything it says of itself
    #[command(after_help = "Example:\n  millpond worker show web-1")]
    Show(ShowArgs),
    /// Tell a worker to lease nothing more and to stay: what it has in hand goes on
    #[command(after_help = steer::DRAIN_EXAMPLES)]
    Drain(steer::Args),
    /// Tell a worker to stop as on a signal, so that whoever started it starts it again
    #[command(after_help = steer::RESTART_EXAMPLES)]
    Restart(steer::Args),
}

const LIST_EXAMPLES: &str = "\
Examples:
  millpond worker list
  millpond worker list --queue mail --state live";

/// Which workers.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Those that listen to this queue
    #[arg(long)]
    queue: Option<String>,
    /// Those in this state
    #[arg(long, value_enum)]
    state: Option<view::State>,
}

/// Which worker.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Its id, or the beginning of it if no other begins like this
    id: String,
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::List(args) => list(args, context).await,
        Verb::Show(args) => show(args, context).await,
        Verb::Drain(args) => steer::drain(args, context).await,
        Verb::Restart(args) => steer::restart(args, context).await,
    }
}

async fn list(args: ListArgs, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    if let Some(name) = &args.queue {
        crate::queue::must_be_declared(&pond, name).await?;
    }
    let mut workers = all(&pond).await?;
    workers.retain(|worker| {
        let listens = args.queue.as_ref().is_none_or(|queue| worker.queues.contains(queue));
        listens && args.state.is_none_or(|state| worker.state == state)
    });
    let none = "no workers; `millpond work QUEUE --exec PROGRAM` starts one";
    context.output.list(&workers, &COLUMNS, none)?;
    Ok(ExitCode::SUCCESS)
}

async fn show(args: ShowArgs, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let workers = all(&pond).await?;
    let worker = find(&workers, &args.id)?;
    context.output.one(worker, &worker.worker_id, |times| worker.text(times))?;
    Ok(ExitCode::SUCCESS)
}

/// Every worker that the store remembers.
async fn all(pond: &Pond) -> Result<Vec<Shown>, Failure> {
    let provider = pond.store().capabilities().store;
    let now = pond.store().now().await?;
    let workers = pond.store().workers().await?;
    Ok(workers.into_iter().map(|view| Shown::new(view, now, provider)).collect())
}

/// The worker of this id, or the only one whose id begins like this.
fn find<'a>(workers: &'a [Shown], id: &str) -> Result<&'a Shown, Failure> {
    if let Some(worker) = workers.iter().find(|worker| worker.worker_id == id) {
        return Ok(worker);
    }
    let begins: Vec<&Shown> = workers.iter().filter(|worker| worker.worker_id.starts_with(id)).collect();
    match begins[..] {
        [one] => Ok(one),
        [] => {
            let known: Vec<&str> = workers.iter().map(|worker| worker.worker_id.as_str()).collect();
            let failure = Failure::new(Exit::NotFound, "not-found", format!("there is no worker `{id}`"));
            let near = nearest(id, &known).into_iter();
            let failure = near.fold(failure, |failure, near| failure.why(format!("did you mean `{near}`?")));
            Err(failure.advice("`millpond worker list` shows who works"))
        }
        _ => {
            let tried = format!("{} workers begin with `{id}`", begins.len());
            let shown: Vec<&str> = begins.iter().take(3).map(|worker| worker.worker_id.as_str()).collect();
            let more = if 3 < begins.len() { ", …" } else { "" };
            Err(Failure::usage(tried).why(shown.join(", ") + more).advice("write more of its id"))
        }
    }
}

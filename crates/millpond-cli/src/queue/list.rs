//! `millpond queue list` and `millpond queue show`.

use std::process::ExitCode;

use millpond::view::WorkerView;
use millpond_core::hints::is_live;
use serde::Serialize;

use super::look_at;
use super::view::{COLUMNS, Shown};
use crate::exit::Done;
use crate::output::clean;
use crate::{Context, open, output};

pub(super) const LIST_EXAMPLES: &str = "\
`oldest` is how long the oldest ready message waits.

Examples:
  millpond queue list
  millpond queue list -o csv";

pub(super) const SHOW_EXAMPLES: &str = "\
Examples:
  millpond queue show mail
  millpond queue show mail --json | jq .pausedBy";

/// Which queue.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The name of the queue
    name: String,
}

/// A queue with who listens to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    #[serde(flatten)]
    queue: Shown,
    workers: Vec<String>,
}

/// All queues.
pub(super) async fn list(context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let now = pond.store().now().await?;
    let queues: Vec<Shown> =
        pond.store().queues().await?.into_iter().map(|view| Shown::new(view, now)).collect();
    context.output.list(&queues, &COLUMNS, "no queues yet; `millpond queue add NAME` makes one")?;
    Ok(ExitCode::SUCCESS)
}

/// One queue.
pub(super) async fn show(args: ShowArgs, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let view = look_at(&pond, &args.name).await?;
    let now = pond.store().now().await?;
    let listens = |worker: &WorkerView| is_live(worker, now) && worker.queues.contains(&args.name);
    let workers = pond.store().workers().await?.into_iter().filter(listens).map(|worker| worker.id).collect();
    let detail = Detail { queue: Shown::new(view, now), workers };
    context.output.one(&detail, &args.name, |times| {
        let counts = output::table(std::slice::from_ref(&detail.queue), &COLUMNS, times);
        let listeners: String = detail.workers.iter().map(|id| format!("listener {}\n", clean(id))).collect();
        format!("{counts}\n{listeners}{}", detail.queue.text(times))
    })?;
    Ok(ExitCode::SUCCESS)
}

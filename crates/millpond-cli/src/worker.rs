//! `millpond worker`: who works.

use std::process::ExitCode;

use millpond::Timestamp;
use millpond::view::WorkerView;
use serde::Serialize;

use crate::exit::Done;
use crate::output::Column;
use crate::{Context, instant, open};

/// What can be done with workers.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Workers with what they listen to, newest heartbeat first
    #[command(alias = "ls", after_help = "Examples:\n  millpond worker list\n  millpond worker list -o json")]
    List,
}

/// A worker, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    id: String,
    state: &'static str,
    host: String,
    queues: Vec<String>,
    slots: u32,
    busy: u32,
    #[serde(serialize_with = "instant::serialize")]
    started_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    seen_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    lease_until: Timestamp,
    error: Option<String>,
}

const COLUMNS: [Column<Shown>; 7] = [
    Column::new("id", |row, _| row.id.clone()),
    Column::new("state", |row, _| row.state.to_owned()),
    Column::new("queues", |row, _| row.queues.join(",")),
    Column::new("busy", |row, _| format!("{}/{}", row.busy, row.slots)),
    Column::new("started", |row, times| times.show(row.started_at)),
    Column::new("seen", |row, times| times.show(row.seen_at)),
    Column::new("error", |row, _| row.error.clone().unwrap_or_default()),
];

/// Runs a verb.
pub(crate) async fn run(Verb::List: Verb, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let now = pond.store().now().await?;
    let workers: Vec<Shown> =
        pond.store().workers().await?.into_iter().map(|view| shown(view, now)).collect();
    let none = "no workers yet; `millpond work QUEUE --exec PROGRAM` starts one";
    context.output.list(&workers, &COLUMNS, none)?;
    Ok(ExitCode::SUCCESS)
}

/// A worker is live while its lease lasts; one that is silent beyond it lost its messages to others.
fn shown(view: WorkerView, now: Timestamp) -> Shown {
    let state = match (view.stopped, now < view.lease_until) {
        (true, _) => "stopped",
        (false, true) => "live",
        (false, false) => "lost",
    };
    let WorkerView { id, host, queues, slots, busy, started_at, seen_at, lease_until, error, .. } = view;
    Shown { id, state, host, queues, slots, busy, started_at, seen_at, lease_until, error }
}

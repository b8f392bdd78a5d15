//! `millpond outbox summary`.

use std::process::ExitCode;

use millpond::Timestamp;
use serde::Serialize;

use crate::exit::Done;
use crate::output::Column;
use crate::{Context, instant, open, span};

/// There is nothing to choose.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Rows that are due and not moved are late: no live worker relays them.\n\nExample:\n  millpond outbox summary"
)]
pub(crate) struct Args {}

/// The outbox towards one queue, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    destination: String,
    rows: u64,
    due_rows: u64,
    #[serde(serialize_with = "instant::serialize_if")]
    oldest_due: Option<Timestamp>,
    oldest_due_age_seconds: Option<u64>,
    #[serde(serialize_with = "instant::serialize_if")]
    next_due: Option<Timestamp>,
    most_attempts: u32,
}

const COLUMNS: [Column<Shown>; 6] = [
    Column::text("queue", |row, _| row.destination.clone()),
    Column::new("waiting", |row, _| row.rows.to_string()),
    Column::new("due", |row, _| row.due_rows.to_string()),
    Column::new("late by", |row, _| {
        span::short_if(row.oldest_due_age_seconds.map(std::time::Duration::from_secs))
    }),
    Column::new("next due", |row, times| times.show_if(row.next_due)),
    Column::new("most attempts", |row, _| row.most_attempts.to_string()),
];

/// Sums it up.
pub(super) async fn run(Args {}: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let now = pond.store().now().await?;
    let summary = pond.store().outbox_summary().await?.into_iter().map(|row| Shown {
        destination: row.queue,
        rows: row.rows,
        due_rows: row.due,
        oldest_due: row.oldest_due,
        oldest_due_age_seconds: row.oldest_due.map(|due| now.since(due).as_secs()),
        next_due: row.next_due,
        most_attempts: row.attempts_max,
    });
    context.output.list(&summary.collect::<Vec<_>>(), &COLUMNS, "nothing waits")?;
    Ok(ExitCode::SUCCESS)
}

//! `millpond events trends`: what happened on each day.

use std::process::ExitCode;

use millpond::Timestamp;
use millpond::view::Tallies;
use serde::Serialize;

use crate::exit::Done;
use crate::output::{Column, table};
use crate::trend::{self, Item};
use crate::{Context, open, queue};

/// Of what.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond events trends
  millpond events trends --days 30 --zone Europe/Madrid --queue mail
  millpond events trends --kind mail.welcome -o csv

A day runs from midnight to midnight of its zone, also when it has 23 or 25 hours. Today is the last.")]
pub(crate) struct Args {
    /// How many days, today included
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=90))]
    days: u16,
    /// The time zone of the days, such as Europe/Madrid
    #[arg(long, value_name = "NAME", default_value = "UTC")]
    zone: String,
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
}

/// The days, in the words of the HTTP API.
#[derive(Debug, Serialize)]
struct Trend {
    days: u16,
    timezone: String,
    items: Vec<Item>,
}

const COLUMNS: [Column<Item>; 8] = [
    Column::new("date", |row, _| row.date.clone()),
    Column::new("total", |row, _| row.total.to_string()),
    Column::new("enqueue", |row, _| row.enqueue.to_string()),
    Column::new("start", |row, _| row.start.to_string()),
    Column::new("success", |row, _| row.success.to_string()),
    Column::new("retry", |row, _| row.retry.to_string()),
    Column::new("dlq", |row, _| row.dlq.to_string()),
    Column::new("recover", |row, _| row.recover.to_string()),
];

/// Counts.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let zone = trend::zone(&args.zone)?;
    let pond = open::existing(context.config.store()).await?;
    if let Some(queue) = &args.queue {
        queue::must_be_declared(&pond, queue).await?;
    }
    let days = trend::days(pond.store().now().await?, args.days, &zone).map_err(trend::beyond)?;
    let end = |at: Option<Timestamp>| at.unwrap_or_default();
    let (from, to) = (end(days.first().map(|day| day.from)), end(days.last().map(|day| day.to)));
    let which = Tallies { queue: args.queue, kind: args.kind, from, to, by_minute: false };
    let items = trend::items(&days, &pond.store().tallies(which).await?);
    if context.output.is_json() {
        let trend = Trend { days: args.days, timezone: args.zone, items };
        context.output.one(&trend, "", |times| table(&trend.items, &COLUMNS, times))?;
    } else {
        context.output.list(&items, &COLUMNS, "")?;
    }
    Ok(ExitCode::SUCCESS)
}

//! `millpond events rates`: what happened in each minute.

use std::process::ExitCode;
use std::time::Duration;

use millpond::Timestamp;
use millpond::view::{Tallies, Tally};
use serde::Serialize;

use crate::exit::Done;
use crate::output::Column;
use crate::trend::{MINUTE, minute};
use crate::{Context, instant, open, queue, span};

/// Of what.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond events rates
  millpond events rates --queue mail --minutes 180
  millpond events rates -o csv > rates.csv

The last line is the minute under way. Counters by the minute are kept for 24 hours.")]
pub(crate) struct Args {
    /// How many minutes, the one under way included
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=1440))]
    minutes: u16,
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
}

/// A minute.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Minute {
    #[serde(serialize_with = "instant::serialize")]
    at: Timestamp,
    enqueue: u64,
    start: u64,
    success: u64,
    retry: u64,
    dlq: u64,
    recover: u64,
    /// How long a run that ended in it took, on average.
    run_ms: Option<u64>,
}

const COLUMNS: [Column<Minute>; 8] = [
    Column::new("at", |row, times| times.show(row.at)),
    Column::new("enqueue", |row, _| row.enqueue.to_string()),
    Column::new("start", |row, _| row.start.to_string()),
    Column::new("success", |row, _| row.success.to_string()),
    Column::new("retry", |row, _| row.retry.to_string()),
    Column::new("dlq", |row, _| row.dlq.to_string()),
    Column::new("recover", |row, _| row.recover.to_string()),
    Column::new("run", |row, _| span::short_if(row.run_ms.map(Duration::from_millis))),
];

impl From<Tally> for Minute {
    fn from(tally: Tally) -> Self {
        let ended = tally.done + tally.retried + tally.dead;
        let run = span::millis(tally.run);
        Self {
            at: tally.at,
            enqueue: tally.sent,
            start: tally.leased,
            success: tally.done,
            retry: tally.retried,
            dlq: tally.dead,
            recover: tally.recovered,
            run_ms: run.checked_div(ended),
        }
    }
}

/// Counts.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    if let Some(queue) = &args.queue {
        queue::must_be_declared(&pond, queue).await?;
    }
    let to = minute(pond.store().now().await?) + MINUTE;
    let from = to - MINUTE * u32::from(args.minutes);
    let which = Tallies { queue: args.queue, kind: args.kind, from, to, by_minute: true };
    let minutes: Vec<Minute> = pond.store().tallies(which).await?.into_iter().map(Minute::from).collect();
    context.output.list(&minutes, &COLUMNS, "")?;
    Ok(ExitCode::SUCCESS)
}

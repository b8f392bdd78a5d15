//! `millpond dead-letter list`.

use std::process::ExitCode;

use millpond::view::{Count, DeadLetterView, Find};
use millpond::{MessageId, Timestamp};
use serde::Serialize;

use super::Filter;
use crate::exit::Done;
use crate::message::Body;
use crate::output::{Column, note};
use crate::{Context, instant, open, queue};

/// Most rows of one list: each comes with its body.
const LIMIT_MAX: u64 = 1_000;

/// Which, and how many.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  millpond dead-letter list --queue mail --reason exhausted")]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Rows at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=LIMIT_MAX))]
    limit: u64,
}

/// A dead letter, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    id: MessageId,
    queue: String,
    kind: String,
    key: Option<String>,
    reason: String,
    detail: Option<String>,
    attempt: u32,
    #[serde(serialize_with = "instant::serialize")]
    sent_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    died_at: Timestamp,
    content_type: String,
    #[serde(flatten)]
    body: Body,
}

const COLUMNS: [Column<Shown>; 7] = [
    Column::new("id", |row, _| row.id.to_string()),
    Column::new("queue", |row, _| row.queue.clone()),
    Column::new("kind", |row, _| row.kind.clone()),
    Column::new("reason", |row, _| row.reason.clone()),
    Column::new("attempt", |row, _| row.attempt.to_string()),
    Column::new("died", |row, times| times.show(row.died_at)),
    Column::new("detail", |row, _| row.detail.clone().unwrap_or_default()),
];

impl From<DeadLetterView> for Shown {
    fn from(view: DeadLetterView) -> Self {
        Self {
            id: view.id,
            queue: view.queue,
            kind: view.kind,
            key: view.key,
            reason: view.reason,
            detail: view.detail,
            attempt: view.attempt,
            sent_at: view.sent_at,
            died_at: view.died_at,
            body: Body::of(&view.content_type, view.body),
            content_type: view.content_type,
        }
    }
}

/// Lists.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    if let Some(name) = &args.filter.queue {
        queue::must_be_declared(&pond, name).await?;
    }
    let rows_max = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let find =
        Find { query: args.filter.into_query(), rows_max, bodies: true, count: Count::All, after: None };
    let found = pond.store().dead_letters(find).await?;
    let shown: Vec<Shown> = found.items.into_iter().map(Shown::from).collect();
    context.output.list(&shown, &COLUMNS, "no dead letters")?;
    let count = found.matched;
    if (shown.len() as u64) < count {
        note(&format!("{} of {count} dead letters; --limit shows more", shown.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

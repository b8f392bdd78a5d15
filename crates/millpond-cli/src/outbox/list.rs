//! `millpond outbox list`.

use std::process::ExitCode;

use millpond::query::Subject;
use millpond::view::OutboxRow;
use millpond::{MessageId, Timestamp};
use serde::Serialize;

use crate::exit::Done;
use crate::filter::Filter;
use crate::message::Sent;
use crate::output::Column;
use crate::paging::{Paging, page_of, say_what_is_missing};
use crate::{Context, instant, open};

/// Which, and how many.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    paging: Paging,
    /// Bodies and headers too
    #[arg(long)]
    bodies: bool,
}

const EXAMPLES: &str = "\
Fields of a filter: queue kind key id reason error attempt due sent age header.NAME body.PATH.

Examples:
  millpond outbox list queue:mail
  millpond outbox list 'reason:retry due:<+10m'
  millpond outbox list 'attempt:>3' -o id";

/// A row, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    id: MessageId,
    queue: String,
    job_name: String,
    subscription: Option<String>,
    key: Option<String>,
    reason: String,
    #[serde(serialize_with = "instant::serialize")]
    available_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    since: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    created_at: Timestamp,
    attempts: u32,
    error_summary: Option<String>,
    #[serde(flatten)]
    sent: Option<Sent>,
}

const COLUMNS: [Column<Shown>; 8] = [
    Column::new("id", |row, _| row.id.to_string()),
    Column::text("queue", |row, _| row.queue.clone()),
    Column::optional(Column::text("kind", |row, _| row.job_name.clone())),
    Column::optional(Column::text("key", |row, _| row.key.clone().unwrap_or_default())),
    Column::optional(Column::new("reason", |row, _| row.reason.clone())),
    Column::new("due", |row, times| times.show(row.available_at)),
    Column::optional(Column::new("attempts", |row, _| row.attempts.to_string())),
    Column::text("error", |row, _| row.error_summary.clone().unwrap_or_default()),
];

/// Lists.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { filter, paging, bodies } = args;
    let pond = open::existing(context.config.store()).await?;
    let chosen = filter.read(Subject::Outbox, None, &pond, context).await?;
    let found = pond.store().outbox(paging.find(chosen.query, bodies)).await?;
    let page = page_of(&found);
    say_what_is_missing(&found, "messages", "queue:, reason: or due:")?;
    let shown: Vec<Shown> = found.items.into_iter().map(|row| shown(row, bodies)).collect();
    context.output.page(&shown, &COLUMNS, "nothing waits", &page)?;
    Ok(ExitCode::SUCCESS)
}

fn shown(row: OutboxRow, bodies: bool) -> Shown {
    let sent = bodies.then(|| Sent::of(row.headers, row.content_type, row.body));
    Shown {
        id: row.id,
        queue: row.queue,
        job_name: row.kind,
        subscription: None,
        key: row.key,
        reason: row.reason,
        available_at: row.ready_at,
        since: row.since,
        created_at: row.sent_at,
        attempts: row.attempt,
        error_summary: row.error,
        sent,
    }
}

//! `millpond message list`.

use std::process::ExitCode;

use millpond::query::Subject;
use millpond::view::MessageRow;
use millpond::{MessageId, Timestamp};
use serde::Serialize;

use super::Sent;
use crate::exit::Done;
use crate::filter::Filter;
use crate::output::{Column, Times};
use crate::paging::{Paging, page_of, say_what_is_missing};
use crate::{Context, instant, open, span};

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
A blank between conditions is AND, a comma within one is OR, `-` before one negates it (then put `--` before the filter);
`>`, `<` and `..` compare, `*` at the end is a prefix, quotes hold blanks. Fields: queue kind key id trace worker state
reason error attempt wait run age sent due header.NAME body.PATH. States: scheduled retrying ready leased done dead
cancelled.

Examples:
  millpond message list queue:mail
  millpond message list 'queue:mail state:retrying error:\"connection refused\"'
  millpond message list 'state:leased run:>5m' -n 200
  millpond message list 'sent:today key:customer:8*' --bodies -o ndjson
  millpond message list 'queue:mail state:retrying' -o id";

/// A message, in the words of `message get`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    id: MessageId,
    queue: String,
    state: &'static str,
    kind: String,
    key: Option<String>,
    priority: u8,
    attempt: u32,
    attempts_max: Option<u32>,
    #[serde(serialize_with = "instant::serialize_if")]
    retry_until: Option<Timestamp>,
    #[serde(serialize_with = "instant::serialize")]
    sent_at: Timestamp,
    #[serde(serialize_with = "instant::serialize_if")]
    ready_at: Option<Timestamp>,
    wait_ms: Option<u64>,
    run_ms: Option<u64>,
    reason: Option<String>,
    error: Option<String>,
    worker: Option<String>,
    #[serde(flatten)]
    sent: Option<Sent>,
}

/// The columns of a list.
pub(crate) const COLUMNS: [Column<Row>; 11] = [
    Column::new("id", |row, _| row.id.to_string()),
    Column::text("queue", |row, _| row.queue.clone()),
    Column::optional(Column::text("kind", |row, _| row.kind.clone())),
    Column::optional(Column::text("key", |row, _| row.key.clone().unwrap_or_default())),
    Column::new("state", |row, _| row.state.to_owned()),
    Column::new("attempt", |row, _| row.attempts()),
    Column::optional(Column::new("sent", |row, times| times.show(row.sent_at))),
    Column::optional(Column::new("wait", |row, _| span(row.wait_ms))),
    Column::optional(Column::new("run", |row, _| span(row.run_ms))),
    Column::text("error", |row, _| row.error.clone().or_else(|| row.reason.clone()).unwrap_or_default()),
    Column::optional(Column::text("worker", |row, _| row.worker.clone().unwrap_or_default())),
];

fn span(ms: Option<u64>) -> String {
    span::short_if(ms.map(std::time::Duration::from_millis))
}

impl Row {
    /// As a store found it.
    pub(crate) fn new(row: MessageRow, bodies: bool) -> Self {
        let sent = bodies.then(|| Sent::of(row.headers, row.content_type, row.body));
        Self {
            id: row.id,
            queue: row.queue,
            state: row.state.as_str(),
            kind: row.kind,
            key: row.key,
            priority: row.priority,
            attempt: row.attempt,
            attempts_max: row.attempts_max,
            retry_until: row.retry_until,
            sent_at: row.sent_at,
            ready_at: row.ready_at,
            wait_ms: row.wait.map(span::millis),
            run_ms: row.run.map(span::millis),
            reason: row.reason,
            error: row.error,
            worker: row.worker,
            sent,
        }
    }

    /// A line for a person who follows.
    pub(crate) fn text(&self, times: &Times) -> String {
        let key = self.key.as_ref().map(|key| format!("  {key}")).unwrap_or_default();
        let body = self.sent.as_ref().map(|sent| format!("  {}", sent.body.text())).unwrap_or_default();
        let (sent, id, kind, state) = (times.show(self.sent_at), self.id, &self.kind, self.state);
        format!("{sent}  {id}  {kind}  {state}{key}{body}")
    }

    fn attempts(&self) -> String {
        match self.attempts_max {
            Some(max) => format!("{}/{max}", self.attempt),
            None => self.attempt.to_string(),
        }
    }
}

/// Lists.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { filter, paging, bodies } = args;
    let pond = open::existing(context.config.store()).await?;
    let chosen = filter.read(Subject::Message, None, &pond, context).await?;
    let found = pond.store().messages(paging.find(chosen.query, bodies)).await?;
    let page = page_of(&found);
    say_what_is_missing(&found, "messages", "queue:, state: or sent:")?;
    let shown: Vec<Row> = found.items.into_iter().map(|row| Row::new(row, bodies)).collect();
    context.output.page(&shown, &COLUMNS, "no messages match", &page)?;
    Ok(ExitCode::SUCCESS)
}

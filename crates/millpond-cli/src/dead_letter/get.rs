//! `millpond dead-letter get`.

use std::process::ExitCode;

use millpond::query::{Field, Query};
use millpond::view::{Count, EventView, Find, MessageView};
use millpond::{Code, Error, MessageId, Timestamp};
use millpond_core::reason::EventKind;
use serde::Serialize;

use super::view::{Payload, Shown};
use crate::exit::{Done, Failure};
use crate::message::Event;
use crate::output::{Column, Times, clean, table};
use crate::{Context, instant, message, open};

/// Entries of its run log that are shown.
const EVENTS_MAX: usize = 20;

/// Which one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  millpond dead-letter get 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10")]
pub(crate) struct Args {
    /// Its id, as `dead-letter list` shows it
    #[arg(value_parser = message::id)]
    id: MessageId,
}

/// A dead letter with everything that is known of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    #[serde(flatten)]
    summary: Shown,
    error_detail: Option<String>,
    attempt_errors: Vec<AttemptError>,
    events: Vec<Event>,
}

/// How an attempt failed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptError {
    attempt: u32,
    #[serde(serialize_with = "instant::serialize")]
    at: Timestamp,
    worker_id: Option<String>,
    error: Option<String>,
}

const ERRORS: [Column<AttemptError>; 4] = [
    Column::new("attempt", |row, _| row.attempt.to_string()),
    Column::new("at", |row, times| times.show(row.at)),
    Column::text("worker", |row, _| row.worker_id.clone().unwrap_or_default()),
    Column::text("error", |row, _| row.error.clone().unwrap_or_default()),
];

/// Shows one.
pub(super) async fn run(Args { id }: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let every = ["open", "retried", "cancelled"].map(str::to_owned);
    let query = Query::default().and(Field::Id, [id.to_string()]).and(Field::Status, every);
    let find = Find { query, rows_max: 1, bodies: true, count: Count::No, after: None };
    let found = pond.store().dead_letters(find).await?.items.into_iter().next();
    let view = pond.store().message(id).await?;
    let (Some(found), Some(view)) = (found, view.as_ref()) else { return Err(missing(id, view.as_ref())) };
    let error_detail = found.detail.clone().or_else(|| view.error.clone());
    let provider = pond.store().capabilities().store;
    let mut summary = Shown::new(found, provider, true);
    // A list may leave a body out; this is about one.
    summary.payload = Some(Payload::of(view.headers.clone(), view.content_type.clone(), view.body.clone()));
    let failed = |event: &&EventView| event.kind == EventKind::Retry || event.kind == EventKind::Dlq;
    let attempt_errors = view.events.iter().filter(failed).map(|event| AttemptError {
        attempt: event.attempt,
        at: event.at,
        worker_id: event.worker.clone(),
        error: event.error.clone(),
    });
    let last = view.events.len().saturating_sub(EVENTS_MAX);
    let detail = Detail {
        summary,
        error_detail,
        attempt_errors: attempt_errors.collect(),
        events: view.events[last..].iter().cloned().map(Event::from).collect(),
    };
    context.output.one(&detail, &id.to_string(), |times| detail.text(times))?;
    Ok(ExitCode::SUCCESS)
}

/// It is not there at all, or is no dead letter.
fn missing(id: MessageId, view: Option<&MessageView>) -> Failure {
    let failure = Failure::from(Error::new(Code::MessageNotFound, format!("find dead letter `{id}`")));
    match view {
        Some(view) => failure
            .why(format!("the message is {}, and no dead letter", view.state.as_str()))
            .advice(format!("`millpond message get {id}` shows it")),
        None => failure,
    }
}

impl Detail {
    fn text(&self, times: &Times) -> String {
        let Shown { attempts, max_attempts, payload, .. } = &self.summary;
        let of = max_attempts.map(|max| format!(" of {max}")).unwrap_or_default();
        let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
        let id = |id: Option<MessageId>| id.map(|id| id.to_string()).unwrap_or_default();
        let payload = payload.as_ref();
        let lines = [
            ("id", self.summary.id.to_string()),
            ("queue", self.summary.queue.clone()),
            ("kind", self.summary.job_name.clone()),
            ("key", or_empty(&self.summary.key)),
            ("status", self.summary.status.to_owned()),
            ("reason", self.summary.reason.clone()),
            ("attempts", format!("{attempts}{of}")),
            ("sent", times.show(self.summary.created_at)),
            ("died", times.show(self.summary.failed_at)),
            ("worker", or_empty(&self.summary.locked_by)),
            ("class", or_empty(&self.summary.error_class)),
            ("fingerprint", or_empty(&self.summary.fingerprint)),
            ("sent again as", id(self.summary.retried_as)),
            ("new life of", id(self.summary.retry_of)),
            ("type", payload.map(|payload| payload.content_type.clone()).unwrap_or_default()),
            ("body", payload.map(|payload| payload.text.clone()).unwrap_or_default()),
            ("error", or_empty(&self.error_detail)),
        ];
        let known = lines.iter().filter(|(_, value)| !value.is_empty());
        let mut text: String = known.map(|(name, value)| format!("{name:<13} {}\n", clean(value))).collect();
        if !self.attempt_errors.is_empty() {
            text.push('\n');
            text.push_str(&table(&self.attempt_errors, &ERRORS, times));
        }
        text
    }
}

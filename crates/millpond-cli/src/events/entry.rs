//! An entry of the run log as it is shown.

use std::time::Duration;

use millpond::view::EventView;
use millpond::{MessageId, Timestamp};
use serde::Serialize;

use crate::output::{Column, Times};
use crate::{instant, span};

/// An entry, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    id: String,
    job_id: Option<MessageId>,
    queue: String,
    job_name: String,
    subscription: Option<String>,
    event: &'static str,
    reason: Option<String>,
    attempt: u32,
    delivery: u32,
    max_attempts: Option<u32>,
    count: u64,
    worker_id: Option<String>,
    duration_ms: Option<u64>,
    error_summary: Option<String>,
    trace_id: Option<String>,
    batch_id: Option<String>,
    retry_of: Option<MessageId>,
    #[serde(serialize_with = "instant::serialize")]
    created_at: Timestamp,
}

impl From<EventView> for Entry {
    fn from(view: EventView) -> Self {
        Self {
            id: view.id,
            job_id: view.message,
            queue: view.queue,
            job_name: view.name,
            subscription: None,
            event: view.kind.as_str(),
            reason: view.reason,
            attempt: view.attempt,
            delivery: view.delivery,
            max_attempts: None,
            count: view.count,
            worker_id: view.worker,
            duration_ms: view.run.map(span::millis),
            error_summary: view.error,
            trace_id: None,
            batch_id: None,
            retry_of: view.retry_of,
            created_at: view.at,
        }
    }
}

/// The columns of a list. The id is that of the message, for pipes.
pub(super) const COLUMNS: [Column<Entry>; 9] = [
    Column::new("job", |row, _| row.job_id.map(|id| id.to_string()).unwrap_or_default()),
    Column::new("at", |row, times| times.show(row.created_at)),
    Column::new("event", |row, _| row.event.to_owned()),
    Column::text("reason", |row, _| row.reason.clone().unwrap_or_default()),
    Column::text("queue", |row, _| row.queue.clone()),
    Column::new("attempt", |row, _| if row.attempt == 0 { String::new() } else { row.attempt.to_string() }),
    Column::new("run", |row, _| row.run()),
    Column::text("worker", |row, _| row.worker_id.clone().unwrap_or_default()),
    Column::text("error", |row, _| row.error_summary.clone().unwrap_or_default()),
];

impl Entry {
    fn run(&self) -> String {
        span::short_if(self.duration_ms.map(Duration::from_millis))
    }

    /// A line for a person who follows.
    pub(super) fn text(&self, times: &Times) -> String {
        let mut text = format!("{}  {:<7}  {}", times.show(self.created_at), self.event, self.queue);
        let mut add = |part: String| {
            text.push_str("  ");
            text.push_str(&part);
        };
        match self.job_id {
            Some(id) => add(id.to_string()),
            None => add(format!("{} messages", self.count)),
        }
        if 0 < self.attempt {
            add(format!("attempt {}", self.attempt));
        }
        if let Some(reason) = &self.reason {
            add(reason.clone());
        }
        if self.duration_ms.is_some() {
            add(format!("ran {}", self.run()));
        }
        if let Some(error) = &self.error_summary {
            add(error.clone());
        }
        text
    }
}

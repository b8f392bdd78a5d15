//! Dead letters as they are shown, in the words of the HTTP API.

use millpond::view::DeadLetterView;
use millpond::{MessageId, Timestamp};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::instant;
use crate::message::Body;
use crate::output::Column;

/// Characters of an error in a list.
const SUMMARY_CHARS_MAX: usize = 300;

/// A dead letter. Its id is that of the message.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) id: MessageId,
    job_id: MessageId,
    provider: &'static str,
    pub(super) queue: String,
    pub(super) job_name: String,
    subscription: Option<String>,
    pub(super) key: Option<String>,
    pub(super) attempts: u32,
    pub(super) max_attempts: Option<u32>,
    pub(super) reason: String,
    pub(super) error_class: Option<String>,
    pub(super) error_summary: Option<String>,
    pub(super) fingerprint: Option<String>,
    trace_id: Option<String>,
    batch_id: Option<String>,
    #[serde(serialize_with = "instant::serialize")]
    pub(super) created_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    pub(super) failed_at: Timestamp,
    pub(super) status: &'static str,
    pub(super) retried_as: Option<MessageId>,
    pub(super) retry_of: Option<MessageId>,
    pub(super) locked_by: Option<String>,
    #[serde(flatten)]
    pub(super) payload: Option<Payload>,
}

/// What was sent, where it was asked for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payload {
    pub(super) headers: Value,
    pub(super) content_type: String,
    pub(super) payload_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip)]
    pub(super) text: String,
}

impl Payload {
    /// JSON as it was sent, other text as JSON text, anything else in base64.
    pub(super) fn of(headers: Value, content_type: String, bytes: Vec<u8>) -> Self {
        let payload_bytes = bytes.len() as u64;
        let body = Body::of(&content_type, bytes);
        let text = body.text();
        let (payload, payload_base64) = match body {
            Body::Json(json) => (Some(json), None),
            Body::Text(text) => (serde_json::value::to_raw_value(&text).ok(), None),
            Body::Base64(bytes) => (None, Some(bytes)),
        };
        Self { headers, content_type, payload_bytes, payload, payload_base64, text }
    }
}

impl Shown {
    /// As a store found it.
    pub(super) fn new(view: DeadLetterView, provider: &'static str, bodies: bool) -> Self {
        let status = view.status();
        let trace_id = trace_id(&view.headers);
        let payload = bodies.then(|| Payload::of(view.headers, view.content_type, view.body));
        Self {
            id: view.id,
            job_id: view.id,
            provider,
            queue: view.queue,
            job_name: view.kind,
            subscription: None,
            key: view.key,
            attempts: view.attempt,
            max_attempts: view.attempts_max,
            reason: view.reason,
            error_class: view.class,
            error_summary: view.detail.map(|detail| summary(&detail)),
            fingerprint: view.fingerprint,
            trace_id,
            batch_id: None,
            created_at: view.sent_at,
            failed_at: view.died_at,
            status,
            retried_as: view.redriven_as,
            retry_of: view.retry_of,
            locked_by: view.worker,
            payload,
        }
    }
}

/// The columns of a list.
pub(super) const COLUMNS: [Column<Shown>; 9] = [
    Column::new("id", |row, _| row.id.to_string()),
    Column::text("queue", |row, _| row.queue.clone()),
    Column::optional(Column::text("kind", |row, _| row.job_name.clone())),
    Column::optional(Column::text("key", |row, _| row.key.clone().unwrap_or_default())),
    Column::new("reason", |row, _| row.reason.clone()),
    Column::optional(Column::new("attempts", |row, _| row.attempts.to_string())),
    Column::optional(Column::new("died", |row, times| times.show(row.failed_at))),
    Column::optional(Column::new("status", |row, _| row.status.to_owned())),
    Column::text("error", |row, _| row.error_summary.clone().unwrap_or_default()),
];

fn summary(text: &str) -> String {
    match text.char_indices().nth(SUMMARY_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} …", &text[..end]),
    }
}

/// The second part of a W3C `traceparent`.
pub(super) fn trace_id(headers: &Value) -> Option<String> {
    headers.get("traceparent")?.as_str()?.split('-').nth(1).map(str::to_owned)
}

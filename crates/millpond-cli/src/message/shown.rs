//! A message as it is shown.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millpond::view::{EventView, MessageView};
use millpond::{MessageId, Timestamp};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::output::{Column, Times, clean, table};
use crate::{instant, span};

/// Characters of a body that a table shows.
const BODY_CHARS_MAX: usize = 4_000;

/// A message, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    id: MessageId,
    queue: String,
    state: &'static str,
    #[serde(serialize_with = "instant::serialize_if")]
    since: Option<Timestamp>,
    kind: String,
    key: Option<String>,
    priority: u8,
    attempt: u32,
    attempts_max: Option<u32>,
    #[serde(serialize_with = "instant::serialize_if")]
    retry_until: Option<Timestamp>,
    releases: u32,
    #[serde(serialize_with = "instant::serialize")]
    sent_at: Timestamp,
    #[serde(serialize_with = "instant::serialize_if")]
    ready_at: Option<Timestamp>,
    reason: Option<String>,
    error: Option<String>,
    worker: Option<String>,
    #[serde(serialize_with = "instant::serialize_if")]
    lease_until: Option<Timestamp>,
    redriven_as: Option<MessageId>,
    retry_of: Option<MessageId>,
    cancel_asked: bool,
    headers: Value,
    content_type: String,
    #[serde(flatten)]
    body: Body,
    events: Vec<Event>,
}

/// A body: JSON as it was sent, else text, else base64.
#[derive(Debug, Serialize)]
pub(crate) enum Body {
    /// JSON.
    #[serde(rename = "body")]
    Json(Box<RawValue>),
    /// Text of another type.
    #[serde(rename = "body")]
    Text(String),
    /// Anything else.
    #[serde(rename = "bodyBase64")]
    Base64(String),
}

/// What was sent, in a list of which it was asked for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sent {
    headers: Value,
    content_type: String,
    #[serde(flatten)]
    pub(crate) body: Body,
}

/// An entry of the run log, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    id: String,
    event: &'static str,
    reason: Option<String>,
    attempt: u32,
    delivery: u32,
    worker_id: Option<String>,
    duration_ms: Option<u64>,
    error_summary: Option<String>,
    retry_of: Option<MessageId>,
    #[serde(serialize_with = "instant::serialize")]
    created_at: Timestamp,
}

const EVENTS: [Column<Event>; 7] = [
    Column::new("at", |event, times| times.show(event.created_at)),
    Column::new("event", |event, _| event.event.to_owned()),
    Column::new("reason", |event, _| event.reason.clone().unwrap_or_default()),
    Column::new("attempt", |event, _| match event.attempt {
        0 => String::new(),
        attempt => attempt.to_string(),
    }),
    Column::optional(Column::new("run", |event, _| {
        span::short_if(event.duration_ms.map(Duration::from_millis))
    })),
    Column::optional(Column::text("worker", |event, _| event.worker_id.clone().unwrap_or_default())),
    Column::text("error", |event, _| event.error_summary.clone().unwrap_or_default()),
];

impl Body {
    /// The form in which bytes of this type are shown.
    pub(crate) fn of(content_type: &str, bytes: Vec<u8>) -> Self {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Self::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        };
        if !content_type.contains("json") {
            return Self::Text(text);
        }
        // Line breaks of JSON are white space; as a space they fit into one line of NDJSON.
        match RawValue::from_string(text.replace(['\n', '\r'], " ")) {
            Ok(json) => Self::Json(json),
            Err(_) => Self::Text(text),
        }
    }

    /// As a person reads it.
    pub(crate) fn text(&self) -> String {
        let text = match self {
            Self::Json(json) => json.get(),
            Self::Text(text) => text,
            Self::Base64(bytes) => return format!("(not text, base64) {}", cut(bytes)),
        };
        clean(&cut(text))
    }
}

impl Sent {
    /// As a store found it.
    pub(crate) fn of(headers: Value, content_type: String, body: Vec<u8>) -> Self {
        Self { headers, body: Body::of(&content_type, body), content_type }
    }
}

impl From<MessageView> for Shown {
    fn from(view: MessageView) -> Self {
        Self {
            id: view.id,
            queue: view.queue,
            state: view.state.as_str(),
            since: view.since,
            kind: view.kind,
            key: view.key,
            priority: view.priority,
            attempt: view.attempt,
            attempts_max: view.attempts_max,
            retry_until: view.retry_until,
            releases: view.releases,
            sent_at: view.sent_at,
            ready_at: view.ready_at,
            reason: view.reason,
            error: view.error,
            worker: view.worker,
            lease_until: view.lease_until,
            redriven_as: view.redriven_as,
            retry_of: view.retry_of,
            cancel_asked: view.cancel_asked,
            headers: view.headers,
            body: Body::of(&view.content_type, view.body),
            content_type: view.content_type,
            events: view.events.into_iter().map(Event::from).collect(),
        }
    }
}

impl From<EventView> for Event {
    fn from(view: EventView) -> Self {
        Self {
            id: view.id,
            event: view.kind.as_str(),
            reason: view.reason,
            attempt: view.attempt,
            delivery: view.delivery,
            worker_id: view.worker,
            duration_ms: view.run.map(span::millis),
            error_summary: view.error,
            retry_of: view.retry_of,
            created_at: view.at,
        }
    }
}

impl Shown {
    /// What is known, line by line, then the body and the run log.
    pub(super) fn text(&self, times: &Times) -> String {
        let attempts = match self.attempts_max {
            Some(max) => format!("{} of {max}", self.attempt),
            None => self.attempt.to_string(),
        };
        let headers: Vec<String> = self
            .headers
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
            .collect();
        let since = self.since.map(|at| format!(" since {}", times.show(at))).unwrap_or_default();
        let lines = [
            ("id", self.id.to_string()),
            ("queue", self.queue.clone()),
            ("state", format!("{}{since}", self.state)),
            ("kind", self.kind.clone()),
            ("key", self.key.clone().unwrap_or_default()),
            ("attempts", attempts),
            ("retry until", times.show_if(self.retry_until)),
            ("sent", times.show(self.sent_at)),
            ("due", times.show_if(self.ready_at)),
            ("reason", self.reason.clone().unwrap_or_default()),
            ("error", self.error.clone().unwrap_or_default()),
            ("worker", self.worker.clone().unwrap_or_default()),
            ("lease until", times.show_if(self.lease_until)),
            ("redriven as", self.redriven_as.map(|id| id.to_string()).unwrap_or_default()),
            ("new life of", self.retry_of.map(|id| id.to_string()).unwrap_or_default()),
            ("stop", if self.cancel_asked { "its worker is told to stop".to_owned() } else { String::new() }),
            ("headers", headers.join(" ")),
            ("type", self.content_type.clone()),
        ];
        let known = lines.iter().filter(|(_, value)| !value.is_empty());
        let mut text: String = known.map(|(name, value)| format!("{name:<12} {}\n", clean(value))).collect();
        text.push_str(&format!("{:<12} {}\n\n", "body", self.body.text()));
        text.push_str(&table(&self.events, &EVENTS, times));
        text
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(BODY_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes; all of it with -o json)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, bytes: &[u8], json: &str) {
        assert_eq!(serde_json::to_string(&Body::of(content_type, bytes.to_vec())).unwrap(), json);
    }

    #[test]
    fn a_body_is_shown_in_the_best_form_it_has() {
        check("application/json", b"{\"b\":1,\n\"a\":1.10}", r#"{"body":{"b":1, "a":1.10}}"#);
        check("application/json", b"{", r#"{"body":"{"}"#);
        check("text/plain", b"{}", r#"{"body":"{}"}"#);
        check("image/png", b"\xff", r#"{"bodyBase64":"/w=="}"#);
    }
}

//! What a query can be asked about: rows as records, with headers and bodies read only when a query looks at them.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::Duration;

use millpond_core::query::{Field, Query, Value};
use millpond_core::time::{Timestamp, micros};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::queues::number;
use crate::reader::{Reader, Tried};

/// What a list must know of a queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueFacts {
    pub(crate) name: String,
    pub(crate) attempts_max: u32,
}

/// The queues by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Queues(HashMap<i32, QueueFacts>);

impl Queues {
    pub(crate) async fn read<R: Reader>(connection: &R) -> Tried<R, Self> {
        let facts = |queue: millpond_core::store::Queue| {
            (number(queue.id), QueueFacts { name: queue.name, attempts_max: queue.settings.attempts_max })
        };
        Ok(Self(connection.queues().await?.into_iter().map(facts).collect()))
    }

    /// Its name; empty if it is none of ours.
    pub(crate) fn name(&self, id: i32) -> &str {
        self.0.get(&id).map_or("", |queue| &queue.name)
    }

    /// Deliveries in all: a message's own number, else the queue's, unless a deadline alone ends it.
    pub(crate) fn attempts_max(&self, id: i32, own: Option<u32>, has_deadline: bool) -> Option<u32> {
        own.or_else(|| self.0.get(&id).filter(|_| !has_deadline).map(|queue| queue.attempts_max))
    }

    /// The numbers that a query leaves: all, or those that it names.
    pub(crate) fn wanted(&self, query: &Query) -> Vec<i32> {
        let only = query.only(&Field::Queue);
        let is_wanted = |name: &str| only.as_ref().is_none_or(|names| names.contains(&name));
        let mut ids: Vec<i32> =
            self.0.iter().filter(|(_, queue)| is_wanted(&queue.name)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// The one queue that a query is about, if there is one; of a query about none, no row is found.
    pub(crate) fn the_one(&self, query: &Query) -> Option<i32> {
        query.only(&Field::Queue)?;
        match self.wanted(query)[..] {
            [] => Some(0),
            [id] => Some(id),
            _ => None,
        }
    }
}

/// What a message carries.
#[derive(Debug, Default)]
pub struct Content {
    /// How its body is written.
    pub content_type: Option<String>,
    /// Their JSON.
    pub headers: Option<String>,
    /// As it was sent.
    pub body: Vec<u8>,
    names: OnceCell<Option<Json>>,
}

impl Content {
    /// Of what was stored, as far as it was read.
    pub fn new(content_type: Option<String>, headers: Option<String>, body: Vec<u8>) -> Self {
        Self { content_type, headers, body, names: OnceCell::new() }
    }

    /// Headers as they are shown.
    pub fn headers(&self) -> Json {
        self.names().cloned().unwrap_or_else(|| Json::Object(serde_json::Map::new()))
    }

    /// The value of a field of headers or body; of others there is none.
    pub fn value(&self, field: &Field) -> Value<'_> {
        match field {
            Field::Header(name) => {
                self.names().and_then(|names| names.get(name)).map_or(Value::Nothing, scalar)
            }
            Field::Body(path) => self.at(path).map_or(Value::Nothing, written),
            // The second part of what W3C calls `traceparent`.
            Field::Trace => {
                match self.names().and_then(|names| names.get("traceparent")?.as_str()?.split('-').nth(1)) {
                    Some(trace) => Value::text(Some(trace)),
                    None => Value::Nothing,
                }
            }
            _ => Value::Nothing,
        }
    }

    fn names(&self) -> Option<&Json> {
        let read = || self.headers.as_deref().and_then(|text| serde_json::from_str(text).ok());
        self.names.get_or_init(read).as_ref()
    }

    /// What stands at a path of the body, as it is written: no number of it is read, as not every number of JSON has a
    /// value here, and one that has none must not hide the rest.
    fn at(&self, path: &[String]) -> Option<&str> {
        let whole: &RawValue = serde_json::from_slice(&self.body).ok()?;
        let found = path.iter().try_fold(whole, |json, name| match json.get().as_bytes().first() {
            Some(b'{') => serde_json::from_str::<HashMap<String, &RawValue>>(json.get()).ok()?.remove(name),
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(json.get()).ok()?;
                items.get(name.parse::<usize>().ok()?).copied()
            }
            _ => None,
        });
        found.map(RawValue::get)
    }
}

/// A text as it is, numbers and truths as they are written; what has parts has no value.
fn scalar(json: &Json) -> Value<'_> {
    match json {
        Json::String(text) => Value::text(Some(text)),
        Json::Number(number) => Value::Text(Cow::Owned(number.to_string())),
        Json::Bool(truth) => Value::Text(Cow::Borrowed(if *truth { "true" } else { "false" })),
        _ => Value::Nothing,
    }
}

/// The same of JSON that nobody has read.
fn written(json: &str) -> Value<'_> {
    match json.as_bytes().first() {
        Some(b'"') => {
            serde_json::from_str(json).map_or(Value::Nothing, |text: String| Value::Text(Cow::Owned(text)))
        }
        Some(b'{' | b'[' | b'n') | None => Value::Nothing,
        _ => Value::Text(Cow::Borrowed(json)),
    }
}

/// Whether a query looks into bodies.
pub fn asks_bodies(query: &Query) -> bool {
    query.asks(|field| matches!(field, Field::Body(_)))
}

/// Whether a query looks into headers.
pub fn asks_headers(query: &Query) -> bool {
    query.asks(|field| matches!(field, Field::Header(_) | Field::Trace))
}

/// An instant, if there is one.
pub fn instant_value(at: Option<Timestamp>) -> Value<'static> {
    at.map_or(Value::Nothing, |at| Value::Number(at.as_micros()))
}

/// A duration, if there is one.
pub fn span_value(span: Option<Duration>) -> Value<'static> {
    span.map_or(Value::Nothing, |span| Value::Number(micros(span)))
}

/// A text that is made for the question.
pub fn owned(text: String) -> Value<'static> {
    Value::Text(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_bodies_have_values_by_name_and_path() {
        let headers =
            r#"{"tenant":"acme","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#;
        let body = br#"{"user":{"plan":"business","ids":[7,8]},"paid":true}"#.to_vec();
        let content = Content::new(None, Some(headers.to_owned()), body);
        let path = |path: &str| Field::Body(path.split('.').map(str::to_owned).collect());
        for (field, expected) in [
            (Field::Header("tenant".into()), Some("acme")),
            (Field::Header("other".into()), None),
            (Field::Trace, Some("4bf92f3577b34da6a3ce929d0e0e4736")),
            (path("user.plan"), Some("business")),
            (path("user.ids.1"), Some("8")),
            (path("paid"), Some("true")),
            (path("user"), None),
            (path("user.ids.x"), None),
        ] {
            let expected = expected.map_or(Value::Nothing, |text| owned(text.to_owned()));
            assert_eq!(content.value(&field), expected, "{field:?}");
        }
        assert_eq!(Content::new(None, None, b"no json".to_vec()).value(&path("user")), Value::Nothing);
    }
}

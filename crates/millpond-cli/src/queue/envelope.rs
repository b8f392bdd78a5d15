//! A line that is a message with everything said about it, as `store export` writes it and the HTTP API takes it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millpond::{Item, Raw};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::args::duration;
use crate::instant;

/// How many bytes of a line a byte of a body may take, and what may stand beside it.
pub(super) fn line_limit(body_limit: u64) -> u64 {
    const BESIDE: u64 = 256 * 1024;
    body_limit.saturating_mul(2).saturating_add(BESIDE)
}

/// What such a line says. The rest is what an export tells to people.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "there")]
    body: Option<&'a RawValue>,
    body_base64: Option<String>,
    content_type: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    at: Option<String>,
    delay: Option<String>,
    priority: Option<u8>,
    dedup_key: Option<String>,
    attempts_max: Option<u32>,
    retry_until: Option<String>,
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "queue")]
    _queue: Option<IgnoredAny>,
    #[serde(rename = "state")]
    _state: Option<IgnoredAny>,
    #[serde(rename = "attempt")]
    _attempt: Option<IgnoredAny>,
    #[serde(rename = "sentAt")]
    _sent_at: Option<IgnoredAny>,
    #[serde(rename = "reason")]
    _reason: Option<IgnoredAny>,
    #[serde(rename = "error")]
    _error: Option<IgnoredAny>,
}

/// A body that is there, though it may be `null`.
fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads a line; `with` makes an item of its body, with what flags say of every line.
pub(super) fn read(line: &[u8], with: impl FnOnce(Raw) -> Item<Raw>) -> Result<Item<Raw>, String> {
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        format!("it is no message: {what}")
    })?;
    let body = body(&envelope)?;
    let mut item = with(body);
    if let Some(kind) = envelope.kind {
        item = item.kind(kind);
    }
    if let Some(key) = envelope.key {
        item = item.key(key);
    }
    match (&envelope.at, &envelope.delay) {
        (Some(_), Some(_)) => return Err("it has both `at` and `delay`".to_owned()),
        (Some(at), None) => item = item.at(instant::parse(at)?),
        (None, Some(delay)) => item = item.delay(duration(delay)?),
        (None, None) => {}
    }
    if let Some(priority) = envelope.priority {
        item = item.priority(priority);
    }
    if let Some(key) = envelope.dedup_key {
        item = item.dedup_key(key);
    }
    if let Some(attempts) = envelope.attempts_max {
        item = item.attempts_max(attempts);
    }
    if let Some(deadline) = &envelope.retry_until {
        item = item.retry_until(instant::parse(deadline)?);
    }
    Ok(envelope.headers.into_iter().fold(item, |item, (name, value)| item.header(name, value)))
}

fn body(envelope: &Envelope<'_>) -> Result<Raw, String> {
    // JSON is what is not named otherwise, and needs no name.
    let named = envelope.content_type.clone().filter(|named| named != "application/json");
    let typed = |bytes: Vec<u8>| match named.clone() {
        Some(named) => Raw::new(named, bytes),
        None => Raw::json(bytes),
    };
    match (envelope.body, &envelope.body_base64) {
        (Some(_), Some(_)) => Err("it has both `body` and `bodyBase64`".to_owned()),
        (None, None) => Err("it has neither `body` nor `bodyBase64`".to_owned()),
        (None, Some(text)) => {
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| format!("`bodyBase64`: {error}"))?;
            Ok(typed(bytes))
        }
        (Some(json), None) => match named.as_deref().filter(|named| !named.contains("json")) {
            None => Ok(typed(json.get().as_bytes().to_vec())),
            Some(named) => {
                let why = || format!("its body is no text, but its content type is `{named}`");
                let text: String = serde_json::from_str(json.get()).map_err(|_| why())?;
                Ok(typed(text.into_bytes()))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn body_of(line: &str) -> (Option<String>, Vec<u8>) {
        let body = read(line.as_bytes(), Item::from).unwrap().body;
        (body.content_type, body.bytes)
    }

    #[test]
    fn a_body_comes_back_byte_by_byte() {
        assert_eq!(body_of(r#"{"body":{"b":1.10, "a":1}}"#), (None, b"{\"b\":1.10, \"a\":1}".to_vec()));
        assert_eq!(body_of(r#"{"body":null}"#), (None, b"null".to_vec()));
        assert_eq!(
            body_of(r#"{"contentType":"application/json","bodyBase64":"ewp9"}"#),
            (None, b"{\n}".to_vec())
        );
        let text = (Some("text/plain".to_owned()), b"a\nb".to_vec());
        assert_eq!(body_of(r#"{"contentType":"text/plain","body":"a\nb"}"#), text);
        let bytes = (Some("image/png".to_owned()), vec![0xff]);
        assert_eq!(body_of(r#"{"contentType":"image/png","bodyBase64":"/w=="}"#), bytes);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("1", "it is no message: invalid type"),
            ("{}", "neither `body` nor `bodyBase64`"),
            (r#"{"body":1,"bodyBase64":""}"#, "both `body` and `bodyBase64`"),
            (r#"{"body":1,"priorty":1}"#, "unknown field `priorty`"),
            (r#"{"body":1,"at":"+1m","delay":"1m"}"#, "both `at` and `delay`"),
            (r#"{"body":1,"delay":"5"}"#, "needs a unit"),
            (r#"{"body":1,"contentType":"text/plain"}"#, "its body is no text"),
            (r#"{"bodyBase64":"?"}"#, "`bodyBase64`"),
        ] {
            let why = read(line.as_bytes(), Item::from).map(drop).expect_err(line);
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}

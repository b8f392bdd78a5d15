//! Messages as columns: one array for each column of a multi-row insert.

use millpond_core::message::{Due, Headers, NewMessage};
use millpond_core::time::micros;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Param;

/// The columns that log and outbox share. A column in which every message has nothing is sent as null.
pub(crate) struct Columns<'m> {
    ids: Vec<Uuid>,
    checksums: Vec<i32>,
    bodies: Vec<&'m [u8]>,
    kinds: Option<Vec<Option<&'m str>>>,
    keys: Option<Vec<Option<&'m str>>>,
    content_types: Option<Vec<Option<&'m str>>>,
    headers: Option<Vec<Option<String>>>,
    attempts_max: Option<Vec<Option<i64>>>,
    retry_at: Option<Vec<Option<i64>>>,
    retry_in: Option<Vec<Option<i64>>>,
}

impl<'m> Columns<'m> {
    /// Of these messages, in this order.
    pub(crate) fn of(messages: &[&'m NewMessage]) -> Self {
        let each = || messages.iter().copied();
        Self {
            ids: each().map(|message| message.id.0).collect(),
            checksums: each().map(|message| checksum(&message.body)).collect(),
            bodies: each().map(|message| message.body.as_slice()).collect(),
            kinds: column(each().map(|message| message.kind.as_deref())),
            keys: column(each().map(|message| message.key.as_deref())),
            content_types: column(each().map(|message| message.content_type.as_deref())),
            headers: column(each().map(|message| headers_text(&message.headers))),
            attempts_max: column(each().map(|message| message.attempts_max.map(i64::from))),
            retry_at: column(each().map(|message| instant(message.retry_until))),
            retry_in: column(each().map(|message| wait(message.retry_until))),
        }
    }

    /// As parameters, in the order in which the functions take them.
    pub(crate) fn params(&self) -> [Param<'_>; 10] {
        [
            (&self.ids, Type::UUID_ARRAY),
            (&self.checksums, Type::INT4_ARRAY),
            (&self.bodies, Type::BYTEA_ARRAY),
            (&self.kinds, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&self.content_types, Type::TEXT_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.attempts_max, Type::INT8_ARRAY),
            (&self.retry_at, Type::INT8_ARRAY),
            (&self.retry_in, Type::INT8_ARRAY),
        ]
    }
}

/// A column; nothing if no row has anything in it.
pub(crate) fn column<T>(rows: impl Iterator<Item = Option<T>>) -> Option<Vec<Option<T>>> {
    let rows: Vec<Option<T>> = rows.collect();
    rows.iter().any(Option::is_some).then_some(rows)
}

/// The checksum of a body, as the database holds it.
pub(crate) fn checksum(body: &[u8]) -> i32 {
    crc32fast::hash(body).cast_signed()
}

/// The instant of a due time that names one.
pub(crate) fn instant(due: Option<Due>) -> Option<i64> {
    match due? {
        Due::At(instant) => Some(instant.as_micros()),
        Due::In(_) => None,
    }
}

/// The wait of a due time that names one; it is the database that adds it to its clock.
pub(crate) fn wait(due: Option<Due>) -> Option<i64> {
    match due? {
        Due::At(_) => None,
        // So far ahead that no clock reaches it, and still added without an overflow.
        Due::In(wait) => Some(micros(wait).min(i64::MAX / 2)),
    }
}

/// Headers as they are stored: a JSON object of texts, or nothing.
pub(crate) fn headers_text(headers: &Headers) -> Option<String> {
    (!headers.is_empty()).then(|| serde_json::json!(headers).to_string())
}

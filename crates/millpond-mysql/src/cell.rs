//! Columns of a row, as the types that the rest of the store uses.

use std::time::Duration;

use crate::row::Row;
use millpond_core::message::MessageId;
use millpond_core::time::Timestamp;
use uuid::Uuid;

/// A stored time.
pub(crate) fn instant(row: &Row, column: usize) -> Timestamp {
    Timestamp::from_micros(row.get(column))
}

/// A stored time that may be missing.
pub(crate) fn instant_if_any(row: &Row, column: usize) -> Option<Timestamp> {
    row.get::<_, Option<i64>>(column).map(Timestamp::from_micros)
}

/// A count.
pub(crate) fn count(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).unsigned_abs()
}

/// A small number, such as an attempt.
pub(crate) fn number(row: &Row, column: usize) -> u32 {
    row.get::<_, i32>(column).unsigned_abs()
}

/// A class or lane.
pub(crate) fn small(row: &Row, column: usize) -> u8 {
    row.get(column)
}

/// The number of attempts that a message has of its own.
pub(crate) fn attempts_max(row: &Row, column: usize) -> Option<u32> {
    row.get::<_, Option<i64>>(column).map(|most| u32::try_from(most).unwrap_or(u32::MAX))
}

/// The id of a message that may be missing.
pub(crate) fn id_if_any(row: &Row, column: usize) -> Option<MessageId> {
    row.get::<_, Option<Uuid>>(column).map(MessageId)
}

/// A stored run time that may be missing.
pub(crate) fn run_if_any(row: &Row, column: usize) -> Option<Duration> {
    row.get::<_, Option<i64>>(column).map(|run| Duration::from_micros(run.unsigned_abs()))
}

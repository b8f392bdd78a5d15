//! Columns of a row, as the types that the rest of the store uses.

use millpond_core::message::MessageId;
use millpond_core::time::Timestamp;
use tokio_postgres::Row;
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
    u8::try_from(row.get::<_, i16>(column)).unwrap_or(0)
}

/// The id of a message that may be missing.
pub(crate) fn id_if_any(row: &Row, column: usize) -> Option<MessageId> {
    row.get::<_, Option<Uuid>>(column).map(MessageId)
}

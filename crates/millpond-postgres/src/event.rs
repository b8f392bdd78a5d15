//! Entries of the run log that a change writes.

use millpond_core::message::MessageId;
use millpond_core::reason::EventKind;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Param;
use crate::error::Tried;
use crate::operate::Change;

/// An entry.
pub(crate) struct NewEvent<'e> {
    /// `None`: it speaks of many.
    pub(crate) message: Option<MessageId>,
    pub(crate) queue: i32,
    pub(crate) kind: EventKind,
    pub(crate) reason: &'e str,
    pub(crate) attempt: u32,
    pub(crate) releases: u32,
    pub(crate) error: Option<&'e str>,
    /// The name of the work; `None` is the queue's own.
    pub(crate) name: Option<&'e str>,
    pub(crate) count: u64,
    pub(crate) retry_of: Option<MessageId>,
}

impl<'e> NewEvent<'e> {
    /// One about a message that was never delivered, without what only some have.
    pub(crate) fn of(message: Option<MessageId>, queue: i32, kind: EventKind, reason: &'e str) -> Self {
        let (attempt, releases, count) = (0, 0, 1);
        Self {
            message,
            queue,
            kind,
            reason,
            attempt,
            releases,
            error: None,
            name: None,
            count,
            retry_of: None,
        }
    }
}

impl Change<'_> {
    /// Writes an entry.
    pub(crate) async fn event(&self, event: &NewEvent<'_>) -> Tried<()> {
        let id = |id: Option<MessageId>| -> Option<Uuid> { id.map(|id| id.0) };
        let params: [Param<'_>; 11] = [
            (&id(event.message), Type::UUID),
            (&event.queue, Type::INT4),
            (&event.kind.as_str(), Type::TEXT),
            (&event.reason, Type::TEXT),
            (&event.attempt.cast_signed(), Type::INT4),
            (&event.releases.cast_signed(), Type::INT4),
            (&event.error, Type::TEXT),
            (&self.now.as_micros(), Type::INT8),
            (&event.name, Type::TEXT),
            (&event.count.cast_signed(), Type::INT8),
            (&id(event.retry_of), Type::UUID),
        ];
        self.connection.run("event_add", &params).await.map(drop)
    }

    /// Adds to the counters of a queue and kind.
    pub(crate) async fn count(&self, queue: i32, kind: Option<&str>, sent: i32, dead: i32) -> Tried<()> {
        let params: [Param<'_>; 5] = [
            (&queue, Type::INT4),
            (&kind.unwrap_or(""), Type::TEXT),
            (&self.now.as_micros(), Type::INT8),
            (&sent, Type::INT4),
            (&dead, Type::INT4),
        ];
        self.connection.run("stat_add", &params).await.map(drop)
    }
}

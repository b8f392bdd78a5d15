//! Entries of the run log that a change writes.

use millpond_core::message::MessageId;
use millpond_core::reason::EventKind;
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
            &id(event.message),
            &event.queue,
            &event.kind.as_str(),
            &event.reason,
            &event.attempt.cast_signed(),
            &event.releases.cast_signed(),
            &event.error,
            &self.now.as_micros(),
            &event.name,
            &event.count.cast_signed(),
            &id(event.retry_of),
        ];
        self.connection.run("event_add", &params).await.map(drop)
    }

    /// Adds to the counters of a queue and kind.
    pub(crate) async fn count(&self, queue: i32, kind: Option<&str>, sent: i32, dead: i32) -> Tried<()> {
        let params: [Param<'_>; 5] = [&queue, &kind.unwrap_or(""), &self.now.as_micros(), &sent, &dead];
        self.connection.run("stat_add", &params).await.map(drop)
    }
}

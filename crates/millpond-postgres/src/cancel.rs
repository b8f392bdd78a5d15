//! Cancel: what waits dies at once, what runs is told to stop.
//!
//! The log is never changed: a message that is ready gets a mark beside its dead letter, and the lease that reaches it
//! passes it by. A message under lease gets a mark alone: its worker hears of it with its next renewal, and any end but
//! an acknowledgement makes it a dead letter. Marks are written under the claim lock, so that no lease runs past one.

use millpond_core::fingerprint::fingerprint;
use millpond_core::message::MessageId;
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::state::{Place, State};
use millpond_core::store::Changed;
use millpond_sql::find::{LogPlace, in_log};
use tokio_postgres::types::Type;

use crate::cell::{id_if_any, number};
use crate::connection::Param;
use crate::error::Tried;
use crate::event::NewEvent;
use crate::operate::Change;
use crate::queues::queue_of;

/// A message in the outbox, as far as a change must know it.
pub(crate) struct Waiting {
    pub(crate) seq: i64,
    queue: i32,
    kind: Option<String>,
    attempt: u32,
    releases: u32,
    pub(crate) state: State,
}

/// A dead letter, as far as a change must know it.
pub(crate) struct Dead {
    pub(crate) redriven_as: Option<MessageId>,
}

/// A death, as its event tells it.
struct Death<'d> {
    id: MessageId,
    queue: i32,
    kind: Option<&'d str>,
    attempt: u32,
    releases: u32,
    detail: &'d str,
}

impl Change<'_> {
    pub(crate) async fn cancel(&self, ids: &[MessageId]) -> Tried<Vec<Changed>> {
        let mut changed = Vec::with_capacity(ids.len());
        for id in ids {
            changed.push(self.cancel_one(*id).await?);
        }
        if changed.contains(&Changed::Asked) {
            // Workers look at once, and not with their next renewal.
            self.raise_declarations().await?;
        }
        let counts = |changed: &&Changed| matches!(changed, Changed::Done | Changed::Asked);
        self.audit(changed.iter().filter(counts).count() as u64).await?;
        Ok(changed)
    }

    async fn cancel_one(&self, id: MessageId) -> Tried<Changed> {
        let detail = by(&self.act.actor, self.act.reason.as_deref());
        if let Some(waiting) = self.waiting(id).await? {
            self.cancel_waiting(id, &waiting, &detail).await?;
            return Ok(Changed::Done);
        }
        if self.dead(id).await?.is_some() {
            return Ok(Changed::AlreadySettled);
        }
        let Some(found) = in_log(self.connection, id).await? else { return Ok(Changed::NotFound) };
        let partition: [Param<'_>; 1] = [(&found.partition, Type::INT4)];
        self.connection.row("claim_partition_lock", &partition).await?;
        let claim: [Param<'_>; 3] =
            [(&found.subscription, Type::INT4), (&found.partition, Type::INT4), (&found.offset, Type::INT8)];
        self.connection.row_if_any("claim_of_offset_lock", &claim).await?;
        // Looked at again behind the locks: it may have been leased or settled meanwhile.
        let Some(found) = in_log(self.connection, id).await? else { return Ok(Changed::NotFound) };
        match found.place {
            Place::Ahead => {
                self.mark(&found).await?;
                self.cancel_ready(id, &found, &detail).await?;
                Ok(Changed::Done)
            }
            // A committed effect is done, whatever its worker says later.
            Place::Claimed if !self.in_inbox(found.subscription, id).await? => {
                self.mark(&found).await?;
                Ok(Changed::Asked)
            }
            _ => Ok(Changed::AlreadySettled),
        }
    }

    async fn in_inbox(&self, subscription: i32, id: MessageId) -> Tried<bool> {
        let ids = [id.0];
        let params: [Param<'_>; 2] = [(&subscription, Type::INT4), (&&ids[..], Type::UUID_ARRAY)];
        Ok(!self.connection.rows("inbox_known", &params).await?.is_empty())
    }

    async fn mark(&self, found: &LogPlace) -> Tried<()> {
        let params: [Param<'_>; 6] = [
            (&found.subscription, Type::INT4),
            (&found.partition, Type::INT4),
            (&found.offset, Type::INT8),
            (&self.act.actor, Type::TEXT),
            (&self.act.reason, Type::TEXT),
            (&self.now.as_micros(), Type::INT8),
        ];
        self.connection.run("cancel_add", &params).await.map(drop)
    }

    async fn cancel_waiting(&self, id: MessageId, waiting: &Waiting, detail: &str) -> Tried<()> {
        let Waiting { seq, queue, attempt, releases, .. } = *waiting;
        let kind = waiting.kind.as_deref();
        let group = self.cancelled_group(queue, kind, detail).await?;
        let params: [Param<'_>; 5] = [
            (&seq, Type::INT8),
            (&DropReason::Cancelled.as_str(), Type::TEXT),
            (&detail, Type::TEXT),
            (&self.now.as_micros(), Type::INT8),
            (&group, Type::TEXT),
        ];
        self.connection.run("dead_letter_from_outbox", &params).await?;
        self.died(&Death { id, queue, kind, attempt, releases, detail }).await
    }

    async fn cancel_ready(&self, id: MessageId, found: &LogPlace, detail: &str) -> Tried<()> {
        let place: [Param<'_>; 2] = [(&found.partition, Type::INT4), (&found.offset, Type::INT8)];
        let row = self.connection.row("log_identity", &place).await?;
        let (attempt, releases) = (number(&row, 1), number(&row, 2));
        let (kind, queue): (Option<String>, i32) = (row.get(3), row.get(4));
        let group = self.cancelled_group(queue, kind.as_deref(), detail).await?;
        let params: [Param<'_>; 7] = [
            (&found.partition, Type::INT4),
            (&found.offset, Type::INT8),
            (&found.subscription, Type::INT4),
            (&DropReason::Cancelled.as_str(), Type::TEXT),
            (&detail, Type::TEXT),
            (&self.now.as_micros(), Type::INT8),
            (&group, Type::TEXT),
        ];
        self.connection.run("dead_letter_from_log", &params).await?;
        self.died(&Death { id, queue, kind: kind.as_deref(), attempt, releases, detail }).await
    }

    async fn cancelled_group(&self, queue: i32, kind: Option<&str>, detail: &str) -> Tried<String> {
        let queue = queue_of(self.connection, queue).await?.name;
        Ok(fingerprint(kind.unwrap_or(&queue), DropReason::Cancelled.as_str(), None, Some(detail)))
    }

    /// The event and the counter of a message that was cancelled before it was delivered.
    async fn died(&self, death: &Death<'_>) -> Tried<()> {
        let Death { id, queue, kind, attempt, releases, detail } = *death;
        let cancelled = NewEvent::of(Some(id), queue, EventKind::Dlq, DropReason::Cancelled.as_str());
        self.event(&NewEvent { attempt, releases, error: Some(detail), name: kind, ..cancelled }).await?;
        self.count(queue, kind, 0, 1).await
    }

    /// Where a message is that cannot be changed as it was asked; `None`: it is not stored.
    pub(crate) async fn state_of(&self, id: MessageId) -> Tried<Option<State>> {
        if let Some(waiting) = self.waiting(id).await? {
            return Ok(Some(waiting.state));
        }
        if self.dead(id).await?.is_some() {
            return Ok(Some(State::Dead));
        }
        Ok(in_log(self.connection, id).await?.map(|found| State::of(found.place)))
    }

    /// The row of the outbox that a message has, locked.
    pub(crate) async fn waiting(&self, id: MessageId) -> Tried<Option<Waiting>> {
        let row = self.connection.row_if_any("outbox_find", &[(&id.0, Type::UUID)]).await?;
        Ok(row.map(|row| {
            let attempt = number(&row, 3);
            let reason = OutboxReason::parse(row.get(5)).unwrap_or(OutboxReason::Delay);
            let state = State::of(Place::Outbox { reason, attempt });
            Waiting {
                seq: row.get(0),
                queue: row.get(1),
                kind: row.get(2),
                attempt,
                releases: number(&row, 4),
                state,
            }
        }))
    }

    /// The dead letter that a message became.
    pub(crate) async fn dead(&self, id: MessageId) -> Tried<Option<Dead>> {
        let row = self.connection.row_if_any("dead_letter_look", &[(&id.0, Type::UUID)]).await?;
        Ok(row.map(|row| Dead { redriven_as: id_if_any(&row, 1) }))
    }
}

/// Who cancelled a message and why, as its dead letter says it.
pub(crate) fn by(actor: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("by {actor}: {reason}"),
        None => format!("by {actor}"),
    }
}

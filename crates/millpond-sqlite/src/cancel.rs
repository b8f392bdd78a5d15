//! Cancel: what waits dies at once, what runs is told to stop.
//!
//! The log is never changed: a message that is ready gets a mark beside its dead letter, and the lease that reaches it
//! passes it by. A message under lease gets a mark alone: its worker hears of it with its next renewal, and any end but
//! an acknowledgement makes it a dead letter.

use millpond_core::fingerprint::fingerprint;
use millpond_core::message::{Leased, MessageId, Offset};
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::state::{Place, State};
use millpond_core::store::{Act, Changed, ClaimRef, QueueId};
use rusqlite::{OptionalExtension, Row, params};

use crate::deliveries::{LogPlace, in_log};
use crate::error::Tried;
use crate::settle::cancelled_progress;
use crate::sql::sql;
use crate::writer::Tx;

/// Most cancelled messages that one lease passes by without a claim.
const PASSED_MAX: usize = 10_000;

/// The cursor of a partition, and whether it is a marker.
pub(crate) type Cursor = Option<(i64, bool)>;

/// A message in the outbox, as far as a change must know it.
pub(crate) struct Waiting {
    pub(crate) seq: i64,
    pub(crate) queue: QueueId,
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
    queue: QueueId,
    kind: Option<&'d str>,
    attempt: u32,
    releases: u32,
    detail: &'d str,
}

impl Tx<'_> {
    pub(crate) fn cancel(&mut self, ids: &[MessageId], act: &Act) -> Tried<Vec<Changed>> {
        let changed = ids.iter().map(|id| self.cancel_one(*id, act)).collect::<Tried<Vec<_>>>()?;
        if changed.contains(&Changed::Asked) {
            // Workers look at once, and not with their next renewal.
            self.raise_declarations()?;
        }
        let counts = |changed: &&Changed| matches!(changed, Changed::Done | Changed::Asked);
        self.audit(act, changed.iter().filter(counts).count() as u64)?;
        Ok(changed)
    }

    fn cancel_one(&mut self, id: MessageId, act: &Act) -> Tried<Changed> {
        let detail = by(&act.actor, act.reason.as_deref());
        if let Some(waiting) = self.waiting(id)? {
            self.cancel_waiting(id, &waiting, &detail)?;
            return Ok(Changed::Done);
        }
        if self.dead(id)?.is_some() {
            return Ok(Changed::AlreadySettled);
        }
        let Some(found) = in_log(self.conn, self.now, id)? else { return Ok(Changed::NotFound) };
        match found.place {
            Place::Ahead => {
                self.mark(&found, act)?;
                self.cancel_ready(id, &found, &detail)?;
                Ok(Changed::Done)
            }
            // A committed effect is done, whatever its worker says later.
            Place::Claimed if !self.in_inbox(found.subscription, id)? => {
                self.mark(&found, act)?;
                Ok(Changed::Asked)
            }
            _ => Ok(Changed::AlreadySettled),
        }
    }

    fn mark(&self, found: &LogPlace, act: &Act) -> Tried<()> {
        self.conn.prepare_cached(sql("cancel_add"))?.execute(params![
            found.subscription,
            found.partition,
            found.offset,
            act.actor,
            act.reason,
            self.now.as_micros(),
        ])?;
        Ok(())
    }

    fn cancel_waiting(&mut self, id: MessageId, waiting: &Waiting, detail: &str) -> Tried<()> {
        let Waiting { seq, queue, attempt, releases, .. } = *waiting;
        let kind = waiting.kind.as_deref();
        let group = self.cancelled_group(queue, kind, detail)?;
        let subscription = self.subscription(queue)?;
        self.conn.prepare_cached(sql("dead_letter_from_outbox"))?.execute(params![
            seq,
            subscription,
            DropReason::Cancelled.as_str(),
            detail,
            self.now.as_micros(),
            group,
        ])?;
        self.conn.prepare_cached(sql("outbox_delete"))?.execute([seq])?;
        self.died(&Death { id, queue, kind, attempt, releases, detail })
    }

    fn cancel_ready(&mut self, id: MessageId, found: &LogPlace, detail: &str) -> Tried<()> {
        let Some(part) = self.place(found.partition)? else { return Ok(()) };
        let row = |row: &Row<'_>| Ok((row.get(1)?, row.get(2)?, row.get::<_, Option<String>>(3)?));
        let (attempt, releases, kind) = self
            .conn
            .prepare_cached(sql("log_identity"))?
            .query_row(params![found.partition, found.offset], row)?;
        let group = self.cancelled_group(part.queue, kind.as_deref(), detail)?;
        self.conn.prepare_cached(sql("dead_letter_from_log"))?.execute(params![
            found.partition,
            found.offset,
            found.subscription,
            part.queue.0,
            part.class,
            DropReason::Cancelled.as_str(),
            detail,
            self.now.as_micros(),
            group,
        ])?;
        self.died(&Death { id, queue: part.queue, kind: kind.as_deref(), attempt, releases, detail })
    }

    fn cancelled_group(&self, queue: QueueId, kind: Option<&str>, detail: &str) -> Tried<String> {
        let queue = self.queue_of(queue)?.name;
        Ok(fingerprint(kind.unwrap_or(&queue), DropReason::Cancelled.as_str(), None, Some(detail)))
    }

    /// The event and the counter of a message that was cancelled before it was delivered.
    fn died(&mut self, death: &Death<'_>) -> Tried<()> {
        let Death { id, queue, kind, attempt, releases, detail } = *death;
        self.conn.prepare_cached(sql("event_add"))?.execute(params![
            id.0,
            queue.0,
            EventKind::Dlq.as_str(),
            DropReason::Cancelled.as_str(),
            attempt,
            releases,
            None::<&str>,
            detail,
            self.now.as_micros(),
            None::<i64>,
            kind,
        ])?;
        self.count(queue, kind, |counts| counts.dead += 1);
        Ok(())
    }

    /// Where a message is that cannot be changed as it was asked; `None`: it is not stored.
    pub(crate) fn state_of(&mut self, id: MessageId) -> Tried<Option<State>> {
        if let Some(waiting) = self.waiting(id)? {
            return Ok(Some(waiting.state));
        }
        if self.dead(id)?.is_some() {
            return Ok(Some(State::Dead));
        }
        Ok(in_log(self.conn, self.now, id)?.map(|found| State::of(found.place)))
    }

    /// The row of the outbox that a message has.
    pub(crate) fn waiting(&self, id: MessageId) -> Tried<Option<Waiting>> {
        let row = |row: &Row<'_>| {
            let attempt = row.get(3)?;
            let reason: String = row.get(5)?;
            // A word of a later release counts as what it is at least: waiting.
            let reason = OutboxReason::parse(&reason).unwrap_or(OutboxReason::Delay);
            let state = State::of(Place::Outbox { reason, attempt });
            let (seq, queue) = (row.get(0)?, QueueId(row.get(1)?));
            Ok(Waiting { seq, queue, kind: row.get(2)?, attempt, releases: row.get(4)?, state })
        };
        let mut find = self.conn.prepare_cached(sql("outbox_find"))?;
        Ok(find.query_row([id.0], row).optional()?)
    }

    /// The dead letter that a message became.
    pub(crate) fn dead(&self, id: MessageId) -> Tried<Option<Dead>> {
        let row =
            |row: &Row<'_>| Ok(Dead { redriven_as: row.get::<_, Option<uuid::Uuid>>(3)?.map(MessageId) });
        let mut look = self.conn.prepare_cached(sql("dead_letter_look"))?;
        Ok(look.query_row([id.0], row).optional()?)
    }

    /// Who wanted a message under lease to stop, if somebody did. The mark has done its work then.
    pub(crate) fn take_cancel(&self, held: &ClaimRef, offset: Offset) -> Tried<Option<String>> {
        let key = params![held.subscription, held.partition, offset.0];
        let row = |row: &Row<'_>| {
            let (actor, reason): (String, Option<String>) = (row.get(0)?, row.get(1)?);
            Ok(by(&actor, reason.as_deref()))
        };
        let asked = self.conn.prepare_cached(sql("cancel_of_message"))?.query_row(key, row).optional()?;
        if asked.is_some() {
            self.forget_cancels(held.subscription, held.partition, (offset.0 as i64, offset.0 as i64))?;
        }
        Ok(asked)
    }

    /// Moves the cursor past the cancelled messages right behind it. Answers where it is then, and whether there are
    /// marks beyond.
    pub(crate) fn pass_cancelled(
        &self,
        subscription: i64,
        partition: i64,
        cursor: Cursor,
    ) -> Tried<(Cursor, bool)> {
        let after = cursor.map_or(-1, |(offset, _)| offset);
        match self.marks(subscription, partition, after, 1)?.first() {
            None => return Ok((cursor, false)),
            Some(first) if *first != after + 1 => return Ok((cursor, true)),
            Some(_) => {}
        }
        let marks = self.marks(subscription, partition, after, PASSED_MAX)?;
        let run = marks.iter().zip(after + 1..).take_while(|(mark, next)| *mark == next).count() as i64;
        self.move_cursor(subscription, partition, cursor, after + run)?;
        Ok((Some((after + run, true)), true))
    }

    /// Moves the cursor without a lease, by a marker claim (R7). What was marked up to there has left.
    pub(crate) fn move_cursor(
        &self,
        subscription: i64,
        partition: i64,
        cursor: Cursor,
        to: i64,
    ) -> Tried<()> {
        let after = cursor.map_or(-1, |(offset, _)| offset);
        self.conn.prepare_cached(sql("claim_put_marker"))?.execute(params![
            subscription,
            partition,
            to,
            after + 1,
            self.now.as_micros(),
        ])?;
        if let Some((offset, true)) = cursor {
            self.conn.prepare_cached(sql("claim_delete"))?.execute(params![
                subscription,
                partition,
                offset
            ])?;
        }
        self.forget_cancels(subscription, partition, (after + 1, to))
    }

    /// Takes the cancelled messages out of what was read; answers the done set and the runs that remember them, if
    /// there were any.
    pub(crate) fn without_cancelled(
        &self,
        subscription: i64,
        partition: i64,
        messages: &mut Vec<Leased>,
    ) -> Tried<Option<(Vec<u8>, Vec<u8>)>> {
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Ok(None) };
        let (from, to) = (first.offset.0, last.offset.0);
        let marks = self.marks(subscription, partition, from as i64 - 1, messages.len())?;
        let marks: Vec<u64> = marks.into_iter().map(i64::unsigned_abs).filter(|mark| *mark <= to).collect();
        if marks.is_empty() {
            return Ok(None);
        }
        messages.retain(|message| marks.binary_search(&message.offset.0).is_err());
        self.forget_cancels(subscription, partition, (from as i64, to as i64))?;
        let places = marks.iter().map(|mark| (mark - from) as usize);
        Ok(Some(cancelled_progress((to - from) as usize + 1, places)))
    }

    fn marks(&self, subscription: i64, partition: i64, after: i64, rows_max: usize) -> Tried<Vec<i64>> {
        let mut next = self.conn.prepare_cached(sql("cancel_next"))?;
        let key = params![subscription, partition, after, rows_max as i64];
        Ok(next.query_map(key, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    }

    /// The marks of these offsets have done their work.
    pub(crate) fn forget_cancels(&self, subscription: i64, partition: i64, range: (i64, i64)) -> Tried<()> {
        let key = params![subscription, partition, range.0, range.1];
        self.conn.prepare_cached(sql("cancel_delete_range"))?.execute(key)?;
        Ok(())
    }
}

/// Who cancelled a message and why, as its dead letter says it.
fn by(actor: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("by {actor}: {reason}"),
        None => format!("by {actor}"),
    }
}

//! What becomes of dead letters and of what waits: a new life under a new id, an earlier time, an end.

use millpond_core::error::{Code, Error};
use millpond_core::message::{Due, MessageId};
use millpond_core::reason::{EventKind, OutboxReason};
use millpond_core::store::{Act, Changed, QueueId, Redrive};
use rusqlite::{OptionalExtension, Row, named_params, params};

use crate::cancel::Dead;
use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

impl Tx<'_> {
    /// Puts each dead letter that was not redriven before into the outbox, under its new id.
    pub(crate) fn redrive(&mut self, redrives: &[Redrive], act: &Act) -> Tried<Vec<Changed>> {
        let changed = redrives.iter().map(|one| self.redrive_one(one)).collect::<Tried<Vec<_>>>()?;
        self.audit_done(&changed, act)?;
        Ok(changed)
    }

    /// Deletes dead letters for good.
    pub(crate) fn remove_dead_letters(&mut self, ids: &[MessageId], act: &Act) -> Tried<Vec<Changed>> {
        let mut changed = Vec::with_capacity(ids.len());
        for id in ids {
            let gone = self.conn.prepare_cached(sql("dead_letter_remove"))?.execute([id.0])?;
            changed.push(if gone == 0 { self.elsewhere(*id)? } else { Changed::Done });
        }
        self.audit_done(&changed, act)?;
        Ok(changed)
    }

    /// Makes what waits in the outbox due now.
    pub(crate) fn hasten(&mut self, ids: &[MessageId], act: &Act) -> Tried<Vec<Changed>> {
        let mut changed = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(waiting) = self.waiting(*id)? else {
                changed.push(self.elsewhere(*id)?);
                continue;
            };
            let due = params![waiting.seq, self.now.as_micros()];
            self.conn.prepare_cached(sql("outbox_hasten"))?.execute(due)?;
            changed.push(Changed::Done);
        }
        self.audit_done(&changed, act)?;
        Ok(changed)
    }

    fn redrive_one(&mut self, redrive: &Redrive) -> Tried<Changed> {
        let Redrive { id, new_id, due, queue, attempts_max } = *redrive;
        match self.dead(id)? {
            Some(Dead { redriven_as: Some(new) }) => return Ok(Changed::AlreadyRetried(new)),
            Some(Dead { redriven_as: None }) => {}
            None => return self.elsewhere(id),
        }
        let row = |row: &Row<'_>| Ok((row.get(0)?, QueueId(row.get(1)?), row.get(2)?));
        let (dead_letter, own, kind): (i64, QueueId, Option<String>) = self
            .conn
            .prepare_cached(sql("dead_letter_redriven"))?
            .query_row(params![id.0, new_id.0, self.now.as_micros()], row)?;
        let queue = match queue {
            Some(other) => self.existing(other)?,
            None => own,
        };
        let reason = if due.is_some() { OutboxReason::Delay } else { OutboxReason::Tx };
        self.conn.prepare_cached(sql("outbox_put_redriven"))?.execute(params![
            dead_letter,
            new_id.0,
            reason.as_str(),
            due.unwrap_or(Due::At(self.now)).resolve(self.now).as_micros(),
            self.now.as_micros(),
            queue.0,
            attempts_max,
        ])?;
        self.conn.prepare_cached(sql("event_add_redriven"))?.execute(params![
            new_id.0,
            queue.0,
            EventKind::Enqueue.as_str(),
            "redrive",
            self.now.as_micros(),
            id.0,
            kind,
        ])?;
        self.count(queue, kind.as_deref(), |counts| counts.sent += 1);
        Ok(Changed::Done)
    }

    /// What is said of a message that is not where it should be.
    fn elsewhere(&mut self, id: MessageId) -> Tried<Changed> {
        Ok(self.state_of(id)?.map_or(Changed::NotFound, Changed::WrongState))
    }

    fn existing(&self, queue: QueueId) -> Tried<QueueId> {
        let mut by_id = self.conn.prepare_cached(sql("queue_by_id"))?;
        let found = by_id.query_row(named_params! { ":id": queue.0 }, |_| Ok(())).optional()?;
        match found {
            Some(()) => Ok(queue),
            None => Err(Error::new(Code::UnknownQueue, "move a message to another queue").into()),
        }
    }

    fn audit_done(&self, changed: &[Changed], act: &Act) -> Tried<()> {
        let done = changed.iter().filter(|changed| **changed == Changed::Done).count();
        self.audit(act, done as u64)
    }
}

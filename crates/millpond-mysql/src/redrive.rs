//! What becomes of dead letters and of what waits: a new life under a new id, an earlier time, an end.

use millpond_core::error::{Code, Error};
use millpond_core::message::{Due, MessageId};
use millpond_core::reason::{EventKind, OutboxReason};
use millpond_core::store::{Changed, Redrive};

use crate::append::number;
use crate::cancel::Dead;
use crate::connection::Param;
use crate::error::Tried;
use crate::event::NewEvent;
use crate::operate::Change;

impl Change<'_> {
    /// Puts each dead letter that was not redriven before into the outbox, under its new id.
    pub(crate) async fn redrive(&self, redrives: &[Redrive]) -> Tried<Vec<Changed>> {
        let mut changed = Vec::with_capacity(redrives.len());
        for redrive in redrives {
            changed.push(self.redrive_one(redrive).await?);
        }
        self.audit_done(&changed).await?;
        Ok(changed)
    }

    /// Deletes dead letters for good.
    pub(crate) async fn remove_dead_letters(&self, ids: &[MessageId]) -> Tried<Vec<Changed>> {
        let mut changed = Vec::with_capacity(ids.len());
        for id in ids {
            let gone = self.connection.run("dead_letter_remove", &[&id.0]).await?;
            changed.push(if gone == 0 { self.elsewhere(*id).await? } else { Changed::Done });
        }
        self.audit_done(&changed).await?;
        Ok(changed)
    }

    /// Makes what waits in the outbox due now.
    pub(crate) async fn hasten(&self, ids: &[MessageId]) -> Tried<Vec<Changed>> {
        let mut changed = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(waiting) = self.waiting(*id).await? else {
                changed.push(self.elsewhere(*id).await?);
                continue;
            };
            let due: [Param<'_>; 2] = [&waiting.seq, &self.now.as_micros()];
            self.connection.run("outbox_hasten", &due).await?;
            changed.push(Changed::Done);
        }
        self.audit_done(&changed).await?;
        Ok(changed)
    }

    async fn redrive_one(&self, redrive: &Redrive) -> Tried<Changed> {
        let Redrive { id, new_id, due, queue, attempts_max } = *redrive;
        match self.dead(id).await? {
            Some(Dead { redriven_as: Some(new) }) => return Ok(Changed::AlreadyRetried(new)),
            Some(Dead { redriven_as: None }) => {}
            None => return self.elsewhere(id).await,
        }
        let now = self.now.as_micros();
        let mark: [Param<'_>; 3] = [&id.0, &new_id.0, &now];
        self.connection.run("dead_letter_redriven", &mark).await?;
        let Some(marked) = self.connection.row_if_any("dead_letter_facts", &mark[..2]).await? else {
            // Another call was first, at this moment.
            let dead = self.dead(id).await?.and_then(|dead| dead.redriven_as);
            return Ok(dead.map_or(Changed::NotFound, Changed::AlreadyRetried));
        };
        let (dead_letter, own, kind): (i64, i32, Option<String>) =
            (marked.get(0), marked.get(1), marked.get(2));
        let queue = match queue {
            Some(other) => self.existing(number(other)).await?,
            None => own,
        };
        let reason = if due.is_some() { OutboxReason::Delay } else { OutboxReason::Tx }.as_str();
        let due = due.unwrap_or(Due::At(self.now)).resolve(self.now).as_micros();
        let attempts_max = attempts_max.map(i64::from);
        let put: [Param<'_>; 7] = [&dead_letter, &new_id.0, &reason, &due, &now, &queue, &attempts_max];
        self.connection.run("outbox_put_redriven", &put).await?;
        let event = NewEvent {
            retry_of: Some(id),
            name: kind.as_deref(),
            ..NewEvent::of(Some(new_id), queue, EventKind::Enqueue, "redrive")
        };
        self.event(&event).await?;
        self.count(queue, kind.as_deref(), 1, 0).await?;
        Ok(Changed::Done)
    }

    /// What is said of a message that is not where it should be.
    async fn elsewhere(&self, id: MessageId) -> Tried<Changed> {
        Ok(self.state_of(id).await?.map_or(Changed::NotFound, Changed::WrongState))
    }

    async fn existing(&self, queue: i32) -> Tried<i32> {
        match self.connection.row_if_any("queue_by_id", &[&queue]).await? {
            Some(_) => Ok(queue),
            None => Err(Error::new(Code::UnknownQueue, "move a message to another queue").into()),
        }
    }

    async fn audit_done(&self, changed: &[Changed]) -> Tried<()> {
        let done = changed.iter().filter(|changed| **changed == Changed::Done).count();
        self.audit(done as u64).await
    }
}

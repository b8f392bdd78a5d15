//! Redrive: dead letters begin a new life under a new id.

use millpond_core::message::MessageId;
use millpond_core::reason::OutboxReason;
use millpond_core::store::QueueId;
use rusqlite::{OptionalExtension, Row, params};

use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

impl Tx<'_> {
    /// Puts each dead letter that was not redriven before into the outbox, under the id beside its own; answers
    /// how many there were.
    pub(crate) fn redrive(&mut self, ids: &[(MessageId, MessageId)]) -> Tried<u64> {
        let mut redriven = 0;
        for (old, new) in ids {
            redriven += u64::from(self.redrive_one(*old, *new)?);
        }
        Ok(redriven)
    }

    fn redrive_one(&mut self, old: MessageId, new: MessageId) -> Tried<bool> {
        let row = |row: &Row<'_>| Ok((row.get(0)?, QueueId(row.get(1)?), row.get(2)?));
        let marked: Option<(i64, QueueId, Option<String>)> = self
            .conn
            .prepare_cached(sql("dead_letter_redriven"))?
            .query_row(params![old.0, new.0], row)
            .optional()?;
        let Some((dead_letter, queue, kind)) = marked else { return Ok(false) };
        self.conn.prepare_cached(sql("outbox_put_redriven"))?.execute(params![
            dead_letter,
            new.0,
            OutboxReason::Tx.as_str(),
            self.now.as_micros(),
        ])?;
        self.count(queue, kind.as_deref(), |counts| counts.sent += 1);
        Ok(true)
    }
}

//! Append: all of a send or none, in the log and in the outbox.

use millpond_core::error::{Code, Error};
use millpond_core::message::{Due, Headers, MessageId, NewMessage};
use millpond_core::pick::Lane;
use millpond_core::reason::OutboxReason;
use millpond_core::store::{QueueId, Stored};
use millpond_core::time::{Timestamp, micros};
use rusqlite::{OptionalExtension, params};

use crate::draft::Part;
use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

/// Where the messages of one call go that are due at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// Into the log: the call is its own transaction.
    Log,
    /// Into the outbox: they belong to a handler's transaction, and the relay moves them.
    Outbox,
}

impl Tx<'_> {
    /// Stores the messages and answers one [`Stored`] for each.
    pub(crate) fn append(
        &mut self,
        queue: QueueId,
        messages: &[NewMessage],
        path: Path,
    ) -> Tried<Vec<Stored>> {
        let mut stored = messages
            .iter()
            .enumerate()
            .map(|(index, message)| self.dedup(queue, index, message))
            .collect::<Tried<Vec<_>>>()?;
        let waits = |message: &NewMessage| path == Path::Outbox || message.due.is_some();
        for (message, stored) in messages.iter().zip(&mut stored) {
            if *stored == Stored::New && waits(message) && !self.put(queue, message)? {
                *stored = Stored::Duplicate { of: message.id };
            }
        }
        let new =
            || messages.iter().zip(&stored).filter(|(_, stored)| **stored == Stored::New).map(|(m, _)| m);
        let at_once: Vec<&NewMessage> = new().filter(|message| !waits(message)).collect();
        for run in at_once.chunk_by(|one, next| one.priority == next.priority) {
            self.append_log(Part { queue, class: run[0].priority, lane: Lane::Main }, run)?;
        }
        for run in new().collect::<Vec<_>>().chunk_by(|one, next| one.kind == next.kind) {
            self.count(queue, run[0].kind.as_deref(), |counts| counts.sent += run.len() as i64);
        }
        Ok(stored)
    }

    /// Holds the dedup key of a message, or names the message that holds it.
    fn dedup(&mut self, queue: QueueId, index: usize, message: &NewMessage) -> Tried<Stored> {
        let Some(dedup) = &message.dedup else { return Ok(Stored::New) };
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let held: Option<(uuid::Uuid, u32)> = self
            .conn
            .prepare_cached(sql("dedup_find"))?
            .query_row(params![queue.0, dedup.key, self.now.as_micros()], row)
            .optional()?;
        let checksum = crc32fast::hash(&message.body);
        match held {
            Some((id, held)) if held != checksum && MessageId(id) != message.id => {
                let why = format!("key `{}` is held by message {id} with another body", dedup.key);
                let refused = Error::new(Code::DedupConflict, "send a message with a dedup key");
                Err(refused.because(why).at(index).into())
            }
            Some((id, _)) => Ok(Stored::Duplicate { of: MessageId(id) }),
            None => {
                let until = (self.now + dedup.window).as_micros();
                self.conn.prepare_cached(sql("dedup_hold"))?.execute(params![
                    queue.0,
                    dedup.key,
                    message.id.0,
                    checksum,
                    until
                ])?;
                Ok(Stored::New)
            }
        }
    }

    /// Appends messages of one class to its main lane, in the order given.
    fn append_log(&mut self, part: Part, messages: &[&NewMessage]) -> Tried<()> {
        let partition = self.partition(part)?;
        let (base, published_at) = self.take_offsets(partition, messages.len() as i64)?;
        let mut insert = self.conn.prepare_cached(sql("log_append"))?;
        // What is the same in every row is bound once: binding costs as much as the rest of a short row.
        insert.raw_bind_parameter(1, partition)?;
        insert.raw_bind_parameter(4, self.now.as_micros())?;
        insert.raw_bind_parameter(5, published_at.as_micros())?;
        for (offset, message) in (base..).zip(messages) {
            insert.raw_bind_parameter(2, offset)?;
            insert.raw_bind_parameter(3, message.id.0)?;
            insert.raw_bind_parameter(6, message.attempts_max)?;
            insert.raw_bind_parameter(7, self.deadline(message))?;
            insert.raw_bind_parameter(8, crc32fast::hash(&message.body))?;
            insert.raw_bind_parameter(9, &message.kind)?;
            insert.raw_bind_parameter(10, &message.key)?;
            insert.raw_bind_parameter(11, &message.content_type)?;
            insert.raw_bind_parameter(12, headers_text(&message.headers))?;
            insert.raw_bind_parameter(13, &message.body)?;
            insert.raw_execute()?;
        }
        Ok(())
    }

    /// Writes an outbox row: sent in a transaction, or to be due later. False: its id waits there already.
    fn put(&mut self, queue: QueueId, message: &NewMessage) -> Tried<bool> {
        let reason = if message.due.is_some() { OutboxReason::Delay } else { OutboxReason::Tx };
        let ready_at = message.due.unwrap_or(Due::At(self.now)).resolve(self.now);
        let added = self.conn.prepare_cached(sql("outbox_put"))?.execute(params![
            message.id.0,
            queue.0,
            message.priority,
            reason.as_str(),
            ready_at.as_micros(),
            self.now.as_micros(),
            message.attempts_max,
            self.deadline(message),
            crc32fast::hash(&message.body),
            message.kind,
            message.key,
            message.content_type,
            headers_text(&message.headers),
            message.body,
        ])?;
        Ok(added != 0)
    }

    fn deadline(&self, message: &NewMessage) -> Option<i64> {
        message.retry_until.map(|due| due.resolve(self.now).as_micros())
    }
}

/// Headers as they are stored: a JSON object of texts, or nothing.
pub(crate) fn headers_text(headers: &Headers) -> Option<String> {
    (!headers.is_empty()).then(|| serde_json::json!(headers).to_string())
}

/// The end of a lease that begins now.
pub(crate) fn lease_end(now: Timestamp, lease: std::time::Duration) -> i64 {
    now.as_micros().saturating_add(micros(lease))
}

//! A row of a message, wherever it is: in the outbox, among the dead letters, or in the log.
//!
//! A message may have several, because those of the log stay; who asks decides which of them stands for it.

use millpond_core::message::MessageId;
use millpond_core::reason::DropReason;
use millpond_core::time::Timestamp;
use millpond_sql::list::Mark;
use millpond_sql::record::Content;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::error::Tried;
use crate::message::instant;
use crate::parts::Parts;
use crate::sql::sql;

/// A row of a message, without its body.
pub(crate) struct Spot {
    pub(crate) id: MessageId,
    pub(crate) queue: i64,
    pub(crate) class: u8,
    pub(crate) sent_at: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) releases: u32,
    pub(crate) attempts_max: Option<u32>,
    pub(crate) retry_until: Option<Timestamp>,
    pub(crate) kind: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) at: At,
}

/// Where it is.
pub(crate) enum At {
    Outbox {
        seq: i64,
        reason: String,
        ready_at: Timestamp,
        error: Option<String>,
        retry_of: Option<MessageId>,
    },
    DeadLetter {
        number: i64,
        reason: String,
        detail: Option<String>,
        worker: Option<String>,
        retry_of: Option<MessageId>,
    },
    Log {
        /// Its place in [`Parts`].
        part: usize,
        offset: i64,
        published_at: Timestamp,
        /// Why it came through the outbox; `None`: it did not, or was moved by an earlier release.
        reason: Option<String>,
        via_outbox: bool,
    },
}

impl Spot {
    pub(crate) fn mark(&self) -> Mark {
        Mark::new(self.sent_at.as_micros(), self.id.0.as_u128())
    }

    /// Whether a deadline may end it; of a dead letter that is known only where it did.
    pub(crate) fn has_deadline(&self) -> bool {
        let ended = |reason: &str| reason == DropReason::RetryUntil.as_str();
        self.retry_until.is_some() || matches!(&self.at, At::DeadLetter { reason, .. } if ended(reason))
    }

    /// When it came into the log; for what is not there, the smallest.
    pub(crate) fn published(&self) -> i64 {
        match &self.at {
            At::Log { published_at, .. } => published_at.as_micros(),
            At::Outbox { .. } | At::DeadLetter { .. } => i64::MIN,
        }
    }

    /// Headers, and the body if it is asked for.
    pub(crate) fn content(&self, conn: &Connection, parts: &Parts, bodies: bool) -> Tried<Content> {
        let row = |row: &Row<'_>| {
            let body: Option<Vec<u8>> = row.get(2)?;
            Ok(Content::new(row.get(0)?, row.get(1)?, body.unwrap_or_default()))
        };
        let found = match self.at {
            At::Outbox { seq, .. } => {
                conn.prepare_cached(sql("outbox_content"))?.query_row(params![seq, bodies], row)
            }
            At::DeadLetter { number, .. } => {
                conn.prepare_cached(sql("dead_letter_content"))?.query_row(params![number, bodies], row)
            }
            At::Log { part, offset, .. } => {
                let key = params![parts.list[part].id, offset, bodies];
                conn.prepare_cached(sql("log_content"))?.query_row(key, row)
            }
        };
        Ok(found.optional()?.unwrap_or_default())
    }
}

/// The first ten columns of every statement that reads spots.
fn spot(row: &Row<'_>, queue: i64, class: u8, at: At) -> rusqlite::Result<Spot> {
    Ok(Spot {
        id: MessageId(row.get(0)?),
        queue,
        class,
        sent_at: instant(row.get(3)?),
        attempt: row.get(4)?,
        releases: row.get(5)?,
        attempts_max: row.get(6)?,
        retry_until: row.get::<_, Option<i64>>(7)?.map(instant),
        kind: row.get(8)?,
        key: row.get(9)?,
        at,
    })
}

fn other(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<MessageId>> {
    Ok(row.get::<_, Option<Uuid>>(column)?.map(MessageId))
}

pub(crate) fn outbox_spot(row: &Row<'_>) -> rusqlite::Result<Spot> {
    let at = At::Outbox {
        seq: row.get(10)?,
        reason: row.get(11)?,
        ready_at: instant(row.get(12)?),
        error: row.get(13)?,
        retry_of: other(row, 14)?,
    };
    spot(row, row.get(1)?, row.get(2)?, at)
}

pub(crate) fn dead_letter_spot(row: &Row<'_>) -> rusqlite::Result<Spot> {
    let at = At::DeadLetter {
        number: row.get(10)?,
        reason: row.get(11)?,
        detail: row.get(12)?,
        worker: row.get(13)?,
        retry_of: other(row, 14)?,
    };
    spot(row, row.get(1)?, row.get(2)?, at)
}

pub(crate) fn log_spot(row: &Row<'_>, part: usize, queue: i64, class: u8) -> rusqlite::Result<Spot> {
    let at = At::Log {
        part,
        offset: row.get(10)?,
        published_at: instant(row.get(11)?),
        via_outbox: row.get(12)?,
        reason: row.get(13)?,
    };
    spot(row, queue, class, at)
}

//! The audit: one line for each change, in its transaction, chained by a hash to the line before.

use millpond_core::audit::link;
use millpond_core::store::Act;
use millpond_core::time::Timestamp;
use millpond_core::view::AuditLine;
use millpond_sql::audit::{Stored, followed};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::Tried;
use crate::message::instant;
use crate::sql::sql;
use crate::writer::Tx;

impl Tx<'_> {
    /// Writes who did what, to how many rows.
    pub(crate) fn audit(&self, act: &Act, count: u64) -> Tried<()> {
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let last: Option<(u64, Vec<u8>)> =
            self.conn.prepare_cached(sql("audit_last"))?.query_row([], row).optional()?;
        let (number, before) = last.map_or((1, Vec::new()), |(number, hash)| (number + 1, hash));
        let hash = link(&before, number, self.now, count, act);
        self.conn.prepare_cached(sql("audit_add"))?.execute(params![
            number,
            self.now.as_micros(),
            act.actor,
            act.verb,
            act.object,
            count,
            act.reason,
            hash,
        ])?;
        Ok(())
    }
}

/// Lines with a number below `before`, newest first.
pub(crate) fn audit_page(conn: &Connection, before: Option<u64>, rows_max: usize) -> Tried<Vec<AuditLine>> {
    let mut list = conn.prepare_cached(sql("audit_page"))?;
    let rows = list.query_map(params![before, rows_max.saturating_add(1) as i64], stored)?;
    Ok(followed(rows.collect::<rusqlite::Result<_>>()?, rows_max))
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let at: Timestamp = instant(row.get(1)?);
    let line = AuditLine {
        number: row.get(0)?,
        at,
        actor: row.get(2)?,
        verb: row.get(3)?,
        object: row.get(4)?,
        count: row.get(5)?,
        reason: row.get(6)?,
        intact: false,
    };
    Ok(Stored { line, hash: row.get(7)? })
}

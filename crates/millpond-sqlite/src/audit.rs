//! The audit: one line for each change, in its transaction, chained by a hash to the line before.

use millpond_core::audit::link;
use millpond_core::store::Act;
use millpond_core::time::Timestamp;
use millpond_core::view::AuditLine;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::Tried;
use crate::message::instant;
use crate::sql::sql;
use crate::writer::Tx;

/// A line with what proves it.
struct Stored {
    line: AuditLine,
    hash: Vec<u8>,
}

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

/// Lines with a number below `before`, newest first. What proves them is followed from the oldest of them to the
/// newest, so one that was changed or taken out breaks all that come after it. Behind retention the chain begins with
/// the first line that is kept, which nothing proves then.
pub(crate) fn audit_page(conn: &Connection, before: Option<u64>, rows_max: usize) -> Tried<Vec<AuditLine>> {
    let mut list = conn.prepare_cached(sql("audit_page"))?;
    let rows = list.query_map(params![before, rows_max.saturating_add(1) as i64], stored)?;
    let mut rows: Vec<Stored> = rows.collect::<rusqlite::Result<_>>()?;
    let mut known = if rows_max < rows.len() { rows.pop() } else { None };
    let mut intact = true;
    for row in rows.iter_mut().rev() {
        intact &= follows(row, known.as_ref());
        row.line.intact = intact;
        known = Some(Stored { line: row.line.clone(), hash: row.hash.clone() });
    }
    Ok(rows.into_iter().map(|row| row.line).collect())
}

/// Whether a line is as it was written, right behind the one before.
fn follows(row: &Stored, before: Option<&Stored>) -> bool {
    let number = row.line.number;
    let Some(before) = before else { return number != 1 || proves(row, &[]) };
    number == before.line.number + 1 && proves(row, &before.hash)
}

/// Whether the hash of a line is made of the line and of the hash before.
fn proves(row: &Stored, before: &[u8]) -> bool {
    let AuditLine { number, at, count, .. } = row.line;
    let AuditLine { actor, verb, object, reason, .. } = row.line.clone();
    link(before, number, at, count, &Act { actor, verb, object, reason })[..] == row.hash
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

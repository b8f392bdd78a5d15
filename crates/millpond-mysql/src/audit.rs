//! The audit: one line for each change, in its transaction, chained by a hash to the line before.

use crate::row::Row;
use millpond_core::audit::link;
use millpond_core::store::Act;
use millpond_core::view::AuditLine;

use crate::cell::{count, instant};
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::operate::Change;

/// A line with what proves it.
struct Stored {
    line: AuditLine,
    hash: Vec<u8>,
}

impl Change<'_> {
    /// Writes who did what, to how many rows. The last thing that a change does: the next one waits for its commit.
    pub(crate) async fn audit(&self, count: u64) -> Tried<()> {
        self.connection.row("audit_lock", &[]).await?;
        let last = self.connection.row_if_any("audit_last", &[]).await?;
        let (number, before) =
            last.map_or((1, Vec::new()), |row| (crate::cell::count(&row, 0) + 1, row.get(1)));
        let Act { actor, verb, object, reason } = self.act;
        let hash = link(&before, number, self.now, count, self.act).to_vec();
        let params: [Param<'_>; 8] = [
            &number.cast_signed(),
            &self.now.as_micros(),
            actor,
            verb,
            object,
            &count.cast_signed(),
            reason,
            &hash,
        ];
        self.connection.run("audit_add", &params).await.map(drop)
    }
}

/// Lines with a number below `before`, newest first. What proves them is followed from the oldest of them to the
/// newest, so one that was changed or taken out breaks all that come after it. Behind retention the chain begins with
/// the first line that is kept, which nothing proves then.
pub(crate) async fn audit_page(
    connection: &Connection,
    before: Option<u64>,
    rows_max: usize,
) -> Tried<Vec<AuditLine>> {
    let before = before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let most = i64::try_from(rows_max.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = connection.rows("audit_page", &[&before, &most]).await?;
    let mut rows: Vec<Stored> = rows.iter().map(stored).collect();
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

fn stored(row: &Row) -> Stored {
    let line = AuditLine {
        number: count(row, 0),
        at: instant(row, 1),
        actor: row.get(2),
        verb: row.get(3),
        object: row.get(4),
        count: count(row, 5),
        reason: row.get(6),
        intact: false,
    };
    Stored { line, hash: row.get(7) }
}

//! The audit as it is read: lines, and whether each follows from the one before.

use millpond_core::audit::link;
use millpond_core::store::Act;
use millpond_core::view::AuditLine;

use crate::reader::{Reader, Tried};
use crate::row::Row;

/// A line with what proves it.
#[derive(Debug)]
pub struct Stored {
    /// The line, not looked at yet.
    pub line: AuditLine,
    /// Made of it and of the hash before.
    pub hash: Vec<u8>,
}

/// Lines with a number below `before`, newest first.
pub async fn audit_page<R: Reader>(
    connection: &R,
    before: Option<u64>,
    rows_max: usize,
) -> Tried<R, Vec<AuditLine>> {
    let before = before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let most = i64::try_from(rows_max.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = connection.rows("audit_page", &[before.into(), most.into()]).await?;
    Ok(followed(rows.iter().map(stored).collect(), rows_max))
}

/// Lines, newest first, of which the last, beyond `rows_max`, is only there to prove. What proves them is followed from
/// the oldest of them to the newest, so one that was changed or taken out breaks all that come after it. Behind
/// retention the chain begins with the first line that is kept, which nothing proves then.
pub fn followed(mut rows: Vec<Stored>, rows_max: usize) -> Vec<AuditLine> {
    let mut known = if rows_max < rows.len() { rows.pop() } else { None };
    let mut intact = true;
    for row in rows.iter_mut().rev() {
        intact &= follows(row, known.as_ref());
        row.line.intact = intact;
        known = Some(Stored { line: row.line.clone(), hash: row.hash.clone() });
    }
    rows.into_iter().map(|row| row.line).collect()
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

fn stored(row: &impl Row) -> Stored {
    let line = AuditLine {
        number: row.get(0),
        at: row.get(1),
        actor: row.get(2),
        verb: row.get(3),
        object: row.get(4),
        count: row.get(5),
        reason: row.get(6),
        intact: false,
    };
    Stored { line, hash: row.get(7) }
}

//! Retention: what is past its time is deleted, in chunks, by one node at a time, each chunk in a transaction of its own.

use std::collections::HashMap;
use std::time::Duration;

use millpond_core::store::QueueId;
use millpond_core::time::{Timestamp, micros};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::append::number;
use crate::bits::Bits;
use crate::cell::count;
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::queues::readable_queues;

/// What one node at a time does.
const DUTY: &str = "retention";

/// How long a node has it.
const DUTY_LEASE: Duration = Duration::from_secs(60);

/// How long the run log is kept.
const EVENTS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// How much longer than its message's row in the log an inbox row is kept.
const INBOX_GRACE: Duration = Duration::from_secs(24 * 3600);

/// How long a worker that died without a word is shown.
const WORKER_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long counters are kept by the minute.
const MINUTES_KEPT: i64 = 24 * 60;

const MINUTES_OF_QUARTER: i64 = 15;

/// How long counters are kept by the quarter of an hour.
const QUARTERS_KEPT: i64 = 90 * 24 * 4;

/// How long the audit is kept.
const AUDIT_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// How long a dead letter is kept.
const DEAD_LETTERS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Losing a deletion in a crash only means that it is done again.
const BEGIN: &str = "begin; set local synchronous_commit = off";

/// The columns of `retention_look`.
mod column {
    pub(super) const NOW: usize = 6;
    pub(super) const LOG: usize = 7;
    pub(super) const INBOX: usize = 8;
    pub(super) const HISTORY: usize = 9;
    pub(super) const EVENTS: usize = 10;
    pub(super) const DEDUP: usize = 11;
    pub(super) const WORKERS: usize = 12;
    pub(super) const AUDIT: usize = 13;
    pub(super) const DEAD_LETTERS: usize = 14;
    pub(super) const MARKERS: usize = 15;
    pub(super) const ADDED: usize = 16;
    pub(super) const MARKS: usize = 17;
    pub(super) const MINUTE: usize = 18;
    pub(super) const QUARTER: usize = 19;
}

/// The same for what is to follow an index in its order: without statistics the planner would read and sort all of it.
const BEGIN_IN_ORDER: &str = "begin; set local synchronous_commit = off; set local enable_sort = off; \
                              set local enable_seqscan = off; set local enable_bitmapscan = off";

/// A partition of the log.
struct Partition {
    id: i32,
    queue: QueueId,
    first_offset: i64,
    subscription: i32,
}

/// Deletes at most `rows_max` rows of each table, if this node has the duty; answers how many went. One look says what
/// there is to do, and only that is done.
pub(crate) async fn retain(connection: &mut Connection, node: &str, rows_max: usize) -> Tried<u64> {
    let (given, lease) = (connection.now(), micros(DUTY_LEASE));
    let duty: [Param<'_>; 4] =
        [(&DUTY, Type::TEXT), (&node, Type::TEXT), (&given, Type::INT8), (&lease, Type::INT8)];
    let rows = connection.rows("retention_look", &duty).await?;
    let Some(seen) = rows.first() else { return Ok(0) };
    let queues = readable_queues(&rows);
    let now = Timestamp::from_micros(seen.get(column::NOW));
    let is_due = |column, before: Timestamp| is_at_most(seen, column, before.as_micros());
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    let retention: HashMap<QueueId, Duration> =
        queues.into_iter().map(|queue| (queue.id, queue.settings.retention)).collect();
    let mut gone = retain_log(connection, &logs_due(&rows, now, &retention), rows_max).await?;
    // The oldest row may be of another queue: then there is nothing.
    if retention.values().min().is_some_and(|kept| is_due(column::INBOX, now - *kept - INBOX_GRACE)) {
        gone += retain_inbox(connection, now, &retention, rows_max).await?;
    }
    let kinds = [
        ("history_delete", column::HISTORY, now - EVENTS_KEPT),
        ("event_delete", column::EVENTS, now - EVENTS_KEPT),
        ("dedup_delete", column::DEDUP, now),
        ("worker_delete", column::WORKERS, now - WORKER_KEPT),
        ("audit_delete", column::AUDIT, now - AUDIT_KEPT),
        ("dead_letter_delete", column::DEAD_LETTERS, now - DEAD_LETTERS_KEPT),
    ];
    for (statement, oldest, before) in kinds {
        if is_due(oldest, before) {
            let params: [Param<'_>; 2] = [(&before.as_micros(), Type::INT8), (&rows_max, Type::INT8)];
            gone += connection.run(statement, &params).await?;
        }
    }
    let rows: [Param<'_>; 1] = [(&rows_max, Type::INT8)];
    if seen.get(column::MARKERS) {
        gone += connection.run("marker_delete", &rows).await?;
    }
    if seen.get(column::ADDED) {
        gone += count(&connection.row("stat_fold", &rows).await?, 0);
    }
    let minute = now.as_micros() / 60_000_000;
    let day = minute - MINUTES_KEPT;
    // What was added just now may be old too.
    if seen.get(column::ADDED) || is_at_most(seen, column::MINUTE, day - 1) {
        let day = i32::try_from(day).unwrap_or(i32::MAX);
        let old: [Param<'_>; 2] = [(&day, Type::INT4), (&rows_max, Type::INT8)];
        gone += count(&connection.row("stat_fold_day", &old).await?, 0);
    }
    let quarter = minute / MINUTES_OF_QUARTER - QUARTERS_KEPT;
    if is_at_most(seen, column::QUARTER, quarter - 1) {
        let quarter = i32::try_from(quarter).unwrap_or(i32::MAX);
        let old: [Param<'_>; 2] = [(&quarter, Type::INT4), (&rows_max, Type::INT8)];
        gone += connection.run("quarter_delete", &old).await?;
    }
    if seen.get(column::MARKS) {
        gone += connection.run("cancel_mark_delete", &rows).await?;
    }
    Ok(gone)
}

/// Whether a number is there, and not above this one.
fn is_at_most(row: &Row, column: usize, most: i64) -> bool {
    let oldest: Option<i64> = match column {
        column::MINUTE | column::QUARTER => row.get::<_, Option<i32>>(column).map(i64::from),
        _ => row.get(column),
    };
    oldest.is_some_and(|oldest| oldest <= most)
}

/// The queues of which something of the log can be deleted, and from when what is kept is.
fn logs_due(
    rows: &[Row],
    now: Timestamp,
    retention: &HashMap<QueueId, Duration>,
) -> HashMap<QueueId, Timestamp> {
    let due = |row: &Row| {
        let queue = row.get::<_, Option<i32>>(0).map(|id| QueueId(id.into()))?;
        let before = now - *retention.get(&queue)?;
        is_at_most(row, column::LOG, before.as_micros()).then_some((queue, before))
    };
    rows.iter().filter_map(due).collect()
}

async fn retain_log(
    connection: &mut Connection,
    due: &HashMap<QueueId, Timestamp>,
    rows_max: i64,
) -> Tried<u64> {
    if due.is_empty() {
        return Ok(0);
    }
    let mut left = rows_max;
    for partition in partitions(connection).await? {
        let Some(before) = due.get(&partition.queue) else { continue };
        let delete =
            async |connection: &mut Connection| retain_partition(connection, &partition, *before, left).await;
        left -= connection.change(BEGIN, delete).await?;
    }
    Ok((rows_max - left).unsigned_abs())
}

/// Deletes from the first offset up: never what is not settled, never the highest row (R3). Under the append lock, as
/// everything that decides by looking at all subscriptions (R7).
async fn retain_partition(
    connection: &Connection,
    partition: &Partition,
    before: Timestamp,
    rows_max: i64,
) -> Tried<i64> {
    let Partition { id, first_offset, .. } = *partition;
    connection.row("log_append_lock", &[(&id, Type::INT4)]).await?;
    let end: i64 = connection.row("log_end", &[(&id, Type::INT4)]).await?.get(0);
    let most =
        (end - 1).min(watermark(connection, partition).await?).min(first_offset.saturating_add(rows_max));
    if most <= first_offset {
        return Ok(0);
    }
    let before = before.as_micros();
    let search: [Param<'_>; 4] =
        [(&id, Type::INT4), (&first_offset, Type::INT8), (&most, Type::INT8), (&before, Type::INT8)];
    let end: i64 = connection.row("log_published_after", &search).await?.get(0);
    if end <= first_offset {
        return Ok(0);
    }
    let range: [Param<'_>; 3] = [(&id, Type::INT4), (&first_offset, Type::INT8), (&end, Type::INT8)];
    let gone = connection.run("log_delete", &range).await?;
    connection.run("partition_first_offset", &[(&id, Type::INT4), (&end, Type::INT8)]).await?;
    let last = end - 1;
    let marks: [Param<'_>; 4] = [
        (&partition.subscription, Type::INT4),
        (&id, Type::INT4),
        (&first_offset, Type::INT8),
        (&last, Type::INT8),
    ];
    connection.run("cancel_delete_range", &marks).await?;
    Ok(gone.cast_signed())
}

/// The lowest offset that is not settled.
async fn watermark(connection: &Connection, partition: &Partition) -> Tried<i64> {
    let key: [Param<'_>; 2] = [(&partition.subscription, Type::INT4), (&partition.id, Type::INT4)];
    let cursor = connection.row_if_any("claim_top", &key).await?;
    let mut watermark = cursor.map_or(-1, |row| row.get::<_, i64>(0)) + 1;
    for row in connection.rows("retention_live_claims", &key).await? {
        let (to, from): (i64, i64) = (row.get(0), row.get(1));
        let done = row.try_get::<_, Option<Bits>>(2)?.unwrap_or_default();
        watermark = watermark.min(lowest_clear(to, from, &done));
    }
    Ok(watermark)
}

/// The lowest offset of a claim whose bit is clear; the one after the claim if all are set.
fn lowest_clear(to: i64, from: i64, done: &Bits) -> i64 {
    (from..=to).find(|offset| !done.is_set((to - offset).unsigned_abs() as usize)).unwrap_or(to + 1)
}

async fn partitions(connection: &Connection) -> Tried<Vec<Partition>> {
    let rows = connection.rows("retention_partitions", &[]).await?;
    Ok(rows
        .iter()
        .map(|row| Partition {
            id: row.get(0),
            queue: QueueId(row.get::<_, i32>(1).into()),
            first_offset: row.get(2),
            subscription: row.get(3),
        })
        .collect())
}

async fn retain_inbox(
    connection: &mut Connection,
    now: Timestamp,
    retention: &HashMap<QueueId, Duration>,
    rows_max: i64,
) -> Tried<u64> {
    let mut gone = 0_u64;
    for (queue, kept) in retention {
        let subscription = connection.row("subscription_of", &[(&number(*queue), Type::INT4)]).await?;
        let before = (now - *kept - INBOX_GRACE).as_micros();
        let left = rows_max - gone.cast_signed();
        let params: [Param<'_>; 3] =
            [(&subscription.get::<_, i32>(0), Type::INT4), (&before, Type::INT8), (&left, Type::INT8)];
        let delete = async |connection: &mut Connection| connection.run("inbox_delete", &params).await;
        gone += connection.change(BEGIN_IN_ORDER, delete).await?;
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_clear_offset_is_found_from_the_low_end() {
        let mut done = Bits::clear(4);
        assert_eq!(lowest_clear(13, 10, &done), 10);
        done.set(3);
        done.set(2);
        assert_eq!(lowest_clear(13, 10, &done), 12);
        done.set(1);
        done.set(0);
        assert_eq!(lowest_clear(13, 10, &done), 14);
        assert_eq!(lowest_clear(13, 10, &Bits::default()), 10);
    }
}

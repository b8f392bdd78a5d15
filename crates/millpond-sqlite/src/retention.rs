//! Retention: what is past its time is deleted, in chunks, by one node at a time.

use std::collections::HashMap;
use std::time::Duration;

use millpond_core::store::QueueId;
use millpond_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Params, Row, named_params, params};

use crate::deliveries::{end_of, published_after};
use crate::error::Tried;
use crate::queues::stored_queues;
use crate::sql::sql;
use crate::writer::Tx;

/// How long a node has the duty.
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

/// A partition of the log.
struct Partition {
    id: i64,
    queue: QueueId,
    first_offset: i64,
    subscription: i64,
}

impl Tx<'_> {
    /// Deletes at most `rows_max` rows of each table, if this node has the duty; answers how many went.
    pub(crate) fn retain(&mut self, node: &str, rows_max: usize) -> Tried<u64> {
        if !self.take_duty("retention", node)? {
            return Ok(0);
        }
        let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let mut retention = HashMap::new();
        for queue in stored_queues(self.conn)? {
            retention.insert(queue.id, queue.settings.retention);
        }
        let mut gone = self.retain_log(&retention, rows_max)?;
        gone += self.retain_inbox(&retention, rows_max)?;
        gone += self.delete("history_delete", self.now - EVENTS_KEPT, rows_max)?;
        gone += self.delete("event_delete", self.now - EVENTS_KEPT, rows_max)?;
        gone += self.retain_dedup(rows_max)?;
        gone += self.delete("worker_delete", self.now - WORKER_KEPT, rows_max)?;
        let markers = named_params! { ":rows_max": rows_max };
        gone += self.conn.prepare_cached(sql("marker_delete"))?.execute(markers)? as u64;
        gone += self.fold_minutes(rows_max)?;
        let quarter = self.now.as_micros() / 60_000_000 / MINUTES_OF_QUARTER;
        let old = named_params! { ":before": quarter - QUARTERS_KEPT, ":rows_max": rows_max };
        gone += self.conn.prepare_cached(sql("quarter_delete"))?.execute(old)? as u64;
        gone += self.delete("audit_delete", self.now - AUDIT_KEPT, rows_max)?;
        gone += self.delete("dead_letter_delete", self.now - DEAD_LETTERS_KEPT, rows_max)?;
        gone += self.conn.prepare_cached(sql("cancel_mark_delete"))?.execute(markers)? as u64;
        Ok(gone)
    }

    fn take_duty(&self, duty: &str, node: &str) -> Tried<bool> {
        let named = named_params! {
            ":duty": duty, ":owner": node, ":now": self.now.as_micros(),
            ":until": (self.now + DUTY_LEASE).as_micros(),
        };
        Ok(self.conn.prepare_cached(sql("duty_take"))?.execute(named)? != 0)
    }

    fn delete(&self, statement: &str, before: Timestamp, rows_max: i64) -> Tried<u64> {
        let named = named_params! { ":before": before.as_micros(), ":rows_max": rows_max };
        Ok(self.conn.prepare_cached(sql(statement))?.execute(named)? as u64)
    }

    fn retain_log(&self, retention: &HashMap<QueueId, Duration>, rows_max: i64) -> Tried<u64> {
        let mut left = rows_max;
        for partition in self.partitions()? {
            let Some(kept) = retention.get(&partition.queue) else { continue };
            left -= self.retain_partition(&partition, self.now - *kept, left)?;
        }
        Ok((rows_max - left).unsigned_abs())
    }

    /// Deletes from the first offset up: never what is not settled, never the highest row (R3).
    fn retain_partition(&self, partition: &Partition, before: Timestamp, rows_max: i64) -> Tried<i64> {
        let Partition { id, first_offset, subscription, .. } = *partition;
        let highest = end_of(self.conn, id)? - 1;
        let most = highest.min(self.watermark(partition)?).min(first_offset.saturating_add(rows_max));
        if most <= first_offset {
            return Ok(0);
        }
        let end = published_after(self.conn, id, first_offset..most, before)?;
        let gone = self.conn.prepare_cached(sql("log_delete"))?.execute(params![id, first_offset, end])?;
        self.conn.prepare_cached(sql("partition_first_offset"))?.execute(params![id, end])?;
        self.forget_cancels(subscription, id, (first_offset, end - 1))?;
        Ok(gone as i64)
    }

    /// The lowest offset that is not settled.
    fn watermark(&self, partition: &Partition) -> Tried<i64> {
        let Partition { id, subscription, .. } = *partition;
        let mut live = self.conn.prepare_cached(sql("retention_live_claims"))?;
        let lowest = |row: &Row<'_>| {
            let (from, done): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
            Ok(from + first_clear(&done))
        };
        let cursor = self.cursor(subscription, id)?.map_or(-1, |(offset, _)| offset);
        let mut watermark = cursor + 1;
        for offset in live.query_map(params![subscription, id], lowest)? {
            watermark = watermark.min(offset?);
        }
        Ok(watermark)
    }

    fn partitions(&self) -> Tried<Vec<Partition>> {
        let mut list = self.conn.prepare_cached(sql("retention_partitions"))?;
        let rows = list.query_map([], |row| {
            Ok(Partition {
                id: row.get(0)?,
                queue: QueueId(row.get(1)?),
                first_offset: row.get(2)?,
                subscription: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn retain_inbox(&mut self, retention: &HashMap<QueueId, Duration>, rows_max: i64) -> Tried<u64> {
        let mut gone = 0;
        for (queue, kept) in retention {
            let subscription = self.subscription(*queue)?;
            let before = (self.now - *kept - INBOX_GRACE).as_micros();
            let left = rows_max - gone as i64;
            let named = named_params! { ":subscription": subscription, ":before": before, ":rows_max": left };
            gone += self.delete_each("inbox_past", named, "inbox_delete")?;
        }
        Ok(gone)
    }

    fn retain_dedup(&self, rows_max: i64) -> Tried<u64> {
        let named = named_params! { ":before": self.now.as_micros(), ":rows_max": rows_max };
        self.delete_each("dedup_expired", named, "dedup_delete")
    }

    /// Deletes the rows whose keys, of two columns, a statement finds.
    fn delete_each(&self, find: &str, given: impl Params, delete: &str) -> Tried<u64> {
        let key = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut find = self.conn.prepare_cached(sql(find))?;
        let keys: Vec<(i64, Value)> = find.query_map(given, key)?.collect::<rusqlite::Result<_>>()?;
        let mut delete = self.conn.prepare_cached(sql(delete))?;
        for (first, second) in &keys {
            delete.execute(params![first, second])?;
        }
        Ok(keys.len() as u64)
    }

    /// Sums counters older than a day by the quarter of an hour, and into minute 0.
    fn fold_minutes(&self, rows_max: i64) -> Tried<u64> {
        let before = self.now.as_micros() / 60_000_000 - MINUTES_KEPT;
        let mut old = self.conn.prepare_cached(sql("stat_old"))?;
        let row = |row: &Row<'_>| {
            let counts: [i64; 7] =
                [row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?, row.get(9)?];
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, counts))
        };
        let rows: Vec<(i64, String, i64, [i64; 7])> = old
            .query_map(named_params! { ":before": before, ":rows_max": rows_max }, row)?
            .collect::<rusqlite::Result<_>>()?;
        let mut total = self.conn.prepare_cached(sql("stat_add"))?;
        let mut quarter = self.conn.prepare_cached(sql("stat_add_quarter"))?;
        let mut delete = self.conn.prepare_cached(sql("stat_delete"))?;
        for (queue, kind, minute, [sent, leased, done, retried, dead, recovered, run]) in &rows {
            for (add, span) in [(&mut total, 0), (&mut quarter, minute / MINUTES_OF_QUARTER)] {
                add.execute(params![queue, kind, span, sent, leased, done, retried, dead, recovered, run])?;
            }
            delete.execute(params![queue, kind, minute])?;
        }
        Ok(rows.len() as u64)
    }
}

/// The place of the first clear bit of a done set.
fn first_clear(done: &[u8]) -> i64 {
    let full = done.iter().take_while(|byte| **byte == u8::MAX).count();
    let bits = done.get(full).map_or(0, |byte| byte.trailing_ones());
    full as i64 * 8 + i64::from(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clear_bit_is_found_in_any_byte() {
        assert_eq!(first_clear(&[]), 0);
        assert_eq!(first_clear(&[0b1111_0111]), 3);
        assert_eq!(first_clear(&[255, 0b0000_0001]), 9);
        assert_eq!(first_clear(&[255]), 8);
    }
}

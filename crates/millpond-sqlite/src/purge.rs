//! Purge: what waits in a queue is dropped. What is ready is passed by a marker claim, so that it costs the same
//! whatever the backlog; what waits in the outbox is deleted; what is leased is left alone.

use std::collections::BTreeMap;

use millpond_core::reason::{DropReason, EventKind};
use millpond_core::store::{Act, Purged, QueueId};
use rusqlite::params;

use crate::deliveries::end_of;
use crate::error::Tried;
use crate::settle::RUN_PURGED;
use crate::sql::sql;
use crate::writer::Tx;

/// Most messages of one call, whatever is asked for: it holds the one write lock.
const PURGED_MAX: usize = 10_000;

impl Tx<'_> {
    /// Drops at most `rows_max` messages: what is ready, then what waits in the outbox.
    pub(crate) fn purge(&mut self, name: &str, rows_max: usize, act: &Act) -> Tried<Purged> {
        let queue = self.declared(name, "purge")?;
        let rows_max = rows_max.min(PURGED_MAX);
        let (mut kinds, mut more) = (BTreeMap::new(), false);
        let mut left = rows_max as i64;
        for partition in self.parts_of(queue)? {
            more |= self.purge_part(queue, partition, &mut left, &mut kinds)?;
        }
        more |= self.purge_waiting(queue, left, &mut kinds)?;
        let messages = self.purged(queue, &kinds, act)?;
        self.audit(act, messages)?;
        Ok(Purged { messages, more })
    }

    fn parts_of(&self, queue: QueueId) -> Tried<Vec<i64>> {
        let mut list = self.conn.prepare_cached(sql("partition_list"))?;
        let rows = list.query_map(rusqlite::named_params! { ":queue": queue.0 }, |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Passes what is ready in one part; answers whether something is left.
    fn purge_part(
        &mut self,
        queue: QueueId,
        partition: i64,
        left: &mut i64,
        kinds: &mut BTreeMap<String, u64>,
    ) -> Tried<bool> {
        let subscription = self.subscription(queue)?;
        let cursor = self.cursor(subscription, partition)?;
        let after = cursor.map_or(-1, |(offset, _)| offset);
        let end = end_of(self.conn, partition)?;
        let to = (end - 1).min(after.saturating_add(*left));
        if to <= after {
            return Ok(after + 1 < end);
        }
        let key = params![subscription, partition, after + 1, to];
        // What was cancelled there has its dead letter.
        let mut list = self.conn.prepare_cached(sql("log_kinds"))?;
        let mut rows = list.query(params![partition, after + 1, to])?;
        while let Some(row) = rows.next()? {
            *kinds.entry(row.get::<_, Option<String>>(0)?.unwrap_or_default()).or_default() +=
                row.get::<_, u64>(1)?;
        }
        let mut list = self.conn.prepare_cached(sql("cancel_kinds"))?;
        let mut rows = list.query(key)?;
        while let Some(row) = rows.next()? {
            let kind = kinds.entry(row.get::<_, Option<String>>(0)?.unwrap_or_default()).or_default();
            *kind = kind.saturating_sub(row.get(1)?);
        }
        self.move_cursor(subscription, partition, cursor, to)?;
        self.conn.prepare_cached(sql("history_add"))?.execute(params![
            queue.0,
            partition,
            after + 1,
            to,
            None::<&str>,
            self.now.as_micros(),
            self.now.as_micros(),
            [RUN_PURGED],
        ])?;
        *left -= to - after;
        Ok(to + 1 < end)
    }

    /// Deletes what waits in the outbox; answers whether something is left.
    fn purge_waiting(&self, queue: QueueId, left: i64, kinds: &mut BTreeMap<String, u64>) -> Tried<bool> {
        let mut list = self.conn.prepare_cached(sql("outbox_of_queue"))?;
        // One more than may go, so that it is known whether something is left.
        let rows = list.query_map(params![queue.0, left + 1], |row| row.get(0))?;
        let waiting = rows.collect::<rusqlite::Result<Vec<i64>>>()?;
        let left = usize::try_from(left).unwrap_or(0);
        let mut drop = self.conn.prepare_cached(sql("outbox_drop"))?;
        for seq in waiting.iter().take(left) {
            let kind: Option<String> = drop.query_row([seq], |row| row.get(0))?;
            *kinds.entry(kind.unwrap_or_default()).or_default() += 1;
        }
        Ok(left < waiting.len())
    }

    /// One event for each kind of work, and the counters.
    fn purged(&mut self, queue: QueueId, kinds: &BTreeMap<String, u64>, act: &Act) -> Tried<u64> {
        let mut messages = 0;
        for (kind, count) in kinds.iter().filter(|(_, count)| **count != 0) {
            self.conn.prepare_cached(sql("event_add_bulk"))?.execute(params![
                queue.0,
                EventKind::Dlq.as_str(),
                DropReason::Purged.as_str(),
                act.reason,
                self.now.as_micros(),
                count,
                (!kind.is_empty()).then_some(kind),
            ])?;
            self.count(queue, Some(kind), |counts| counts.dead += *count as i64);
            messages += count;
        }
        Ok(messages)
    }
}

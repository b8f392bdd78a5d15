//! Purge: what waits in a queue is dropped. What is ready is passed by a marker claim, so that it costs the same
//! whatever the backlog; what waits in the outbox is deleted; what is leased is left alone.

use std::collections::BTreeMap;

use millpond_core::reason::{DropReason, EventKind};
use millpond_core::store::Purged;

use crate::connection::Param;
use crate::error::Tried;
use crate::event::NewEvent;
use crate::lease::move_cursor;
use crate::literal::List;
use crate::operate::Change;
use crate::runs::purged;

/// Most messages of one call, whatever is asked for: it holds the claim locks of its queue.
const PURGED_MAX: usize = 10_000;

/// How many messages of which work.
type Kinds = BTreeMap<String, u64>;

impl Change<'_> {
    /// Drops at most `rows_max` messages: what is ready, then what waits in the outbox.
    pub(crate) async fn purge(&self, name: &str, rows_max: usize) -> Tried<Purged> {
        let queue = self.declared(name, "purge").await?;
        let (mut kinds, mut more) = (Kinds::new(), false);
        let mut left = rows_max.min(PURGED_MAX) as i64;
        // In the order of their locks (R2).
        for part in self.connection.rows("partition_list", &[&queue]).await? {
            more |= self.purge_part(queue, part.get(0), part.get(1), &mut left, &mut kinds).await?;
        }
        more |= self.purge_waiting(queue, left, &mut kinds).await?;
        let messages = self.purged(queue, &kinds).await?;
        self.audit(messages).await?;
        Ok(Purged { messages, more })
    }

    /// Passes what is ready in one part; answers whether something is left.
    async fn purge_part(
        &self,
        queue: i32,
        partition: i32,
        subscription: i32,
        left: &mut i64,
        kinds: &mut Kinds,
    ) -> Tried<bool> {
        let key: [Param<'_>; 2] = [&subscription, &partition];
        self.connection.row("claim_lock_part", &key).await?;
        let cursor = self.connection.row_if_any("claim_cursor", &key).await?;
        let (after, marker): (i64, bool) = cursor.map_or((-1, false), |row| (row.get(0), row.get(1)));
        let end: i64 = self.connection.row("log_end", &[&partition]).await?.get(0);
        let to = (end - 1).min(after.saturating_add(*left));
        if to <= after {
            return Ok(after + 1 < end);
        }
        let from = after + 1;
        let range: [Param<'_>; 4] = [&subscription, &partition, &from, &to];
        for row in self.connection.rows("log_kinds", &range).await? {
            *kinds.entry(row.get::<_, Option<String>>(0).unwrap_or_default()).or_default() +=
                row.get::<_, u64>(1);
        }
        let now = self.now.as_micros();
        move_cursor(self.connection, (subscription, partition), (after, marker), to).await?;
        let runs = purged();
        let history: [Param<'_>; 6] = [&queue, &partition, &from, &to, &now, &runs];
        self.connection.run("history_add_purged", &history).await?;
        *left -= to - after;
        Ok(to + 1 < end)
    }

    /// Deletes what waits in the outbox; answers whether something is left.
    async fn purge_waiting(&self, queue: i32, left: i64, kinds: &mut Kinds) -> Tried<bool> {
        let params: [Param<'_>; 2] = [&queue, &left];
        let rows = self.connection.rows("outbox_drop", &params).await?;
        for row in &rows {
            *kinds.entry(row.get::<_, Option<String>>(1).unwrap_or_default()).or_default() += 1;
        }
        let gone = List(rows.iter().map(|row| row.get::<_, i64>(0)).collect());
        self.connection.run("outbox_moved", &[&gone]).await?;
        Ok(self.connection.row("outbox_has", &[&queue]).await?.get(0))
    }

    /// One event for each kind of work, and the counters.
    async fn purged(&self, queue: i32, kinds: &Kinds) -> Tried<u64> {
        let mut messages = 0;
        for (kind, count) in kinds.iter().filter(|(_, count)| **count != 0) {
            let dropped = NewEvent::of(None, queue, EventKind::Dlq, DropReason::Purged.as_str());
            let name = (!kind.is_empty()).then_some(kind.as_str());
            self.event(&NewEvent { error: self.act.reason.as_deref(), name, count: *count, ..dropped })
                .await?;
            self.count(queue, name, 0, i32::try_from(*count).unwrap_or(i32::MAX)).await?;
            messages += count;
        }
        Ok(messages)
    }
}

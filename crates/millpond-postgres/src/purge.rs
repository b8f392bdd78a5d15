//! Purge: what waits in a queue is dropped. What is ready is passed by a marker claim, so that it costs the same
//! whatever the backlog; what waits in the outbox is deleted; what is leased is left alone.

use std::collections::BTreeMap;

use millpond_core::reason::{DropReason, EventKind};
use millpond_core::store::Purged;
use tokio_postgres::types::Type;

use crate::bits::Bits;
use crate::cell::count;
use crate::connection::Param;
use crate::error::Tried;
use crate::event::NewEvent;
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
        for part in self.connection.rows("partition_list", &[(&queue, Type::INT4)]).await? {
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
        self.connection.row("claim_partition_lock", &[(&partition, Type::INT4)]).await?;
        let key: [Param<'_>; 2] = [(&subscription, Type::INT4), (&partition, Type::INT4)];
        let cursor = self.connection.row_if_any("claim_cursor", &key).await?;
        let (after, marker): (i64, bool) = cursor.map_or((-1, false), |row| (row.get(0), row.get(1)));
        let end: i64 = self.connection.row("log_end", &[(&partition, Type::INT4)]).await?.get(0);
        let to = (end - 1).min(after.saturating_add(*left));
        if to <= after {
            return Ok(after + 1 < end);
        }
        let from = after + 1;
        let range: [Param<'_>; 4] =
            [(&subscription, Type::INT4), (&partition, Type::INT4), (&from, Type::INT8), (&to, Type::INT8)];
        for row in self.connection.rows("log_kinds", &range).await? {
            *kinds.entry(row.get::<_, Option<String>>(0).unwrap_or_default()).or_default() += count(&row, 1);
        }
        let now = self.now.as_micros();
        let given = self.connection.now();
        let cursor: [Param<'_>; 6] = [
            (&given, Type::INT8),
            (&subscription, Type::INT4),
            (&partition, Type::INT4),
            (&after, Type::INT8),
            (&marker, Type::BOOL),
            (&to, Type::INT8),
        ];
        self.connection.row("claim_move_cursor", &cursor).await?;
        let runs = Bits::from(purged());
        let history: [Param<'_>; 6] = [
            (&queue, Type::INT4),
            (&partition, Type::INT4),
            (&from, Type::INT8),
            (&to, Type::INT8),
            (&now, Type::INT8),
            (&runs, Type::VARBIT),
        ];
        self.connection.run("history_add", &history).await?;
        *left -= to - after;
        Ok(to + 1 < end)
    }

    /// Deletes what waits in the outbox; answers whether something is left.
    async fn purge_waiting(&self, queue: i32, left: i64, kinds: &mut Kinds) -> Tried<bool> {
        let params: [Param<'_>; 2] = [(&queue, Type::INT4), (&left, Type::INT8)];
        for row in self.connection.rows("outbox_drop", &params).await? {
            *kinds.entry(row.get::<_, Option<String>>(0).unwrap_or_default()).or_default() += 1;
        }
        Ok(self.connection.row("outbox_has", &[(&queue, Type::INT4)]).await?.get(0))
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

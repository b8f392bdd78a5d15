//! The outbox of the store: due rows move to the log, each deleted and appended in one transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use millpond_core::error::Result;
use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::reason::OutboxReason;
use millpond_core::store::{Begun, BoxFuture, EffectTx, Outbox, QueueId, Relayed};
use millpond_core::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::connect::SqliteStore;
use crate::draft::Part;
use crate::error::Tried;
use crate::sabotage::sabotaged;
use crate::sql::sql;
use crate::writer::{Durable, Tx};

impl Outbox for SqliteStore {
    fn relay(&self, rows_max: usize) -> BoxFuture<'_, Result<Relayed>> {
        self.writer.write(Durable::No, "move due messages to the log", move |tx| tx.relay(rows_max))
    }

    fn open(&self, limit: Duration) -> BoxFuture<'_, Result<Box<dyn EffectTx>>> {
        Box::pin(async move {
            match self.begin_unit(None, limit).await? {
                Begun::Open(tx) => Ok(tx),
                Begun::AlreadyDone => unreachable!("it belongs to no job"),
            }
        })
    }

    fn arrived(&self, ids: Vec<MessageId>) -> BoxFuture<'_, Result<Vec<MessageId>>> {
        self.read("look for messages of a transaction", move |conn, _| {
            let mut arrived = conn.prepare_cached(sql("within_arrived"))?;
            let mut there = Vec::new();
            for id in &ids {
                if arrived.exists([id.0])? {
                    there.push(*id);
                }
            }
            Ok(there)
        })
    }
}

/// A due row.
struct DueRow {
    seq: i64,
    part: Part,
}

impl Tx<'_> {
    fn relay(&mut self, rows_max: usize) -> Tried<Relayed> {
        let due = self.due(rows_max)?;
        let mut append = self.conn.prepare_cached(sql("log_append_from_outbox"))?;
        let mut delete = self.conn.prepare_cached(sql("outbox_delete"))?;
        let mut queues = BTreeSet::new();
        for row in &due {
            if sabotaged("relay_forgets") && row.seq % 4 == 0 {
                delete.execute([row.seq])?;
                continue;
            }
            let partition = self.partition(row.part)?;
            let (offset, published_at) = self.take_offsets(partition, 1)?;
            append.execute(params![partition, offset, published_at.as_micros(), row.seq])?;
            delete.execute([row.seq])?;
            queues.insert(row.part.queue);
        }
        let mut next = self.conn.prepare_cached(sql("outbox_next"))?;
        let next_due = next.query_row([], |row| row.get(0)).optional()?.map(Timestamp::from_micros);
        Ok(Relayed { moved: due.len(), queues: queues.into_iter().collect(), next_due })
    }

    fn due(&self, rows_max: usize) -> Tried<Vec<DueRow>> {
        let mut list = self.conn.prepare_cached(sql("outbox_due"))?;
        let rows = list.query_map(params![self.now.as_micros(), rows_max as i64], |row| {
            let reason: String = row.get(3)?;
            let lane = lane_of(OutboxReason::parse(&reason), row.get(4)?);
            let part = Part { queue: QueueId(row.get(1)?), class: row.get(2)?, lane };
            Ok(DueRow { seq: row.get(0)?, part })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// What comes back has its own lane, suspects one of their own (R8).
fn lane_of(reason: Option<OutboxReason>, suspect: u16) -> Lane {
    match reason {
        _ if suspect != 0 => Lane::Suspect,
        None | Some(OutboxReason::Tx | OutboxReason::Delay | OutboxReason::Handoff) => Lane::Main,
        Some(OutboxReason::Retry | OutboxReason::Snooze | OutboxReason::Limited | OutboxReason::Reclaim) => {
            Lane::Return
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_has_its_own_lane() {
        assert_eq!(lane_of(Some(OutboxReason::Delay), 0), Lane::Main);
        assert_eq!(lane_of(Some(OutboxReason::Retry), 0), Lane::Return);
        assert_eq!(lane_of(Some(OutboxReason::Reclaim), 8), Lane::Suspect);
    }
}

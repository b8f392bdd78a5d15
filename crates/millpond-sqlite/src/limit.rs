//! Limits of a queue over all nodes: what is in hand of it, and the bucket of its rate. BEGIN has taken the one claim
//! lock of every queue, in a statement before these (R5).

use millpond_core::limit::{Held, Room};
use millpond_core::store::{Lease, LeaseRequest, Queue, QueueId};
use millpond_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, named_params};

use crate::draft::Part;
use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

impl Tx<'_> {
    /// Leases what there is room for, and charges it.
    pub(crate) fn lease_limited(&mut self, request: &LeaseRequest) -> Tried<Lease> {
        let queue = request.queue;
        let limits = self.queue_of(queue)?.settings.limits();
        let bucket = (self.full_at(queue)?, self.now);
        let held = self.held(queue)?;
        match limits.room(held, bucket, request.messages_max, request.one_by_one) {
            Room::None { limit, wait } => match self.is_ready(request)? {
                true => Ok(Lease::Limited { limit, wait }),
                false => Ok(Lease::Empty),
            },
            Room::Messages(messages_max) => {
                let lease = self.lease_turns(&LeaseRequest { messages_max, ..request.clone() })?;
                if let Lease::Claim(claim) = &lease
                    && let Some(full_at) = limits.charged(bucket.0, self.now, claim.messages.len())
                {
                    let charge = named_params! { ":queue": queue.0, ":full_at": full_at.as_micros() };
                    self.conn.prepare_cached(sql("limit_charge"))?.execute(charge)?;
                }
                Ok(lease)
            }
        }
    }

    /// Notes whether a queue has a limit, after its settings have changed.
    pub(crate) fn note_limit(&self, queue: &Queue) -> Tried<()> {
        let note = if queue.settings.limits().any() { "limit_add" } else { "limit_drop" };
        self.conn.prepare_cached(sql(note))?.execute(named_params! { ":queue": queue.id.0 })?;
        Ok(())
    }

    /// What the live claims of a queue hold.
    fn held(&mut self, queue: QueueId) -> Tried<Held> {
        let subscription = self.subscription(queue)?;
        let mut live = self.conn.prepare_cached(sql("claim_live"))?;
        let mut rows = live.query([subscription])?;
        let mut held = Held::default();
        while let Some(row) = rows.next()? {
            held.claims += 1;
            held.messages += unsettled(row, 0)?;
        }
        Ok(held)
    }

    /// Whether a part that is asked for has messages beyond its cursor.
    fn is_ready(&mut self, request: &LeaseRequest) -> Tried<bool> {
        let subscription = self.subscription(request.queue)?;
        for (class, lane) in &request.turns {
            let part = Part { queue: request.queue, class: *class, lane: *lane };
            let Some(partition) = self.known_partition(part)? else { continue };
            let cursor = self.cursor(subscription, partition)?.map_or(-1, |(offset, _)| offset);
            if cursor + 1 < self.next_offset(partition)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn full_at(&self, queue: QueueId) -> Tried<Timestamp> {
        let mut get = self.conn.prepare_cached(sql("limit_get"))?;
        let full_at = get.query_row(named_params! { ":queue": queue.0 }, |row| row.get(0)).optional()?;
        Ok(Timestamp::from_micros(full_at.unwrap_or(0)))
    }
}

/// The buckets of the queues that have limits.
pub(crate) fn buckets(conn: &Connection) -> Tried<Vec<(QueueId, Timestamp)>> {
    let mut list = conn.prepare_cached(sql("limit_list"))?;
    let rows = list.query_map([], |row| Ok((QueueId(row.get(0)?), Timestamp::from_micros(row.get(1)?))))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// How many messages of a claim are unsettled, from its ends and its done set in three columns.
pub(crate) fn unsettled(row: &Row<'_>, first: usize) -> rusqlite::Result<usize> {
    let (from, to, done): (i64, i64, Vec<u8>) = (row.get(first)?, row.get(first + 1)?, row.get(first + 2)?);
    let settled: u32 = done.iter().map(|byte| byte.count_ones()).sum();
    Ok(usize::try_from(to - from + 1).unwrap_or(0).saturating_sub(settled as usize))
}

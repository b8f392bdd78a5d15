//! Lease: the next messages after the cursor, and one claim for exactly those.

use millpond_core::message::{Leased, MessageId, Offset};
use millpond_core::pick::Lane;
use millpond_core::store::{CLAIM_MESSAGES_MAX, Claim, ClaimRef, Lease, LeaseRequest, QueueId};
use millpond_core::time::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::cancel::Cursor;
use crate::draft::Part;
use crate::error::Tried;
use crate::sabotage::sabotaged;
use crate::sql::sql;
use crate::writer::Tx;

/// What may hold a queue.
struct Gate {
    paused: bool,
    /// It has a limit over all nodes.
    limited: bool,
}

impl Tx<'_> {
    /// Takes from the first part that has messages, if no pause holds them, and within the limits of the queue.
    pub(crate) fn lease(&mut self, request: &LeaseRequest) -> Tried<Lease> {
        match self.gate(request.queue)? {
            Gate { paused: true, .. } => Ok(Lease::Paused),
            Gate { limited: true, .. } => self.lease_limited(request),
            Gate { .. } => self.lease_turns(request),
        }
    }

    /// Takes from the first part that has messages.
    pub(crate) fn lease_turns(&mut self, request: &LeaseRequest) -> Tried<Lease> {
        for (class, lane) in &request.turns {
            let part = Part { queue: request.queue, class: *class, lane: *lane };
            let Some(partition) = self.known_partition(part)? else { continue };
            match self.lease_part(request, partition, *lane)? {
                Lease::Empty => {}
                found => return Ok(found),
            }
        }
        Ok(Lease::Empty)
    }

    /// What may hold a queue.
    fn gate(&self, queue: QueueId) -> Tried<Gate> {
        let mut gate = self.conn.prepare_cached(sql("lease_gate"))?;
        let row = |row: &Row<'_>| Ok(Gate { paused: row.get(0)?, limited: row.get(1)? });
        Ok(gate.query_row(params![queue.0, self.now.as_micros()], row)?)
    }

    fn lease_part(&mut self, request: &LeaseRequest, partition: i64, lane: Lane) -> Tried<Lease> {
        let subscription = self.subscription(request.queue)?;
        let mut top = self.cursor(subscription, partition)?;
        let mut messages = self.read_after(request, partition, top, lane)?;
        if messages.is_empty() {
            return Ok(Lease::Empty);
        }
        let (passed, marks) = self.pass_cancelled(subscription, partition, top)?;
        if passed != top {
            top = passed;
            messages = self.read_after(request, partition, top, lane)?;
        }
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else { return Ok(Lease::Empty) };
        if first.suspect == 1 && !request.hands_empty {
            return Ok(Lease::EmptyHandsFirst);
        }
        let (from_offset, to_offset) = (first.offset, last.offset);
        let cancelled =
            if marks { self.without_cancelled(subscription, partition, &mut messages)? } else { None };
        if messages.is_empty() {
            self.move_cursor(subscription, partition, top, to_offset.0 as i64)?;
            return Ok(Lease::Empty);
        }
        let held = ClaimRef { subscription, partition, to_offset, token: request.token };
        self.conn.prepare_cached(sql("claim_take"))?.execute(params![
            subscription,
            partition,
            to_offset.0,
            from_offset.0,
            request.token.0,
            request.worker,
            self.now.as_micros(),
        ])?;
        if let Some((done, runs)) = cancelled {
            let progress = params![subscription, partition, to_offset.0, done, runs];
            self.conn.prepare_cached(sql("claim_progress"))?.execute(progress)?;
        }
        // The old cursor, if all of it is settled, is not needed below a higher claim.
        if let Some((offset, true)) = top {
            self.conn.prepare_cached(sql("claim_delete"))?.execute(params![
                subscription,
                partition,
                offset
            ])?;
        }
        for run in messages.chunk_by(|one, next| one.kind == next.kind) {
            self.count(request.queue, run[0].kind.as_deref(), |counts| counts.leased += run.len() as i64);
        }
        Ok(Lease::Claim(Claim { held, messages, leased_at: self.now }))
    }

    /// The highest claim of a subscription in a partition (R7), and whether it is a marker.
    pub(crate) fn cursor(&self, subscription: i64, partition: i64) -> Tried<Option<(i64, bool)>> {
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut top = self.conn.prepare_cached(sql("claim_top"))?;
        Ok(top.query_row(params![subscription, partition], row).optional()?)
    }

    /// Reads up to the limits of the request: rows, bytes, and in the suspect lane one group.
    fn read_after(
        &self,
        request: &LeaseRequest,
        partition: i64,
        cursor: Cursor,
        lane: Lane,
    ) -> Tried<Vec<Leased>> {
        let after = cursor.map_or(-1, |(offset, _)| offset);
        let most = request.messages_max.min(CLAIM_MESSAGES_MAX);
        let mut read = self.conn.prepare_cached(sql("log_read"))?;
        let mut rows = read.query(params![partition, after, most as i64])?;
        let (mut messages, mut bytes) = (Vec::<Leased>::with_capacity(most.min(64)), 0_usize);
        while let Some(row) = rows.next()? {
            let message = leased(row)?;
            bytes = bytes.saturating_add(message.body.len());
            let group = messages.first().map(|first| first.suspect);
            let group_full = lane == Lane::Suspect
                && group
                    .is_some_and(|group| group != message.suspect || usize::from(group) <= messages.len());
            if group_full || (!messages.is_empty() && request.bytes_max < bytes) {
                break;
            }
            messages.push(message);
        }
        Ok(messages)
    }
}

/// A row of `log_read` or `log_read_range`. The attempt is counted here: to be in a claim is to be leased.
pub(crate) fn leased(row: &Row<'_>) -> rusqlite::Result<Leased> {
    let body: Vec<u8> = row.get(13)?;
    let charged: u32 = row.get(2)?;
    let intact = body.is_empty() || crc32fast::hash(&body) == row.get::<_, u32>(8)?;
    Ok(Leased {
        offset: Offset(row.get::<_, i64>(0)?.unsigned_abs()),
        id: MessageId(row.get(1)?),
        attempt: if sabotaged("attempt_on_failure") { charged.max(1) } else { charged + 1 },
        releases: row.get(3)?,
        suspect: row.get(4)?,
        sent_at: Timestamp::from_micros(row.get(5)?),
        attempts_max: row.get(6)?,
        retry_until: row.get::<_, Option<i64>>(7)?.map(Timestamp::from_micros),
        kind: row.get(9)?,
        key: row.get(10)?,
        content_type: row.get(11)?,
        headers: row.get(12)?,
        body,
        intact,
    })
}

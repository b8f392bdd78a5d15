//! Settle: how deliveries ended, by the token of their claim.

use millpond_core::fingerprint::fingerprint;
use millpond_core::message::{Due, MessageId, Offset, Token};
use millpond_core::queue::HistoryLevel;
use millpond_core::reason::{Back, DropReason, EventKind};
use millpond_core::settle::Settlement;
use millpond_core::store::{ClaimRef, SettleClaim, SettleItem, Settled};
use millpond_core::time::micros;
use rusqlite::{OptionalExtension, params};

use crate::draft::Part;
use crate::error::Tried;
use crate::sabotage::sabotaged;
use crate::sql::sql;
use crate::writer::Tx;

/// Bytes of one message in a claim's or history row's `runs`: its outcome, and its run time in microseconds.
pub(crate) const RUN_BYTES: usize = 5;

/// The outcome of a message that was acknowledged.
pub(crate) const RUN_DONE: u8 = 1;

/// It was cancelled before the lease that reached it: it was never delivered.
pub(crate) const RUN_CANCELLED: u8 = 4;

/// The whole of a history row, in one byte: its messages were dropped, and nobody had them.
pub(crate) const RUN_PURGED: u8 = 5;

/// A claim as it is stored.
struct StoredClaim {
    from_offset: i64,
    worker: Option<String>,
    leased_at: i64,
    done: Vec<u8>,
    runs: Vec<u8>,
}

/// What an event, an inbox look-up and a counter must know about one message.
struct Identity {
    id: MessageId,
    charged: u32,
    releases: u32,
}

/// One message that does not end with an acknowledgement.
struct Case<'c> {
    part: Part,
    held: &'c ClaimRef,
    worker: Option<&'c str>,
    item: &'c SettleItem,
    message: Identity,
}

impl Tx<'_> {
    /// Settles the items of one claim, or nothing if it is no longer held.
    pub(crate) fn settle(&mut self, claim: &SettleClaim) -> Tried<Settled> {
        let held = claim.held;
        let (Some(mut stored), Some(part)) = (self.stored_claim(&held)?, self.place(held.partition)?) else {
            return Ok(Settled::LeaseLost);
        };
        let count = held.to_offset.0.saturating_sub(stored.from_offset.unsigned_abs()) as usize + 1;
        stored.done.resize(count.div_ceil(8), 0);
        stored.runs.resize(count * RUN_BYTES, 0);
        let mut done_anyway = Vec::new();
        for item in &claim.items {
            let place = item.offset.0.wrapping_sub(stored.from_offset.unsigned_abs()) as usize;
            // Outside the claim, or settled before by the same lease: nothing to do.
            if count <= place || is_set(&stored.done, place) {
                continue;
            }
            let outcome = self.settle_item(part, &held, stored.worker.as_deref(), item)?;
            self.count(part.queue, item.kind.as_deref(), |counts| counts.run += micros(item.run));
            if outcome == Outcome::DoneAnyway {
                done_anyway.push(item.offset);
            }
            stored.done[place / 8] |= 1 << (place % 8);
            record_run(&mut stored.runs[place * RUN_BYTES..][..RUN_BYTES], outcome, item);
        }
        self.store_progress(part, &held, &stored, count)?;
        Ok(Settled::Applied { done_anyway })
    }

    fn stored_claim(&self, held: &ClaimRef) -> Tried<Option<StoredClaim>> {
        let mut get = self.conn.prepare_cached(sql("claim_get"))?;
        let row = |row: &rusqlite::Row<'_>| {
            let token: Option<[u8; 16]> = row.get(1)?;
            let claim = StoredClaim {
                from_offset: row.get(0)?,
                worker: row.get(2)?,
                leased_at: row.get(3)?,
                done: row.get(4)?,
                runs: row.get(5)?,
            };
            Ok((token.map(Token), claim))
        };
        let found =
            get.query_row(params![held.subscription, held.partition, held.to_offset.0], row).optional()?;
        Ok(match found {
            Some((Some(token), claim)) if token == held.token || sabotaged("no_fence") => Some(claim),
            _ => None,
        })
    }

    /// Where a held claim begins, and its done set; nothing when it is not held.
    pub(crate) fn progress(&self, held: &ClaimRef) -> Tried<Option<(i64, Vec<u8>)>> {
        Ok(self.stored_claim(held)?.map(|claim| (claim.from_offset, claim.done)))
    }

    fn settle_item(
        &mut self,
        part: Part,
        held: &ClaimRef,
        worker: Option<&str>,
        item: &SettleItem,
    ) -> Tried<Outcome> {
        if item.settlement == Settlement::Done {
            self.count(part.queue, item.kind.as_deref(), |counts| counts.done += 1);
            return Ok(Outcome::Done);
        }
        let Some(message) = self.identity(held.partition, item.offset)? else { return Ok(Outcome::Done) };
        // The claim is locked, by BEGIN; an effect of this message either committed before and is seen in this
        // statement, or cannot commit any more (R15).
        if !sabotaged("late_inbox_check") && self.in_inbox(held.subscription, message.id)? {
            self.count(part.queue, item.kind.as_deref(), |counts| counts.done += 1);
            return Ok(Outcome::DoneAnyway);
        }
        let case = Case { part, held, worker, item, message };
        if let Some(asked) = self.take_cancel(held, item.offset)? {
            return self.bury(&case, DropReason::Cancelled, Some(&asked));
        }
        match &item.settlement {
            Settlement::Done => Ok(Outcome::Done),
            Settlement::Again { due, attempt, releases, suspect, back } => {
                self.put_back(&case, *due, (*attempt, *releases, *suspect), *back)
            }
            Settlement::Dead { reason, detail } => self.bury(&case, *reason, detail.as_deref()),
        }
    }

    fn identity(&self, partition: i64, offset: Offset) -> Tried<Option<Identity>> {
        let row = |row: &rusqlite::Row<'_>| {
            Ok(Identity { id: MessageId(row.get(0)?), charged: row.get(1)?, releases: row.get(2)? })
        };
        let mut get = self.conn.prepare_cached(sql("log_identity"))?;
        Ok(get.query_row(params![partition, offset.0], row).optional()?)
    }

    pub(crate) fn in_inbox(&self, subscription: i64, id: MessageId) -> Tried<bool> {
        let mut has = self.conn.prepare_cached(sql("inbox_has"))?;
        Ok(has.query_row(params![subscription, id.0], |row| row.get(0))?)
    }

    fn put_back(
        &mut self,
        case: &Case<'_>,
        due: Due,
        (attempt, releases, suspect): (u32, u32, u16),
        back: Back,
    ) -> Tried<Outcome> {
        let Case { part, held, item, .. } = case;
        self.conn.prepare_cached(sql("outbox_put_back"))?.execute(params![
            held.partition,
            item.offset.0,
            held.subscription,
            part.queue.0,
            part.class,
            back.outbox().as_str(),
            due.resolve(self.now).as_micros(),
            self.now.as_micros(),
            attempt,
            releases,
            suspect,
            item.error,
        ])?;
        let (kind, reason) = back.event();
        self.event(case, kind, reason, item.error.as_deref())?;
        self.count(part.queue, item.kind.as_deref(), |counts| match kind {
            EventKind::Recover => counts.recovered += 1,
            _ => counts.retried += 1,
        });
        Ok(Outcome::Back)
    }

    fn bury(&mut self, case: &Case<'_>, reason: DropReason, detail: Option<&str>) -> Tried<Outcome> {
        let Case { part, held, item, message, worker } = case;
        let detail = detail.or(item.error.as_deref());
        let name = self.queue_of(part.queue)?.name;
        let kind = item.kind.as_deref().unwrap_or(&name);
        let class = item.class.as_deref();
        self.conn.prepare_cached(sql("dead_letter_put"))?.execute(params![
            held.partition,
            item.offset.0,
            held.subscription,
            part.queue.0,
            part.class,
            reason.as_str(),
            detail,
            self.now.as_micros(),
            message.charged + 1,
            class,
            fingerprint(kind, reason.as_str(), class, detail),
            worker,
        ])?;
        self.event(case, EventKind::Dlq, reason.as_str(), detail)?;
        self.count(part.queue, item.kind.as_deref(), |counts| counts.dead += 1);
        Ok(Outcome::Dead)
    }

    fn event(&mut self, case: &Case<'_>, kind: EventKind, reason: &str, error: Option<&str>) -> Tried<()> {
        let Case { part, worker, item, message, .. } = case;
        self.conn.prepare_cached(sql("event_add"))?.execute(params![
            message.id.0,
            part.queue.0,
            kind.as_str(),
            reason,
            message.charged + 1,
            message.releases,
            worker,
            error,
            self.now.as_micros(),
            (!item.run.is_zero()).then(|| micros(item.run)),
            item.kind,
        ])?;
        Ok(())
    }

    /// Writes the done set back, or finishes the claim.
    fn store_progress(
        &mut self,
        part: Part,
        held: &ClaimRef,
        claim: &StoredClaim,
        count: usize,
    ) -> Tried<()> {
        let key = params![held.subscription, held.partition, held.to_offset.0];
        let settled: u32 = claim.done.iter().map(|byte| byte.count_ones()).sum();
        if (settled as usize) < count {
            self.conn.prepare_cached(sql("claim_progress"))?.execute(params![
                held.subscription,
                held.partition,
                held.to_offset.0,
                claim.done,
                claim.runs,
            ])?;
            return Ok(());
        }
        let above: bool = self.conn.prepare_cached(sql("claim_above"))?.query_row(key, |row| row.get(0))?;
        // The highest claim is the cursor: it stays, as a marker (R7).
        let end = if above || sabotaged("highest_claim_deleted") { "claim_delete" } else { "claim_mark" };
        self.conn.prepare_cached(sql(end))?.execute(key)?;
        if self.history_level(part.queue)? == HistoryLevel::All {
            self.conn.prepare_cached(sql("history_add"))?.execute(params![
                part.queue.0,
                held.partition,
                claim.from_offset,
                held.to_offset.0,
                claim.worker,
                claim.leased_at,
                self.now.as_micros(),
                claim.runs,
            ])?;
        }
        Ok(())
    }
}

/// What became of a message, as its claim and history row remember it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Its effect had been committed before.
    DoneAnyway,
    Back,
    Dead,
}

fn record_run(run: &mut [u8], outcome: Outcome, item: &SettleItem) {
    run[0] = match outcome {
        Outcome::Done | Outcome::DoneAnyway => RUN_DONE,
        Outcome::Back => 2,
        Outcome::Dead => 3,
    };
    let micros = u32::try_from(item.run.as_micros()).unwrap_or(u32::MAX);
    run[1..RUN_BYTES].copy_from_slice(&micros.to_le_bytes());
}

/// The done set and the runs of a claim over `count` messages of which those at `places` are cancelled.
pub(crate) fn cancelled_progress(count: usize, places: impl Iterator<Item = usize>) -> (Vec<u8>, Vec<u8>) {
    let (mut done, mut runs) = (vec![0; count.div_ceil(8)], vec![0; count * RUN_BYTES]);
    for place in places {
        done[place / 8] |= 1 << (place % 8);
        runs[place * RUN_BYTES] = RUN_CANCELLED;
    }
    (done, runs)
}

/// Whether the bit of a place is set; what a done set does not hold is clear.
pub(crate) fn is_set(done: &[u8], place: usize) -> bool {
    done.get(place / 8).is_some_and(|byte| byte & (1 << (place % 8)) != 0)
}

/// The outcome and run time that a claim or history row holds for the message at `place`, if it is settled.
pub(crate) fn run_at(runs: &[u8], place: usize) -> Option<(u8, std::time::Duration)> {
    let run = runs.get(place * RUN_BYTES..(place + 1) * RUN_BYTES)?;
    let micros = u32::from_le_bytes([run[1], run[2], run[3], run[4]]);
    (run[0] != 0).then(|| (run[0], std::time::Duration::from_micros(u64::from(micros))))
}

//! Take over: claims whose lease is over get a new token, each by one compare-and-set.

use std::borrow::Cow;
use std::collections::HashMap;

use millpond_core::message::{Leased, Offset, Token};
use millpond_core::store::{ClaimRef, TakeOver, TakenOver};
use millpond_core::time::Timestamp;
use rusqlite::{Connection, Row, params};

use crate::append::lease_end;
use crate::error::Tried;
use crate::lease::leased;
use crate::sabotage::sabotaged;
use crate::settle::is_set;
use crate::sql::sql;
use crate::writer::Tx;

/// What a claim holds, and what of it is settled.
#[derive(Debug, Clone)]
struct Holding {
    subscription: i64,
    partition: i64,
    to_offset: i64,
    from_offset: i64,
    done: Vec<u8>,
}

/// A claim of `claim_expired`.
#[derive(Debug, Clone)]
pub(crate) struct Expired {
    holding: Holding,
    token: [u8; 16],
    worker: String,
    in_hand: Option<u32>,
}

/// The claims that may be taken over now.
pub(crate) fn expired(conn: &Connection, now: Timestamp, request: &TakeOver) -> Tried<Vec<Expired>> {
    if let Some(worker) = &request.worker {
        let named = rusqlite::named_params! { ":id": worker, ":now": now.as_micros() };
        let mut live = conn.prepare_cached(sql("worker_is_live"))?;
        if !live.query_row(named, |row| row.get::<_, bool>(0))? {
            return Ok(Vec::new());
        }
    }
    let mut list = conn.prepare_cached(sql("claim_expired"))?;
    let named = rusqlite::named_params! {
        ":now": now.as_micros(), ":since": request.in_touch_since.as_micros(),
        ":claims_max": request.claims_max as i64,
    };
    let rows = list.query_map(named, |row| {
        Ok(Expired {
            holding: holding(row)?,
            token: row.get(5)?,
            worker: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            in_hand: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

impl Tx<'_> {
    /// Takes the claims over. How many messages a worker had in hand is written into each of its claims, once,
    /// before the first of them changes hands.
    pub(crate) fn take_over(
        &mut self,
        request: &TakeOver,
        expired: &[Expired],
        tokens: &[Token],
    ) -> Tried<Vec<TakenOver>> {
        let mut in_hand = HashMap::new();
        for claim in expired {
            if claim.in_hand.is_none() && !in_hand.contains_key(&claim.worker) {
                let count = self.write_in_hand(&claim.worker)?;
                in_hand.insert(claim.worker.clone(), count);
            }
        }
        let mut taken = Vec::with_capacity(expired.len());
        for (claim, token) in expired.iter().zip(tokens) {
            let company = claim.in_hand.or_else(|| in_hand.get(&claim.worker).copied()).unwrap_or(1);
            taken.extend(self.take_over_one(request, claim, company, *token)?);
        }
        Ok(taken)
    }

    fn take_over_one(
        &mut self,
        request: &TakeOver,
        claim: &Expired,
        in_hand: u32,
        token: Token,
    ) -> Tried<Option<TakenOver>> {
        let Holding { subscription, partition, to_offset, .. } = claim.holding;
        let (Some(part), until) = (self.place(partition)?, lease_end(self.now, request.lease)) else {
            return Ok(None);
        };
        // Nobody can say what becomes of its messages: it is left to a node that can, and holds up no other claim.
        let Some(queue) = self.readable_queue(part.queue)? else { return Ok(None) };
        let swapped = self.conn.prepare_cached(&swap_statement())?.execute(params![
            subscription,
            partition,
            to_offset,
            claim.token,
            token.0,
            until,
        ])?;
        if swapped == 0 {
            return Ok(None);
        }
        // In a statement after the swap: an effect may have committed after the last settle (R9).
        let (unsettled, done) = self.unsettled(&claim.holding)?;
        Ok(Some(TakenOver {
            held: ClaimRef { subscription, partition, to_offset: Offset(to_offset.unsigned_abs()), token },
            old_token: Token(claim.token),
            queue,
            worker: claim.worker.clone(),
            in_hand,
            unsettled,
            done,
        }))
    }

    /// What is unsettled in a claim that is still held: also what the inbox knows, or it would never be settled.
    pub(crate) fn unsettled_of(&self, held: &ClaimRef) -> Tried<Vec<Leased>> {
        let Some((from_offset, done)) = self.progress(held)? else { return Ok(Vec::new()) };
        let ClaimRef { subscription, partition, to_offset, .. } = *held;
        self.open_of(&Holding { subscription, partition, to_offset: to_offset.0 as i64, from_offset, done })
    }

    /// Counts what a worker has in its hands and writes it into its claims.
    fn write_in_hand(&mut self, worker: &str) -> Tried<u32> {
        let mut list = self.conn.prepare_cached(sql("claim_in_hand_of_worker"))?;
        let claims = list.query_map([worker], holding)?.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut count = 0;
        for claim in &claims {
            count += u32::try_from(self.unsettled(claim)?.0.len()).unwrap_or(u32::MAX);
        }
        for claim in &claims {
            self.conn.prepare_cached(sql("claim_set_in_hand"))?.execute(params![
                claim.subscription,
                claim.partition,
                claim.to_offset,
                count,
            ])?;
        }
        Ok(count)
    }

    /// The messages of a claim that are neither settled nor known to the inbox, and those that the inbox knows.
    fn unsettled(&self, claim: &Holding) -> Tried<(Vec<Leased>, Vec<Offset>)> {
        let (mut unsettled, mut done) = (Vec::new(), Vec::new());
        for message in self.open_of(claim)? {
            if !sabotaged("late_inbox_check") && self.in_inbox(claim.subscription, message.id)? {
                done.push(message.offset);
            } else {
                unsettled.push(message);
            }
        }
        Ok((unsettled, done))
    }

    /// The messages of a claim whose done bit is clear.
    fn open_of(&self, claim: &Holding) -> Tried<Vec<Leased>> {
        let is_open = |message: &Leased| {
            let place = message.offset.0.wrapping_sub(claim.from_offset.unsigned_abs()) as usize;
            !is_set(&claim.done, place)
        };
        let mut range = self.conn.prepare_cached(sql("log_read_range"))?;
        let rows = range.query_map(params![claim.partition, claim.from_offset, claim.to_offset], leased)?;
        let mut messages = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        messages.retain(is_open);
        Ok(messages)
    }
}

/// The first columns of `claim_expired` and `claim_in_hand_of_worker`.
fn holding(row: &Row<'_>) -> rusqlite::Result<Holding> {
    Ok(Holding {
        subscription: row.get(0)?,
        partition: row.get(1)?,
        to_offset: row.get(2)?,
        from_offset: row.get(3)?,
        done: row.get(4)?,
    })
}

/// The compare-and-set of a takeover; the control leaves out the comparison.
fn swap_statement() -> Cow<'static, str> {
    let statement = sql("claim_take_over");
    if sabotaged("reclaim_without_cas") {
        return statement.replace(" and token = ?4", "").into();
    }
    statement.into()
}

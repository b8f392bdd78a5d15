//! Settle: how deliveries ended, by the token of their claim. One statement for all claims of a call.

use std::collections::BTreeMap;

use millpond_core::message::Offset;
use millpond_core::pick::Lane;
use millpond_core::reason::OutboxReason;
use millpond_core::settle::Settlement;
use millpond_core::store::{ClaimRef, SettleClaim, SettleItem, Settled};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::bits::Bits;
use crate::columns::{instant, wait};
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::runs::{Outcome, Runs, place};

/// How often a call is asked again with what the answer taught: each time some claim was settled, by another call or
/// by an effect, between two looks.
const LOOKS_MAX: usize = 8;

/// A claim of a call, with what is known of it so far.
struct Pending<'c> {
    /// Its place in the call.
    place: usize,
    claim: &'c SettleClaim,
    /// Settled before, or not in the claim.
    skip: Vec<Offset>,
    /// With a committed effect, though another end was asked for.
    done_anyway: Vec<Offset>,
}

/// Settles the items of each claim, or nothing of it if it is no longer held.
pub(crate) async fn settle(connection: &Connection, claims: &[SettleClaim]) -> Tried<Vec<Settled>> {
    let mut answers: Vec<Settled> = claims.iter().map(|_| Settled::LeaseLost).collect();
    let mut pending: Vec<Pending<'_>> =
        claims.iter().enumerate().map(|(place, claim)| Pending::new(place, claim)).collect();
    // In key order: two calls in opposite orders would wait for each other (R12).
    pending.sort_by_key(|pending| pending.key());
    for _ in 0..LOOKS_MAX {
        if pending.is_empty() {
            break;
        }
        let call = SettleCall::of(&pending);
        let rows = call.run(connection).await?;
        let mut again = Vec::new();
        let unsettled: BTreeMap<usize, &Row> =
            rows.iter().map(|row| (row.get::<_, i32>(0).unsigned_abs() as usize - 1, row)).collect();
        for (index, mut claim) in pending.into_iter().enumerate() {
            match unsettled.get(&index) {
                None => answers[claim.place] = Settled::Applied { done_anyway: claim.done_anyway },
                Some(row) if row.get(1) => {}
                Some(row) => {
                    claim.learn(row)?;
                    again.push(claim);
                }
            }
        }
        pending = again;
    }
    Ok(answers)
}

impl<'c> Pending<'c> {
    fn new(place: usize, claim: &'c SettleClaim) -> Self {
        Self { place, claim, skip: Vec::new(), done_anyway: Vec::new() }
    }

    fn key(&self) -> (i64, i64, Offset) {
        let ClaimRef { subscription, partition, to_offset, .. } = self.claim.held;
        (subscription, partition, to_offset)
    }

    /// The items that are to be settled, each with its place, an offset once.
    fn items(&self) -> Vec<(usize, &'c SettleItem)> {
        let mut items: BTreeMap<usize, &SettleItem> = BTreeMap::new();
        for item in self.claim.items.iter().filter(|item| !self.skip.contains(&item.offset)) {
            if let Some(place) = place(self.claim.held.to_offset, item.offset) {
                items.entry(place).or_insert(item);
            }
        }
        items.into_iter().collect()
    }

    /// What becomes of an item: what was asked for, unless its effect is committed.
    fn settlement(&self, item: &'c SettleItem) -> &'c Settlement {
        if self.done_anyway.contains(&item.offset) { &Settlement::Done } else { &item.settlement }
    }

    /// Takes in why the claim was not settled.
    fn learn(&mut self, row: &Row) -> Tried<()> {
        let size = row.try_get::<_, i32>(2)?.unsigned_abs() as usize;
        let done: Option<Bits> = row.try_get(3)?;
        let known: Option<Vec<i64>> = row.try_get(4)?;
        let settled = |place: usize| size <= place || done.as_ref().is_some_and(|done| done.is_set(place));
        let skip: Vec<Offset> = self
            .items()
            .into_iter()
            .filter(|(place, _)| settled(*place))
            .map(|(_, item)| item.offset)
            .collect();
        self.skip.extend(skip);
        let known = known.unwrap_or_default().into_iter().map(|offset| Offset(offset.unsigned_abs()));
        self.done_anyway.extend(known.filter(|offset| !self.skip.contains(offset)));
        Ok(())
    }
}

/// The parameters of `settle`, one array each.
#[derive(Default)]
struct SettleCall<'c> {
    subscriptions: Vec<i32>,
    partitions: Vec<i32>,
    to_offsets: Vec<i64>,
    tokens: Vec<Uuid>,
    dones: Vec<Bits>,
    runs: Vec<Bits>,
    have_cases: Vec<bool>,
    cases: Cases<'c>,
    stats: Stats,
}

/// What ends otherwise than by an acknowledgement.
#[derive(Default)]
struct Cases<'c> {
    claims: Vec<i32>,
    offsets: Vec<i64>,
    dead: Vec<bool>,
    reasons: Vec<&'static str>,
    lanes: Vec<i16>,
    events: Vec<&'static str>,
    event_reasons: Vec<&'static str>,
    due_at: Vec<Option<i64>>,
    due_in: Vec<Option<i64>>,
    attempts: Vec<i32>,
    releases: Vec<i32>,
    suspects: Vec<i16>,
    errors: Vec<Option<&'c str>>,
    details: Vec<Option<&'c str>>,
}

/// What is added to the counters if a claim is settled.
#[derive(Default)]
struct Stats {
    claims: Vec<i32>,
    kinds: Vec<String>,
    done: Vec<i32>,
    retried: Vec<i32>,
    dead: Vec<i32>,
    recovered: Vec<i32>,
}

/// Counters of one kind: done, retried, dead, recovered.
type Counts = [i32; 4];

impl<'c> SettleCall<'c> {
    fn of(pending: &[Pending<'c>]) -> Self {
        let mut call = Self::default();
        for (number, claim) in (1..).zip(pending) {
            call.add(number, claim);
        }
        call
    }

    fn add(&mut self, number: i32, pending: &Pending<'c>) {
        let ClaimRef { subscription, partition, to_offset, token } = pending.claim.held;
        let items = pending.items();
        let length = items.last().map_or(0, |(place, _)| place + 1);
        let (mut done, mut runs) = (Bits::clear(length), Runs::clear(length));
        let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
        let cases_before = self.cases.claims.len();
        for (place, item) in items {
            let counts = counts.entry(item.kind.as_deref().unwrap_or("")).or_default();
            let outcome = self.cases.add(number, item, pending.settlement(item), counts);
            done.set(place);
            runs.record(place, outcome, item.run);
        }
        self.subscriptions.push(narrow(subscription));
        self.partitions.push(narrow(partition));
        self.to_offsets.push(to_offset.0.cast_signed());
        self.tokens.push(Uuid::from_bytes(token.0));
        self.dones.push(done);
        self.runs.push(runs.into_bits());
        self.have_cases.push(cases_before < self.cases.claims.len());
        self.stats.add(number, counts);
    }

    async fn run(&self, connection: &Connection) -> Tried<Vec<Row>> {
        let (now, Self { cases, stats, .. }) = (connection.now(), self);
        let params: [Param<'_>; 28] = [
            (&now, Type::INT8),
            (&self.subscriptions, Type::INT4_ARRAY),
            (&self.partitions, Type::INT4_ARRAY),
            (&self.to_offsets, Type::INT8_ARRAY),
            (&self.tokens, Type::UUID_ARRAY),
            (&self.dones, Type::VARBIT_ARRAY),
            (&self.runs, Type::VARBIT_ARRAY),
            (&self.have_cases, Type::BOOL_ARRAY),
            (&cases.claims, Type::INT4_ARRAY),
            (&cases.offsets, Type::INT8_ARRAY),
            (&cases.dead, Type::BOOL_ARRAY),
            (&cases.reasons, Type::TEXT_ARRAY),
            (&cases.lanes, Type::INT2_ARRAY),
            (&cases.events, Type::TEXT_ARRAY),
            (&cases.event_reasons, Type::TEXT_ARRAY),
            (&cases.due_at, Type::INT8_ARRAY),
            (&cases.due_in, Type::INT8_ARRAY),
            (&cases.attempts, Type::INT4_ARRAY),
            (&cases.releases, Type::INT4_ARRAY),
            (&cases.suspects, Type::INT2_ARRAY),
            (&cases.errors, Type::TEXT_ARRAY),
            (&cases.details, Type::TEXT_ARRAY),
            (&stats.claims, Type::INT4_ARRAY),
            (&stats.kinds, Type::TEXT_ARRAY),
            (&stats.done, Type::INT4_ARRAY),
            (&stats.retried, Type::INT4_ARRAY),
            (&stats.dead, Type::INT4_ARRAY),
            (&stats.recovered, Type::INT4_ARRAY),
        ];
        connection.rows("settle", &params).await
    }
}

impl<'c> Cases<'c> {
    /// Adds what an item needs beside its bit, and counts it.
    fn add(
        &mut self,
        claim: i32,
        item: &'c SettleItem,
        settlement: &'c Settlement,
        counts: &mut Counts,
    ) -> Outcome {
        match settlement {
            Settlement::Done => {
                counts[0] += 1;
                return Outcome::Done;
            }
            Settlement::Again { due, attempt, releases, suspect, back } => {
                let (event, reason) = back.event();
                counts[if event == millpond_core::reason::EventKind::Recover { 3 } else { 1 }] += 1;
                self.dead.push(false);
                self.reasons.push(back.outbox().as_str());
                self.lanes.push(i16::from(lane_of(back.outbox(), *suspect).number()));
                self.events.push(event.as_str());
                self.event_reasons.push(reason);
                self.due_at.push(instant(Some(*due)));
                self.due_in.push(wait(Some(*due)));
                self.attempts.push(attempt.cast_signed());
                self.releases.push(releases.cast_signed());
                self.suspects.push(suspect.cast_signed());
                self.details.push(None);
                self.errors.push(item.error.as_deref());
            }
            Settlement::Dead { reason, detail } => {
                counts[2] += 1;
                let detail = detail.as_deref().or(item.error.as_deref());
                self.dead.push(true);
                self.reasons.push(reason.as_str());
                self.lanes.push(0);
                self.events.push(millpond_core::reason::EventKind::Dlq.as_str());
                self.event_reasons.push(reason.as_str());
                self.due_at.push(None);
                self.due_in.push(None);
                self.attempts.push(0);
                self.releases.push(0);
                self.suspects.push(0);
                self.details.push(detail);
                self.errors.push(detail);
            }
        }
        self.claims.push(claim);
        self.offsets.push(item.offset.0.cast_signed());
        if matches!(settlement, Settlement::Dead { .. }) { Outcome::Dead } else { Outcome::Back }
    }
}

impl Stats {
    fn add(&mut self, claim: i32, counts: BTreeMap<&str, Counts>) {
        for (kind, [done, retried, dead, recovered]) in counts {
            self.claims.push(claim);
            self.kinds.push(kind.to_owned());
            self.done.push(done);
            self.retried.push(retried);
            self.dead.push(dead);
            self.recovered.push(recovered);
        }
    }
}

/// What comes back has its own lane, suspects one of their own (R8).
fn lane_of(reason: OutboxReason, suspect: u16) -> Lane {
    match reason {
        _ if suspect != 0 => Lane::Suspect,
        OutboxReason::Tx | OutboxReason::Delay | OutboxReason::Handoff => Lane::Main,
        OutboxReason::Retry | OutboxReason::Snooze | OutboxReason::Limited | OutboxReason::Reclaim => {
            Lane::Return
        }
    }
}

/// A number of a partition or subscription, as the database holds it.
pub(crate) fn narrow(number: i64) -> i32 {
    i32::try_from(number).expect("the database gave it out as a 32-bit number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_has_its_own_lane() {
        assert_eq!(lane_of(OutboxReason::Delay, 0), Lane::Main);
        assert_eq!(lane_of(OutboxReason::Retry, 0), Lane::Return);
        assert_eq!(lane_of(OutboxReason::Reclaim, 8), Lane::Suspect);
    }
}

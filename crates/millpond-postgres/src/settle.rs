//! Settle: how deliveries ended, by the token of their claim. One statement for all claims of a call.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use millpond_core::fingerprint::fingerprint;
use millpond_core::message::Offset;
use millpond_core::pick::Lane;
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::settle::Settlement;
use millpond_core::store::{ClaimRef, SettleClaim, SettleItem, Settled};
use millpond_core::time::micros;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::bits::Bits;
use crate::cancel::by;
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
    /// What somebody wanted stopped, with who and why: any end but an acknowledgement makes it a dead letter.
    cancelled: BTreeMap<Offset, Settlement>,
    /// The queue of the claim, where a dead letter must know it.
    home: Option<Arc<str>>,
}

/// The names of the queues of partitions, which never change.
#[derive(Debug, Default)]
pub(crate) struct Homes(Mutex<HashMap<i64, Arc<str>>>);

impl Homes {
    /// The name of the queue of a partition; empty if there is none.
    async fn of(&self, connection: &Connection, partition: i64) -> Tried<Arc<str>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&partition).cloned();
        if let Some(name) = known {
            return Ok(name);
        }
        let row = connection.row_if_any("partition_place", &[(&narrow(partition), Type::INT4)]).await?;
        let name: Arc<str> = row.map_or_else(String::new, |row| row.get(1)).into();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(partition, Arc::clone(&name));
        Ok(name)
    }
}

/// Settles the items of each claim, or nothing of it if it is no longer held.
pub(crate) async fn settle(
    connection: &Connection,
    homes: &Homes,
    claims: &[SettleClaim],
) -> Tried<Vec<Settled>> {
    let mut answers: Vec<Settled> = claims.iter().map(|_| Settled::LeaseLost).collect();
    let mut pending: Vec<Pending<'_>> =
        claims.iter().enumerate().map(|(place, claim)| Pending::new(place, claim)).collect();
    // In key order: two calls in opposite orders would wait for each other (R12).
    pending.sort_by_key(|pending| pending.key());
    for _ in 0..LOOKS_MAX {
        if pending.is_empty() {
            break;
        }
        for claim in pending.iter_mut().filter(|claim| claim.home.is_none() && claim.may_bury()) {
            claim.home = Some(homes.of(connection, claim.claim.held.partition).await?);
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
        let (skip, done_anyway, cancelled) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { place, claim, skip, done_anyway, cancelled, home: None }
    }

    /// Whether something of it becomes a dead letter.
    fn may_bury(&self) -> bool {
        let dies = |item: &SettleItem| matches!(item.settlement, Settlement::Dead { .. });
        !self.cancelled.is_empty() || self.claim.items.iter().any(dies)
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

    /// What becomes of an item: what was asked for, unless its effect is committed or somebody wanted it stopped.
    fn settlement<'s>(&'s self, item: &'s SettleItem) -> &'s Settlement {
        if item.settlement == Settlement::Done || self.done_anyway.contains(&item.offset) {
            return &Settlement::Done;
        }
        self.cancelled.get(&item.offset).unwrap_or(&item.settlement)
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
        let offsets: Option<Vec<i64>> = row.try_get(5)?;
        let (actors, reasons): (Option<Vec<String>>, Option<Vec<Option<String>>>) =
            (row.try_get(6)?, row.try_get(7)?);
        let asked = offsets.unwrap_or_default().into_iter().zip(actors.unwrap_or_default());
        for ((offset, actor), reason) in asked.zip(reasons.unwrap_or_default()) {
            let detail = Some(by(&actor, reason.as_deref()));
            let dead = Settlement::Dead { reason: DropReason::Cancelled, detail };
            self.cancelled.insert(Offset(offset.unsigned_abs()), dead);
        }
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
    classes: Vec<Option<&'c str>>,
    fingerprints: Vec<Option<String>>,
    runs: Vec<Option<i64>>,
    names: Vec<Option<&'c str>>,
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
    run: Vec<i64>,
}

/// Counters of one kind.
#[derive(Default)]
struct Counts {
    done: i32,
    retried: i32,
    dead: i32,
    recovered: i32,
    /// Run times together, in microseconds.
    run: i64,
}

impl<'c> SettleCall<'c> {
    fn of(pending: &'c [Pending<'_>]) -> Self {
        let mut call = Self::default();
        for (number, claim) in (1..).zip(pending) {
            call.add(number, claim);
        }
        call
    }

    fn add(&mut self, number: i32, pending: &'c Pending<'_>) {
        let ClaimRef { subscription, partition, to_offset, token } = pending.claim.held;
        let items = pending.items();
        let length = items.last().map_or(0, |(place, _)| place + 1);
        let (mut done, mut runs) = (Bits::clear(length), Runs::clear(length));
        let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
        let cases_before = self.cases.claims.len();
        for (place, item) in items {
            let counts = counts.entry(item.kind.as_deref().unwrap_or("")).or_default();
            counts.run += micros(item.run);
            let home = pending.home.as_deref().unwrap_or_default();
            let outcome = self.cases.add((number, home), item, pending.settlement(item), counts);
            done.set(place);
            runs.record(place, outcome, item.run);
        }
        self.subscriptions.push(narrow(subscription));
        self.partitions.push(narrow(partition));
        self.to_offsets.push(to_offset.0.cast_signed());
        self.tokens.push(Uuid::from_bytes(token.0));
        self.dones.push(done);
        self.runs.push(runs.into_bits().into());
        self.have_cases.push(cases_before < self.cases.claims.len());
        self.stats.add(number, counts);
    }

    async fn run(&self, connection: &Connection) -> Tried<Vec<Row>> {
        let (now, Self { cases, stats, .. }) = (connection.now(), self);
        let params: [Param<'_>; 33] = [
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
            (&cases.classes, Type::TEXT_ARRAY),
            (&cases.fingerprints, Type::TEXT_ARRAY),
            (&cases.runs, Type::INT8_ARRAY),
            (&cases.names, Type::TEXT_ARRAY),
            (&stats.claims, Type::INT4_ARRAY),
            (&stats.kinds, Type::TEXT_ARRAY),
            (&stats.done, Type::INT4_ARRAY),
            (&stats.retried, Type::INT4_ARRAY),
            (&stats.dead, Type::INT4_ARRAY),
            (&stats.recovered, Type::INT4_ARRAY),
            (&stats.run, Type::INT8_ARRAY),
        ];
        connection.rows("settle", &params).await
    }
}

impl<'c> Cases<'c> {
    /// Adds what an item needs beside its bit, and counts it.
    fn add(
        &mut self,
        (claim, home): (i32, &str),
        item: &'c SettleItem,
        settlement: &'c Settlement,
        counts: &mut Counts,
    ) -> Outcome {
        let outcome = match settlement {
            Settlement::Done => {
                counts.done += 1;
                return Outcome::Done;
            }
            Settlement::Again { due, attempt, releases, suspect, back } => {
                let (event, reason) = back.event();
                match event {
                    EventKind::Recover => counts.recovered += 1,
                    _ => counts.retried += 1,
                }
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
                self.fingerprints.push(None);
                self.errors.push(item.error.as_deref());
                Outcome::Back
            }
            Settlement::Dead { reason, detail } => {
                counts.dead += 1;
                let detail = detail.as_deref().or(item.error.as_deref());
                let kind = item.kind.as_deref().unwrap_or(home);
                self.dead.push(true);
                self.reasons.push(reason.as_str());
                self.lanes.push(0);
                self.events.push(EventKind::Dlq.as_str());
                self.event_reasons.push(reason.as_str());
                self.due_at.push(None);
                self.due_in.push(None);
                self.attempts.push(0);
                self.releases.push(0);
                self.suspects.push(0);
                self.details.push(detail);
                self.fingerprints.push(Some(fingerprint(
                    kind,
                    reason.as_str(),
                    item.class.as_deref(),
                    detail,
                )));
                self.errors.push(detail);
                Outcome::Dead
            }
        };
        self.claims.push(claim);
        self.offsets.push(item.offset.0.cast_signed());
        self.classes.push(item.class.as_deref());
        self.runs.push((!item.run.is_zero()).then(|| micros(item.run)));
        self.names.push(item.kind.as_deref());
        outcome
    }
}

impl Stats {
    fn add(&mut self, claim: i32, counts: BTreeMap<&str, Counts>) {
        for (kind, Counts { done, retried, dead, recovered, run }) in counts {
            self.claims.push(claim);
            self.kinds.push(kind.to_owned());
            self.done.push(done);
            self.retried.push(retried);
            self.dead.push(dead);
            self.recovered.push(recovered);
            self.run.push(run);
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

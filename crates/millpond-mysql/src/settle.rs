//! Settle: how deliveries ended, by the token of their claim. Two round trips for all claims of a call: they are locked
//! and read, and what was decided is written.

use std::collections::BTreeMap;

use millpond_core::fingerprint::fingerprint;
use millpond_core::message::Offset;
use millpond_core::pick::Lane;
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::settle::Settlement;
use millpond_core::store::{ClaimRef, SettleClaim, SettleItem, Settled};
use millpond_core::time::micros;
use uuid::Uuid;

use crate::append::{instant, wait};
use crate::bits::Bits;
use crate::cancel::by;
use crate::connection::{Answer, Connection};
use crate::error::Tried;
use crate::literal::{Cell, List};
use crate::row::Row;
use crate::runs::{Outcome, Runs, place};
use crate::sabotage::sabotaged;
use crate::script::Script;

/// A claim of a call.
struct Asked<'c> {
    /// Its place in the call.
    number: usize,
    claim: &'c SettleClaim,
    /// Each offset once, with its place in the claim.
    items: BTreeMap<usize, &'c SettleItem>,
}

/// The places of the answers about one claim.
struct Look {
    claim: usize,
    home: usize,
    /// Cancel marks and effects of what ends otherwise than by an acknowledgement.
    cases: Option<(usize, usize)>,
}

/// A claim that is held, as it was found behind its lock.
struct Held {
    from_offset: i64,
    leased_at: i64,
    worker: Option<String>,
    done: Bits,
    runs: Vec<u8>,
    home: Home,
    /// What somebody wanted stopped, with who and why: any end but an acknowledgement makes it a dead letter.
    cancelled: BTreeMap<Offset, Settlement>,
    /// Offsets with a committed effect.
    effects: Vec<Offset>,
}

/// The queue of a claim.
struct Home {
    queue: i32,
    class: u8,
    keeps_history: bool,
    name: String,
    /// There is a higher claim, so this one is not the cursor.
    is_below: bool,
}

/// Counters of one kind.
#[derive(Default)]
struct Counts {
    done: i64,
    retried: i64,
    dead: i64,
    recovered: i64,
    /// Run times together, in microseconds.
    run: i64,
}

/// What ends otherwise than by an acknowledgement.
struct Case<'c> {
    item: &'c SettleItem,
    settlement: &'c Settlement,
}

/// Settles the items of each claim, or nothing of it if it is no longer held.
pub(crate) async fn settle(connection: &mut Connection, claims: &[SettleClaim]) -> Tried<Vec<Settled>> {
    let mut asked: Vec<Asked<'_>> =
        claims.iter().enumerate().map(|(number, claim)| Asked::new(number, claim)).collect();
    // In key order: two calls in opposite orders would wait for each other (R12).
    asked.sort_by_key(Asked::key);
    connection
        .transaction(&[], async |connection: &mut Connection| {
            let (looks, mut answers) = look(connection, &asked).await?;
            let mut settled: Vec<Settled> = claims.iter().map(|_| Settled::LeaseLost).collect();
            let mut script = connection.new_script();
            for (claim, look) in asked.iter().zip(looks) {
                if let Some(held) = held(&mut answers, &look)? {
                    let done_anyway = claim.write(&mut script, held)?;
                    settled[claim.number] = Settled::Applied { done_anyway };
                }
            }
            connection.script_and_commit(script).await?;
            Ok(settled)
        })
        .await
}

/// Locks the claims, one after the other, and reads what decides.
async fn look(connection: &Connection, asked: &[Asked<'_>]) -> Tried<(Vec<Look>, Vec<Answer>)> {
    let mut script = connection.new_script();
    script.begin()?;
    let mut looks = Vec::with_capacity(asked.len());
    for claim in asked {
        let ClaimRef { subscription, partition, to_offset, token } = claim.claim.held;
        let (to_offset, token) = (to_offset.0, Uuid::from_bytes(token.0));
        let place = script.add("claim_settle_lock", &[&subscription, &partition, &to_offset, &token])?;
        let home = script.add("claim_home", &[&subscription, &partition, &to_offset])?;
        let offsets = List(claim.cases().map(|item| item.offset.0).collect());
        let cases = if offsets.0.is_empty() {
            None
        } else {
            // Behind the lock, in statements of their own: an effect either committed before and is seen, or cannot
            // commit any more (R15).
            let marks = script.add("cancel_of_offsets", &[&subscription, &partition, &offsets])?;
            Some((marks, script.add("inbox_of_offsets", &[&subscription, &partition, &offsets])?))
        };
        looks.push(Look { claim: place, home, cases });
    }
    Ok((looks, connection.script(script).await?))
}

/// The claim as it was found; `None`: it is no longer held.
fn held(answers: &mut [Answer], look: &Look) -> Tried<Option<Held>> {
    let found = answers[look.claim].rows.first();
    let (Some(claim), Some(home)) = (found, answers[look.home].rows.first()) else { return Ok(None) };
    let (mut cancelled, mut effects) = (BTreeMap::new(), Vec::new());
    if let Some((marks, known)) = look.cases {
        for mark in &answers[marks].rows {
            let detail = Some(by(mark.try_get(1)?, mark.try_get(2)?));
            let dead = Settlement::Dead { reason: DropReason::Cancelled, detail };
            cancelled.insert(Offset(mark.try_get(0)?), dead);
        }
        for row in answers[known].rows.iter().filter(|_| !sabotaged("late_inbox_check")) {
            effects.push(Offset(row.try_get(0)?));
        }
    }
    Ok(Some(Held {
        from_offset: claim.try_get(0)?,
        leased_at: claim.try_get(1)?,
        worker: claim.try_get(2)?,
        done: claim.try_get::<_, Option<Bits>>(3)?.unwrap_or_default(),
        runs: claim.try_get::<_, Option<Vec<u8>>>(4)?.unwrap_or_default(),
        home: home_of(home)?,
        cancelled,
        effects,
    }))
}

/// A row of `claim_home`.
fn home_of(row: &Row) -> Tried<Home> {
    Ok(Home {
        queue: row.try_get(0)?,
        class: row.try_get(1)?,
        keeps_history: row.try_get(2)?,
        name: row.try_get(3)?,
        is_below: row.try_get(4)?,
    })
}

impl<'c> Asked<'c> {
    fn new(number: usize, claim: &'c SettleClaim) -> Self {
        let mut items: BTreeMap<usize, &SettleItem> = BTreeMap::new();
        for item in &claim.items {
            if let Some(place) = place(claim.held.to_offset, item.offset) {
                items.entry(place).or_insert(item);
            }
        }
        Self { number, claim, items }
    }

    fn key(&self) -> (i64, i64, Offset) {
        let ClaimRef { subscription, partition, to_offset, .. } = self.claim.held;
        (subscription, partition, to_offset)
    }

    /// The items that are to end otherwise than by an acknowledgement.
    fn cases(&self) -> impl Iterator<Item = &'c SettleItem> {
        self.items.values().copied().filter(|item| item.settlement != Settlement::Done)
    }

    /// Adds everything that settles the claim; answers what is done whatever was asked.
    fn write(&self, script: &mut Script<'_>, held: Held) -> Tried<Vec<Offset>> {
        let to_offset = self.claim.held.to_offset.0.cast_signed();
        let size = usize::try_from(to_offset - held.from_offset + 1).unwrap_or(0);
        let (mut done, mut runs) = (Bits::clear(size), Runs::of(&held.runs, size));
        done.merge(&held.done);
        let mut end = End::default();
        // What was settled before, or is not in the claim, is passed over.
        let open = self.items.iter().filter(|(place, _)| **place < size && !held.done.is_set(**place));
        for (place, item) in open {
            let settlement = held.settlement(item);
            if *settlement == Settlement::Done && item.settlement != Settlement::Done {
                end.done_anyway.push(item.offset);
            }
            done.set(*place);
            runs.record(*place, end.count(item, settlement), item.run);
        }
        self.write_cases(script, &held, &end.cases)?;
        end.write_counts(script, held.home.queue)?;
        self.write_claim(script, &held, size, done, runs)?;
        Ok(end.done_anyway)
    }

    fn write_cases(&self, script: &mut Script<'_>, held: &Held, cases: &[Case<'_>]) -> Tried<()> {
        if cases.is_empty() {
            return Ok(());
        }
        let ClaimRef { subscription, partition, .. } = self.claim.held;
        let Home { queue, class, name, .. } = &held.home;
        let rows = |dead: bool| -> Vec<serde_json::Value> {
            cases.iter().filter(|case| case.is_dead() == dead).map(|case| case.row(name)).collect()
        };
        let (back, dead) = (rows(false), rows(true));
        for (statement, rows) in [("settle_outbox", &back), ("settle_dead_letter", &dead)] {
            if !rows.is_empty() {
                let rows = serde_json::json!(rows).to_string();
                script.add(statement, &[&subscription, queue, class, &partition, &rows, &held.worker])?;
            }
        }
        let all = serde_json::json!([back, dead].concat()).to_string();
        script.add("settle_event", &[queue, &partition, &all, &held.worker])?;
        let offsets = List(cases.iter().map(|case| case.item.offset.0).collect());
        script.add("cancel_delete", &[&subscription, &partition, &offsets]).map(drop)
    }

    /// Records what is done, or ends the claim.
    fn write_claim(
        &self,
        script: &mut Script<'_>,
        held: &Held,
        size: usize,
        done: Bits,
        runs: Runs,
    ) -> Tried<()> {
        let ClaimRef { subscription, partition, to_offset, .. } = self.claim.held;
        let (runs, to_offset) = (runs.into_bits(), to_offset.0);
        let Home { queue, keeps_history, is_below, .. } = &held.home;
        if (done.count() as usize) < size {
            script.add("claim_record", &[&subscription, &partition, &to_offset, &done, &runs])?;
            return Ok(());
        }
        let end =
            if *is_below || sabotaged("highest_claim_deleted") { "claim_delete" } else { "claim_to_marker" };
        script.add(end, &[&subscription, &partition, &to_offset])?;
        if *keeps_history {
            let Held { from_offset, leased_at, worker, .. } = held;
            script.add(
                "history_add",
                &[queue, &partition, from_offset, &to_offset, worker, leased_at, &runs],
            )?;
        }
        Ok(())
    }
}

impl Held {
    /// What becomes of an item: what was asked for, unless its effect is committed or somebody wanted it stopped.
    fn settlement<'s>(&'s self, item: &'s SettleItem) -> &'s Settlement {
        if item.settlement == Settlement::Done || self.effects.contains(&item.offset) {
            return &Settlement::Done;
        }
        if matches!(item.settlement, Settlement::Dead { reason: DropReason::Cancelled, .. }) {
            return &item.settlement;
        }
        self.cancelled.get(&item.offset).unwrap_or(&item.settlement)
    }
}

/// How the messages of a claim ended.
#[derive(Default)]
struct End<'s> {
    cases: Vec<Case<'s>>,
    counts: BTreeMap<&'s str, Counts>,
    done_anyway: Vec<Offset>,
}

impl<'s> End<'s> {
    /// Counts an item, and keeps it if it needs more than its bit.
    fn count(&mut self, item: &'s SettleItem, settlement: &'s Settlement) -> Outcome {
        let counts = self.counts.entry(item.kind.as_deref().unwrap_or("")).or_default();
        counts.run += micros(item.run);
        let outcome = match settlement {
            Settlement::Done => {
                counts.done += 1;
                return Outcome::Done;
            }
            Settlement::Again { back, .. } => {
                match back.event().0 {
                    EventKind::Recover => counts.recovered += 1,
                    _ => counts.retried += 1,
                }
                Outcome::Back
            }
            Settlement::Dead { .. } => {
                counts.dead += 1;
                Outcome::Dead
            }
        };
        self.cases.push(Case { item, settlement });
        outcome
    }

    fn write_counts(&self, script: &mut Script<'_>, queue: i32) -> Tried<()> {
        let rows = self.counts.iter().map(|(kind, counts)| {
            let Counts { done, retried, dead, recovered, run } = *counts;
            [
                i64::from(queue).into(),
                Cell::Text(kind),
                done.into(),
                retried.into(),
                dead.into(),
                recovered.into(),
                run.into(),
            ]
        });
        script.add_rows("stat_settled", &[], rows).map(drop)
    }
}

impl Case<'_> {
    fn is_dead(&self) -> bool {
        matches!(self.settlement, Settlement::Dead { .. })
    }

    /// As an object for the statements, without what it has not. `home` is the name of its queue.
    fn row(&self, home: &str) -> serde_json::Value {
        let Self { item, settlement } = self;
        let run = (!item.run.is_zero()).then(|| micros(item.run));
        let mut row = match settlement {
            Settlement::Done => serde_json::json!({}),
            Settlement::Again { due, attempt, releases, suspect, back } => {
                let (event, event_reason) = back.event();
                serde_json::json!({
                    "reason": back.outbox().as_str(), "lane": lane_of(back.outbox(), *suspect).number(),
                    "event": event.as_str(), "event_reason": event_reason,
                    "due_at": instant(Some(*due)), "due_in": wait(Some(*due)),
                    "attempt": attempt, "releases": releases, "suspect": suspect, "error": item.error,
                })
            }
            Settlement::Dead { reason, detail } => {
                let detail = detail.as_deref().or(item.error.as_deref());
                let kind = item.kind.as_deref().unwrap_or(home);
                let fingerprint = fingerprint(kind, reason.as_str(), item.class.as_deref(), detail);
                serde_json::json!({
                    "reason": reason.as_str(), "event": EventKind::Dlq.as_str(), "event_reason": reason.as_str(),
                    "error": detail, "class": item.class.as_deref(), "fingerprint": fingerprint,
                })
            }
        };
        if let Some(row) = row.as_object_mut() {
            row.insert("log_offset".to_owned(), item.offset.0.into());
            row.insert("run".to_owned(), run.into());
            row.insert("name".to_owned(), item.kind.as_deref().into());
            row.retain(|_, value| !value.is_null());
        }
        row
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

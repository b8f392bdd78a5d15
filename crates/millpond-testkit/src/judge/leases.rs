//! Leases, verdicts and attempts of one message: I8, I9, I11.

use super::Invariant;
use super::breach::Subject;
use super::history::Plan;
use super::record::{Deed, Record, Said, Step, Trail};

/// The steps of one message, sorted and without repeats. Its memory is used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// By token, then delivery.
    pub(super) leases: Vec<Lease>,
    /// By token, then delivery.
    pub(super) settles: Vec<Settle>,
    /// By old token.
    takeovers: Vec<Takeover>,
    /// Takeovers of which nobody knows whether they were.
    perhaps: Vec<Takeover>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    token: u128,
    delivery: u32,
    attempt: u32,
    pub(super) sure: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Settle {
    token: u128,
    pub(super) delivery: u32,
    pub(super) said: Said,
    pub(super) sure: bool,
    /// How often it was accepted for certain; a repeat after an `info` is the same acceptance.
    accepted: u32,
}

#[derive(Debug, Clone, Copy)]
struct Takeover {
    old: u128,
    new: u128,
    delivery: u32,
    alone: bool,
}

impl Folded {
    /// Takes the steps of the next message. The last word on a lease or settle decides whether it is sure.
    pub(super) fn fold(&mut self, steps: &[Step]) {
        self.leases.clear();
        self.settles.clear();
        self.takeovers.clear();
        self.perhaps.clear();
        for step in steps {
            if let Deed::Lease { attempt } = step.deed {
                let delivery = step.delivery.unwrap_or(attempt);
                self.leases.push(Lease { token: step.token, delivery, attempt, sure: step.sure });
            }
        }
        self.leases.sort_by_key(|lease| (lease.token, lease.delivery));
        self.leases.dedup_by(|later, kept| {
            let same = (later.token, later.delivery) == (kept.token, kept.delivery);
            if same {
                kept.sure = later.sure;
                kept.attempt = kept.attempt.max(later.attempt);
            }
            same
        });
        for step in steps {
            let Step { sure, token, .. } = *step;
            match step.deed {
                Deed::Lease { .. } => {}
                Deed::Settle(said) => {
                    let delivery = step.delivery.unwrap_or_else(|| self.last_delivery(token));
                    self.settles.push(Settle { token, delivery, said, sure, accepted: u32::from(sure) });
                }
                Deed::Takeover { old, alone } => {
                    let delivery = step.delivery.unwrap_or_else(|| self.last_delivery(old));
                    let takeovers = if sure { &mut self.takeovers } else { &mut self.perhaps };
                    takeovers.push(Takeover { old, new: token, delivery, alone });
                }
            }
        }
        self.settles.sort_by_key(|settle| (settle.token, settle.delivery));
        self.settles.dedup_by(|later, kept| {
            let same = (later.token, later.delivery) == (kept.token, kept.delivery);
            if same {
                kept.accepted = match (later.sure, kept.sure) {
                    (true, true) => kept.accepted + 1,
                    (true, false) => kept.accepted.max(1),
                    (false, _) => kept.accepted,
                };
                kept.sure = later.sure;
                kept.said = later.said;
            }
            same
        });
        self.takeovers.sort_by_key(|takeover| (takeover.old, takeover.new));
    }

    /// The highest delivery that was leased under a token; 0 if none was.
    fn last_delivery(&self, token: u128) -> u32 {
        let end = self.leases.partition_point(|lease| lease.token <= token);
        let last = end.checked_sub(1).map(|at| self.leases[at]);
        last.filter(|lease| lease.token == token).map_or(0, |lease| lease.delivery)
    }

    fn takeover_of(&self, token: u128) -> Option<Takeover> {
        let at = self.takeovers.partition_point(|takeover| takeover.old < token);
        self.takeovers.get(at).copied().filter(|takeover| takeover.old == token)
    }

    fn accepted(&self) -> impl Iterator<Item = Settle> {
        self.settles.iter().copied().filter(|settle| settle.sure)
    }

    fn sure_leases(&self) -> impl Iterator<Item = Lease> {
        self.leases.iter().copied().filter(|lease| lease.sure)
    }
}

pub(super) fn close(record: &mut Record, id: u128, lane: usize, trail: &Trail, folded: &Folded) {
    record.counters.redelivered += folded.leases.len().saturating_sub(1) as u64;
    let mut broken = |invariant, why: String| record.breaches.add(invariant, Subject::Message(id), why);
    stale_settles(folded, &mut broken);
    double_verdicts(folded, &mut broken);
    double_leases(folded, &mut broken);
    let attempts_max = record.queues[record.lanes[lane].queue].plan.attempts_max;
    if let Some(lease) = folded.sure_leases().find(|lease| lease.attempt > attempts_max) {
        broken(Invariant::I11, format!("attempt {} of {attempts_max}", lease.attempt));
    }
    if let Some(sent) = record.sent.get(&id) {
        attempts(sent.plan, attempts_max, trail, folded, &mut broken);
    }
}

fn stale_settles(folded: &Folded, broken: &mut impl FnMut(Invariant, String)) {
    let mut known: Vec<u128> = folded.leases.iter().map(|lease| lease.token).collect();
    known.extend(folded.takeovers.iter().chain(&folded.perhaps).map(|takeover| takeover.new));
    known.sort_unstable();
    for settle in folded.accepted() {
        if folded.takeover_of(settle.token).is_some_and(|takeover| settle.delivery >= takeover.delivery) {
            broken(Invariant::I8, "settled under a token that a takeover had made void".into());
        } else if known.binary_search(&settle.token).is_err() {
            broken(Invariant::I8, "settled under a token that never was its lease".into());
        }
    }
}

fn double_verdicts(folded: &Folded, broken: &mut impl FnMut(Invariant, String)) {
    let mut accepted: Vec<Settle> = folded.accepted().collect();
    accepted.sort_by_key(|settle| settle.delivery);
    for settle in accepted.iter().filter(|settle| settle.accepted > 1) {
        broken(Invariant::I9, format!("{} verdicts accepted under one lease", settle.accepted));
    }
    for pair in accepted.windows(2).filter(|pair| pair[0].delivery == pair[1].delivery) {
        broken(Invariant::I9, format!("delivery {} was settled under two tokens", pair[0].delivery));
    }
    let Some(ack) = accepted.iter().find(|settle| settle.said == Said::Ack) else { return };
    if accepted.last().is_some_and(|last| last.delivery > ack.delivery) {
        broken(Invariant::I9, format!("settled again after the ack of delivery {}", ack.delivery));
    }
    if folded.sure_leases().any(|lease| lease.delivery > ack.delivery) {
        broken(Invariant::I9, format!("leased again after the ack of delivery {}", ack.delivery));
    }
}

/// A lease is live until it is settled or taken over, and a later delivery has a higher number. So of the
/// leases of one delivery all but one must have been taken over.
fn double_leases(folded: &Folded, broken: &mut impl FnMut(Invariant, String)) {
    let mut live: Vec<u32> = folded
        .sure_leases()
        .filter(|lease| folded.takeover_of(lease.token).is_none())
        .filter(|lease| folded.perhaps.iter().all(|takeover| takeover.old != lease.token))
        .map(|lease| lease.delivery)
        .collect();
    live.sort_unstable();
    if let Some(pair) = live.windows(2).find(|pair| pair[0] == pair[1]) {
        broken(Invariant::I9, format!("delivery {} has two live leases", pair[0]));
    }
    for pair in folded.takeovers.windows(2) {
        if pair[0].old == pair[1].old && pair[0].new != pair[1].new {
            broken(Invariant::I9, "one token was taken over twice".into());
        }
    }
}

/// Only a message that was alone in the hands of a dead worker is charged for that death.
fn attempts(
    plan: Plan,
    attempts_max: u32,
    trail: &Trail,
    folded: &Folded,
    broken: &mut impl FnMut(Invariant, String),
) {
    match plan {
        Plan::Fail => {}
        Plan::Kill => {
            let exists = folded.sure_leases().next().is_some();
            if exists && trail.cancelled == 0 && !trail.lease_exhausted {
                broken(Invariant::I11, "it kills its process and is not dead of `lease-exhausted`".into());
            }
        }
        Plan::Ack => {
            let takeovers = folded.takeovers.iter().chain(&folded.perhaps);
            let alone = takeovers.filter(|takeover| takeover.alone).count() as u32;
            let charged = folded.sure_leases().map(|lease| lease.attempt).max().unwrap_or(0);
            if charged > alone.saturating_add(1) {
                broken(Invariant::I11, format!("charged {charged} attempts, lost {alone} times alone"));
            }
            if trail.dead > 0 && alone < attempts_max {
                broken(Invariant::I11, "dead through no fault of its own".into());
            }
        }
    }
}

//! What is kept of a history while it is read, by queue, by message and by partition.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::breach::{Breaches, Subject};
use super::counts::{self, Checkpoint, Counts};
use super::history::{Effects, Event, Op, Phase, Plan, QueuePlan, Run};
use super::log::Log;
use super::{Counters, Invariant, REASONS, leases, messages};

/// A queue of the run, or one that only its events name.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) plan: QueuePlan,
    /// Its places of delivery: one for the queue itself, or one per subscription.
    pub(super) lanes: Vec<usize>,
    /// Messages whose send returned, so far.
    pub(super) sent_ok: u64,
}

/// Where messages of a queue are delivered: the queue itself, or one subscription of a topic.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) queue: usize,
    pub(super) sub: Option<String>,
    /// Whether every message of the queue must be delivered here.
    pub(super) durable: bool,
    /// Sum of its rows in the business table.
    pub(super) sum: i64,
    /// Its messages that left without an ack.
    pub(super) left: u64,
    /// Its last counts, and when.
    pub(super) last: Option<(u64, Counts)>,
}

/// What the senders said about a message.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) queue: usize,
    pub(super) plan: Plan,
    pub(super) ok: bool,
    invokes: u32,
    fails: u32,
    pub(super) amount: Option<i64>,
}

impl Sent {
    /// Whether the message is certainly not in the store: every call failed for certain.
    pub(super) fn failed(&self) -> bool {
        !self.ok && self.fails > 0 && self.fails >= self.invokes
    }
}

/// What happened to a message in one lane.
#[derive(Debug, Default)]
pub(super) struct Trail {
    pub(super) steps: Vec<Step>,
    /// Rows of the business table, and their sum.
    pub(super) rows: u32,
    pub(super) sum: i64,
    /// Effects that were reported as committed.
    pub(super) reported: u32,
    /// Whether an effect may have been committed.
    pub(super) perhaps: bool,
    /// Times it was found dead, and times it was found cancelled.
    pub(super) dead: u32,
    pub(super) cancelled: u32,
    pub(super) lease_exhausted: bool,
}

impl Trail {
    pub(super) fn left(&self) -> bool {
        self.dead + self.cancelled > 0
    }
}

/// A lease, a settle or a takeover that happened, or may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) deed: Deed,
    /// `ok`, not `info`.
    pub(super) sure: bool,
    pub(super) token: u128,
    pub(super) delivery: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Lease { attempt: u32 },
    Settle(Said),
    Takeover { old: u128, alone: bool },
}

/// A verdict, as far as the judge cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Ack,
    DeadLetter,
    Again,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) queues: Vec<Queue>,
    names: HashMap<String, usize>,
    pub(super) lanes: Vec<Lane>,
    kinds: BTreeMap<String, Plan>,
    killing: HashSet<u128>,
    pub(super) sent: HashMap<u128, Sent>,
    pub(super) trails: HashMap<(u128, usize), Trail>,
    log: Log,
    checkpoint: Checkpoint,
    pub(super) breaches: Breaches,
    pub(super) counters: Counters,
}

impl Record {
    pub(super) fn new(run: &Run) -> Self {
        let mut record = Record {
            queues: Vec::new(),
            names: HashMap::new(),
            lanes: Vec::new(),
            kinds: run.kinds.clone(),
            killing: run.killing.iter().map(Uuid::as_u128).collect(),
            sent: HashMap::new(),
            trails: HashMap::new(),
            log: Log::default(),
            checkpoint: Checkpoint::default(),
            breaches: Breaches::default(),
            counters: Counters::default(),
        };
        for plan in &run.queues {
            record.declare(plan.clone());
        }
        record
    }

    fn declare(&mut self, plan: QueuePlan) -> usize {
        let queue = self.queues.len();
        let subs = match plan.subs.as_slice() {
            [] => vec![None],
            subs => subs.iter().cloned().map(Some).collect(),
        };
        let first = self.lanes.len();
        self.lanes.extend(subs.into_iter().map(|sub| lane(queue, sub, true)));
        self.names.insert(plan.name.clone(), queue);
        self.queues.push(Queue { plan, lanes: (first..self.lanes.len()).collect(), sent_ok: 0 });
        queue
    }

    /// The queue of an event. One that the run did not declare has no limits, but must be counted at the end.
    fn queue(&mut self, event: &Event) -> usize {
        let name = event.queue.as_deref().unwrap_or_default();
        self.names.get(name).copied().unwrap_or_else(|| {
            let name = name.to_owned();
            self.declare(QueuePlan { name, subs: Vec::new(), attempts_max: u32::MAX, effects: Effects::None })
        })
    }

    fn lane(&mut self, event: &Event) -> usize {
        let queue = self.queue(event);
        let sub = event.sub.as_deref();
        let known = self.queues[queue].lanes.iter().find(|at| self.lanes[**at].sub.as_deref() == sub);
        known.copied().unwrap_or_else(|| {
            self.lanes.push(lane(queue, event.sub.clone(), false));
            self.queues[queue].lanes.push(self.lanes.len() - 1);
            self.lanes.len() - 1
        })
    }

    pub(super) fn take(&mut self, event: &Event) {
        if self.checkpoint.t().is_some_and(|t| t != event.t) {
            self.close_checkpoint();
        }
        if event.err.as_deref() == Some("crc") {
            let subject = event.id.map_or(Subject::Run, |id| Subject::Message(id.as_u128()));
            self.breaches.add(Invariant::I2, subject, "its body is not the one that was sent");
        }
        match event.op {
            Op::Count | Op::Watermark | Op::Unsettled | Op::Kept => self.take_checkpoint(event),
            Op::Cursor => self.take_cursor(event),
            Op::Fault => {
                let kill = event.ph == Phase::Ok && event.kind.as_deref() == Some("kill");
                self.counters.kills += u64::from(kill);
            }
            Op::Send => self.take_send(event),
            Op::Lease | Op::Effect | Op::Settle | Op::Reclaim | Op::Table | Op::Dead => {
                self.take_delivery(event);
            }
        }
    }

    fn take_checkpoint(&mut self, event: &Event) {
        let lane = self.lane(event);
        self.checkpoint.take(event, self.lanes[lane].queue, lane);
    }

    fn close_checkpoint(&mut self) {
        std::mem::take(&mut self.checkpoint).close(&self.queues, &mut self.lanes, &mut self.breaches);
    }

    fn take_cursor(&mut self, event: &Event) {
        let lane = self.lane(event);
        self.log.take_claim(lane, event);
    }

    fn take_send(&mut self, event: &Event) {
        let Some(id) = event.id.map(|id| id.as_u128()) else { return };
        let queue = self.queue(event);
        let sent = self.sent.entry(id).or_insert_with(|| Sent {
            queue,
            plan: Plan::Ack,
            ok: false,
            invokes: 0,
            fails: 0,
            amount: None,
        });
        if self.killing.contains(&id) {
            sent.plan = Plan::Kill;
        } else if let Some(plan) = event.kind.as_ref().and_then(|kind| self.kinds.get(kind)) {
            sent.plan = *plan;
        }
        sent.amount = event.val.or(sent.amount);
        match event.ph {
            Phase::Invoke => sent.invokes += 1,
            Phase::Fail => sent.fails += 1,
            Phase::Info => {}
            Phase::Ok if !sent.ok => {
                sent.ok = true;
                self.counters.sent += 1;
                self.queues[queue].sent_ok += 1;
            }
            Phase::Ok => {}
        }
    }

    fn take_delivery(&mut self, event: &Event) {
        let sure = event.ph == Phase::Ok;
        let Some(id) = event.id.map(|id| id.as_u128()).filter(|_| sure || event.ph == Phase::Info) else {
            return;
        };
        let lane = self.lane(event);
        if event.op == Op::Lease {
            let Lane { queue, .. } = self.lanes[lane];
            self.log.take_message(&self.queues[queue].plan.name, queue, id, event, &mut self.breaches);
        }
        let trail = self.trails.entry((id, lane)).or_default();
        let amount = event.val.unwrap_or_default();
        match event.op {
            Op::Effect if sure => trail.reported += 1,
            Op::Effect => trail.perhaps = true,
            Op::Table => {
                trail.rows += 1;
                trail.sum = trail.sum.saturating_add(amount);
                self.lanes[lane].sum = self.lanes[lane].sum.saturating_add(amount);
            }
            Op::Dead => {
                let reason = event.reason.as_deref();
                match reason {
                    Some("cancelled" | "purged" | "ignored") => trail.cancelled += 1,
                    _ => trail.dead += 1,
                }
                trail.lease_exhausted |= reason == Some("lease-exhausted");
                self.lanes[lane].left += 1;
                self.check_reason(id, reason);
            }
            _ => {
                trail.steps.extend(step(event, sure));
                if event.op == Op::Settle && said(event) == Said::DeadLetter && event.reason.is_some() {
                    self.check_reason(id, event.reason.as_deref());
                }
            }
        }
    }

    fn check_reason(&mut self, id: u128, reason: Option<&str>) {
        let reason = reason.unwrap_or_default();
        if !REASONS.contains(&reason) {
            let why = format!("reason `{reason}` is not one of the closed set");
            self.breaches.add(Invariant::I14, Subject::Message(id), why);
        }
    }

    /// Judges what can only be judged when everything is known.
    pub(super) fn close(mut self) -> (Breaches, Counters) {
        self.close_checkpoint();
        self.log.close(&self.queues, &self.lanes, &mut self.breaches);
        let mut invoked = vec![0; self.queues.len()];
        for sent in self.sent.values().filter(|sent| !sent.failed()) {
            invoked[sent.queue] += 1;
        }
        let finished = counts::close(&self.queues, &self.lanes, &invoked, &mut self.breaches);
        self.counters.unfinished = !finished;
        messages::close_untouched(&mut self);
        let trails = std::mem::take(&mut self.trails);
        let mut folded = leases::Folded::default();
        for ((id, lane), trail) in &trails {
            folded.fold(&trail.steps);
            messages::close(&mut self, *id, *lane, trail, &folded);
            leases::close(&mut self, *id, *lane, trail, &folded);
        }
        (self.breaches, self.counters)
    }
}

fn lane(queue: usize, sub: Option<String>, durable: bool) -> Lane {
    Lane { queue, sub, durable, sum: 0, left: 0, last: None }
}

fn step(event: &Event, sure: bool) -> Option<Step> {
    let deed = match event.op {
        Op::Lease => Deed::Lease { attempt: event.attempt.unwrap_or(1) },
        Op::Settle => Deed::Settle(said(event)),
        Op::Reclaim => Deed::Takeover { old: number(event.old), alone: event.val == Some(1) },
        _ => return None,
    };
    Some(Step { deed, sure, token: number(event.token), delivery: event.delivery.or(event.attempt) })
}

fn said(event: &Event) -> Said {
    match event.verdict.as_deref() {
        Some("ack") => Said::Ack,
        Some("dead-letter") => Said::DeadLetter,
        _ => Said::Again,
    }
}

fn number(token: Option<Uuid>) -> u128 {
    token.map_or(0, |token| token.as_u128())
}

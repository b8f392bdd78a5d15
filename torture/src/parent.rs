//! The main run: senders and workers under load, killed and stopped at the moments that the seed says, then a full
//! drain.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_testkit::judge::history::{Event, Op, Phase};
use uuid::Uuid;

use crate::Outcome;
use crate::child::Notice;
use crate::crew::Crew;
use crate::drain;
use crate::plan::{Fault, Plan, Planned, SENDERS};
use crate::reader::Reader;
use crate::server::Server;
use crate::stage::{Ending, Stage};
use crate::wire::Report;
use crate::work::Order;

/// The longest wait for a notice while the clock must be watched.
const TICK: Duration = Duration::from_millis(5);

const CHECKPOINT_EVERY: Duration = Duration::from_secs(15);

/// How long the backlog may take to be worked off at the end, and how much longer for each thousand messages.
const DRAIN_LIMIT: Duration = Duration::from_secs(90);
const DRAIN_LIMIT_PER_THOUSAND: Duration = Duration::from_secs(2);

/// How much longer than planned the load may take before the run is given up.
const LOAD_SLOWER_MAX: u32 = 4;

/// Runs it in `dir`.
pub(crate) fn run(server: &Arc<Server>, dir: &Path, plan: Plan) -> Outcome<Ending> {
    let mut stage = Stage::set(server, dir, plan.seed, &["F01", "F02", "F04", "F06", "F08", "F12"], None)?;
    if plan.cuts != 0 {
        stage.put_proxies()?;
    }
    let mut parent = Parent::start(&stage, plan)?;
    parent.load()?;
    let drained = parent.drain()?;
    let Parent { crew, uncertain, torn, .. } = parent;
    let mut ending = stage.close(crew.into_children())?;
    if !drained {
        ending.faults.push("the backlog was not worked off in time".to_owned());
    }
    let torn = torn + drain::torn(&stage.reader()?, &uncertain)?;
    if torn != 0 {
        ending.faults.push(format!("{torn} batches were stored in part"));
    }
    Ok(ending)
}

/// An order in the hands of a sender.
struct Assigned {
    order: Order,
    /// The ids under which it was begun, as far as that was reported.
    begun: Vec<Uuid>,
}

struct Parent<'s> {
    stage: &'s Stage,
    plan: Plan,
    started: Instant,
    crew: Crew<'s>,
    faults: VecDeque<Planned>,
    assigned: HashMap<u32, Assigned>,
    /// To be sent again.
    again: VecDeque<Order>,
    next_batch: u64,
    answered: u64,
    /// Batches whose sender was killed before it knew.
    uncertain: Vec<(String, Vec<Uuid>)>,
    /// Batches that were stored in part, by the answer to a repeat.
    torn: usize,
    counting: Reader,
    checkpoint_at: Instant,
}

impl<'s> Parent<'s> {
    fn start(stage: &'s Stage, plan: Plan) -> Outcome<Self> {
        let crew = Crew::start(stage)?;
        let started = Instant::now();
        Ok(Self {
            stage,
            plan,
            started,
            crew,
            faults: plan.faults().into(),
            assigned: HashMap::new(),
            again: VecDeque::new(),
            next_batch: 0,
            answered: 0,
            uncertain: Vec::new(),
            torn: 0,
            counting: stage.reader()?,
            checkpoint_at: started + CHECKPOINT_EVERY,
        })
    }

    /// Until every batch is stored and every fault was caused.
    fn load(&mut self) -> Outcome<()> {
        while self.answered < self.plan.batches() || !self.faults.is_empty() || !self.crew.is_calm() {
            if self.plan.load() * LOAD_SLOWER_MAX + DRAIN_LIMIT < self.started.elapsed() {
                let (answered, batches) = (self.answered, self.plan.batches());
                return Err(format!("only {answered} of {batches} batches could be sent").into());
            }
            self.cause_faults()?;
            self.give_orders()?;
            if let Some(notice) = self.stage.notice(TICK) {
                self.attend(notice)?;
            }
            if self.checkpoint_at < Instant::now() {
                self.stage.checkpoint(&self.counting)?;
                self.checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
                self.tell_progress();
            }
        }
        if let Some(proxies) = &self.stage.proxies {
            proxies.disarm();
        }
        self.crew.resume_all()
    }

    fn drain(&mut self) -> Outcome<bool> {
        let thousands = u32::try_from(self.plan.messages / 1_000).unwrap_or(u32::MAX);
        let limit = DRAIN_LIMIT + DRAIN_LIMIT_PER_THOUSAND * thousands;
        let stage = self.stage;
        eprintln!("sent, after {:.0?}; waiting for the backlog", self.started.elapsed());
        stage.drained(limit, |notice| self.attend(notice))
    }

    fn attend(&mut self, notice: Notice) -> Outcome<()> {
        match notice {
            Notice::Report(node, Report::Events(events)) => {
                let begun = |event: &&Event| (event.op, event.ph) == (Op::Send, Phase::Invoke);
                if let Some(assigned) = self.assigned.get_mut(&node) {
                    assigned.begun.extend(events.iter().filter(begun).filter_map(|event| event.id));
                }
                self.crew.heard(node, &events)
            }
            Notice::Report(node, Report::Answered { stored, torn, .. }) => {
                self.torn += usize::from(torn);
                self.answered(node, stored);
                Ok(())
            }
            Notice::Report(..) => Ok(()),
            // Its order is given to another.
            Notice::Ended(node) => {
                if let Some(assigned) = self.assigned.remove(&node) {
                    self.unanswered(assigned);
                }
                self.crew.ended(node)
            }
        }
    }

    fn answered(&mut self, node: u32, stored: Option<bool>) {
        let Some(assigned) = self.assigned.remove(&node) else { return };
        match stored {
            Some(true) => self.answered += 1,
            Some(false) => self.again.push_back(Order { ids: Vec::new(), ..assigned.order }),
            None => self.unanswered(assigned),
        }
    }

    /// With dedup keys a batch is repeated under its ids. Without, nobody will ever know, and another is sent in
    /// its place.
    fn unanswered(&mut self, Assigned { order, begun }: Assigned) {
        let is_begun = begun.len() == order.messages.len();
        if is_begun && !order.dedup {
            self.uncertain.push((order.queue.clone(), begun.clone()));
        }
        // A batch that was repeated before keeps its ids, also when this sender did not come to it.
        let ids = match (order.dedup, is_begun) {
            (true, true) => begun,
            (true, false) => order.ids,
            (false, _) => Vec::new(),
        };
        self.again.push_back(Order { ids, ..order });
    }

    fn give_orders(&mut self) -> Outcome<()> {
        for place in 0..SENDERS {
            let node = self.crew.sender(place).node;
            if self.assigned.contains_key(&node) {
                continue;
            }
            let Some(order) = self.next_order() else { break };
            // One that has just died is noticed by the end of its pipe; the order is then given again.
            if let Err(error) = self.crew.sender(place).tell(&order) {
                eprintln!("a sender did not take its order: {error}");
            }
            self.assigned.insert(node, Assigned { order, begun: Vec::new() });
            self.crew.was_told(place)?;
        }
        if self.answered == self.plan.batches() && self.faults.is_empty() {
            self.crew.kill_doomed()?;
        }
        Ok(())
    }

    fn next_order(&mut self) -> Option<Order> {
        if let Some(order) = self.again.pop_front() {
            return Some(order);
        }
        let is_due = self.next_batch < self.plan.batches()
            && self.plan.batch_at(self.next_batch) <= self.started.elapsed();
        is_due.then(|| {
            self.next_batch += 1;
            self.plan.order(self.next_batch - 1)
        })
    }

    fn cause_faults(&mut self) -> Outcome<()> {
        while let Some(planned) = self.faults.front().copied() {
            if self.started.elapsed() < planned.at {
                break;
            }
            self.faults.pop_front();
            self.crew.cause(planned.fault)?;
            if matches!(planned.fault, Fault::KillServer(_)) {
                self.counting = self.stage.reader()?;
            }
        }
        self.crew.watch()
    }

    fn tell_progress(&self) {
        let (sent, all) = (self.answered, self.plan.batches());
        let left = self.faults.iter().filter(|planned| planned.is_kill()).count() as u64;
        let (past, kills) = (self.started.elapsed(), self.plan.kills);
        eprintln!("{past:.0?}: {sent} of {all} batches, {} of {kills} kills", kills - left);
    }
}

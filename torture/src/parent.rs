//! The main run: senders and workers under load, killed and stopped at the moments that the seed says, then a full
//! drain.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use millpond::sqlite::rusqlite::Connection;
use millpond_testkit::judge::history::{Event, Op, Phase};
use uuid::Uuid;

use crate::Outcome;
use crate::child::{Notice, Running};
use crate::drain;
use crate::plan::{Fault, Moment, Plan, Planned, SENDERS, WORKERS};
use crate::stage::{Ending, Stage};
use crate::wire::Report;
use crate::work::Order;
use crate::worker::Setup;

/// The longest wait for a notice while the clock must be watched.
const TICK: Duration = Duration::from_millis(5);

const CHECKPOINT_EVERY: Duration = Duration::from_secs(15);

/// How long the backlog may take to be worked off at the end, and how much longer for each thousand messages.
const DRAIN_LIMIT: Duration = Duration::from_secs(90);
const DRAIN_LIMIT_PER_THOUSAND: Duration = Duration::from_secs(2);

/// How long the moment of a worker's death is waited for, before it dies without.
const MOMENT_LIMIT: Duration = Duration::from_millis(1_500);

/// How much longer than planned the load may take before the run is given up.
const LOAD_SLOWER_MAX: u32 = 4;

/// Runs it in `dir`.
pub(crate) fn run(dir: &Path, plan: Plan) -> Outcome<Ending> {
    let stage = Stage::set(dir, plan.seed, &["F01", "F02", "F04", "F06", "F12"], None)?;
    let mut parent = Parent::start(&stage, plan)?;
    parent.load()?;
    let drained = parent.drain()?;
    let uncertain = std::mem::take(&mut parent.uncertain);
    let torn_by_answer = parent.torn;
    let mut ending = stage.close(parent.into_children())?;
    if !drained {
        ending.faults.push("the backlog was not worked off in time".to_owned());
    }
    let torn = torn_by_answer + drain::torn(&stage.connection()?, &uncertain)?;
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

/// A worker that dies at a moment that has not come.
struct Hunt {
    place: usize,
    moment: Moment,
    after: Duration,
    until: Instant,
}

impl Hunt {
    fn is_on(&self, place: usize, events: &[Event]) -> bool {
        let op = match self.moment {
            Moment::Any => return false,
            Moment::Lease => Op::Lease,
            Moment::Effect => Op::Effect,
            Moment::Settle => Op::Settle,
            Moment::Reclaim => Op::Reclaim,
        };
        let is_it = self.place == place || self.moment == Moment::Reclaim;
        // Of a settlement the first word, of everything else the only one.
        let phase = if op == Op::Settle { Phase::Invoke } else { Phase::Ok };
        is_it && events.iter().any(|event| (event.op, event.ph) == (op, phase))
    }
}

struct Parent<'s> {
    stage: &'s Stage,
    plan: Plan,
    started: Instant,
    senders: Vec<Running>,
    workers: Vec<Running>,
    /// Senders that die with their next batch, by their place, and how long after they get it.
    doomed: VecDeque<(usize, Duration)>,
    /// Deaths of workers that wait for their moment.
    hunts: Vec<Hunt>,
    /// Workers that are stopped, and until when.
    paused: HashMap<u32, Instant>,
    faults: VecDeque<Planned>,
    assigned: HashMap<u32, Assigned>,
    /// To be sent again.
    again: VecDeque<Order>,
    next_batch: u64,
    answered: u64,
    /// Batches whose sender was killed before it knew.
    uncertain: Vec<(String, Vec<Uuid>)>,
    torn: usize,
    counting: Connection,
    checkpoint_at: Instant,
}

impl<'s> Parent<'s> {
    fn start(stage: &'s Stage, plan: Plan) -> Outcome<Self> {
        let senders = (0..SENDERS).map(|_| stage.sender()).collect::<Outcome<Vec<_>>>()?;
        let workers = (0..WORKERS).map(|_| stage.worker(Setup::default())).collect::<Outcome<Vec<_>>>()?;
        let started = Instant::now();
        Ok(Self {
            stage,
            plan,
            started,
            senders,
            workers,
            doomed: VecDeque::new(),
            hunts: Vec::new(),
            paused: HashMap::new(),
            faults: plan.faults().into(),
            assigned: HashMap::new(),
            again: VecDeque::new(),
            next_batch: 0,
            answered: 0,
            uncertain: Vec::new(),
            torn: 0,
            counting: stage.connection()?,
            checkpoint_at: started + CHECKPOINT_EVERY,
        })
    }

    /// Until every batch is stored and every fault was caused.
    fn load(&mut self) -> Outcome<()> {
        while self.answered < self.plan.batches() || self.has_faults() {
            if self.plan.load() * LOAD_SLOWER_MAX + DRAIN_LIMIT < self.started.elapsed() {
                let (answered, batches) = (self.answered, self.plan.batches());
                return Err(format!("only {answered} of {batches} batches could be sent").into());
            }
            self.cause_faults()?;
            self.give_orders()?;
            self.kill_late()?;
            if let Some(notice) = self.stage.notice(TICK) {
                self.attend(notice)?;
            }
            if self.checkpoint_at < Instant::now() {
                self.stage.checkpoint(&self.counting)?;
                self.checkpoint_at = Instant::now() + CHECKPOINT_EVERY;
                self.tell_progress();
            }
        }
        self.resume(|_| true)
    }

    fn drain(&mut self) -> Outcome<bool> {
        let thousands = u32::try_from(self.plan.messages / 1_000).unwrap_or(u32::MAX);
        let limit = DRAIN_LIMIT + DRAIN_LIMIT_PER_THOUSAND * thousands;
        let stage = self.stage;
        eprintln!("sent, after {:.0?}; waiting for the backlog", self.started.elapsed());
        stage.drained(limit, |notice| self.attend(notice))
    }

    fn into_children(self) -> impl Iterator<Item = Running> {
        self.senders.into_iter().chain(self.workers)
    }

    fn attend(&mut self, notice: Notice) -> Outcome<()> {
        match notice {
            Notice::Report(node, Report::Events(events)) => {
                let begun = |event: &&Event| (event.op, event.ph) == (Op::Send, Phase::Invoke);
                if let Some(assigned) = self.assigned.get_mut(&node) {
                    assigned.begun.extend(events.iter().filter(begun).filter_map(|event| event.id));
                }
                self.hunt(node, &events)
            }
            Notice::Report(node, Report::Answered { stored, torn, .. }) => {
                self.torn += usize::from(torn);
                self.answered(node, stored);
                Ok(())
            }
            Notice::Ended(node) => self.ended(node),
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

    /// A process is gone: its order is given to another, and itself is started again.
    fn ended(&mut self, node: u32) -> Outcome<()> {
        if let Some(assigned) = self.assigned.remove(&node) {
            self.unanswered(assigned);
        }
        // Killed ones are no more in these lists.
        if let Some(place) = self.workers.iter().position(|worker| worker.node == node) {
            let gone = std::mem::replace(&mut self.workers[place], self.stage.worker(Setup::default())?);
            self.stage.chronicle.fault(node, gone.role, "abort");
            gone.ended()?;
        }
        if let Some(place) = self.senders.iter().position(|sender| sender.node == node) {
            let gone = std::mem::replace(&mut self.senders[place], self.stage.sender()?);
            self.stage.chronicle.fault(node, gone.role, "abort");
            gone.ended()?;
        }
        Ok(())
    }

    /// With dedup keys a batch is repeated under its ids. Without, nobody will ever know, and another is sent in
    /// its place.
    fn unanswered(&mut self, Assigned { order, begun }: Assigned) {
        if begun.len() == order.messages.len() && !order.dedup {
            self.uncertain.push((order.queue.clone(), begun.clone()));
        }
        let ids = if order.dedup && begun.len() == order.messages.len() { begun } else { Vec::new() };
        self.again.push_back(Order { ids, ..order });
    }

    fn give_orders(&mut self) -> Outcome<()> {
        for place in 0..self.senders.len() {
            let node = self.senders[place].node;
            if self.assigned.contains_key(&node) {
                continue;
            }
            let Some(order) = self.next_order() else { return Ok(()) };
            // One that has just died is noticed by the end of its pipe; the order is then given again.
            let told = self.senders[place].tell(&order);
            self.assigned.insert(node, Assigned { order, begun: Vec::new() });
            if let Err(error) = told {
                eprintln!("a sender did not take its order: {error}");
            }
            self.kill_doomed(place)?;
        }
        Ok(())
    }

    /// Kills the sender that was given a batch just now, if it is its turn.
    fn kill_doomed(&mut self, place: usize) -> Outcome<()> {
        let Some((_, after)) = self.doomed.front().copied().filter(|(doomed, _)| *doomed == place) else {
            return Ok(());
        };
        self.doomed.pop_front();
        std::thread::sleep(after);
        self.kill_sender(place)
    }

    /// Kills the senders for which no batch is left to die with.
    fn kill_late(&mut self) -> Outcome<()> {
        if self.answered == self.plan.batches() && self.faults.is_empty() {
            for (place, _) in std::mem::take(&mut self.doomed) {
                self.kill_sender(place)?;
            }
        }
        Ok(())
    }

    fn next_order(&mut self) -> Option<Order> {
        if let Some(order) = self.again.pop_front() {
            return Some(order);
        }
        let due = self.next_batch < self.plan.batches()
            && self.plan.batch_at(self.next_batch) <= self.started.elapsed();
        due.then(|| {
            self.next_batch += 1;
            self.plan.order(self.next_batch - 1)
        })
    }

    fn cause_faults(&mut self) -> Outcome<()> {
        self.resume(|until| *until <= Instant::now())?;
        while let Some(planned) = self.faults.front().copied() {
            if self.started.elapsed() < planned.at {
                break;
            }
            self.faults.pop_front();
            self.cause(planned.fault)?;
        }
        self.give_hunts_up()
    }

    fn has_faults(&self) -> bool {
        !self.faults.is_empty() || !self.doomed.is_empty() || !self.hunts.is_empty()
    }

    /// Kills a worker whose moment has come.
    fn hunt(&mut self, node: u32, events: &[Event]) -> Outcome<()> {
        let Some(place) = self.workers.iter().position(|worker| worker.node == node) else { return Ok(()) };
        let Some(hunt) = self.hunts.iter().position(|hunt| hunt.is_on(place, events)) else { return Ok(()) };
        let Hunt { after, .. } = self.hunts.swap_remove(hunt);
        std::thread::sleep(after);
        self.kill_worker(place)
    }

    /// Kills the workers whose moment did not come.
    fn give_hunts_up(&mut self) -> Outcome<()> {
        let now = Instant::now();
        let over: Vec<Hunt> = self.hunts.extract_if(.., |hunt| hunt.until <= now).collect();
        for Hunt { place, .. } in over {
            self.kill_worker(self.awake(place))?;
        }
        Ok(())
    }

    fn kill_worker(&mut self, place: usize) -> Outcome<()> {
        self.paused.remove(&self.workers[place].node);
        self.workers[place].kill()?;
        self.workers[place] = self.stage.worker(Setup::default())?;
        Ok(())
    }

    fn kill_sender(&mut self, place: usize) -> Outcome<()> {
        self.senders[place].kill()?;
        self.senders[place] = self.stage.sender()?;
        Ok(())
    }

    fn cause(&mut self, fault: Fault) -> Outcome<()> {
        match fault {
            Fault::KillWorker(whom, Moment::Any, _) => self.kill_worker(self.awake(whom)),
            Fault::KillWorker(whom, moment, after) => {
                let (place, until) = (self.awake(whom), Instant::now() + MOMENT_LIMIT);
                self.hunts.push(Hunt { place, moment, after, until });
                Ok(())
            }
            Fault::KillSender(whom, after) => {
                self.doomed.push_back((whom % SENDERS, after));
                Ok(())
            }
            Fault::KillAll => self.kill_all(),
            Fault::Pause(whom, long) => {
                let worker = &self.workers[self.awake(whom)];
                self.paused.insert(worker.node, Instant::now() + long);
                worker.pause()
            }
        }
    }

    /// The first worker from `whom` on that is not stopped; when all are, that one.
    fn awake(&self, whom: usize) -> usize {
        let places = (0..WORKERS).map(|step| (whom + step) % WORKERS);
        let is_awake = |place: &usize| !self.paused.contains_key(&self.workers[*place].node);
        places.clone().find(is_awake).unwrap_or(whom % WORKERS)
    }

    /// One fault: every process dies before any is started again.
    fn kill_all(&mut self) -> Outcome<()> {
        self.stage.chronicle.fault(0, "all", "kill");
        for mut child in self.workers.drain(..).chain(self.senders.drain(..)) {
            self.paused.remove(&child.node);
            child.kill_uncounted()?;
        }
        for _ in 0..WORKERS {
            self.workers.push(self.stage.worker(Setup::default())?);
        }
        for _ in 0..SENDERS {
            self.senders.push(self.stage.sender()?);
        }
        Ok(())
    }

    fn resume(&mut self, due: impl Fn(&Instant) -> bool) -> Outcome<()> {
        let nodes: Vec<u32> =
            self.paused.iter().filter(|(_, until)| due(until)).map(|(node, _)| *node).collect();
        for node in nodes {
            self.paused.remove(&node);
            if let Some(worker) = self.workers.iter().find(|worker| worker.node == node) {
                worker.resume()?;
            }
        }
        Ok(())
    }

    fn tell_progress(&self) {
        let (sent, all) = (self.answered, self.plan.batches());
        let kills = self.plan.kills as usize - self.faults.iter().filter(|planned| planned.is_kill()).count();
        eprintln!(
            "{:.0?}: {sent} of {all} batches, {kills} of {} kills",
            self.started.elapsed(),
            self.plan.kills
        );
    }
}

//! The processes of the main run, and what is done to them. Whoever is gone is started again at once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use millpond_testkit::judge::history::{Event, Op, Phase};
use millpond_testkit::proxy::{Cut, Proxy};

use crate::Outcome;
use crate::child::Running;
use crate::plan::{Fault, Moment, SENDERS, WORKERS};
use crate::stage::{Proxies, Stage};
use crate::worker::Setup;

/// How long the moment of a worker's death is waited for, before it dies without.
const MOMENT_LIMIT: Duration = Duration::from_millis(1_500);

pub(crate) struct Crew<'s> {
    stage: &'s Stage,
    senders: Vec<Running>,
    workers: Vec<Running>,
    /// Senders that die with their next batch, by their place, and how long after they get it.
    doomed: VecDeque<(usize, Duration)>,
    /// Deaths of workers that wait for their moment.
    hunts: Vec<Hunt>,
    /// Workers that are stopped, and until when.
    paused: HashMap<u32, Instant>,
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
        let word = match self.moment {
            Moment::Any => return false,
            Moment::Lease => (Op::Lease, Phase::Ok),
            Moment::Begin => (Op::Effect, Phase::Invoke),
            Moment::Effect => (Op::Effect, Phase::Ok),
            Moment::Settle => (Op::Settle, Phase::Invoke),
            Moment::Reclaim => (Op::Reclaim, Phase::Ok),
        };
        let is_it = self.place == place || self.moment == Moment::Reclaim;
        is_it && events.iter().any(|event| (event.op, event.ph) == word)
    }
}

impl<'s> Crew<'s> {
    pub(crate) fn start(stage: &'s Stage) -> Outcome<Self> {
        let mut crew = Self {
            stage,
            senders: Vec::new(),
            workers: Vec::new(),
            doomed: VecDeque::new(),
            hunts: Vec::new(),
            paused: HashMap::new(),
        };
        crew.fill()?;
        Ok(crew)
    }

    fn fill(&mut self) -> Outcome<()> {
        for _ in self.workers.len()..WORKERS {
            self.workers.push(self.stage.worker(Setup::default())?);
        }
        for _ in self.senders.len()..SENDERS {
            self.senders.push(self.stage.sender()?);
        }
        Ok(())
    }

    pub(crate) fn sender(&mut self, place: usize) -> &mut Running {
        &mut self.senders[place]
    }

    pub(crate) fn into_children(self) -> impl Iterator<Item = Running> {
        self.senders.into_iter().chain(self.workers)
    }

    /// Whether every fault that was caused has happened.
    pub(crate) fn is_calm(&self) -> bool {
        self.doomed.is_empty() && self.hunts.is_empty()
    }

    pub(crate) fn cause(&mut self, fault: Fault) -> Outcome<()> {
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
            Fault::KillServer(away) => {
                self.stage.kill_server(away);
                Ok(())
            }
            Fault::CutSender(cut) => self.cut(|proxies| &proxies.senders, cut),
            Fault::CutWorker(cut) => self.cut(|proxies| &proxies.workers, cut),
            Fault::Pause(whom, long) => {
                let worker = &self.workers[self.awake(whom)];
                self.paused.insert(worker.node, Instant::now() + long);
                worker.pause()
            }
        }
    }

    fn cut(&self, which: impl Fn(&Proxies) -> &Proxy, cut: Cut) -> Outcome<()> {
        let proxies = self.stage.proxies.as_ref().ok_or("nothing is between that could cut")?;
        which(proxies).arm(cut);
        Ok(())
    }

    /// What only the clock tells: stopped workers go on, and moments that did not come are waited for no longer.
    pub(crate) fn watch(&mut self) -> Outcome<()> {
        let now = Instant::now();
        self.resume(|until| until <= now)?;
        let over: Vec<Hunt> = self.hunts.extract_if(.., |hunt| hunt.until <= now).collect();
        over.into_iter().try_for_each(|hunt| self.kill_worker(self.awake(hunt.place)))
    }

    pub(crate) fn resume_all(&mut self) -> Outcome<()> {
        self.resume(|_| true)
    }

    fn resume(&mut self, is_due: impl Fn(Instant) -> bool) -> Outcome<()> {
        let nodes: Vec<u32> =
            self.paused.extract_if(|_, until| is_due(*until)).map(|(node, _)| node).collect();
        self.workers.iter().filter(|worker| nodes.contains(&worker.node)).try_for_each(Running::resume)
    }

    /// A process reported something: it dies, if that was its moment.
    pub(crate) fn heard(&mut self, node: u32, events: &[Event]) -> Outcome<()> {
        let Some(place) = self.workers.iter().position(|worker| worker.node == node) else { return Ok(()) };
        let Some(hunt) = self.hunts.iter().position(|hunt| hunt.is_on(place, events)) else { return Ok(()) };
        std::thread::sleep(self.hunts.swap_remove(hunt).after);
        self.kill_worker(place)
    }

    /// A sender was given a batch: it dies, if it is its turn.
    pub(crate) fn was_told(&mut self, place: usize) -> Outcome<()> {
        let Some((_, after)) = self.doomed.front().copied().filter(|(doomed, _)| *doomed == place) else {
            return Ok(());
        };
        self.doomed.pop_front();
        std::thread::sleep(after);
        self.kill_sender(place)
    }

    /// Kills the senders for which no batch is left to die with.
    pub(crate) fn kill_doomed(&mut self) -> Outcome<()> {
        while let Some((place, _)) = self.doomed.pop_front() {
            self.kill_sender(place)?;
        }
        Ok(())
    }

    /// A process is gone. If nobody killed it, it ended by itself, and is started again.
    pub(crate) fn ended(&mut self, node: u32) -> Outcome<()> {
        if let Some(place) = self.workers.iter().position(|worker| worker.node == node) {
            self.workers[place].ended()?;
            self.workers[place] = self.stage.worker(Setup::default())?;
        }
        if let Some(place) = self.senders.iter().position(|sender| sender.node == node) {
            self.senders[place].ended()?;
            self.senders[place] = self.stage.sender()?;
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

    /// One fault: every process dies before any is started again.
    fn kill_all(&mut self) -> Outcome<()> {
        self.paused.clear();
        self.stage.chronicle.fault(0, "all", "kill");
        for mut child in self.workers.drain(..).chain(self.senders.drain(..)) {
            child.kill_in_company()?;
        }
        self.fill()
    }

    /// The first worker from `whom` on that is not stopped; when all are, that one.
    fn awake(&self, whom: usize) -> usize {
        let is_awake = |place: &usize| !self.paused.contains_key(&self.workers[*place].node);
        (0..WORKERS).map(|step| (whom + step) % WORKERS).find(is_awake).unwrap_or(whom % WORKERS)
    }
}

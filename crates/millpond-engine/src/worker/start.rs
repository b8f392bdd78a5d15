//! How a worker begins: what is refused, its lease, and the loops beside its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error, Result};
use millpond_core::poll::PollStep;
use millpond_core::queue::LEASE_MIN;
use millpond_core::store::{Pulse, Queue, Renewal};
use millpond_core::view::WorkerFacts;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::ids;
use crate::patience::Patience;
use crate::pond::Pond;
use crate::pulse::{Activity, PulseLoop};
use crate::reclaim::Reclaim;
use crate::renewal::{LeaseWatch, Renewer};
use crate::supervise::supervise;
use crate::upkeep::Upkeep;
use crate::worker::board::Board;
use crate::worker::feed::Feed;
use crate::worker::hands::Hands;
use crate::worker::hooks::{HookLine, HookLoop};
use crate::worker::kinds::Kinds;
use crate::worker::line::Line;
use crate::worker::orders::Orders;
use crate::worker::plan::RunTimes;
use crate::worker::run::Loop;
use crate::worker::settler::{Endings, Settler};
use crate::worker::slot::{Station, Tuning, slots_of};
use crate::worker::suspects::Suspects;
use crate::worker::watchdog::Watchdog;
use crate::worker::{CONCURRENCY_MAX, HookRegistration, Worker};

/// Starts everything of a worker but its own loop. Nothing is leased yet.
pub(super) async fn start(mut worker: Worker) -> Result<Loop> {
    check(&worker)?;
    let steps = worker.poll.steps().map_err(|why| config("start a worker", why))?;
    let bound = worker.bind()?;
    let mut declared = Vec::new();
    for (queue, kinds) in bound {
        declared.push((worker.pond.resolve(&queue).await?, kinds));
    }
    let hooks = hook_lines(&mut worker).await?;
    let lease = lease_of(&worker, declared.iter().map(|(queue, _)| &**queue))?;
    let mut heartbeat = heartbeat(&worker, lease, declared.iter().map(|(queue, _)| &**queue))?;
    heartbeat.facts.kinds = kinds_of(&declared);
    let asked = Instant::now();
    let renewed = worker.pond.store().renew(heartbeat.clone()).await?;
    let watch = Arc::new(LeaseWatch::new(lease, asked, &renewed));
    let parts = Parts::new(lease, watch);
    let queues: Vec<Line> =
        declared.into_iter().map(|(queue, kinds)| parts.line(&worker, queue, kinds)).collect();
    parts.begin(worker, queues, heartbeat, steps, hooks)
}

/// The hooks of each queue, whose drops wait for them from now on.
async fn hook_lines(worker: &mut Worker) -> Result<Vec<HookLine>> {
    let mut lines: Vec<HookLine> = Vec::new();
    for HookRegistration { queue, kind, bind } in std::mem::take(&mut worker.hooks) {
        let bound = bind(&worker.states)?;
        let stored = worker.pond.resolve(&queue).await?;
        let place = lines.iter().position(|line| line.queue.id == stored.id);
        let place = match place {
            Some(place) => place,
            None => {
                worker.pond.store().expect_hooks(stored.id).await?;
                let name = stored.name.as_str().into();
                lines.push(HookLine { queue: stored, name, any: None, by_kind: HashMap::new() });
                lines.len() - 1
            }
        };
        let line = &mut lines[place];
        let first = match kind {
            None => line.any.replace(bound).is_none(),
            Some(kind) => line.by_kind.insert(kind, bound).is_none(),
        };
        if !first {
            let doing = format!("start a worker with hooks of queue `{}`", line.name);
            return Err(config(&doing, "a kind has two hooks"));
        }
    }
    Ok(lines)
}

/// The names of the work that a worker has handlers for; empty: any.
fn kinds_of(declared: &[(Arc<Queue>, Kinds)]) -> Vec<String> {
    let names: Vec<Vec<String>> = declared.iter().map(|(queue, kinds)| kinds.names(&queue.name)).collect();
    if names.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    let mut names: Vec<String> = names.into_iter().flatten().collect();
    names.sort();
    names.dedup();
    names
}

/// What the parts of a worker share, while it is put together.
struct Parts {
    hands: Arc<Hands>,
    endings: Arc<Endings>,
    low: Arc<Notify>,
    settled: Arc<Notify>,
    /// Told when something was dropped.
    dropped: Arc<Notify>,
    lease: Duration,
    watch: Arc<LeaseWatch>,
    busy: Arc<AtomicU32>,
    activity: Arc<Activity>,
    orders: Arc<Orders>,
    stop: CancellationToken,
}

impl Parts {
    fn new(lease: Duration, watch: Arc<LeaseWatch>) -> Self {
        Self {
            hands: Arc::default(),
            endings: Arc::default(),
            low: Arc::default(),
            settled: Arc::default(),
            dropped: Arc::default(),
            lease,
            watch,
            busy: Arc::default(),
            activity: Arc::new(Activity::new()),
            orders: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    fn line(&self, worker: &Worker, queue: Arc<Queue>, kinds: Kinds) -> Line {
        let tuning = Tuning::new(queue.settings, worker.concurrency, worker.timeout, worker.cancel_grace);
        let station = Station {
            pond: worker.pond.clone(),
            name: queue.name.as_str().into(),
            queue,
            kinds,
            feed: Feed::new(Arc::clone(&self.low)),
            board: Board::new(worker.concurrency),
            run_times: RunTimes::default(),
            endings: Arc::clone(&self.endings),
            hands: Arc::clone(&self.hands),
            lease: Arc::clone(&self.watch),
            tuning,
            unit_limit: self.lease / 3,
        };
        Line::new(Arc::new(station))
    }

    /// Starts the loops of the worker.
    fn begin(
        self,
        worker: Worker,
        queues: Vec<Line>,
        heartbeat: Renewal,
        steps: Vec<PollStep>,
        hooks: Vec<HookLine>,
    ) -> Result<Loop> {
        let id = heartbeat.worker.clone();
        self.renew(&worker.pond, &queues, heartbeat)?;
        self.watch(&worker.pond, &queues)?;
        let pulses = self.pulse(&worker, &queues, steps);
        self.keep_order(&worker.pond, &id);
        let settler = self.settle(&worker.pond);
        let hooks = self.hooks(&worker.pond, hooks);
        let mut running = Loop {
            pond: worker.pond,
            id,
            queues,
            hands: self.hands,
            lease: self.watch,
            endings: self.endings,
            suspects: Suspects::None,
            leases: JoinSet::new(),
            slots: JoinSet::new(),
            slot_places: std::collections::HashMap::new(),
            low: self.low,
            settled: self.settled,
            pulses,
            activity: self.activity,
            busy: self.busy,
            patience: Patience::new(),
            not_before: None,
            orders: self.orders,
            stop: self.stop,
            settler,
            hooks,
            shutdown_timeout: worker.shutdown_timeout,
            cancel_grace: worker.cancel_grace,
        };
        for queue in 0..running.queues.len() {
            for number in 0..running.queues[queue].station.tuning.slots_max() {
                running.begin_slot(queue, number);
            }
        }
        Ok(running)
    }

    fn renew(&self, pond: &Pond, queues: &[Line], heartbeat: Renewal) -> Result<()> {
        let renewer = Renewer {
            pond: pond.clone(),
            heartbeat,
            busy: Arc::clone(&self.busy),
            hands: Arc::clone(&self.hands),
            stations: stations(queues),
            endings: Arc::clone(&self.endings),
            orders: Arc::clone(&self.orders),
            watch: Arc::clone(&self.watch),
            stop: self.stop.clone(),
        };
        renewer.start()
    }

    fn pulse(&self, worker: &Worker, queues: &[Line], steps: Vec<PollStep>) -> watch::Receiver<Arc<Pulse>> {
        let (tell, pulses) = watch::channel(Arc::default());
        let beat = PulseLoop {
            pond: worker.pond.clone(),
            stations: stations(queues),
            orders: Arc::clone(&self.orders),
            activity: Arc::clone(&self.activity),
            settings: worker.poll,
            steps,
            tell,
            stop: self.stop.clone(),
        };
        tokio::spawn(supervise("pulse", self.stop.clone(), async move || beat.run().await));
        pulses
    }

    /// Reclaim and retention.
    fn keep_order(&self, pond: &Pond, worker: &str) {
        let (stop, watch) = (self.stop.clone(), Arc::clone(&self.watch));
        let reclaim = Reclaim {
            pond: pond.clone(),
            worker: worker.to_owned(),
            watch,
            dropped: Arc::clone(&self.dropped),
            stop: stop.clone(),
        };
        let upkeep = Upkeep { pond: pond.clone(), node: worker.to_owned(), stop: stop.clone() };
        tokio::spawn(supervise("reclaim", stop.clone(), async move || reclaim.run().await));
        tokio::spawn(supervise("upkeep", stop, async move || upkeep.run().await));
    }

    fn settler(&self, pond: &Pond) -> Settler {
        Settler {
            pond: pond.clone(),
            endings: Arc::clone(&self.endings),
            hands: Arc::clone(&self.hands),
            settled: Arc::clone(&self.settled),
            dropped: Arc::clone(&self.dropped),
            stop: self.stop.clone(),
        }
    }

    /// Calls hooks, if there are any.
    fn hooks(&self, pond: &Pond, lines: Vec<HookLine>) -> Option<JoinHandle<()>> {
        let (pond, dropped, stop) = (pond.clone(), Arc::clone(&self.dropped), self.stop.clone());
        let any = !lines.is_empty();
        let lines: Vec<_> = lines.into_iter().map(Arc::new).collect();
        lines.iter().for_each(|line| pond.hooks().learn(line));
        let hooks = HookLoop { pond, lines, dropped, stop };
        any.then(|| tokio::spawn(supervise("hooks", self.stop.clone(), async move || hooks.run().await)))
    }

    fn settle(&self, pond: &Pond) -> JoinHandle<()> {
        let settler = self.settler(pond);
        tokio::spawn(supervise("settler", self.stop.clone(), async move || settler.run().await))
    }

    fn watch(&self, pond: &Pond, queues: &[Line]) -> Result<()> {
        Watchdog { stations: stations(queues), settler: self.settler(pond), stop: self.stop.clone() }.start()
    }
}

fn check(worker: &Worker) -> Result<()> {
    if worker.concurrency == 0 || CONCURRENCY_MAX < worker.concurrency {
        let why = format!("concurrency is {}; it is from 1 to {CONCURRENCY_MAX}", worker.concurrency);
        return Err(config("start a worker", why));
    }
    match worker.lease {
        Some(lease) if lease < LEASE_MIN => {
            Err(config("start a worker", format!("lease is {lease:?}; it is at least {LEASE_MIN:?}")))
        }
        _ => Ok(()),
    }
}

fn stations(queues: &[Line]) -> Vec<Arc<Station>> {
    queues.iter().map(|line| Arc::clone(&line.station)).collect()
}

/// The worker's lease: its own, or the shortest of its queues.
fn lease_of<'q>(worker: &Worker, queues: impl Iterator<Item = &'q Queue>) -> Result<Duration> {
    let shortest = queues.map(|queue| queue.settings.lease).min();
    worker.lease.or(shortest).ok_or_else(|| config("start a worker", "it has no queue"))
}

fn heartbeat<'q>(
    worker: &Worker,
    lease: Duration,
    queues: impl Iterator<Item = &'q Queue>,
) -> Result<Renewal> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost".to_owned() } else { host.trim().to_owned() };
    let random = ids::token()?.to_string();
    let (slots, queues): (Vec<usize>, Vec<String>) =
        queues.map(|queue| (slots_of(&queue.settings, worker.concurrency), queue.name.clone())).unzip();
    Ok(Renewal {
        worker: format!("{host}-{}-{}", std::process::id(), &random[..8]),
        host,
        lease,
        slots: u32::try_from(slots.iter().sum::<usize>()).unwrap_or(u32::MAX),
        queues,
        busy: 0,
        error: None,
        facts: WorkerFacts {
            pid: std::process::id(),
            version: worker.version.clone(),
            ..WorkerFacts::default()
        },
    })
}

fn config(doing: &str, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Code::InvalidConfig, doing).because(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeStore;
    use crate::pond::Pond;

    #[test]
    fn a_heartbeat_counts_the_slots_that_the_queues_allow() {
        let worker = Worker::new(&Pond::new(Arc::new(FakeStore::default()))).concurrency(10);
        let queue = |concurrency_per_node| Queue {
            id: millpond_core::store::QueueId(1),
            name: "mail".to_owned(),
            settings: millpond_core::QueueSettings {
                concurrency_per_node,
                ..millpond_core::QueueSettings::DEFAULT
            },
        };
        let queues = [queue(None), queue(Some(2)), queue(Some(99))];
        assert_eq!(heartbeat(&worker, LEASE_MIN, queues.iter()).unwrap().slots, 22);
    }
}

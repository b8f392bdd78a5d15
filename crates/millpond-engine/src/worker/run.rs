//! A worker's loop: what wakes it, and what it does then. It waits for hints, answers to leases, ended handlers
//! and the clock, and never for a handler.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::Token;
use millpond_core::pick::{self, Lane};
use millpond_core::queue::{CLASSES, LEASE_MIN};
use millpond_core::reason::Release;
use millpond_core::settle::Ending;
use millpond_core::store::{Claim, Lease, LeaseRequest, Pulse, Queue, QueueId, Renewal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::ids;
use crate::patience::Patience;
use crate::pond::Pond;
use crate::pulse::{Activity, PulseLoop};
use crate::reclaim::Reclaim;
use crate::renewal::{LeaseWatch, Renewer};
use crate::upkeep::Upkeep;
use crate::worker::board::{Board, Envelope, RunLimits};
use crate::worker::feed::{Feed, Waiting};
use crate::worker::hands::Hands;
use crate::worker::kinds::Kinds;
use crate::worker::plan::{InHand, Speed, next_lease};
use crate::worker::settler::{Endings, Settler};
use crate::worker::slot::{self, Station};
use crate::worker::suspects::{Answer, Suspects};
use crate::worker::{CONCURRENCY_MAX, Worker};

/// How often running handlers are compared with their time limits.
const WATCH_EVERY: Duration = Duration::from_millis(100);

/// How long a message may wait unstarted in this worker while every slot is busy, before it is given back.
const UNSTARTED_MAX: Duration = Duration::from_secs(1);

/// How long the last verdicts of a stop may take to be recorded.
const LAST_SETTLE: Duration = Duration::from_secs(5);

/// Runs `worker` until `shutdown`, and in a hurry when `hurry` resolves too.
pub(crate) async fn run(
    worker: Worker,
    shutdown: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
) -> Result<()> {
    let mut loop_ = Loop::start(worker).await?;
    let (mut shutdown, mut hurry) = (pin!(shutdown), pin!(hurry));
    loop_.work(shutdown.as_mut()).await;
    loop_.stop(hurry.as_mut()).await;
    Ok(())
}

/// One queue of the worker.
struct Lines {
    station: Arc<Station>,
    slots: usize,
    limits: RunLimits,
    speed: Speed,
    /// A lease is under way.
    leasing: bool,
    may_have_more: bool,
    /// The suspect lane has messages, as far as is known.
    has_suspects: bool,
    /// How long the oldest ready message of each class had waited at the last pulse.
    waited: [Option<Duration>; CLASSES as usize],
    turn: u64,
}

/// The answer to a lease.
struct Answered {
    queue: usize,
    token: Token,
    suspect: bool,
    lease: Result<Lease>,
}

struct Loop {
    pond: Pond,
    id: String,
    queues: Vec<Lines>,
    hands: Arc<Hands>,
    endings: Arc<Endings>,
    suspects: Suspects,
    leases: JoinSet<Answered>,
    slots: JoinSet<()>,
    slot_places: std::collections::HashMap<tokio::task::Id, (usize, usize)>,
    low: Arc<Notify>,
    settled: Arc<Notify>,
    pulses: watch::Receiver<Arc<Pulse>>,
    activity: Arc<Activity>,
    busy: Arc<AtomicU32>,
    patience: Patience,
    not_before: Option<Instant>,
    /// Ends the loops beside this one.
    stop: CancellationToken,
    settler: tokio::task::JoinHandle<()>,
    shutdown_timeout: Duration,
    cancel_grace: Duration,
}

impl Loop {
    async fn start(mut worker: Worker) -> Result<Self> {
        check(&worker)?;
        let steps = worker.poll.steps().map_err(|why| config("start a worker", why))?;
        let bound = worker.bind()?;
        let mut declared = Vec::new();
        for (queue, kinds) in bound {
            declared.push((worker.pond.resolve(&queue).await?, kinds));
        }
        let lease = lease_of(&worker, declared.iter().map(|(queue, _)| &**queue))?;
        let heartbeat = heartbeat(&worker, lease, declared.iter().map(|(queue, _)| &**queue))?;
        let asked = Instant::now();
        let renewed = worker.pond.store().renew(heartbeat.clone()).await?;
        let watch = Arc::new(LeaseWatch::new(lease, asked, &renewed));
        let parts = Parts::new(&worker, lease, &watch);
        let queues: Vec<Lines> =
            declared.into_iter().map(|(queue, kinds)| parts.line(&worker, queue, kinds)).collect();
        parts.begin(worker, queues, heartbeat, watch, steps)
    }

    /// Works until `shutdown`.
    async fn work(&mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) {
        let pond = self.pond.clone();
        let mut woken = pond.woken();
        self.queues.iter_mut().for_each(|line| line.may_have_more = true);
        loop {
            self.lease_more();
            let hold = self.not_before.map(|until| until.saturating_duration_since(Instant::now()));
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                Some(answer) = self.leases.join_next() => self.leased(answer),
                queues = woken.next() => self.woken(&queues),
                () = self.low.notified() => {}
                () = self.settled.notified() => self.suspects = self.suspects.settled(self.hands.left().suspects),
                Ok(()) = self.pulses.changed() => self.pulsed(),
                Some(ended) = self.slots.join_next_with_id() => self.slot_ended(ended.map(|(id, ())| id)),
                () = sleep(hold.unwrap_or(WATCH_EVERY)), if hold.is_some() || self.is_busy() => self.not_before = None,
            }
            self.watch_handlers();
        }
    }

    /// Begins the leases for which there is room.
    fn lease_more(&mut self) {
        if self.not_before.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let left = self.hands.left();
        let with_suspects = self.queues.iter().position(|line| line.has_suspects);
        if let Some((queue, hands_empty)) = self.suspects.ask(with_suspects, left.in_hand, self.leases.len())
            && let Some((messages, bytes)) = self.queues[queue].next_lease(&self.endings)
        {
            self.suspects = Suspects::Asking { queue };
            self.begin_lease(queue, messages, bytes, Some(hands_empty));
        }
        if !self.suspects.ordinary_may_lease() {
            return;
        }
        for queue in 0..self.queues.len() {
            let line = &mut self.queues[queue];
            if line.leasing || !line.may_have_more {
                continue;
            }
            if let Some((messages, bytes)) = line.next_lease(&self.endings) {
                self.begin_lease(queue, messages, bytes, None);
            }
        }
    }

    /// Asks for a lease; `suspect` says that it is from the suspect lane, and whether the hands are empty.
    fn begin_lease(&mut self, queue: usize, messages_max: usize, bytes_max: usize, suspect: Option<bool>) {
        let Ok(token) = ids::token() else {
            tracing::error!("the system has no random numbers: nothing can be leased");
            self.not_before = Some(Instant::now() + self.patience.wait());
            return;
        };
        let line = &mut self.queues[queue];
        line.leasing |= suspect.is_none();
        let request = LeaseRequest {
            queue: line.station.queue.id,
            worker: self.id.clone(),
            token,
            turns: if suspect.is_some() { suspect_turns() } else { line.next_turn() },
            messages_max,
            bytes_max,
            hands_empty: suspect.unwrap_or(false),
        };
        self.hands.register(token);
        let store = Arc::clone(self.pond.store());
        let suspect = suspect.is_some();
        self.leases
            .spawn(async move { Answered { queue, token, suspect, lease: store.lease(request).await } });
    }

    fn leased(&mut self, answer: std::result::Result<Answered, tokio::task::JoinError>) {
        let Ok(Answered { queue, token, suspect, lease }) = answer else {
            tracing::error!(
                "a lease panicked: its claim, if there is one, is given back at the next renewal"
            );
            self.queues.iter_mut().for_each(|line| line.leasing = false);
            self.suspects = self.suspects.answered(Answer::Nothing);
            return;
        };
        let line = &mut self.queues[queue];
        if !suspect {
            line.leasing = false;
        }
        let answer = match lease {
            Ok(Lease::Claim(claim)) => {
                self.patience.reset();
                self.activity.found();
                let group = claim.messages.first().map_or(0, |message| message.suspect);
                take_claim(line, &self.hands, &self.endings, claim);
                Answer::Group(group)
            }
            Ok(Lease::EmptyHandsFirst) => {
                self.hands.drop_claim(token);
                Answer::EmptyHandsFirst
            }
            Ok(Lease::Empty) => {
                self.hands.drop_claim(token);
                line.exhausted(suspect);
                Answer::Nothing
            }
            Err(error) => {
                let name = &line.station.queue.name;
                tracing::warn!(queue = %name, %error, cause = error.causes(), "cannot lease");
                // It may have been granted all the same; then the next renewal finds and releases it.
                self.hands.drop_claim(token);
                self.not_before = Some(Instant::now() + self.patience.wait());
                Answer::Nothing
            }
        };
        if suspect {
            self.suspects = self.suspects.answered(answer);
        }
    }

    fn woken(&mut self, queues: &[QueueId]) {
        for line in self.queues.iter_mut().filter(|line| queues.contains(&line.station.queue.id)) {
            line.may_have_more = true;
        }
    }

    fn pulsed(&mut self) {
        let pulse = Arc::clone(&self.pulses.borrow_and_update());
        for line in &mut self.queues {
            line.pulsed(&pulse);
        }
    }

    fn is_busy(&self) -> bool {
        self.hands.left().in_hand != 0
    }

    /// Ends handlers whose time is up, and gives back what waits behind slow ones.
    fn watch_handlers(&mut self) {
        let now = Instant::now();
        let mut busy = 0;
        for line in &mut self.queues {
            for (envelope, ending, error, run) in line.station.board.overdue(line.limits, now) {
                tracing::warn!(queue = %line.station.queue.name, id = %envelope.id, "a handler was given up");
                line.station.settle(&envelope, ending, error, run);
            }
            let (running, stuck) = line.station.board.counts();
            busy += u32::try_from(running).unwrap_or(u32::MAX);
            let waited = line.station.feed.oldest().map(|since| now.saturating_duration_since(since));
            if line.slots <= running + stuck && waited.is_some_and(|waited| UNSTARTED_MAX < waited) {
                line.speed.at_least(line.station.board.longest(now).unwrap_or(UNSTARTED_MAX));
                release(&line.station, line.station.feed.drain(), Release::Limited);
            }
        }
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// A slot's task ended although the worker runs: it was aborted, and is begun again.
    fn slot_ended(&mut self, ended: std::result::Result<tokio::task::Id, tokio::task::JoinError>) {
        let id = ended.unwrap_or_else(|error| error.id());
        if let Some((queue, number)) = self.slot_places.remove(&id) {
            self.begin_slot(queue, number);
        }
    }

    fn begin_slot(&mut self, queue: usize, number: usize) {
        let station = Arc::clone(&self.queues[queue].station);
        let task = self.slots.spawn(slot::run(station, number));
        self.slot_places.insert(task.id(), (queue, number));
    }

    /// Two phases: let handlers end; then tell them to stop, and give back what is left.
    async fn stop(mut self, mut hurry: Pin<&mut impl Future<Output = ()>>) {
        for line in &self.queues {
            release(&line.station, line.station.feed.close(), Release::Shutdown);
        }
        let draining = timeout(self.shutdown_timeout, self.drain());
        let in_time = tokio::select! {
            drained = draining => drained.is_ok(),
            () = &mut hurry => false,
        };
        if !in_time {
            self.queues.iter().for_each(|line| line.station.board.cancel(None));
            if timeout(self.cancel_grace, self.drain()).await.is_err() {
                self.give_back_running();
            }
        }
        if timeout(LAST_SETTLE, self.all_settled()).await.is_err() {
            tracing::warn!("the last verdicts could not be recorded: their messages will be delivered again");
        }
        self.slots.abort_all();
        self.stop.cancel();
        self.settler.abort();
        if let Err(error) = self.pond.store().end_worker(self.id.clone()).await {
            tracing::warn!(%error, "cannot write that this worker has ended; its lease will run out");
        }
    }

    /// Until no handler runs and no lease is under way.
    async fn drain(&mut self) {
        loop {
            self.watch_handlers();
            if self.busy.load(Ordering::Relaxed) == 0 && self.leases.is_empty() {
                return;
            }
            tokio::select! {
                Some(answer) = self.leases.join_next() => self.leased(answer),
                () = self.settled.notified() => {}
                () = sleep(WATCH_EVERY) => {}
            }
        }
    }

    async fn all_settled(&self) {
        while self.hands.left().in_hand != 0 || !self.endings.is_empty() {
            self.settled.notified().await;
        }
    }

    fn give_back_running(&self) {
        for line in &self.queues {
            for (envelope, ending, error, run) in line.station.board.release_all(Instant::now()) {
                tracing::warn!(queue = %line.station.queue.name, id = %envelope.id, "still running at the stop");
                line.station.settle(&envelope, ending, error, run);
            }
        }
    }
}

/// A worker whose future is dropped renews nothing any more: its messages are reclaimed.
impl Drop for Loop {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Lines {
    fn next_lease(&mut self, endings: &Endings) -> Option<(usize, usize)> {
        let (runs, total) = endings.take_speed(self.station.queue.id);
        self.speed.measured(runs, total);
        let ((waiting, waiting_bytes), (running, stuck)) =
            (self.station.feed.size(), self.station.board.counts());
        next_lease(InHand { slots: self.slots, stuck, waiting, waiting_bytes, running }, self.speed)
    }

    /// Where the next lease looks: classes by weight and age, and in each the lanes by turn.
    fn next_turn(&mut self) -> Vec<(u8, Lane)> {
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        let classes = pick::classes(turn, &self.waited);
        classes.into_iter().flat_map(|class| pick::lanes(turn).map(|lane| (class, lane))).collect()
    }

    /// A lease found nothing.
    fn exhausted(&mut self, suspect: bool) {
        if suspect {
            self.has_suspects = false;
        } else {
            self.may_have_more = false;
            self.waited = [None; CLASSES as usize];
        }
    }

    fn pulsed(&mut self, pulse: &Pulse) {
        let mine = || pulse.heads.iter().filter(|head| head.queue == self.station.queue.id);
        let ordinary = || mine().filter(|head| head.lane != Lane::Suspect);
        let mut waited = [None; CLASSES as usize];
        for head in ordinary() {
            let age = head.oldest.map(|oldest| pulse.now.since(oldest)).unwrap_or_default();
            if let Some(known) = waited.get_mut(usize::from(head.class)) {
                *known = (*known).max(Some(age));
            }
        }
        let (more, suspects) = (ordinary().next().is_some(), mine().any(|head| head.lane == Lane::Suspect));
        self.waited = waited;
        self.may_have_more |= more;
        self.has_suspects |= suspects;
    }
}

fn take_claim(line: &mut Lines, hands: &Hands, endings: &Endings, claim: Claim) {
    let Claim { held, messages, .. } = claim;
    let suspects = messages.first().is_some_and(|message| message.suspect != 0);
    hands.take(held, messages.len(), suspects);
    endings.expect(held.token, line.station.queue.id, messages.len());
    let since = Instant::now();
    let waiting =
        messages.into_iter().map(|message| Waiting { held, message, since, told_low: false }).collect();
    // A feed that was closed meanwhile hands them back: the worker stops.
    release(&line.station, line.station.feed.fill(waiting), Release::Shutdown);
}

/// Gives messages back that no handler has seen.
fn release(station: &Station, waiting: Vec<Waiting>, why: Release) {
    for Waiting { held, message, .. } in waiting {
        let kind = message.kind.as_deref().map(Into::into);
        let envelope = Envelope::of(held, &message, kind);
        station.settle(&envelope, Ending::Released(why), None, Duration::ZERO);
    }
}

fn suspect_turns() -> Vec<(u8, Lane)> {
    (0..CLASSES).map(|class| (class, Lane::Suspect)).collect()
}

/// What the parts of a worker share, while it is put together.
struct Parts {
    hands: Arc<Hands>,
    endings: Arc<Endings>,
    low: Arc<Notify>,
    settled: Arc<Notify>,
    lease: Duration,
    watch: Arc<LeaseWatch>,
}

impl Parts {
    fn new(_worker: &Worker, lease: Duration, watch: &Arc<LeaseWatch>) -> Self {
        Self {
            hands: Arc::default(),
            endings: Arc::default(),
            low: Arc::default(),
            settled: Arc::default(),
            lease,
            watch: Arc::clone(watch),
        }
    }

    fn line(&self, worker: &Worker, queue: Arc<Queue>, kinds: Kinds) -> Lines {
        let own = queue.settings.concurrency_per_node.map(|slots| slots as usize);
        let slots = own.unwrap_or(worker.concurrency).min(worker.concurrency);
        let limits = RunLimits { timeout: queue.settings.timeout, cancel_grace: worker.cancel_grace };
        let station = Station {
            pond: worker.pond.clone(),
            name: queue.name.as_str().into(),
            queue,
            kinds,
            feed: Feed::new(Arc::clone(&self.low)),
            board: Board::new(slots),
            endings: Arc::clone(&self.endings),
            hands: Arc::clone(&self.hands),
            lease: Arc::clone(&self.watch),
            unit_limit: self.lease / 3,
        };
        Lines {
            station: Arc::new(station),
            slots,
            limits,
            speed: Speed::default(),
            leasing: false,
            may_have_more: true,
            has_suspects: false,
            waited: [None; CLASSES as usize],
            turn: 0,
        }
    }

    /// Starts the loops of the worker.
    fn begin(
        self,
        worker: Worker,
        queues: Vec<Lines>,
        heartbeat: Renewal,
        watch: Arc<LeaseWatch>,
        steps: Vec<millpond_core::poll::PollStep>,
    ) -> Result<Loop> {
        let Worker { pond, poll, shutdown_timeout, cancel_grace, .. } = worker;
        let Parts { hands, endings, low, settled, .. } = self;
        let (stop, busy, activity) = (CancellationToken::new(), Arc::default(), Arc::new(Activity::new()));
        let id = heartbeat.worker.clone();
        let renewer = Renewer {
            store: Arc::clone(pond.store()),
            heartbeat,
            busy: Arc::clone(&busy),
            hands: Arc::clone(&hands),
            stations: queues.iter().map(|line| Arc::clone(&line.station)).collect(),
            watch: Arc::clone(&watch),
            stop: stop.clone(),
        };
        renewer.start()?;
        let (tell, pulses) = watch::channel(Arc::default());
        let ids = queues.iter().map(|line| line.station.queue.id).collect();
        let (settings, activity_too) = (poll, Arc::clone(&activity));
        let beat = PulseLoop {
            pond: pond.clone(),
            queues: ids,
            activity: activity_too,
            settings,
            steps,
            tell,
            stop: stop.clone(),
        };
        tokio::spawn(beat.run());
        tokio::spawn(Reclaim { pond: pond.clone(), watch, stop: stop.clone() }.run());
        tokio::spawn(Upkeep { pond: pond.clone(), node: id.clone(), stop: stop.clone() }.run());
        let settler = Settler {
            pond: pond.clone(),
            endings: Arc::clone(&endings),
            hands: Arc::clone(&hands),
            settled: Arc::clone(&settled),
            stop: stop.clone(),
        };
        let settler = tokio::spawn(settler.run());
        let mut loop_ = Loop {
            pond,
            id,
            queues,
            hands,
            endings,
            suspects: Suspects::None,
            leases: JoinSet::new(),
            slots: JoinSet::new(),
            slot_places: std::collections::HashMap::new(),
            low,
            settled,
            pulses,
            activity,
            busy,
            patience: Patience::new(),
            not_before: None,
            stop,
            settler,
            shutdown_timeout,
            cancel_grace,
        };
        for queue in 0..loop_.queues.len() {
            for number in 0..loop_.queues[queue].slots {
                loop_.begin_slot(queue, number);
            }
        }
        Ok(loop_)
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
    let queues: Vec<String> = queues.map(|queue| queue.name.clone()).collect();
    Ok(Renewal {
        worker: format!("{host}-{}-{}", std::process::id(), &random[..8]),
        host,
        lease,
        slots: u32::try_from(worker.concurrency * queues.len()).unwrap_or(u32::MAX),
        queues,
        busy: 0,
        error: None,
    })
}

fn config(doing: &str, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Code::InvalidConfig, doing).because(why)
}

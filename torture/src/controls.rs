//! Positive controls: each switches one known bug on and must be caught by the invariant that is named. The same
//! script without the bug must be clean, so that it is the bug that is caught and not the script.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_testkit::judge::Invariant;
use millpond_testkit::judge::history::{Event, Op, Phase};
use millpond_testkit::proxy::{Cut, Way};

use crate::Outcome;
use crate::child::{Notice, Running};
use crate::database::Database;
use crate::server::{Server, Way as Reached};
use crate::stage::{Ending, Stage};
use crate::wire::Report;
use crate::work::{EFFECTS, Kind, LEASE, MessageOrder, ONCE, Order, PLAIN};
use crate::worker::Setup;

/// How long one thing may take to happen.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// How long everything may take to be worked off.
const DRAIN_LIMIT: Duration = Duration::from_secs(40);

/// How long a bug that keeps a run from ending is watched.
const ENDLESS: Duration = Duration::from_secs(4);

/// A known bug with the script that shows it.
pub(crate) struct Control {
    pub(crate) name: &'static str,
    /// One of these must be broken.
    caught_by: &'static [Broken],
    /// What it needs beside a store.
    needs: Needs,
    script: fn(&mut Scene) -> Outcome<()>,
}

impl Control {
    /// Whether the bug can be put into the store of a server.
    pub(crate) fn is_for(&self, database: Database, way: Reached) -> bool {
        match self.needs {
            Needs::Store => true,
            Needs::Server | Needs::Proxies => database != Database::Sqlite,
            // It is in a setting of the session, and behind what shares connections there is none.
            Needs::OwnServer => database != Database::Sqlite && way == Reached::Direct,
        }
    }
}

/// What shows a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    /// The judge's word.
    Judged(Invariant),
    /// A connection is left in a transaction.
    LeftInTransaction,
}

/// What a control needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Store,
    /// Any server.
    Server,
    /// A server for itself, because it is killed.
    OwnServer,
    /// Something between that cuts connections.
    Proxies,
}

const I1: Broken = Broken::Judged(Invariant::I1);
const I4: Broken = Broken::Judged(Invariant::I4);
const I6: Broken = Broken::Judged(Invariant::I6);
const I8: Broken = Broken::Judged(Invariant::I8);
const I9: Broken = Broken::Judged(Invariant::I9);
const I11: Broken = Broken::Judged(Invariant::I11);

const fn control(
    name: &'static str,
    needs: Needs,
    caught_by: &'static [Broken],
    script: fn(&mut Scene) -> Outcome<()>,
) -> Control {
    Control { name, caught_by, needs, script }
}

/// All of them.
pub(crate) const CONTROLS: [Control; 9] = [
    control("ack_before_commit", Needs::Store, &[I1], ack_before_commit),
    control("no_fence", Needs::Store, &[I8], no_fence),
    control("attempt_on_failure", Needs::Store, &[I11], attempt_on_failure),
    control("highest_claim_deleted", Needs::Store, &[I6, I9], highest_claim_deleted),
    control("reclaim_without_cas", Needs::Store, &[I9], reclaim_without_cas),
    control("late_inbox_check", Needs::Store, &[I4], late_inbox_check),
    control("answer_before_flush", Needs::OwnServer, &[I1], answer_before_flush),
    control("lost_answer_is_yes", Needs::Proxies, &[I1], lost_answer_is_yes),
    control(
        "dropped_begin_is_kept",
        Needs::Server,
        &[Broken::LeftInTransaction, I1, I4, I9],
        dropped_begin_is_kept,
    ),
];

/// What became of a control.
pub(crate) struct Tried {
    pub(crate) name: &'static str,
    /// What was broken with the bug.
    pub(crate) caught_by: Vec<String>,
    pub(crate) caught: bool,
    /// What the script broke without the bug, or why it could not be played.
    pub(crate) wrong: Vec<String>,
    pub(crate) took: Duration,
}

impl Tried {
    pub(crate) fn good(&self) -> bool {
        self.caught && self.wrong.is_empty()
    }
}

/// Runs a control twice, with and without its bug, side by side.
pub(crate) fn run(control: &Control, server: &Arc<Server>, dir: &Path, seed: u64) -> Tried {
    let started = Instant::now();
    let (with, without) = std::thread::scope(|scope| {
        let with = scope.spawn(|| broken(play(control, server, &dir.join("with"), seed, Some(control.name))));
        let without = faults(play(control, server, &dir.join("without"), seed, None));
        (with.join(), without)
    });
    let (caught_by, mut wrong) =
        with.unwrap_or_else(|_| (Vec::new(), vec!["its thread panicked".to_owned()]));
    wrong.extend(without);
    Tried {
        name: control.name,
        caught: control.caught_by.iter().any(|broken| caught_by.contains(broken)),
        caught_by: caught_by.iter().map(|broken| broken.to_string()).collect(),
        wrong,
        took: started.elapsed(),
    }
}

/// What was broken with the bug; or why that is not known.
fn broken(ending: Outcome<Ending>) -> (Vec<Broken>, Vec<String>) {
    match ending {
        Ok(ending) => {
            let judged = ending.verdict.broken().map(|finding| Broken::Judged(finding.invariant));
            let left = (ending.left_in_transaction != 0).then_some(Broken::LeftInTransaction);
            (judged.chain(left).collect(), Vec::new())
        }
        Err(error) => (Vec::new(), vec![format!("with the bug: {error}")]),
    }
}

/// What was broken without the bug.
fn faults(ending: Outcome<Ending>) -> Vec<String> {
    let faults = match ending {
        Ok(Ending { verdict, faults, .. }) => {
            verdict.broken().map(ToString::to_string).chain(faults).collect()
        }
        Err(error) => vec![error.to_string()],
    };
    faults.iter().map(|fault| format!("without the bug: {fault}")).collect()
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Judged(invariant) => invariant.fmt(f),
            Self::LeftInTransaction => f.write_str("left in a transaction"),
        }
    }
}

fn play(
    control: &Control,
    server: &Arc<Server>,
    dir: &Path,
    seed: u64,
    sabotage: Option<&'static str>,
) -> Outcome<Ending> {
    let own = (control.needs == Needs::OwnServer).then(|| server.another());
    let mut stage = Stage::set(own.as_ref().unwrap_or(server), dir, seed, &["control"], sabotage)?;
    if control.needs == Needs::Proxies {
        stage.put_proxies()?;
    }
    let sabotaged = sabotage.is_some();
    let mut scene =
        Scene { stage, cast: Vec::new(), seen: Vec::new(), ended: Vec::new(), batches: 0, sabotaged };
    (control.script)(&mut scene)?;
    scene.stage.close(scene.cast)
}

/// Messages of a queue are acknowledged, then their worker is killed before their effects are committed.
fn ack_before_commit(scene: &mut Scene) -> Outcome<()> {
    let first = scene.worker(Setup::default())?;
    scene.send(EFFECTS.name(), vec![MessageOrder::steady(5); 100])?;
    scene.until("20 acknowledgements", |events| {
        count(events, |event| (event.op, event.ph) == (Op::Settle, Phase::Ok)) >= 20
    })?;
    scene.take(first)?.kill()?;
    scene.worker(Setup::default())?;
    scene.drain()
}

/// A worker is stopped with a message in its hands until another has taken it over, and goes on before that other
/// has decided about it.
fn no_fence(scene: &mut Scene) -> Outcome<()> {
    let zombie = scene.worker(Setup::default())?;
    let slow = MessageOrder { before_ms: 1_000, ..MessageOrder::steady(5) };
    scene.send(PLAIN.name(), vec![slow; 4])?;
    scene.until("4 handlers that run", |events| count(events, is_begun) >= 4)?;
    scene.member(zombie)?.pause()?;
    scene.worker(Setup { dwell_ms: 4_000, ..Setup::default() })?;
    scene.until("a takeover", |events| count(events, |event| event.op == Op::Reclaim) >= 1)?;
    scene.member(zombie)?.resume()?;
    scene.until("the late verdicts", |events| {
        let late = |event: &Event| event.op == Op::Settle && event.ph != Phase::Invoke;
        count(events, |event| late(event) && event.node == Some(zombie)) >= 4
    })?;
    scene.drain()
}

/// A message kills its worker each time. Its attempts must run out.
fn attempt_on_failure(scene: &mut Scene) -> Outcome<()> {
    let mut worker = scene.worker(Setup::default())?;
    let killer = MessageOrder { kind: Kind::Killer, ..MessageOrder::steady(5) };
    scene.send(EFFECTS.name(), vec![killer])?;
    for _ in 0..3 {
        let deadline = Instant::now() + STEP_LIMIT;
        while !scene.has_ended(worker) && !scene.is_drained()? {
            if deadline < Instant::now() {
                return Err("the killing message was not delivered".into());
            }
            scene.listen(Duration::from_millis(100));
        }
        if !scene.has_ended(worker) {
            break;
        }
        scene.take(worker)?.ended()?;
        worker = scene.worker(Setup::default())?;
    }
    // It would go on for ever; with the bug it never counts more than one attempt.
    if scene.sabotaged { scene.watch(Duration::ZERO) } else { scene.drain() }
}

/// Everything is settled, so that the highest claim is all that says how far the log was read.
fn highest_claim_deleted(scene: &mut Scene) -> Outcome<()> {
    scene.worker(Setup::default())?;
    scene.send(PLAIN.name(), vec![MessageOrder::steady(5); 100])?;
    scene.until("100 acknowledgements", |events| {
        count(events, |event| (event.op, event.ph) == (Op::Settle, Phase::Ok)) >= 100
    })?;
    if scene.sabotaged { scene.watch(ENDLESS) } else { scene.drain() }
}

/// Several workers look for what a dead one left, at the same moment.
fn reclaim_without_cas(scene: &mut Scene) -> Outcome<()> {
    for _ in 0..2 {
        let first = scene.worker(Setup::default())?;
        let slow = MessageOrder { before_ms: 3_000, ..MessageOrder::steady(5) };
        scene.seen.clear();
        scene.send(PLAIN.name(), vec![slow; 4])?;
        scene.until("4 leases", |events| count(events, is_lease) >= 4)?;
        scene.take(first)?.kill()?;
        scene.watch(LEASE)?;
        let rivals = (0..4).map(|_| scene.worker(Setup::default())).collect::<Outcome<Vec<_>>>()?;
        scene.until("a takeover", |events| count(events, |event| event.op == Op::Reclaim) >= 4)?;
        if scene.sabotaged {
            scene.watch(Duration::from_secs(2))?;
        }
        scene.drain()?;
        for rival in rivals {
            scene.close(rival)?;
        }
    }
    Ok(())
}

/// A message with one attempt is lost after its effect was committed.
fn late_inbox_check(scene: &mut Scene) -> Outcome<()> {
    let first = scene.worker(Setup::default())?;
    scene.send(ONCE.name(), vec![MessageOrder { after_ms: 20_000, ..MessageOrder::steady(5) }])?;
    scene.until("an effect", |events| {
        count(events, |event| (event.op, event.ph) == (Op::Effect, Phase::Ok)) >= 1
    })?;
    scene.take(first)?.kill()?;
    scene.worker(Setup::default())?;
    scene.drain()
}

/// The server is killed as soon as a send was answered.
fn answer_before_flush(scene: &mut Scene) -> Outcome<()> {
    let sender = scene.sender()?;
    for round in 1..=3 {
        scene.order(sender, PLAIN.name(), vec![MessageOrder::steady(5); 20])?;
        scene.until("an answer", |events| count(events, is_answered) >= 20 * round)?;
        scene.stage.kill_server(Duration::ZERO);
    }
    scene.worker(Setup::default())?;
    scene.drain()
}

/// The connection of a sender is cut in the middle of what it says.
fn lost_answer_is_yes(scene: &mut Scene) -> Outcome<()> {
    let sender = scene.sender()?;
    for round in 1..=8 {
        scene.order(sender, PLAIN.name(), vec![MessageOrder::steady(5); 50])?;
        // The first one opens the connections.
        scene.until("an answer", |events| count(events, is_answered) >= 50 * round)?;
        if let Some(proxies) = &scene.stage.proxies {
            proxies.senders.arm(Cut { way: Way::ToServer, after: 3_000 });
        }
    }
    if let Some(proxies) = &scene.stage.proxies {
        proxies.disarm();
    }
    scene.worker(Setup::default())?;
    scene.drain()
}

/// Handlers begin a transaction, write in it, and drop it.
fn dropped_begin_is_kept(scene: &mut Scene) -> Outcome<()> {
    scene.worker(Setup::default())?;
    let fickle = MessageOrder { kind: Kind::Fickle, ..MessageOrder::steady(5) };
    scene.send(EFFECTS.name(), vec![fickle; 30])?;
    // With the bug nothing that comes after the first of them is ever committed, and perhaps no more than those begin.
    let enough = if scene.sabotaged { 5 } else { 30 };
    scene.until("handlers that run", |events| count(events, is_begun) >= enough)?;
    if scene.sabotaged { scene.watch(ENDLESS) } else { scene.drain() }
}

fn is_answered(event: &Event) -> bool {
    event.op == Op::Send && event.ph != Phase::Invoke
}

fn is_begun(event: &Event) -> bool {
    (event.op, event.ph) == (Op::Effect, Phase::Invoke)
}

fn is_lease(event: &Event) -> bool {
    (event.op, event.ph) == (Op::Lease, Phase::Ok)
}

fn count(events: &[Event], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(event)).count()
}

/// A stage with its processes and what they have reported so far.
struct Scene {
    stage: Stage,
    cast: Vec<Running>,
    seen: Vec<Event>,
    ended: Vec<u32>,
    batches: u64,
    sabotaged: bool,
}

impl Scene {
    fn worker(&mut self, setup: Setup) -> Outcome<u32> {
        let worker = self.stage.worker(setup)?;
        let node = worker.node;
        self.cast.push(worker);
        Ok(node)
    }

    /// Sends a batch by a sender of its own.
    fn send(&mut self, queue: &str, messages: Vec<MessageOrder>) -> Outcome<()> {
        self.batches += 1;
        let (batch, queue) = (self.batches, queue.to_owned());
        let mut sender = self.stage.sender()?;
        sender.tell(&Order { batch, queue, dedup: false, ids: Vec::new(), messages })?;
        match sender.close(STEP_LIMIT)? {
            true => Ok(()),
            false => Err("the batch could not be sent".into()),
        }
    }

    /// A sender that stays.
    fn sender(&mut self) -> Outcome<u32> {
        let sender = self.stage.sender()?;
        let node = sender.node;
        self.cast.push(sender);
        Ok(node)
    }

    /// Has a batch sent by one that stays.
    fn order(&mut self, node: u32, queue: &str, messages: Vec<MessageOrder>) -> Outcome<()> {
        self.batches += 1;
        let order =
            Order { batch: self.batches, queue: queue.to_owned(), dedup: false, ids: Vec::new(), messages };
        let sender = self.cast.iter_mut().find(|child| child.node == node).ok_or("no such process")?;
        sender.tell(&order)
    }

    fn member(&self, node: u32) -> Outcome<&Running> {
        Ok(self.cast.iter().find(|child| child.node == node).ok_or("no such process")?)
    }

    fn take(&mut self, node: u32) -> Outcome<Running> {
        let place = self.cast.iter().position(|child| child.node == node).ok_or("no such process")?;
        Ok(self.cast.swap_remove(place))
    }

    fn close(&mut self, node: u32) -> Outcome<()> {
        self.take(node)?.close(STEP_LIMIT).map(drop)
    }

    /// Waits until what was reported is enough.
    fn until(&mut self, what: &str, enough: impl Fn(&[Event]) -> bool) -> Outcome<()> {
        let until = Instant::now() + STEP_LIMIT;
        while !enough(&self.seen) {
            if until < Instant::now() {
                return Err(format!("waited in vain for {what}").into());
            }
            self.listen(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Hears whatever is reported for this long.
    fn watch(&mut self, long: Duration) -> Outcome<()> {
        let until = Instant::now() + long;
        while Instant::now() < until {
            self.listen(until.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn listen(&mut self, limit: Duration) {
        match self.stage.notice(limit) {
            Some(Notice::Report(node, Report::Events(events))) => {
                self.seen.extend(events.into_iter().map(|event| Event { node: Some(node), ..event }));
            }
            Some(Notice::Ended(node)) => self.ended.push(node),
            Some(Notice::Report(..)) | None => {}
        }
    }

    fn has_ended(&self, node: u32) -> bool {
        self.ended.contains(&node)
    }

    fn is_drained(&self) -> Outcome<bool> {
        Ok(crate::drain::backlog(&self.stage.reader()?)? == 0)
    }

    /// Waits until the backlog is worked off. Whether it was is for the judge to say.
    fn drain(&mut self) -> Outcome<()> {
        self.stage.drained(DRAIN_LIMIT, |_| Ok(())).map(drop)
    }
}

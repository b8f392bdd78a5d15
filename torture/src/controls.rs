//! Positive controls: each switches one known bug on and must be caught by the invariant that is named. The same
//! script without the bug must be clean, so that it is the bug that is caught and not the script.

use std::path::Path;
use std::time::{Duration, Instant};

use millpond_testkit::judge::Invariant;
use millpond_testkit::judge::history::{Event, Op, Phase};

use crate::Outcome;
use crate::child::{Notice, Running};
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
    pub(crate) caught_by: &'static [Invariant],
    script: fn(&mut Scene) -> Outcome<()>,
}

/// All of them.
pub(crate) const CONTROLS: [Control; 6] = [
    Control { name: "ack_before_commit", caught_by: &[Invariant::I1], script: ack_before_commit },
    Control { name: "no_fence", caught_by: &[Invariant::I8], script: no_fence },
    Control { name: "attempt_on_failure", caught_by: &[Invariant::I11], script: attempt_on_failure },
    Control {
        name: "highest_claim_deleted",
        caught_by: &[Invariant::I6, Invariant::I9],
        script: highest_claim_deleted,
    },
    Control { name: "reclaim_without_cas", caught_by: &[Invariant::I9], script: reclaim_without_cas },
    Control { name: "late_inbox_check", caught_by: &[Invariant::I4], script: late_inbox_check },
];

/// What became of a control.
pub(crate) struct Tried {
    pub(crate) name: &'static str,
    pub(crate) caught_by: Vec<Invariant>,
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
pub(crate) fn run(control: &Control, dir: &Path, seed: u64) -> Tried {
    let started = Instant::now();
    let (with, without) = std::thread::scope(|scope| {
        let with = scope.spawn(|| broken(play(control, &dir.join("with"), seed, Some(control.name))));
        let without = faults(play(control, &dir.join("without"), seed, None));
        (with.join(), without)
    });
    let (caught_by, mut wrong) =
        with.unwrap_or_else(|_| (Vec::new(), vec!["its thread panicked".to_owned()]));
    wrong.extend(without);
    Tried {
        name: control.name,
        caught: control.caught_by.iter().any(|invariant| caught_by.contains(invariant)),
        caught_by,
        wrong,
        took: started.elapsed(),
    }
}

/// What was broken with the bug; or why that is not known.
fn broken(ending: Outcome<Ending>) -> (Vec<Invariant>, Vec<String>) {
    match ending {
        Ok(ending) => (ending.verdict.broken().map(|finding| finding.invariant).collect(), Vec::new()),
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

fn play(control: &Control, dir: &Path, seed: u64, sabotage: Option<&'static str>) -> Outcome<Ending> {
    let stage = Stage::set(dir, seed, &["control"], sabotage)?;
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
        let deadline = Instant::now() + LEASE * 5;
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
            Some(Notice::Report(_, Report::Answered { .. })) | None => {}
        }
    }

    fn has_ended(&self, node: u32) -> bool {
        self.ended.contains(&node)
    }

    fn is_drained(&self) -> Outcome<bool> {
        Ok(crate::drain::backlog(&self.stage.connection()?)? == 0)
    }

    /// Waits until the backlog is worked off. Whether it was is for the judge to say.
    fn drain(&mut self) -> Outcome<()> {
        self.stage.drained(DRAIN_LIMIT, |_| Ok(())).map(drop)
    }
}

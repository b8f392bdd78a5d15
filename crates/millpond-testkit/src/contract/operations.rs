//! What operators change while work goes on.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use millpond_core::message::{Due, MessageId};
use millpond_core::queue::QueueSettings;
use millpond_core::state::State;
use millpond_core::store::{Act, Changed, Redrive};
use millpond_core::view::{Scope, Wish};
use millpond_engine::job::{CancelCause, Job};
use serde_json::json;

use crate::bench::{Bench, Node, Running, SETTINGS, TestQueue};
use crate::contract::delivery::recorded;
use crate::contract::gated_handler;
use crate::gate::Gate;
use crate::holder::number;
use crate::recorder::Recorder;

fn act(verb: &str) -> Act {
    Act { actor: "ana".to_owned(), verb: verb.to_owned(), object: "bench".to_owned(), reason: None }
}

fn scope<B>(queue: &TestQueue<B>) -> Scope {
    Scope::Queue(queue.name().to_owned())
}

/// A worker whose handlers wait at a gate and then acknowledge.
fn gated(
    bench: &Bench,
    queue: &TestQueue<u32>,
    concurrency: usize,
) -> (Running, Arc<Recorder<u32>>, Arc<Gate>) {
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let handler = gated_handler(&seen, &gate);
    let worker = bench.node().worker().concurrency(concurrency).handle(queue, handler);
    (Running::start(worker), seen, gate)
}

async fn runs(bench: &Bench, seen: &Recorder<u32>, handlers: usize) {
    let what = format!("{handlers} handlers run");
    bench.eventually(&what, async || (seen.running() == handlers).then_some(())).await;
}

async fn is(bench: &Bench, id: MessageId, state: State) {
    let reached = async || (bench.look(id).await.state == state).then_some(());
    bench.eventually(&format!("it is {}", state.as_str()), reached).await;
}

async fn set(node: &Node, queue: &TestQueue<u32>, setting: &str, value: serde_json::Value) {
    let changed = vec![(setting.to_owned(), Some(value))];
    let changed = node.store.change(queue.name().to_owned(), changed, act("queue set")).await;
    changed.expect("the setting is changed");
}

/// While a queue is paused, what runs ends, sending goes on and nothing begins; who resumes it anywhere wakes the
/// workers.
pub async fn a_paused_queue_begins_nothing_until_it_is_resumed(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let (worker, seen, gate) = gated(bench, &queue, 2);
    bench.send(&queue, [1]).await;
    runs(bench, &seen, 1).await;
    let paused = second.pond.pause(scope(&queue), Some("a repair"), None).await.expect("it is paused");
    assert_eq!(paused.len(), 1);
    bench.send(&queue, [2, 3]).await;
    gate.open();
    let ended = async || (bench.counts(&queue).await.done == 1).then_some(());
    bench.eventually("what ran has ended", ended).await;

    // Another queue of the same store: whatever could begin before it has begun.
    let other = bench.queue::<u32>(SETTINGS).await;
    let witness = bench.recorder();
    let other_worker = recorded(bench, &other, &witness);
    bench.send(&other, [9]).await;
    bench.drained(&other, 1).await;
    other_worker.stop().await;
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.ready, seen.count()), (2, 1));
    assert_eq!(counts.paused_by[0].reason.as_deref(), Some("a repair"));

    assert!(second.pond.resume(scope(&queue)).await.expect("it is resumed").is_empty());
    bench.drained(&queue, 3).await;
    worker.stop().await;
}

/// Two pauses hold a queue: it goes on when both are over, one of them by itself.
pub async fn a_pause_ends_by_itself_and_the_other_still_holds(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let pond = &bench.node().pond;
    let minute = Some(Due::In(Duration::from_secs(60)));
    pond.pause(scope(&queue), None, minute).await.expect("it is paused");
    let both = pond.pause(Scope::Global, Some("a night"), None).await.expect("all are paused");
    assert_eq!(both.len(), 1);
    assert_eq!(bench.counts(&queue).await.paused_by.len(), 2);
    bench.send(&queue, [1]).await;
    bench.advance(Duration::from_secs(60));
    let left = bench.counts(&queue).await.paused_by;
    assert_eq!(left.iter().map(|pause| &pause.scope).collect::<Vec<_>>(), [&Scope::Global]);
    assert!(bench.holder(&queue).finds_a_pause().await);
    pond.resume(Scope::Global).await.expect("all are resumed");
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 1).await;
    worker.stop().await;
}

/// A pause holds after a restart of everything.
pub async fn a_pause_survives_a_restart(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    bench.node().pond.pause(scope(&queue), None, None).await.expect("it is paused");
    let Some(node) = bench.restart().await else { return };
    let queues = node.store.queues().await.expect("the queues are listed");
    let view = queues.iter().find(|view| view.name == queue.name()).expect("it is there");
    assert_eq!(view.paused_by.len(), 1);
    assert!(bench.holder_on(&node, &queue).finds_a_pause().await);
}

/// What is cancelled while it waits is a dead letter at once, and no handler sees it.
pub async fn a_cancelled_message_is_never_delivered(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let ids = bench.send(&queue, 0..6).await;
    let cancelled = bench.node().pond.cancel([ids[0], ids[1], ids[4]]).await.expect("they are cancelled");
    assert_eq!(cancelled, [Changed::Done; 3]);
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.ready, counts.dead), (3, 3));
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    let counts = bench.drained(&queue, 3).await;
    worker.stop().await;

    let mut bodies = seen.bodies();
    bodies.sort_unstable();
    assert_eq!((bodies, counts.dead), (vec![2, 3, 5], 3));
    let view = bench.look(ids[4]).await;
    assert_eq!((view.state, view.reason.as_deref()), (State::Cancelled, Some("cancelled")));
    let again = bench.node().pond.cancel([ids[4], ids[5]]).await.expect("it answers");
    assert_eq!(again, [Changed::AlreadySettled; 2]);
}

/// A job that runs is told to stop at once, wherever it is asked; if it does, the message is cancelled.
pub async fn a_running_job_is_told_to_stop(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let (seen, cause) = (bench.recorder(), Arc::new(Mutex::new(None)));
    let (recorder, told) = (Arc::clone(&seen), Arc::clone(&cause));
    let handler = move |job: Job<u32>| {
        let (visit, told) = (recorder.enter(&job), Arc::clone(&told));
        async move {
            job.cancelled().await;
            *told.lock().expect("nobody panics with it") = job.cancel_cause();
            drop(visit);
            Err::<(), _>("told to stop")
        }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    let ids = bench.send(&queue, [1, 2]).await;
    runs(bench, &seen, 2).await;
    assert_eq!(second.pond.cancel([ids[0]]).await.expect("it answers"), [Changed::Asked]);
    is(bench, ids[0], State::Cancelled).await;
    assert_eq!(*cause.lock().expect("nobody panics with it"), Some(CancelCause::Requested));
    assert_eq!((seen.running(), seen.attempts(ids[0])), (1, vec![1]), "the other one goes on");
    bench.node().pond.cancel([ids[1]]).await.expect("it answers");
    is(bench, ids[1], State::Cancelled).await;
    worker.stop().await;
}

/// A job that is told to stop and acknowledges all the same is done.
pub async fn a_job_that_acknowledges_after_a_cancel_is_done(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (worker, seen, gate) = gated(bench, &queue, 1);
    let id = bench.send(&queue, [1]).await[0];
    runs(bench, &seen, 1).await;
    assert_eq!(bench.node().pond.cancel([id]).await.expect("it answers"), [Changed::Asked]);
    gate.open();
    bench.drained(&queue, 1).await;
    worker.stop().await;
    assert_eq!(bench.look(id).await.state, State::Done);
    assert!(bench.dead(&queue).await.is_empty());
}

/// An id that nobody else has.
fn new_life(bench: &Bench) -> MessageId {
    let millis = u64::try_from(bench.clock().now().as_micros() / 1_000).expect("it is after 1970");
    let mut bits = [0; 10];
    bits[2..].copy_from_slice(&number().to_be_bytes());
    MessageId(uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid())
}

/// A cancelled message begins a new life by a redrive.
pub async fn a_cancelled_message_lives_again_by_a_redrive(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let ids = bench.send(&queue, [1, 2]).await;
    bench.node().pond.cancel([ids[0]]).await.expect("it is cancelled");
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 1).await;
    let new_id = new_life(bench);
    let again = Redrive { id: ids[0], new_id, due: None, queue: None, attempts_max: None };
    let twice = Redrive { new_id: new_life(bench), ..again.clone() };
    let store = &bench.node().store;
    let changed = store.redrive(vec![again, twice], act("dead-letter redrive")).await.expect("it answers");
    assert_eq!(changed, [Changed::Done, Changed::AlreadyRetried(new_id)]);
    bench.drained(&queue, 2).await;
    worker.stop().await;
    assert_eq!(seen.attempts(new_id), [1]);
}

/// What waits for its next attempt or its time is delivered now, with the attempts that it has.
pub async fn what_waits_can_be_made_due(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            drop(visit);
            if job.attempt == 1 { Err("not yet") } else { Ok(()) }
        }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    is(bench, id, State::Retrying).await;
    let changed = bench.node().store.hasten(vec![id], act("message retry")).await.expect("it answers");
    assert_eq!(changed, [Changed::Done]);
    bench.drained(&queue, 1).await;
    worker.stop().await;
    assert_eq!(seen.attempts(id), [1, 2]);
}

/// Settings that are changed while a worker runs count at once: its slots, up and down, and the attempts.
pub async fn a_running_worker_follows_the_settings(bench: &Bench) {
    let declared = QueueSettings { concurrency_per_node: Some(1), ..SETTINGS };
    let queue = bench.queue::<u32>(declared).await;
    let second = bench.second_node().await;
    let (worker, seen, gate) = gated(bench, &queue, 3);
    bench.send(&queue, 0..3).await;
    runs(bench, &seen, 1).await;
    set(&second, &queue, "concurrency_per_node", json!(3)).await;
    runs(bench, &seen, 3).await;
    // A node that declares the queue again takes nothing away.
    second.pond.declare(&*queue).await.expect("it is declared again");
    let view = bench.counts(&queue).await;
    assert_eq!((view.settings.concurrency_per_node, view.changes.len()), (Some(3), 1));
    let slots = async || {
        let workers = bench.node().store.workers().await.expect("the workers are listed");
        workers.iter().any(|worker| worker.slots == 3).then_some(())
    };
    bench.eventually("its heartbeat says so", slots).await;

    set(&second, &queue, "concurrency_per_node", json!(1)).await;
    let fewer = async || {
        let workers = bench.node().store.workers().await.expect("the workers are listed");
        workers.iter().any(|worker| worker.slots == 1).then_some(())
    };
    bench.eventually("it has heard that", fewer).await;
    gate.open();
    bench.drained(&queue, 3).await;
    worker.stop().await;
}

/// The number of attempts is what an operator says it is, in a worker that runs.
pub async fn a_changed_number_of_attempts_counts_at_once(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let (recorder, closed) = (Arc::clone(&seen), Arc::clone(&gate));
    let handler = move |job: Job<u32>| {
        let (visit, closed) = (recorder.enter(&job), Arc::clone(&closed));
        async move {
            closed.pass().await;
            drop(visit);
            Err::<(), _>("broken")
        }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    runs(bench, &seen, 1).await;
    set(bench.node(), &queue, "attempts_max", json!(1)).await;
    set(bench.node(), &queue, "concurrency_per_node", json!(7)).await;
    let heard = async || {
        let workers = bench.node().store.workers().await.expect("the workers are listed");
        workers.iter().any(|worker| worker.slots == 7).then_some(())
    };
    bench.eventually("the worker has heard it", heard).await;
    gate.open();
    is(bench, id, State::Dead).await;
    worker.stop().await;
    assert_eq!(seen.attempts(id), [1]);
}

/// A dead letter says of which class its last failure was.
pub async fn a_failure_has_a_class(bench: &Bench) {
    let settings = QueueSettings { attempts_max: 1, timeout: Some(Duration::from_millis(200)), ..SETTINGS };
    let queue = bench.queue::<u32>(settings).await;
    let handler = async |job: Job<u32>| match job.body {
        1 => "one".parse::<u32>().map(drop),
        2 => panic!("boom"),
        _ => {
            job.cancelled().await;
            "late".parse::<u32>().map(drop)
        }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    bench.send(&queue, [1, 2, 3]).await;
    let died = async || (bench.counts(&queue).await.dead == 3).then_some(());
    bench.eventually("all three are dead", died).await;
    worker.stop().await;
    let mut classes: Vec<_> = bench.dead(&queue).await.into_iter().filter_map(|dead| dead.class).collect();
    classes.sort();
    assert_eq!(classes, ["ParseIntError", "panic", "timeout"]);
}

/// A purge drops what waits, counts it, and leaves alone what runs.
pub async fn a_purge_drops_what_waits_and_not_what_runs(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (worker, seen, gate) = gated(bench, &queue, 1);
    bench.send(&queue, [1]).await;
    runs(bench, &seen, 1).await;
    bench.send(&queue, 2..30).await;
    let purged = bench.node().store.purge(queue.name().to_owned(), 1_000, act("queue purge")).await;
    let purged = purged.expect("it is purged");
    // One may have been leased ahead of its slot.
    assert!((27..=28).contains(&purged.messages) && !purged.more, "{purged:?}");
    gate.open();
    let left = async || (bench.counts(&queue).await.leased == 0).then_some(());
    bench.eventually("what ran has ended", left).await;
    let next = bench.send(&queue, [99]).await[0];
    is(bench, next, State::Done).await;
    worker.stop().await;
    assert_eq!(seen.count() as u64, 30 - purged.messages);
}

/// A worker that is wished to drain leases nothing more and lives on; taken back, it goes on. One that is wished to
/// restart ends, so that whoever started it can do so again.
pub async fn a_worker_does_what_an_operator_wishes(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (worker, seen, gate) = gated(bench, &queue, 1);
    bench.send(&queue, [1]).await;
    runs(bench, &seen, 1).await;
    let store = &bench.node().store;
    let steer = async |wish| {
        assert_eq!(store.steer(None, wish, act("worker steer")).await.expect("it answers"), 1);
    };
    let draining = async |expected| {
        let said = async || {
            let workers = store.workers().await.expect("the workers are listed");
            (workers[0].facts.draining == expected).then_some(())
        };
        // It says so with the renewal after the one in which it hears it.
        bench.eventually("its heartbeat says whether it drains", said).await;
    };
    steer(Some(Wish::Drain)).await;
    draining(true).await;
    bench.send(&queue, [2]).await;
    gate.open();
    bench
        .eventually("what ran has ended", async || (bench.counts(&queue).await.done == 1).then_some(()))
        .await;
    assert_eq!((bench.counts(&queue).await.ready, worker.has_ended()), (1, false));

    steer(None).await;
    bench.drained(&queue, 2).await;
    draining(false).await;
    steer(Some(Wish::Restart)).await;
    worker.ended().await;
    let workers = store.workers().await.expect("the workers are listed");
    let facts = &workers[0].facts;
    assert_eq!(
        (facts.pid, facts.kinds.as_slice()),
        (std::process::id(), [queue.name().to_owned()].as_slice())
    );
}

/// Every change is one line of the audit, and the chain of the lines holds.
pub async fn every_change_is_a_line_of_the_audit(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let node = bench.node();
    let id = bench.send(&queue, [1]).await[0];
    node.pond.pause(scope(&queue), Some("a repair"), None).await.expect("it is paused");
    node.pond.resume(scope(&queue)).await.expect("it is resumed");
    set(node, &queue, "attempts_max", json!(2)).await;
    node.pond.cancel([id]).await.expect("it is cancelled");
    node.store.purge(queue.name().to_owned(), 10, act("queue purge")).await.expect("it is purged");
    node.store.remove_dead_letters(vec![id], act("dead-letter delete")).await.expect("it is deleted");
    node.store.steer(None, None, act("worker steer")).await.expect("it answers");
    let lines = node.store.audit(None, 100).await.expect("the audit is read");
    let mut said: Vec<_> = lines.iter().map(|line| (line.verb.as_str(), line.count)).collect();
    said.reverse();
    let expected = [
        ("queue pause", 1),
        ("queue resume", 1),
        ("queue set", 1),
        ("message cancel", 1),
        ("queue purge", 0),
        ("dead-letter delete", 1),
        ("worker steer", 0),
    ];
    assert_eq!(said, expected);
    assert!(lines.iter().all(|line| line.intact));
    assert_eq!(lines.iter().map(|line| line.number).collect::<Vec<_>>(), [7, 6, 5, 4, 3, 2, 1]);
}

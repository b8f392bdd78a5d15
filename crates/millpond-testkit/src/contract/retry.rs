//! Attempts, their budget, and what becomes of who spent it.

use std::sync::Arc;
use std::time::Duration;

use millpond_core::backoff::Backoff;
use millpond_core::message::Due;
use millpond_core::pick::Lane;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::{Ending, Verdict};
use millpond_core::state::State;
use millpond_core::store::{Lease, Settled};
use millpond_engine::job::Job;

use crate::bench::{Bench, Running, SETTINGS};
use crate::contract::applied;
use crate::contract::delivery::recorded;
use crate::gate::Gate;

/// How long a handler may run in the scenarios about time limits.
const TIMEOUT: Duration = Duration::from_millis(200);

/// How long it may take to stop then.
const GRACE: Duration = Duration::from_millis(100);

fn has(events: &[(String, String)], kind: &str, reason: &str) -> usize {
    events.iter().filter(|event| event.0 == kind && event.1 == reason).count()
}

/// C010.
pub async fn c010_a_second_delivery_succeeds(bench: &Bench) {
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
    bench.eventually("it waits for its second attempt", async || is(bench, id, State::Retrying).await).await;
    bench.advance(Duration::from_secs(1));
    bench.drained(&queue, 1).await;
    worker.stop().await;

    assert_eq!(seen.attempts(id), [1, 2]);
    assert!(bench.dead(&queue).await.is_empty());
}

async fn is(bench: &Bench, id: millpond_core::MessageId, state: State) -> Option<()> {
    (bench.look(id).await.state == state).then_some(())
}

/// C011.
pub async fn c011_exhausted_after_two_attempts(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 2, ..SETTINGS }).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            drop(visit);
            if job.body == 0 { Ok(()) } else { Err(format!("{} is broken", job.body)) }
        }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    let ids = bench.send(&queue, [1, 2, 3]).await;
    let waiting = async || (bench.counts(&queue).await.retrying == 3).then_some(());
    bench.eventually("three messages wait for their second attempt", waiting).await;
    bench.advance(Duration::from_secs(1));
    let died = async || (bench.counts(&queue).await.dead == 3).then_some(());
    bench.eventually("three messages are dead", died).await;

    bench.advance(Duration::from_secs(3));
    // What is sent now passes the same worker: whatever was due before it has been delivered.
    bench.send(&queue, [0]).await;
    bench.drained(&queue, 1).await;
    worker.stop().await;
    for (id, body) in ids.into_iter().zip(1..) {
        assert_eq!(seen.attempts(id), [1, 2]);
        let dead = bench.dead(&queue).await;
        let letter = dead.iter().find(|letter| letter.id == id).expect("it is a dead letter");
        assert_eq!((letter.reason.as_str(), letter.attempt), ("exhausted", 2));
        assert_eq!(letter.detail, Some(format!("{body} is broken")));
    }
}

/// C015, a handler that panics.
pub async fn c015_a_panic_is_a_failed_attempt(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 2, ..SETTINGS }).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            drop(visit);
            assert_ne!(job.body, 1, "boom");
            Verdict::Ack
        }
    };
    let worker = Running::start(bench.node().worker().concurrency(1).handle(&queue, handler));
    let ids = bench.send(&queue, [1, 2]).await;
    bench
        .eventually("it waits for its second attempt", async || is(bench, ids[0], State::Retrying).await)
        .await;
    bench.advance(Duration::from_secs(1));
    let died = async || is(bench, ids[0], State::Dead).await;
    bench.eventually("its budget is spent", died).await;
    bench.send(&queue, [3]).await;
    bench.drained(&queue, 2).await;
    worker.stop().await;

    assert_eq!(seen.attempts(ids[0]), [1, 2]);
    let view = bench.look(ids[0]).await;
    assert!(view.error.as_deref().is_some_and(|error| error.contains("boom")), "{:?}", view.error);
    let events = bench.events(ids[0]).await;
    assert_eq!((has(&events, "RETRY", "panic"), has(&events, "DLQ", "exhausted")), (1, 1), "{events:?}");
}

/// C015, a handler whose task is aborted: what it waits for ends early.
pub async fn c015_an_aborted_task_is_a_failed_attempt(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            drop(visit);
            let task = tokio::spawn(async move {
                if job.attempt == 1 {
                    std::future::pending::<()>().await;
                }
            });
            if job.attempt == 1 {
                task.abort();
            }
            task.await
        }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("it waits for its second attempt", async || is(bench, id, State::Retrying).await).await;
    bench.advance(Duration::from_secs(1));
    bench.drained(&queue, 1).await;
    worker.stop().await;

    assert_eq!(seen.attempts(id), [1, 2]);
    let events = bench.events(id).await;
    assert_eq!(has(&events, "RETRY", "error"), 1, "{events:?}");
}

/// C015, a handler that outlives its timeout and ignores its token.
pub async fn c015_a_handler_that_takes_too_long_is_dropped(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { timeout: Some(TIMEOUT), ..SETTINGS }).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            if job.attempt == 1 {
                std::future::pending::<()>().await;
            }
            drop(visit);
            Verdict::Ack
        }
    };
    let worker = bench.node().worker().concurrency(1).cancel_grace(GRACE).handle(&queue, handler);
    let worker = Running::start(worker);
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("it waits for its second attempt", async || is(bench, id, State::Retrying).await).await;
    bench.eventually("its future is dropped", async || (seen.running() == 0).then_some(())).await;
    bench.advance(Duration::from_secs(1));
    bench.drained(&queue, 1).await;
    worker.stop().await;

    assert_eq!(seen.attempts(id), [1, 2]);
    let events = bench.events(id).await;
    assert_eq!(has(&events, "RETRY", "timeout"), 1, "{events:?}");
}

/// C015, a handler that is told to stop at its timeout, and does.
pub async fn c015_a_handler_that_stops_when_told_has_failed_too(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { timeout: Some(TIMEOUT), ..SETTINGS }).await;
    let handler = async |job: Job<u32>| {
        if job.attempt == 1 {
            job.cancelled().await;
            return Err("told to stop");
        }
        Ok(())
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("it waits for its second attempt", async || is(bench, id, State::Retrying).await).await;
    bench.advance(Duration::from_secs(1));
    bench.drained(&queue, 1).await;
    worker.stop().await;
    let events = bench.events(id).await;
    assert_eq!(has(&events, "RETRY", "timeout"), 1, "{events:?}");
}

/// C015, a handler that blocks its thread beyond its timeout: it is settled without it, its slot is stuck until
/// it returns, and what it says then is ignored.
pub async fn c015_a_blocking_handler_is_settled_without_it(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { timeout: Some(TIMEOUT), ..SETTINGS }).await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let (recorder, closed) = (Arc::clone(&seen), Arc::clone(&gate));
    let handler = move |job: Job<u32>| {
        let (visit, closed) = (recorder.enter(&job), Arc::clone(&closed));
        async move {
            if job.attempt == 1 {
                closed.pass_blocking();
            }
            drop(visit);
            Verdict::Ack
        }
    };
    let runtime = own_runtime();
    let worker = bench.node().worker().concurrency(1).cancel_grace(GRACE).handle(&queue, handler);
    let worker = Running::start_on(runtime.handle(), worker);
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("it is settled while it runs", async || is(bench, id, State::Retrying).await).await;
    assert_eq!(seen.running(), 1, "nothing can stop it");

    bench.advance(Duration::from_secs(1));
    bench.eventually("the next attempt is ready", async || is(bench, id, State::Ready).await).await;
    assert_eq!(seen.count(), 1, "the only slot is stuck");
    gate.open();
    bench.drained(&queue, 1).await;
    worker.stop().await;
    runtime.shutdown_background();

    assert_eq!(seen.attempts(id), [1, 2], "the late result of the first attempt counts for nothing");
    let events = bench.events(id).await;
    assert_eq!(has(&events, "RETRY", "timeout"), 1, "{events:?}");
}

/// A runtime whose threads a handler may block.
pub(super) fn own_runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("threads can be started")
}

/// C016.
pub async fn c016_attempts_follow_the_backoff_list(bench: &Bench) {
    let waits = [1, 5, 10, 10];
    let backoff = Backoff::list(&[1, 5, 10].map(Duration::from_secs));
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 5, backoff, ..SETTINGS }).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        drop(recorder.enter(&job));
        async { Err::<(), _>("no") }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    let began = bench.clock().now();
    let id = bench.send(&queue, [1]).await[0];
    for (failed, wait) in waits.into_iter().enumerate() {
        let waits =
            async || (seen.count() == failed + 1).then_some(is(bench, id, State::Retrying).await).flatten();
        bench.eventually(&format!("it waits after attempt {}", failed + 1), waits).await;
        let short = Duration::from_millis(1);
        bench.advance(Duration::from_secs(wait) - short);
        assert_eq!(bench.relay().await, 0, "it is not due before its time");
        bench.advance(short);
    }
    bench.eventually("it is dead", async || is(bench, id, State::Dead).await).await;
    worker.stop().await;
    let at: Vec<u64> = seen.calls().iter().map(|call| call.at.since(began).as_secs()).collect();
    assert_eq!(at, [0, 1, 6, 16, 26]);
}

/// C017: each of three leases ends with the death of its worker. Real processes are killed by the crash tests.
pub async fn c017_three_deaths_alone_spend_three_attempts(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 3, ..SETTINGS }).await;
    let id = bench.send(&queue, [1]).await[0];
    for attempt in 1..=3 {
        let killed = bench.holder(&queue);
        let claim = killed.lease(10).await;
        assert_eq!((claim.messages.len(), claim.messages[0].attempt), (1, attempt));
        bench.advance(crate::holder::HOLDER_LEASE);
        assert_eq!(bench.reclaim().await, 1);
    }
    let dead = bench.dead(&queue).await;
    assert_eq!((dead.len(), dead[0].id), (1, id));
    assert_eq!((dead[0].reason.as_str(), dead[0].attempt), ("lease-exhausted", 3));
    assert!(bench.holder(&queue).finds_nothing().await, "there is no fourth lease");
}

/// C018, but for the log line.
pub async fn c018_without_a_hook_it_is_a_dead_letter_and_a_count(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let handler =
        async |job: Job<u32>| if job.body == 1 { Verdict::Retry { after: None } } else { Verdict::Ack };
    let worker = Running::start(bench.node().worker().concurrency(1).handle(&queue, handler));
    let id = bench.send(&queue, [1, 2, 3]).await[0];
    let counts = bench.drained(&queue, 2).await;
    worker.stop().await;

    assert_eq!((counts.dead, counts.sent), (1, 3));
    assert_eq!(bench.dead(&queue).await[0].id, id);
    assert_eq!(has(&bench.events(id).await, "DLQ", "exhausted"), 1);
}

/// A snooze and a release give the attempt back; a retry does not.
pub async fn only_a_failed_attempt_is_counted(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    bench.send(&queue, [1]).await;
    let second = Duration::from_secs(1);
    let endings = [
        (Verdict::Snooze { until: Due::In(second) }, (1, 1)),
        (Verdict::Retry { after: Some(second) }, (2, 1)),
        (Verdict::Snooze { until: Due::In(second) }, (2, 2)),
    ];
    for (verdict, counted) in endings {
        let claim = worker.lease(1).await;
        assert_eq!(worker.end(&claim, &Ending::Returned(verdict)).await, applied());
        bench.advance(second);
        assert_eq!(bench.relay().await, 1);
        let next = worker.lease(1).await;
        assert_eq!((next.messages[0].attempt, next.messages[0].releases), counted);
        // Put back as it was found.
        let unchanged = Ending::Released(millpond_core::reason::Release::Limited);
        assert_eq!(worker.end(&next, &unchanged).await, applied());
        assert_eq!(bench.relay().await, 1);
    }
}

/// What comes back passes the backlog.
pub async fn a_return_is_served_before_the_backlog(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    let ids = bench.send(&queue, 0..100).await;
    let first = worker.lease(1).await;
    let asked = Ending::Returned(Verdict::Retry { after: Some(Duration::ZERO) });
    assert_eq!(worker.end(&first, &asked).await, applied());
    assert_eq!(bench.relay().await, 1);

    let Lease::Claim(next) = worker.try_lease(&[Lane::Return, Lane::Main], 1, true).await else {
        panic!("it came back");
    };
    assert_eq!((next.messages[0].id, next.messages[0].attempt), (ids[0], 2));
    let seen = bench.recorder();
    assert_eq!(worker.ack(&next).await, applied());
    let engine = recorded(bench, &queue, &seen);
    bench.drained(&queue, 100).await;
    engine.stop().await;
    assert_eq!(seen.count(), 99);
}

/// Settling the same lease twice is harmless.
pub async fn a_second_settlement_under_one_lease_changes_nothing(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    let id = bench.send(&queue, [1, 2]).await[0];
    let claim = worker.lease(2).await;
    let offset = claim.messages[0].offset;
    let done = || vec![(offset, millpond_core::Settlement::Done)];
    assert_eq!(worker.settle(&claim, done()).await, applied());
    assert_eq!(worker.settle(&claim, done()).await, applied());
    let refuse = Ending::Returned(Verdict::DeadLetter { reason: "late".to_owned() });
    let late = worker.decide(&claim, &claim.messages[0], &refuse);
    assert_eq!(worker.settle(&claim, vec![(offset, late)]).await, applied());

    let counts = bench.counts(&queue).await;
    assert_eq!((counts.done, counts.dead, counts.leased), (1, 0, 1));
    assert_eq!(bench.look(id).await.state, State::Done);
    assert_eq!(worker.ack(&claim).await, Settled::Applied { done_anyway: Vec::new() });
}

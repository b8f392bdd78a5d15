//! How a worker ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::queue::QueueSettings;
use millpond_core::settle::Verdict;
use millpond_core::state::State;
use millpond_engine::job::Job;

use crate::bench::{Bench, Running, SETTINGS};
use crate::contract::delivery::recorded;
use crate::contract::retry::own_runtime;
use crate::gate::Gate;

const SHORT: Duration = Duration::from_millis(100);

/// BR-159: the deadline of a stop did not hold for a handler that could not be interrupted.
pub async fn br_159_a_stop_ends_in_time_whatever_the_handler_does(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let (recorder, closed) = (Arc::clone(&seen), Arc::clone(&gate));
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        closed.pass_blocking();
        drop(visit);
        async { Verdict::Ack }
    };
    let runtime = own_runtime();
    let worker = second.worker().concurrency(1).shutdown_timeout(SHORT).cancel_grace(SHORT);
    let mut worker = Running::start_on(runtime.handle(), worker.handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("the handler blocks", async || (seen.running() == 1).then_some(())).await;
    let told = Instant::now();
    worker.signal().await;
    worker.hurry();
    worker.ended().await;
    assert!(told.elapsed() < Duration::from_secs(5), "it took {:?}", told.elapsed());
    assert_eq!(seen.running(), 1, "nothing could stop the handler");

    let others = bench.recorder();
    let other = recorded(bench, &queue, &others);
    bench.drained(&queue, 1).await;
    other.stop().await;
    assert_eq!(others.attempts(id), [1], "another one has it at once, and the stop cost no attempt");
    gate.open();
    runtime.shutdown_background();
}

/// BR-108: a stop that was meant to be kind ended jobs for good which a kill would have brought back.
pub async fn br_108_what_a_stop_interrupts_is_never_at_its_end(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let second = bench.second_node().await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    // Each ends in another way when it is told to stop; none of them is the message's fault.
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            job.cancelled().await;
            drop(visit);
            match job.body {
                1 => std::future::pending::<()>().await,
                2 => return Err::<(), _>("I was told to stop"),
                _ => {}
            }
            std::future::pending().await
        }
    };
    let worker = second.worker().shutdown_timeout(SHORT).cancel_grace(SHORT).handle(&queue, handler);
    let worker = Running::start(worker);
    let ids = bench.send(&queue, [1, 2, 3]).await;
    bench.eventually("all run", async || (seen.running() == 3).then_some(())).await;
    worker.stop().await;
    for id in &ids {
        let view = bench.look(*id).await;
        assert!(matches!(view.state, State::Ready | State::Scheduled | State::Retrying), "{:?}", view.state);
        assert_eq!(view.attempt, 0, "its only attempt is not spent");
    }
    bench.relay().await;
    let others = bench.recorder();
    let other = recorded(bench, &queue, &others);
    bench.drained(&queue, 3).await;
    other.stop().await;
    assert_eq!(others.count(), 3);
}

//! Who listens.

use std::sync::Arc;

use millpond_core::settle::Verdict;
use millpond_engine::job::Job;

use crate::bench::{Bench, Running, SETTINGS};
use crate::contract::delivery::recorded;

/// C046.
pub async fn c046_only_the_node_with_a_handler_is_called(bench: &Bench) {
    let (queue, elsewhere) = (bench.queue::<u32>(SETTINGS).await, bench.queue::<u32>(SETTINGS).await);
    let second = bench.second_node().await;
    let (ours, theirs) = (bench.recorder(), bench.recorder());
    let without = recorded(bench, &elsewhere, &ours);
    let recorder = Arc::clone(&theirs);
    let handler = move |job: Job<u32>| {
        drop(recorder.enter(&job));
        async { Verdict::Ack }
    };
    let with = Running::start(second.worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    bench.drained(&queue, 1).await;
    // The first node works, on what it listens to.
    bench.send(&elsewhere, [2]).await;
    bench.drained(&elsewhere, 1).await;
    let listeners = bench.counts(&queue).await.listeners;
    without.stop().await;
    with.stop().await;

    assert_eq!(ours.bodies(), [2]);
    assert_eq!(theirs.attempts(id), [1]);
    assert_eq!(listeners, 1);
}

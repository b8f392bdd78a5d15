//! What is sent to be due later.

use std::time::Duration;

use millpond_core::state::State;
use millpond_engine::item::ItemOptions;

use crate::bench::{Bench, SETTINGS};
use crate::contract::delivery::recorded;

/// C049.
pub async fn c049_a_delay_ends_on_time(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    let id = bench.send(&queue, [1.delay(Duration::from_secs(300))]).await[0];
    bench.advance(Duration::from_secs(299));
    assert_eq!(bench.relay().await, 0);
    // What is sent now is delivered by the same worker, and so is all that was due before it.
    bench.send(&queue, [2]).await;
    let delivered = async || (bench.counts(&queue).await.done == 1).then_some(());
    bench.eventually("the other message is done", delivered).await;
    assert_eq!(seen.bodies(), [2]);
    assert_eq!(bench.look(id).await.state, State::Scheduled);

    bench.advance(Duration::from_secs(1));
    bench.drained(&queue, 2).await;
    worker.stop().await;
    assert_eq!(seen.attempts(id), [1]);
}

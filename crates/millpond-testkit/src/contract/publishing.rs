//! How messages enter the log.

use std::collections::BTreeSet;
use std::time::Duration;

use millpond_core::message::{MessageId, Offset};
use millpond_engine::item::ItemOptions;

use crate::bench::{Bench, SETTINGS};
use crate::contract::applied;

/// Messages of each appender that races.
const EACH: u32 = 40;

/// Offsets have no gaps, whoever appends at the same time, and each sender's messages keep their order (M1).
pub async fn m1_racing_appenders_leave_no_gap(bench: &Bench) {
    let queue = bench.queue::<(u32, u32)>(SETTINGS).await;
    let second = bench.second_node().await;
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..8 {
        let node = if sender % 2 == 0 { bench.node() } else { &second };
        let (pond, queue) = (node.pond.clone(), (*queue).clone());
        senders.spawn(async move {
            for number in (0..EACH).step_by(2) {
                pond.send(&queue, [(sender, number), (sender, number + 1)]).await.expect("it is stored");
            }
        });
    }
    while let Some(ended) = senders.join_next().await {
        ended.expect("every sender ends");
    }

    let worker = bench.holder(&queue);
    let claim = worker.lease(1_000).await;
    let offsets: Vec<Offset> = claim.messages.iter().map(|message| message.offset).collect();
    assert_eq!(offsets, (0..u64::from(8 * EACH)).map(Offset).collect::<Vec<_>>());
    let bodies: Vec<(u32, u32)> = claim
        .messages
        .iter()
        .map(|message| serde_json::from_slice(&message.body).expect("it is what was sent"))
        .collect();
    for sender in 0..8 {
        let own = bodies.iter().filter(|body| body.0 == sender).map(|body| body.1);
        assert!(own.eq(0..EACH), "the order of sender {sender}");
    }
    assert_eq!(worker.ack(&claim).await, applied());
}

/// C041.
pub async fn c041_two_relays_move_each_row_once(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let wait = Duration::from_secs(10);
    let ids = bench.send(&queue, (0..120).map(|body| body.delay(wait))).await;
    assert_eq!(bench.counts(&queue).await.scheduled, 120);
    bench.advance(wait);

    let relay = async |store: &std::sync::Arc<dyn millpond_core::store::Store>| {
        let mut moved = 0;
        loop {
            match store.relay(7).await.expect("the relay answers").moved {
                0 => return moved,
                rows => moved += rows,
            }
        }
    };
    let (ours, theirs) = tokio::join!(relay(&bench.node().store), relay(&second.store));
    assert_eq!(ours + theirs, 120);
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.scheduled, counts.ready), (0, 120));
    let claim = bench.holder(&queue).lease(1_000).await;
    let leased: BTreeSet<MessageId> = claim.messages.iter().map(|message| message.id).collect();
    assert_eq!((claim.messages.len(), leased), (120, ids.into_iter().collect()));
}

//! Who is served next.

use std::time::Duration;

use millpond_core::message::Due;
use millpond_core::pick::Lane;
use millpond_core::settle::{Ending, Verdict};
use millpond_core::store::{Act, Changed, Lease};
use millpond_engine::item::ItemOptions;

use crate::bench::{Bench, SETTINGS};
use crate::contract::applied;
use crate::holder::Holder;

const LANES: [Lane; 3] = [Lane::Return, Lane::Suspect, Lane::Main];

async fn next(worker: &Holder) -> (millpond_core::MessageId, millpond_core::store::Claim) {
    match worker.try_lease(&LANES, 1, true).await {
        Lease::Claim(claim) => (claim.messages[0].id, claim),
        other => panic!("something is ready: {other:?}"),
    }
}

/// BR-135: a delayed job of high priority that became due stood at the end of those of low priority.
pub async fn br_135_a_delayed_message_keeps_its_class(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let wait = Duration::from_secs(60);
    let high = bench.send(&queue, [1.priority(0).delay(wait)]).await[0];
    bench.send(&queue, (0..100).map(|body| body.priority(3))).await;
    let worker = bench.holder(&queue);
    assert_ne!(next(&worker).await.0, high, "it is not due");
    bench.advance(wait);
    assert_eq!(bench.relay().await, 1);
    assert_eq!(bench.look(high).await.priority, 0);
    assert_eq!(next(&worker).await.0, high);

    // One that somebody makes due now, too.
    let promoted = bench.send(&queue, [2.priority(0).delay(wait)]).await[0];
    let act = Act { actor: "ada".into(), verb: "hasten".into(), object: promoted.to_string(), reason: None };
    let changed = bench.node().store.hasten(vec![promoted], act).await.expect("it is made due");
    assert_eq!((changed, bench.relay().await), (vec![Changed::Done], 1));
    assert_eq!(next(&worker).await.0, promoted);
}

/// BR-136: a job that failed came back without its priority.
pub async fn br_136_a_retry_keeps_its_class(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    let high = bench.send(&queue, [1.priority(1)]).await[0];
    bench.send(&queue, (0..100).map(|body| body.priority(2))).await;
    for attempt in 1..=3 {
        let (id, claim) = next(&worker).await;
        assert_eq!((id, claim.messages[0].attempt), (high, attempt));
        assert_eq!(worker.end(&claim, &Ending::Returned(Verdict::Retry { after: None })).await, applied());
        bench.advance(Duration::from_secs(1));
        assert_eq!(bench.relay().await, 1);
        assert_eq!(bench.look(high).await.priority, 1);
    }
    // Given back by a dead worker, it keeps its class too.
    assert_eq!(next(&worker).await.0, high);
    bench.advance(crate::holder::HOLDER_LEASE);
    assert_eq!(bench.reclaim().await, 1);
    assert_eq!(next(&bench.holder(&queue)).await.0, high);
}

/// BR-168: two jobs that were put off in turn overtook each other for ever. What comes back is served before what
/// never ran, so each return is a step forward; between the two there is no order in a dispatch queue.
pub async fn br_168_what_was_put_off_is_served_first_when_it_is_due(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    let ids = bench.send(&queue, 0..20).await;
    let second = Duration::from_secs(1);
    let snooze = Ending::Returned(Verdict::Snooze { until: Due::In(second) });
    let (first, claim) = next(&worker).await;
    assert_eq!((first, worker.end(&claim, &snooze).await), (ids[0], applied()));
    // The junior runs meanwhile: a dispatch queue does not wait for who was put off.
    let (junior, claim) = next(&worker).await;
    assert_eq!((junior, worker.end(&claim, &snooze).await), (ids[1], applied()));
    bench.advance(second);
    assert_eq!(bench.relay().await, 2);
    for senior in &ids[..2] {
        let (id, claim) = next(&worker).await;
        assert_eq!(
            (id, worker.ack(&claim).await),
            (*senior, applied()),
            "before the backlog, in their order"
        );
    }
    assert_eq!(next(&worker).await.0, ids[2]);
}

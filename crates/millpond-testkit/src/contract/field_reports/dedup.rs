//! Dedup keys.

use std::time::Duration;

use millpond_core::queue::QueueSettings;
use millpond_core::settle::{Ending, Verdict};
use millpond_core::state::State;
use millpond_core::store::Stored;
use millpond_engine::item::{Item, ItemOptions};

use crate::bench::{Bench, SETTINGS, TestQueue};
use crate::contract::applied;
use crate::contract::delivery::recorded;
use crate::holder::HOLDER_LEASE;

const WINDOW: Duration = Duration::from_secs(3 * 3_600);

const KEYED: QueueSettings = QueueSettings { dedup_window: WINDOW, ..SETTINGS };

/// Sends bodies 1 under these keys; answers what became of each.
async fn keyed(
    bench: &Bench,
    queue: &TestQueue<u32>,
    keys: &[&str],
) -> Vec<(millpond_core::MessageId, Stored)> {
    let items: Vec<Item<u32>> = keys.iter().map(|key| 1.dedup_key(*key)).collect();
    let sent = bench.node().pond.send(queue, items).await.expect("duplicates are no error");
    sent.messages.iter().map(|message| (message.id, message.stored)).collect()
}

fn of(stored: &(millpond_core::MessageId, Stored)) -> Option<millpond_core::MessageId> {
    match stored.1 {
        Stored::New | Stored::Buffered => None,
        Stored::Duplicate { of } => Some(of),
    }
}

/// BR-014: one job that could not go back under its key held up every retry of the queue.
pub async fn br_014_a_retry_needs_no_key_and_holds_nobody_up(bench: &Bench) {
    let queue = bench.queue::<u32>(KEYED).await;
    let worker = bench.holder(&queue);
    let first = keyed(bench, &queue, &["k"]).await[0].0;
    bench.send(&queue, 0..100).await;
    let claim = worker.lease(1_000).await;
    let wait = WINDOW + Duration::from_secs(60);
    assert_eq!(worker.end(&claim, &Ending::Returned(Verdict::Retry { after: Some(wait) })).await, applied());
    // The key is free before the retry is due, and somebody takes it.
    bench.advance(WINDOW);
    let second = keyed(bench, &queue, &["k"]).await;
    assert_eq!(of(&second[0]), None);
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.relay().await, 101, "all are due, and all move");
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.ready, counts.retrying), (102, 0));
    assert_eq!(bench.look(first).await.state, State::Ready);
}

/// BR-015: the retry of a job collided with a later one of its key, and it stayed "running" for ever.
pub async fn br_015_a_failed_job_gets_its_retry_beside_a_waiting_sibling(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 2, ..KEYED }).await;
    let worker = bench.holder(&queue);
    let first = keyed(bench, &queue, &["k"]).await[0].0;
    let claim = worker.lease(1).await;
    bench.advance(WINDOW);
    worker.renew().await;
    let sibling = keyed(bench, &queue, &["k"]).await;
    assert_eq!(of(&sibling[0]), None);
    assert_eq!(worker.end(&claim, &Ending::Returned(Verdict::Retry { after: None })).await, applied());
    let view = bench.look(first).await;
    assert_eq!((view.state, view.attempt), (State::Retrying, 1));
    bench.advance(Duration::from_secs(1));
    bench.relay().await;
    let retried = worker.lease(1).await;
    assert_eq!((retried.messages[0].id, retried.messages[0].attempt), (first, 2));
    assert_eq!(worker.end(&retried, &Ending::Returned(Verdict::Retry { after: None })).await, applied());
    assert_eq!(bench.look(first).await.state, State::Dead);
    assert_eq!(worker.lease(10).await.messages[0].id, sibling[0].0);
}

/// BR-056: jobs that were inserted in bulk went past the check of uniqueness.
pub async fn br_056_a_batch_with_one_key_is_one_message(bench: &Bench) {
    let queue = bench.queue::<u32>(KEYED).await;
    let stored = keyed(bench, &queue, &["k"; 10]).await;
    assert_eq!(of(&stored[0]), None);
    assert!(stored[1..].iter().all(|one| of(one) == Some(stored[0].0)), "nine name the first: {stored:?}");
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.ready), (1, 1));
    // And so it is for messages that are due later.
    let items: Vec<Item<u32>> = (0..10).map(|_| 1.dedup_key("later").delay(WINDOW)).collect();
    let sent = bench.node().pond.send(&queue, items).await.expect("duplicates are no error");
    let new = sent.messages.iter().filter(|message| message.stored == Stored::New).count();
    assert_eq!((new, bench.counts(&queue).await.scheduled), (1, 1));
}

/// BR-057: a daily job was missing on the day that has 23 hours, because its key was held for 24. A window is a time
/// from sending, not a day of any calendar: it begins with the first message, and a duplicate does not extend it.
pub async fn br_057_a_window_is_a_time_from_the_first_send(bench: &Bench) {
    let day = Duration::from_secs(24 * 3_600);
    let queue = bench.queue::<u32>(QueueSettings { dedup_window: day, ..SETTINGS }).await;
    let first = keyed(bench, &queue, &["daily"]).await;
    bench.advance(Duration::from_secs(23 * 3_600));
    assert_eq!(of(&keyed(bench, &queue, &["daily"]).await[0]), Some(first[0].0), "23 hours are within it");
    bench.advance(Duration::from_secs(3_600) - Duration::from_micros(1));
    assert_eq!(of(&keyed(bench, &queue, &["daily"]).await[0]), Some(first[0].0));
    bench.advance(Duration::from_micros(1));
    assert_eq!(of(&keyed(bench, &queue, &["daily"]).await[0]), None, "after 24 hours it is free");
    // A key that names its occurrence needs no window that fits a calendar.
    let (one, other) = ("daily 2025-03-09T23:00Z", "daily 2025-03-10T23:00Z");
    let stored = keyed(bench, &queue, &[one, other, one]).await;
    assert_eq!(stored.iter().map(of).collect::<Vec<_>>(), [None, None, Some(stored[0].0)]);
}

/// BR-059: a bulk insert that was repeated ignored what it had stored before.
pub async fn br_059_a_batch_that_is_repeated_stores_what_is_new(bench: &Bench) {
    let queue = bench.queue::<u32>(KEYED).await;
    let before = keyed(bench, &queue, &["a", "b"]).await;
    let again = keyed(bench, &queue, &["a", "b", "c"]).await;
    assert_eq!(again.iter().map(of).collect::<Vec<_>>(), [Some(before[0].0), Some(before[1].0), None]);
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.ready), (3, 3));
}

/// BR-060: deleting an old job freed the key that a newer one held.
pub async fn br_060_an_old_job_that_is_deleted_frees_no_key_of_a_newer_one(bench: &Bench) {
    let retention = Duration::from_secs(60);
    let queue = bench.queue::<u32>(QueueSettings { retention, ..KEYED }).await;
    let old = keyed(bench, &queue, &["k"]).await[0].0;
    let worker = bench.holder(&queue);
    let claim = worker.lease(1).await;
    assert_eq!(worker.ack(&claim).await, applied());
    bench.advance(WINDOW);
    let newer = keyed(bench, &queue, &["k"]).await;
    assert_eq!(of(&newer[0]), None);
    // More of them, so that the old one is not the highest row, which is kept.
    bench.send(&queue, 0..3).await;
    let claim = worker.lease(2).await;
    assert_eq!(worker.ack(&claim).await, applied());
    for round in 0..5 {
        bench.advance(Duration::from_secs(61));
        bench.node().store.retain(format!("bench-{round}"), 1_000).await.expect("it cleans up");
    }
    let gone = bench.node().store.message(old).await.expect("a look-up is answered");
    assert!(gone.is_none(), "the old one is deleted: {gone:?}");
    assert_eq!(
        of(&keyed(bench, &queue, &["k"]).await[0]),
        Some(newer[0].0),
        "the newer one still holds the key"
    );
}

/// BR-132: what a schedule sent each minute lost its window on the way, and nothing was ever a duplicate.
pub async fn br_132_a_key_is_held_for_its_window_however_often_it_is_sent(bench: &Bench) {
    let queue = bench.queue::<u32>(KEYED).await;
    let worker = bench.holder(&queue);
    let first = keyed(bench, &queue, &["report"]).await;
    for minute in 1..10 {
        bench.advance(Duration::from_secs(60));
        assert_eq!(of(&keyed(bench, &queue, &["report"]).await[0]), Some(first[0].0), "minute {minute}");
        if minute == 5 {
            // That it is done does not free the key.
            let claim = worker.lease(1).await;
            assert_eq!(worker.ack(&claim).await, applied());
        }
    }
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.done, counts.ready), (1, 1, 0));
}

/// BR-215: while the worker that held a key was dead, what should have been thrown away as a conflict piled up behind
/// it.
pub async fn br_215_behind_a_dead_holder_nothing_piles_up(bench: &Bench) {
    let queue = bench.queue::<u32>(KEYED).await;
    let first = keyed(bench, &queue, &["k"]).await[0].0;
    let dead = bench.holder(&queue);
    dead.lease(1).await;
    for _ in 0..30 {
        bench.advance(HOLDER_LEASE / 30);
        assert_eq!(of(&keyed(bench, &queue, &["k"]).await[0]), Some(first));
    }
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.ready, counts.leased), (1, 0, 1));
    // One lease after the death the work goes on.
    assert_eq!(bench.reclaim().await, 1);
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 1).await;
    worker.stop().await;
    assert_eq!(seen.attempts(first), [2]);
}

//! Attempts and dead letters.

use std::sync::Arc;
use std::time::Duration;

use millpond_core::backoff::Backoff;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::{Ending, Verdict};
use millpond_core::state::State;
use millpond_engine::job::Job;

use crate::bench::{Bench, Running, SETTINGS};
use crate::contract::applied;

const AT_ONCE: QueueSettings = QueueSettings { backoff: Backoff::fixed(Duration::ZERO), ..SETTINGS };

/// BR-010: a job that had used up its attempts began again with the first one, every half minute.
pub async fn br_010_five_attempts_are_five_and_no_sixth_comes(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 5, ..AT_ONCE }).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        drop(recorder.enter(&job));
        async move { if job.body == 0 { Ok(()) } else { Err("no") } }
    };
    let worker = Running::start(bench.node().worker().concurrency(1).handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    let dead = async || (bench.look(id).await.state == State::Dead).then_some(());
    bench.eventually("it is a dead letter", dead).await;
    for round in 1..=20 {
        bench.advance(Duration::from_secs(30));
        assert_eq!((bench.relay().await, bench.take_over().await.len()), (0, 0));
        // What passes the worker now shows that it had its chance to run the dead one.
        bench.send(&queue, [0]).await;
        bench.drained(&queue, round).await;
    }
    worker.stop().await;
    assert_eq!(seen.attempts(id), [1, 2, 3, 4, 5]);
    let dead = bench.dead(&queue).await;
    assert_eq!((dead.len(), dead[0].reason.as_str(), dead[0].attempt), (1, "exhausted", 5));
}

/// BR-053: a client that fetched one message at a time and refused it brought the queue down at the last attempt.
pub async fn br_053_refusing_single_messages_to_the_limit_leaves_a_queue_that_serves(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 3, ..AT_ONCE }).await;
    let ids = bench.send(&queue, [1, 2]).await;
    let client = bench.holder(&queue);
    for attempt in 1..=3 {
        let claim = client.lease(1).await;
        assert_eq!((claim.messages[0].id, claim.messages[0].attempt), (ids[0], attempt));
        assert_eq!(client.end(&claim, &Ending::Returned(Verdict::Retry { after: None })).await, applied());
        bench.relay().await;
    }
    let dead = bench.dead(&queue).await;
    assert_eq!((dead.len(), dead[0].id, dead[0].reason.as_str()), (1, ids[0], "exhausted"));
    let next = client.lease(1).await;
    assert_eq!((next.messages[0].id, client.ack(&next).await), (ids[1], applied()));
    bench.send(&queue, [3]).await;
    assert_eq!(client.lease(1).await.messages[0].attempt, 1);
}

/// BR-189: the work was done, what was to be written about it could not be stored, and so it was done again, some
/// hundred times.
pub async fn br_189_what_is_said_about_a_success_never_undoes_it(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 2, ..AT_ONCE }).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let large = "🦆\u{0}é\u{2028}".repeat(100_000);
    let handler = move |job: Job<u32>| {
        drop(recorder.enter(&job));
        job.note_error(&large);
        let reason = large.clone();
        async move {
            match job.body {
                1 => Verdict::Ack,
                2 => Verdict::DeadLetter { reason },
                _ => Verdict::Retry { after: None },
            }
        }
    };
    let ids = bench.send(&queue, [1, 2, 3]).await;
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    bench.drained(&queue, 1).await;
    worker.stop().await;
    let attempts: Vec<usize> = ids.iter().map(|id| seen.attempts(*id).len()).collect();
    assert_eq!(attempts, [1, 1, 2], "no more than each may have");
    assert_eq!(bench.look(ids[0]).await.state, State::Done);
    let dead = bench.dead(&queue).await;
    assert_eq!(dead.len(), 2);
    for letter in dead {
        let detail = letter.detail.expect("it says why");
        assert!(detail.starts_with("🦆") && detail.chars().count() <= 2_000, "{} bytes", detail.len());
    }
}

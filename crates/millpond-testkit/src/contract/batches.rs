//! Batch handlers: several messages in one call, and one message is the unit of failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::message::MessageId;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::Verdict;
use millpond_engine::batch::Jobs;
use millpond_engine::body::Raw;

use crate::bench::{Bench, Running, SETTINGS};
use crate::recorder::Recorder;

/// A batch handler that records, and whose verdict about a message is that of `judge`.
fn judged(
    seen: &Arc<Recorder<u32>>,
    judge: fn(u32) -> Verdict,
) -> impl Fn(Jobs<u32>) -> std::future::Ready<Vec<Verdict>> + Send + Sync + use<> {
    let recorder = Arc::clone(seen);
    move |jobs| {
        drop(recorder.enter_batch(&jobs));
        std::future::ready(jobs.iter().map(|job| judge(job.body)).collect())
    }
}

/// Each message has its own verdict, its own attempts and its own end.
pub async fn a_batch_handler_gets_messages_together_each_with_its_own_verdict(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 2, ..SETTINGS }).await;
    let seen = bench.recorder();
    let ids = bench.send(&queue, 0..10).await;
    let judge = |body| match body {
        3 => Verdict::Retry { after: None },
        7 => Verdict::DeadLetter { reason: "seven".to_owned() },
        _ => Verdict::Ack,
    };
    let worker = bench.node().worker().concurrency(1);
    let worker = Running::start(worker.handle_batch(&queue, judged(&seen, judge)).batch_max(4));
    bench
        .eventually("eight are done, one waits, one is dead", async || {
            let counts = bench.counts(&queue).await;
            ((counts.done, counts.retrying, counts.dead) == (8, 1, 1)).then_some(())
        })
        .await;
    bench.advance(Duration::from_secs(1));
    let died = async || (bench.counts(&queue).await.dead == 2).then_some(());
    bench.eventually("its second attempt was its last", died).await;
    worker.stop().await;

    assert!(seen.batches().iter().all(|jobs| (1..=4).contains(jobs)), "{:?}", seen.batches());
    assert!(1 < seen.batches()[0], "ten messages wait: {:?}", seen.batches());
    let attempts: Vec<Vec<u32>> = ids.iter().map(|id| seen.attempts(*id)).collect();
    let expected = |body| if body == 3 { vec![1, 2] } else { vec![1] };
    assert_eq!(attempts, (0..10).map(expected).collect::<Vec<_>>());
    let dead: BTreeMap<MessageId, String> =
        bench.dead(&queue).await.into_iter().map(|letter| (letter.id, letter.reason)).collect();
    assert_eq!(dead, BTreeMap::from([(ids[3], "exhausted".to_owned()), (ids[7], "refused".to_owned())]));
}

/// A panic hands the messages over again one by one, under the same lease: the attempts of the neighbours do not grow.
pub async fn a_batch_that_breaks_down_comes_one_by_one_and_only_the_culprit_pays(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let seen = bench.recorder();
    let ids = bench.send(&queue, 0..6).await;
    let recorder = Arc::clone(&seen);
    let handler = move |jobs: Jobs<u32>| {
        drop(recorder.enter_batch(&jobs));
        async move {
            jobs.iter().filter(|job| job.body == 1).for_each(|job| {
                jobs.decide(jobs.iter().position(|other| other.id == job.id).unwrap_or(0), Verdict::Ack);
            });
            assert!(jobs.iter().all(|job| job.body != 4), "the fifth is poison");
            Verdict::Ack
        }
    };
    let worker = Running::start(bench.node().worker().concurrency(1).handle_batch(&queue, handler));
    bench
        .eventually("one is dead, the others are done", async || {
            let counts = bench.counts(&queue).await;
            ((counts.done, counts.dead) == (5, 1)).then_some(())
        })
        .await;
    worker.stop().await;

    assert_eq!(seen.batches(), [6, 1, 1, 1, 1, 1], "what was decided is not handed over again");
    assert_eq!(seen.attempts(ids[1]), [1]);
    assert_eq!(seen.attempts(ids[4]), [1, 1], "the same delivery");
    let dead = bench.dead(&queue).await;
    let letter = &dead[0];
    assert_eq!((letter.id, letter.reason.as_str(), letter.attempt), (ids[4], "exhausted", 1));
    assert!(letter.detail.as_deref().is_some_and(|detail| detail.contains("poison")), "{:?}", letter.detail);
    assert_eq!(bench.counts(&queue).await.retrying, 0);
}

/// A timeout counts for those that were not decided yet.
pub async fn what_a_batch_decided_before_its_time_was_up_stands(bench: &Bench) {
    let settings = QueueSettings { timeout: Some(Duration::from_millis(200)), ..SETTINGS };
    let queue = bench.queue::<u32>(settings).await;
    let seen = bench.recorder();
    let ids = bench.send(&queue, 0..3).await;
    let recorder = Arc::clone(&seen);
    let handler = move |jobs: Jobs<u32>| {
        drop(recorder.enter_batch(&jobs));
        async move {
            jobs.decide(0, Verdict::Ack);
            if jobs.len() == 3 {
                std::future::pending::<()>().await;
            }
            Verdict::Ack
        }
    };
    let worker = bench.node().worker().concurrency(1).cancel_grace(Duration::from_millis(100));
    let worker = Running::start(worker.handle_batch(&queue, handler));
    bench
        .eventually("one is done, two wait for another attempt", async || {
            let counts = bench.counts(&queue).await;
            ((counts.done, counts.retrying) == (1, 2)).then_some(())
        })
        .await;
    let events = bench.events(ids[2]).await;
    assert!(events.contains(&("RETRY".to_owned(), "timeout".to_owned())), "{events:?}");
    bench.advance(Duration::from_secs(1));
    bench.drained(&queue, 3).await;
    worker.stop().await;
    assert_eq!(seen.attempts(ids[0]), [1]);
    assert_eq!(seen.attempts(ids[1]), [1, 2]);
}

/// Duplicate deliveries: every message is stored twice, and each of the two is worked on by itself.
pub async fn two_messages_of_one_send_have_two_budgets_in_a_batch(bench: &Bench) {
    bench.node().wire().double(true);
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let seen = bench.recorder();
    let ids = bench.send(&queue, 0..5).await;
    let judge = |body| if body == 2 { Verdict::Retry { after: None } } else { Verdict::Ack };
    let worker = Running::start(bench.node().worker().handle_batch(&queue, judged(&seen, judge)));
    bench
        .eventually("eight are done, two are dead", async || {
            let counts = bench.counts(&queue).await;
            ((counts.done, counts.dead) == (8, 2)).then_some(())
        })
        .await;
    worker.stop().await;
    let mut bodies = seen.bodies();
    bodies.sort_unstable();
    assert_eq!(bodies, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    assert!(ids.iter().all(|id| seen.attempts(*id) == [1]), "two ids, once each");
    assert_eq!(seen.overlapped(), []);
}

/// What cannot be decoded takes no neighbour along.
pub async fn poison_in_a_batch_dies_alone(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let raw = bench.node().pond.queue(queue.name()).await.expect("it is declared");
    let bodies = ["1", "\"two\"", "3"].map(Raw::json);
    let ids: Vec<MessageId> =
        bench.node().pond.send(&raw, bodies).await.expect("they are stored").ids().collect();
    let seen = bench.recorder();
    let judge =
        |body| if body == 3 { Verdict::DeadLetter { reason: "three".to_owned() } } else { Verdict::Ack };
    let worker = Running::start(bench.node().worker().handle_batch(&queue, judged(&seen, judge)));
    bench
        .eventually("one is done, two are dead", async || {
            let counts = bench.counts(&queue).await;
            ((counts.done, counts.dead) == (1, 2)).then_some(())
        })
        .await;
    worker.stop().await;
    assert_eq!(seen.bodies(), [1, 3], "the decisions are about those that could be decoded");
    let dead: BTreeMap<MessageId, String> =
        bench.dead(&queue).await.into_iter().map(|letter| (letter.id, letter.reason)).collect();
    assert_eq!(dead, BTreeMap::from([(ids[1], "undecodable".to_owned()), (ids[2], "refused".to_owned())]));
}

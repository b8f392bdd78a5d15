//! Effects once: whatever is delivered twice, a handler's own transaction commits once for each message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond_core::error::Error;
use millpond_core::queue::QueueSettings;
use millpond_engine::job::Job;
use millpond_engine::unit::Begun;

use crate::bench::{Bench, Running, SETTINGS};
use crate::faults::Fault;

/// Messages of one send.
const BATCH: u32 = 10;

/// One send of so many is stored twice, so that one delivery in ten is a second one.
const REPEATED_OF: u32 = 9;

/// Deliveries, and how long they may take; `MILLPOND_EFFECTS=full` makes 200,000 of them.
fn deliveries() -> (u32, Duration) {
    match std::env::var("MILLPOND_EFFECTS").as_deref() {
        Ok("full") => (200_000, Duration::from_secs(3_600)),
        _ => (2_000, Duration::from_secs(60)),
    }
}

/// One delivery in ten is that of a message that was stored a second time under its id, right behind the first, so that
/// both may run at once. Each message has exactly one effect.
pub async fn each_message_has_one_effect_whatever_is_delivered_twice(bench: &Bench) {
    let (deliveries, limit) = deliveries();
    let messages = deliveries - deliveries / 10;
    let settings = QueueSettings { attempts_max: 100, ..SETTINGS };
    let (queue, node) = (bench.queue::<u32>(settings).await, bench.node());
    let effects = bench.make_effects().await;
    for batch in 0..messages / BATCH {
        if batch % REPEATED_OF == 0 {
            node.wire().faults().order("append", Fault::Repeated, 1);
        }
        bench.send(&queue, batch * BATCH..(batch + 1) * BATCH).await;
    }
    assert_eq!(node.wire().faults().fired("append") as u32 * BATCH, deliveries / 10);
    assert_eq!(bench.counts(&queue).await.ready, u64::from(deliveries));

    let (calls, already) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (called, found, written) = (Arc::clone(&calls), Arc::clone(&already), Arc::clone(&effects));
    let handler = move |job: Job<u32>| {
        let (called, found, written) = (Arc::clone(&called), Arc::clone(&found), Arc::clone(&written));
        async move {
            called.fetch_add(1, Ordering::SeqCst);
            match job.begin().await? {
                Begun::AlreadyDone => drop(found.fetch_add(1, Ordering::SeqCst)),
                Begun::Open(mut unit) => {
                    written.add(unit.tx().await?, job.id).await?;
                    unit.commit().await?;
                }
            }
            Ok::<(), Error>(())
        }
    };
    let began = Instant::now();
    let worker = Running::start(node.worker().concurrency(20).handle(&queue, handler));
    let all_are_done = async || {
        if calls.load(Ordering::SeqCst) < u64::from(deliveries) {
            return None;
        }
        let counts = bench.counts(&queue).await;
        if 0 < counts.retrying {
            // The second of two at once may have been told to come again.
            bench.advance(Duration::from_secs(1));
        }
        (counts.done == u64::from(deliveries)).then_some(())
    };
    bench.eventually_within(limit, "every delivery is done", all_are_done).await;
    let (calls, already) = (calls.load(Ordering::SeqCst), already.load(Ordering::SeqCst));
    println!("{deliveries} deliveries, {calls} calls, {already} found it done, in {:?}", began.elapsed());
    worker.stop().await;
    assert_eq!(bench.effect_counts(&*effects).await, (i64::from(messages), i64::from(messages)));
    assert!(u64::from(deliveries / 10) <= already, "{already} were told so");
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.dead, counts.ready, counts.leased), (0, 0, 0));
}

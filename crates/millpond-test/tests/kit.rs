//! The kit does what its guide says; and buffers, dedup functions and hooks, as a user's test would look at them.

#![allow(clippy::unwrap_used, reason = "what fails in a test fails it")]

use std::sync::Arc;
use std::time::Duration;

use millpond::{
    Buffer, Code, Counter, Ctx, DropReason, Dropped, Error, Job, Jobs, Queue, QueueSettings, Stored, Verdict,
};
use millpond_test::{Fault, Gate, TestPond};

const MAIL: Queue<u32> = Queue::new("mail");
const PINGS: Queue<u32> = Queue::new("pings").buffered(Buffer::DEFAULT).dedup(once);

fn once(bodies: Vec<u32>) -> Vec<u32> {
    let mut seen = std::collections::BTreeSet::new();
    bodies.into_iter().filter(|body| seen.insert(*body)).collect()
}

#[tokio::test]
async fn duplication_gives_two_messages_with_two_ids() {
    let kit = TestPond::builder().duplicate(true).start();
    let sent = kit.send(&MAIL, [7]).await.unwrap();
    let stored = kit.messages("mail").await;
    assert_eq!((sent.messages.len(), stored.len()), (1, 2));
    assert_ne!(stored[0].id, stored[1].id);
    assert!(stored.iter().any(|row| row.id == sent.messages[0].id));
    kit.close().await;
}

#[tokio::test]
async fn what_is_not_idle_is_named() {
    let kit = TestPond::start();
    let gate = Arc::new(Gate::default());
    let closed = Arc::clone(&gate);
    let handler = move |_: Job<u32>| {
        let closed = Arc::clone(&closed);
        async move {
            closed.pass().await;
            Verdict::Ack
        }
    };
    kit.run(kit.worker().concurrency(1).handle(&MAIL, handler));
    kit.send(&MAIL, [1, 2]).await.unwrap();
    kit.send(&PINGS, [3]).await.unwrap();
    kit.eventually("one runs", async || (kit.counts("mail").await.leased == 1).then_some(())).await;
    let left = kit.idle_within(Duration::ZERO).await.unwrap_err().join("; ");
    for part in ["1 messages of `pings` are in a buffer", "with a worker"] {
        assert!(left.contains(part), "{left}");
    }
    gate.open();
    kit.flush().await;
    assert_eq!(kit.counts("mail").await.done, 2);
    assert_eq!(kit.counts("pings").await.ready, 1, "nobody listens to it");
    kit.close().await;
}

#[tokio::test]
async fn a_buffered_send_is_stored_later_and_without_its_duplicates() {
    let kit = TestPond::start();
    let sent = kit.send(&PINGS, [1, 2, 1]).await.unwrap();
    assert_eq!(sent.messages[0].stored, Stored::Buffered);
    assert_eq!(sent.messages[2].stored, Stored::Duplicate { of: sent.messages[0].id });
    kit.send(&PINGS, [2, 3]).await.unwrap();
    assert_eq!(kit.buffered(), [("pings".to_owned(), 4)]);
    kit.assert_sent("pings", [1, 2, 3]).await;
    let pond: &millpond::Pond = &kit;
    assert_eq!(pond.counts().of(Counter::Deduplicated, "pings"), 2);
    kit.close().await;
}

#[tokio::test]
async fn a_buffer_outlives_an_outage_of_its_store() {
    let kit = TestPond::start();
    kit.faults().order("append", Fault::Unavailable, 1);
    kit.send(&PINGS, [1, 2]).await.unwrap();
    kit.assert_sent("pings", [1, 2]).await;
    assert_eq!(kit.faults().fired("append"), 1);
    kit.close().await;
}

#[tokio::test]
async fn a_buffer_is_written_when_the_pond_is_closed() {
    let kit = TestPond::start();
    let (other, _) = kit.second_node().await;
    kit.send(&MAIL, [0]).await.unwrap();
    other.send(&PINGS, [1, 2]).await.unwrap();
    other.flush().await;
    assert_eq!(kit.sent::<u32>("pings").await, [1, 2]);
    kit.close().await;
    assert_eq!(other.send(&PINGS, [3]).await.unwrap_err().code(), Code::ShuttingDown);
}

#[tokio::test]
async fn a_batch_handler_and_a_hook_see_what_they_should() {
    let kit = TestPond::start();
    let seen = kit.recorder::<u32>();
    let recorder = Arc::clone(&seen);
    let queue = MAIL.with_settings(QueueSettings { attempts_max: 1, ..QueueSettings::DEFAULT });
    let import = move |jobs: Jobs<u32>| {
        drop(recorder.enter_batch(&jobs));
        let verdicts: Vec<Result<(), &str>> =
            jobs.iter().map(|job| if job.body == 3 { Err("three") } else { Ok(()) }).collect();
        async move { verdicts }
    };
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let mark_failed = move |dropped: Dropped<u32>| {
        tell.lock().unwrap().push((dropped.message.body().copied(), dropped.reason));
        std::future::ready(())
    };
    kit.send(&queue, 0..6).await.unwrap();
    kit.run(kit.worker().handle_batch(&queue, import).batch_max(10).on_error(&queue, mark_failed));
    kit.wait_for_idle().await;
    kit.eventually("the hook is called", async || (!told.lock().unwrap().is_empty()).then_some(())).await;
    assert_eq!(*told.lock().unwrap(), [(Some(3), DropReason::Exhausted)]);
    assert_eq!(seen.batches(), [6]);
    kit.close().await;
}

#[tokio::test]
async fn a_unit_of_work_and_a_scope_pass_the_dedup_function_once_for_everything() {
    const REFRESH: Queue<u32> = Queue::new("refresh").dedup(once);
    let kit = TestPond::start();
    kit.declare(&REFRESH).await.unwrap();
    let mut unit = kit.begin().await.unwrap();
    unit.send(&REFRESH, [1, 2]).await.unwrap();
    unit.send(&REFRESH, [2, 3]).await.unwrap();
    let committed = unit.commit().await.unwrap();
    assert_eq!(committed.messages[2].stored, Stored::Duplicate { of: committed.messages[1].id });
    kit.scope(Ctx::NoTx, async |out| {
        for body in [4, 4, 5] {
            out.put(&REFRESH, body).await?;
        }
        Ok::<_, Error>(())
    })
    .await
    .unwrap();
    kit.assert_sent("refresh", [1, 2, 3, 4, 5]).await;
    kit.close().await;
}

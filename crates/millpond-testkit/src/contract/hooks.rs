//! `on_error`: every drop calls its hook, and no success does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_core::hook::{HOOK_LEASE, HookEnd, TakeHooks};
use millpond_core::message::{Due, MessageId};
use millpond_core::queue::QueueSettings;
use millpond_core::reason::DropReason;
use millpond_core::settle::{Ending, Verdict};
use millpond_core::store::Act;
use millpond_engine::body::Raw;
use millpond_engine::counters::Counter;
use millpond_engine::hook::{Content, Dropped};
use millpond_engine::item::ItemOptions;
use millpond_engine::job::Job;

use crate::bench::{Bench, Running, SETTINGS, TestQueue};
use crate::contract::applied;
use crate::gate::Gate;

/// What hooks were told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Dropped<u32>>>>);

impl Told {
    fn hook(&self) -> impl Fn(Dropped<u32>) -> std::future::Ready<()> + Send + Sync + use<> {
        let told = self.clone();
        move |dropped| {
            told.0.lock().unwrap_or_else(PoisonError::into_inner).push(dropped);
            std::future::ready(())
        }
    }

    fn all(&self) -> Vec<Dropped<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reasons(&self) -> BTreeMap<MessageId, DropReason> {
        self.all().iter().map(|dropped| (dropped.id, dropped.reason)).collect()
    }

    async fn times(&self, bench: &Bench, count: usize) {
        let told = async || (count <= self.all().len()).then_some(());
        bench.eventually(&format!("{count} hooks are called"), told).await;
    }
}

/// Waits until the store has no hook that anybody could take, even after the lease of who has taken it.
async fn none_pending<B>(bench: &Bench, queue: &TestQueue<B>) {
    bench.advance(2 * HOOK_LEASE);
    let take = TakeHooks { queue: queue.stored.id, lease: HOOK_LEASE, rows_max: 10 };
    let pending = bench.node().store.take_hooks(take).await.expect("hooks are taken");
    assert!(pending.is_empty(), "{pending:?}");
}

/// Every reason for which a worker drops a message, each told once, with what was sent.
pub async fn every_drop_of_a_worker_calls_its_hook(bench: &Bench) {
    let settings = QueueSettings { attempts_max: 1, releases_max: 1, ..SETTINGS };
    let queue = bench.queue::<u32>(settings).await;
    let told = Told::default();
    let handler = |job: Job<u32>| async move {
        match job.body {
            0 => Err("broken"),
            1 => Ok(Verdict::DeadLetter { reason: "refused".to_owned() }),
            2 => Ok(Verdict::Snooze { until: Due::In(Duration::ZERO) }),
            _ => Ok(Verdict::Ack),
        }
    };
    let ids = bench.send(&queue, 0..5).await;
    let late = bench.send(&queue, [9.retry_until(Due::In(Duration::from_secs(1)))]).await[0];
    let raw = bench.node().pond.queue(queue.name()).await.expect("it is declared");
    let poison = bench.node().pond.send(&raw, [Raw::json("\"five\"")]).await.expect("it is stored");
    let poison = poison.ids().next().expect("it has an id");
    bench.advance(Duration::from_secs(2));
    let worker = bench.node().worker().handle(&queue, handler).on_error(&queue, told.hook());
    let worker = Running::start(worker);
    told.times(bench, 5).await;
    bench.drained(&queue, 2).await;
    worker.stop().await;

    let expected = BTreeMap::from([
        (ids[0], DropReason::Exhausted),
        (ids[1], DropReason::Refused),
        (ids[2], DropReason::ReleasesExhausted),
        (late, DropReason::RetryUntil),
        (poison, DropReason::Undecodable),
    ]);
    assert_eq!(told.reasons(), expected);
    assert_eq!(told.all().len(), 5, "each once");
    let all = told.all();
    let of = |id| all.iter().find(|dropped| dropped.id == id).expect("it was told");
    assert_eq!(of(ids[0]).error.as_deref(), Some("broken"));
    assert_eq!((of(ids[0]).message.body(), of(ids[0]).attempts), (Some(&0), 1));
    assert_eq!(&*of(ids[1]).queue, queue.name());
    assert!(matches!(&of(poison).message, Content::Raw { bytes, .. } if bytes == b"\"five\""));
    none_pending(bench, &queue).await;
}

/// What others drop is told too: a reclaim, and who cancels what waits.
pub async fn what_a_reclaim_or_a_person_drops_calls_the_hook(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let told = Told::default();
    bench.node().store.expect_hooks(queue.stored.id).await.expect("hooks are expected");
    let lost = bench.send(&queue, [1]).await[0];
    let holder = bench.holder(&queue);
    holder.lease(1).await;
    bench.advance(Duration::from_secs(60));
    assert_eq!(bench.reclaim().await, 1);
    let ready = bench.send(&queue, [2]).await[0];
    let waiting = bench.send(&queue, [3.delay(Duration::from_secs(3_600))]).await[0];
    let act =
        Act { actor: "test".to_owned(), verb: "cancel".to_owned(), object: "two".to_owned(), reason: None };
    bench.node().store.cancel(vec![ready, waiting], act).await.expect("they are cancelled");

    let worker = bench.node().worker().handle(&queue, |_: Job<u32>| async { Verdict::Ack });
    let worker = Running::start(worker.on_error(&queue, told.hook()));
    told.times(bench, 3).await;
    worker.stop().await;
    let expected = BTreeMap::from([
        (lost, DropReason::LeaseExhausted),
        (ready, DropReason::Cancelled),
        (waiting, DropReason::Cancelled),
    ]);
    assert_eq!(told.reasons(), expected);
    none_pending(bench, &queue).await;
}

/// A hook that fails or panics changes nothing about its message, holds nothing up, and is not called again.
pub async fn a_failing_hook_brings_nothing_back(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let hook = move |dropped: Dropped<u32>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_ne!(dropped.message.body(), Some(&1), "boom");
            Err::<(), _>("the mail server is away")
        }
    };
    let handler = |job: Job<u32>| async move { if job.body < 2 { Err("broken") } else { Ok(()) } };
    let worker = Running::start(bench.node().worker().handle(&queue, handler).on_error(&queue, hook));
    bench.send(&queue, 0..6).await;
    bench.drained(&queue, 4).await;
    let failed =
        async || (bench.node().pond.counts().of(Counter::OnErrorFailed, queue.name()) == 2).then_some(());
    bench.eventually("two hooks have failed", failed).await;
    worker.stop().await;
    assert_eq!(bench.counts(&queue).await.dead, 2);
    none_pending(bench, &queue).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// The process dies while its hook runs: another one calls it again.
pub async fn a_hook_whose_process_dies_is_called_again(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let (gate, began) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
    let (closed, counted) = (Arc::clone(&gate), Arc::clone(&began));
    let hangs = move |_: Dropped<u32>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let closed = Arc::clone(&closed);
        async move { closed.pass().await }
    };
    let fails = |_: Job<u32>| async { Err::<(), _>("broken") };
    let second = bench.second_node().await;
    let dying = Running::start(second.worker().handle(&queue, fails).on_error(&queue, hangs));
    let id = bench.send(&queue, [1]).await[0];
    let hung = async || (began.load(Ordering::SeqCst) == 1).then_some(());
    bench.eventually("the hook is called", hung).await;
    // Nothing that it does reaches the store any more.
    second.cut();
    dying.abort();
    gate.open();

    let told = Told::default();
    let worker = bench.node().worker().handle(&queue, fails).on_error(&queue, told.hook());
    let worker = Running::start(worker);
    bench.advance(HOOK_LEASE + Duration::from_secs(1));
    told.times(bench, 1).await;
    worker.stop().await;
    assert_eq!(told.reasons(), BTreeMap::from([(id, DropReason::Exhausted)]));
    none_pending(bench, &queue).await;
}

/// A drop without a hook waits for none; and who has taken one is left alone with it.
pub async fn a_hook_is_pending_for_one_node_at_a_time(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let store = &bench.node().store;
    let holder = bench.holder(&queue);
    let die = Ending::Returned(Verdict::DeadLetter { reason: "no".to_owned() });
    bench.send(&queue, [1]).await;
    assert_eq!(holder.end(&holder.lease(1).await, &die).await, applied());
    store.expect_hooks(queue.stored.id).await.expect("hooks are expected");
    let id = bench.send(&queue, [2]).await[0];
    assert_eq!(holder.end(&holder.lease(1).await, &die).await, applied());

    let take = || TakeHooks { queue: queue.stored.id, lease: HOOK_LEASE, rows_max: 10 };
    let taken = store.take_hooks(take()).await.expect("hooks are taken");
    let facts: Vec<_> = taken
        .iter()
        .map(|pending| {
            (pending.id, pending.reason.as_str(), pending.tries, &pending.body[..], pending.acknowledged)
        })
        .collect();
    assert_eq!(facts, [(id, "refused", 1, &b"2"[..], false)], "the first died before");
    assert!(store.take_hooks(take()).await.expect("hooks are taken").is_empty());
    bench.advance(HOOK_LEASE);
    let again = store.take_hooks(take()).await.expect("hooks are taken");
    assert_eq!(again.iter().map(|pending| pending.tries).collect::<Vec<_>>(), [2]);
    store.finish_hooks(vec![(again[0].number, HookEnd::Done)]).await.expect("it is recorded");
    none_pending(bench, &queue).await;
}

/// Duplicate deliveries: two messages are two drops.
pub async fn two_messages_of_one_send_are_two_drops(bench: &Bench) {
    bench.node().wire().double(true);
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let told = Told::default();
    let fails = |_: Job<u32>| async { Err::<(), _>("broken") };
    let worker = Running::start(bench.node().worker().handle(&queue, fails).on_error(&queue, told.hook()));
    let id = bench.send(&queue, [1]).await[0];
    told.times(bench, 2).await;
    worker.stop().await;
    assert_eq!(told.reasons().len(), 2, "two ids");
    assert!(told.reasons().contains_key(&id));
    none_pending(bench, &queue).await;
}

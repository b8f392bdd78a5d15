//! How a worker ends, and how it outlives its store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond_core::error::ErrorKind;
use millpond_core::message::MessageId;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::Verdict;
use millpond_core::state::State;
use millpond_core::store::Store;
use millpond_engine::job::Job;
use millpond_engine::pond::Pond;
use millpond_engine::queue::Queue;
use millpond_engine::worker::Worker;
use tokio::task::JoinHandle;

use crate::bench::{Bench, Running, SETTINGS, TestQueue};
use crate::contract::delivery::recorded;
use crate::contract::gated_handler;
use crate::gate::Gate;

/// Patience of a worker that is told to stop, where a scenario lets it pass.
const SHORT: Duration = Duration::from_millis(50);

/// C054.
pub async fn c054_a_handler_that_ends_in_time_is_acknowledged(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let handler = gated_handler(&seen, &gate);
    let mut worker = Running::start(bench.node().worker().concurrency(2).handle(&queue, handler));
    let running = bench.send(&queue, [1]).await[0];
    bench.eventually("the handler runs", async || (seen.running() == 1).then_some(())).await;
    worker.signal().await;
    let after = bench.send(&queue, [2, 3, 4]).await;
    gate.open();
    worker.ended().await;

    assert_eq!(bench.look(running).await.state, State::Done);
    assert_eq!(seen.attempts(running), [1]);
    for id in after {
        let view = bench.look(id).await;
        // What was asked for before the signal may be granted after it, by a server that is not near; it is given back.
        assert!(matches!(view.state, State::Ready | State::Scheduled), "it is nobody's: {view:?}");
        assert_eq!(view.attempt, 0, "no attempt is used up after the signal");
        assert_eq!(seen.attempts(id), [0; 0], "nothing starts after the signal");
    }
    let workers = bench.node().store.workers().await.expect("the workers are listed");
    assert!(workers.iter().all(|worker| worker.stopped), "{workers:?}");
}

/// C055.
pub async fn c055_a_handler_that_ignores_its_token_is_put_back(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let (recorder, told) = (Arc::clone(&seen), Arc::new(AtomicBool::new(false)));
    let heard = Arc::clone(&told);
    let handler = move |job: Job<u32>| {
        let (visit, closed, heard) = (recorder.enter(&job), Arc::clone(&gate), Arc::clone(&heard));
        async move {
            job.cancelled().await;
            heard.store(true, Ordering::SeqCst);
            closed.pass().await;
            drop(visit);
            Verdict::Ack
        }
    };
    let worker = second.worker().shutdown_timeout(SHORT).cancel_grace(SHORT).concurrency(1);
    let worker = Running::start(worker.handle(&queue, handler));
    let ids = bench.send(&queue, [1, 2]).await;
    bench.eventually("the handler runs", async || (seen.running() == 1).then_some(())).await;
    worker.stop().await;
    assert!(told.load(Ordering::SeqCst), "it was told to stop first");

    let began = seen.calls()[0].id;
    let view = bench.look(began).await;
    assert_eq!((view.attempt, view.releases), (0, 1), "the attempt is given back");
    let shutdown = ("RECOVER".to_owned(), "shutdown".to_owned());
    assert!(bench.events(began).await.contains(&shutdown), "{:?}", bench.events(began).await);
    // No time has passed: nobody waited for the lease.
    let others = bench.recorder();
    let other = recorded(bench, &queue, &others);
    bench.drained(&queue, 2).await;
    other.stop().await;
    for id in ids {
        assert_eq!(others.attempts(id), [1]);
    }
}

/// C055, in a hurry: a second signal does not wait for the handlers to end by themselves.
pub async fn c055_a_second_signal_tells_handlers_to_stop_at_once(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            job.cancelled().await;
            drop(visit);
            Verdict::Retry { after: None }
        }
    };
    let mut worker = Running::start(bench.node().worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("the handler runs", async || (seen.running() == 1).then_some(())).await;
    worker.signal().await;
    assert!(!worker.has_ended());
    worker.hurry();
    worker.ended().await;
    assert_eq!(bench.look(id).await.state, State::Retrying);
}

/// A worker whose future is dropped ends like one that was killed, with what it can still say: its tasks were
/// aborted, which is a failed attempt (C015), and nothing of it goes on, least of all the renewal of its lease.
pub async fn a_dropped_worker_lets_everything_go(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let users = second.users();
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            std::future::pending::<()>().await;
            drop(visit);
            Verdict::Ack
        }
    };
    let pond = Pond::new(Arc::clone(&second.store));
    let worker = Running::start(Worker::new(&pond).concurrency(2).handle(&queue, handler));
    drop(pond);
    let ids = bench.send(&queue, [1, 2]).await;
    bench.eventually("both handlers run", async || (seen.running() == 2).then_some(())).await;
    worker.abort();
    let left = async || (second.users() == users).then_some(());
    bench.eventually("nothing of the worker is left", left).await;

    let failed = ("RETRY".to_owned(), "error".to_owned());
    for id in ids {
        assert!(bench.events(id).await.contains(&failed), "{:?}", bench.events(id).await);
    }
}

/// What a sender was told about each of its messages.
#[derive(Default)]
struct Told {
    stored: BTreeSet<MessageId>,
    bodies: BTreeSet<u32>,
    /// Not stored, for certain.
    refused: BTreeSet<u32>,
    unknown: BTreeSet<u32>,
}

/// Sends one message after the other until it is told to stop.
fn keep_sending(pond: &Pond, queue: &Queue<u32>, stop: &Arc<AtomicBool>) -> JoinHandle<Told> {
    let (pond, queue, stop) = (pond.clone(), queue.clone(), Arc::clone(stop));
    tokio::spawn(async move {
        let mut told = Told::default();
        for body in 0.. {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            match pond.send(&queue, [body]).await {
                Ok(sent) => {
                    told.stored.insert(sent.messages[0].id);
                    told.bodies.insert(body);
                }
                Err(error) if error.kind() == ErrorKind::Unknown => drop(told.unknown.insert(body)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}: {}", error.causes());
                    told.refused.insert(body);
                }
            }
            tokio::task::yield_now().await;
        }
        told
    })
}

/// Everything that was acknowledged arrives, and nothing that was refused.
async fn is_told_the_truth(bench: &Bench, queue: &TestQueue<u32>, told: Told, delivered: &[u32]) {
    let delivered: BTreeSet<u32> = delivered.iter().copied().collect();
    assert!(told.bodies.is_subset(&delivered), "lost: {:?}", told.bodies.difference(&delivered));
    assert!(told.refused.is_disjoint(&delivered), "refused, and delivered all the same");
    let more: BTreeSet<u32> = delivered.difference(&told.bodies).copied().collect();
    assert!(more.is_subset(&told.unknown), "{more:?} came from nowhere");
    assert_eq!(bench.counts(queue).await.dead, 0);
}

/// C056, a store that others keep from writing for a while: calls wait, nothing is lost.
pub async fn c056_a_store_that_is_held_up_loses_nothing(bench: &Bench) {
    bench.clock().run();
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (seen, stop) = (bench.recorder(), Arc::new(AtomicBool::new(false)));
    let worker = recorded(bench, &queue, &seen);
    let sender = keep_sending(&bench.node().pond, &queue, &stop);
    bench.eventually("messages flow", async || (10 <= seen.count()).then_some(())).await;
    let occupied = bench.occupy();
    let until = Instant::now() + Duration::from_secs(1);
    bench.eventually("the store was held up", async || (until < Instant::now()).then_some(())).await;
    drop(occupied);
    let before = seen.count();
    bench.eventually("messages flow again", async || (before + 10 <= seen.count()).then_some(())).await;
    stop.store(true, Ordering::SeqCst);
    let told = sender.await.expect("the sender ends");
    assert!(told.refused.is_empty() && told.unknown.is_empty(), "every call waited for its turn");
    bench.drained(&queue, told.bodies.len() as u64).await;
    worker.stop().await;
    is_told_the_truth(bench, &queue, told, &seen.bodies()).await;
}

/// C056, a store that is closed and opened again under load.
pub async fn c056_a_restart_under_load_loses_nothing(bench: &Bench) {
    bench.clock().run();
    // What was leased without its worker hearing of it is given back at the next renewal.
    let lease = millpond_core::queue::LEASE_MIN;
    let queue = bench.queue::<u32>(QueueSettings { lease, ..SETTINGS }).await;
    let (seen, stop) = (bench.recorder(), Arc::new(AtomicBool::new(false)));
    let worker = recorded(bench, &queue, &seen);
    let sender = keep_sending(&bench.node().pond, &queue, &stop);
    for _ in 0..3 {
        let before = seen.count();
        bench.eventually("messages flow", async || (before + 10 <= seen.count()).then_some(())).await;
        if !bench.capabilities().survives_restart {
            bench.nobody_else_sees_it().await;
            break;
        }
        let store = bench.node().cut().expect("it was connected");
        store.close().await;
        bench.reconnect(bench.node());
    }
    let before = seen.count();
    bench.eventually("messages flow again", async || (before + 10 <= seen.count()).then_some(())).await;
    stop.store(true, Ordering::SeqCst);
    let told = sender.await.expect("the sender ends");
    bench
        .eventually("all that was acknowledged is delivered", async || {
            let delivered: BTreeSet<u32> = seen.bodies().into_iter().collect();
            let counts = bench.counts(&queue).await;
            let left = counts.ready + counts.leased + counts.scheduled + counts.retrying;
            (told.bodies.is_subset(&delivered) && left == 0).then_some(())
        })
        .await;
    worker.stop().await;
    is_told_the_truth(bench, &queue, told, &seen.bodies()).await;
}

/// C056, a store that was away for longer than a lease: live workers renew before anybody reclaims.
pub async fn c056_live_workers_renew_first_when_the_store_is_back(bench: &Bench) {
    bench.clock().run();
    let lease = millpond_core::queue::LEASE_MIN;
    let queue = bench.queue::<u32>(QueueSettings { lease, ..SETTINGS }).await;
    let second = bench.second_node().await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let mut workers = Vec::new();
    for node in [bench.node(), &second] {
        let (recorder, closed) = (Arc::clone(&seen), Arc::clone(&gate));
        let handler = move |job: Job<u32>| {
            let (visit, closed) = (recorder.enter(&job), Arc::clone(&closed));
            async move {
                closed.pass().await;
                drop(visit);
                Verdict::Ack
            }
        };
        workers.push(Running::start(node.worker().concurrency(2).handle(&queue, handler)));
    }
    let ids = bench.send(&queue, [1, 2, 3, 4]).await;
    bench.eventually("both nodes are busy", async || (seen.running() == 4).then_some(())).await;
    let stores: Vec<Arc<dyn Store>> =
        [bench.node(), &second].map(|node| node.cut().expect("connected")).into();
    let gone = bench.clock().now();
    let over = async || (lease < bench.clock().now().since(gone)).then_some(());
    bench.eventually("every lease is over", over).await;
    for (node, store) in [bench.node(), &second].into_iter().zip(stores) {
        node.connect(store);
    }
    let back = bench.clock().now();
    let renewed = async || (lease < bench.clock().now().since(back)).then_some(());
    bench.eventually("everybody had time to reclaim", renewed).await;
    gate.open();
    bench.drained(&queue, 4).await;
    for worker in workers {
        worker.stop().await;
    }

    assert_eq!((seen.count(), seen.overlapped()), (4, Vec::new()));
    for id in ids {
        let events = bench.events(id).await;
        assert!(events.iter().all(|event| event.0 != "RECOVER"), "{events:?}");
    }
}

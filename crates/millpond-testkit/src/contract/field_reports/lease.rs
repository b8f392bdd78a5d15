//! Claims and leases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::queue::{LEASE_MIN, QueueSettings};
use millpond_core::settle::Verdict;
use millpond_core::store::{Lease, Settled};
use millpond_engine::item::ItemOptions;
use millpond_engine::job::Job;

use super::scaled;
use crate::bench::{Bench, Node, Running, SETTINGS};
use crate::contract::delivery::recorded;
use crate::contract::lease::three_leases_long;
use crate::contract::{applied, gated_handler};
use crate::gate::Gate;
use crate::holder::HOLDER_LEASE;

/// BR-006: a job that was due in six hours was taken for lost each time its lease could have ended, and ran often.
pub async fn br_006_a_delay_longer_than_the_lease_runs_once(bench: &Bench) {
    let lease = Duration::from_secs(30);
    let queue = bench.queue::<u32>(QueueSettings { lease, ..SETTINGS }).await;
    let second = bench.second_node().await;
    bench.send(&queue, (0..10).map(|body| body.delay(Duration::from_secs(6 * 3_600)))).await;
    for _ in 0..359 {
        bench.advance(Duration::from_secs(60));
        assert_eq!(bench.reclaim().await, 0, "nothing that waits is lost");
    }
    assert_eq!(bench.counts(&queue).await.scheduled, 10);
    bench.advance(Duration::from_secs(60));
    let relay = async |node: &Node| node.store.relay(1_000).await.expect("the relay answers").moved;
    let (ours, theirs) = tokio::join!(relay(bench.node()), relay(&second));
    assert_eq!(ours + theirs, 10);

    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 10).await;
    worker.stop().await;
    assert_eq!(seen.bodies().into_iter().collect::<BTreeSet<_>>(), (0..10).collect());
    assert!(seen.count() == 10 && seen.calls().iter().all(|call| call.attempt == 1));
}

/// BR-008: what came due at once was more than one script call could take, and the worker idled for ever.
pub async fn br_008_twenty_thousand_due_at_once_are_moved_in_parts(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let wait = Duration::from_secs(60);
    for batch in 0..20 {
        bench.send(&queue, (batch * 1_000..(batch + 1) * 1_000).map(|body| body.delay(wait))).await;
    }
    bench.advance(wait);
    let (mut moved, mut parts) = (0, 0);
    loop {
        let relayed = bench.node().store.relay(500).await.expect("the relay answers");
        if relayed.moved == 0 {
            break;
        }
        assert!(relayed.moved <= 500, "{} in one part", relayed.moved);
        (moved, parts) = (moved + relayed.moved, parts + 1);
    }
    assert_eq!((moved, parts), (20_000, 40));
    assert_eq!(bench.counts(&queue).await.ready, 20_000);
}

/// BR-008, the other side: twenty thousand messages whose workers are gone at once.
pub async fn br_008_twenty_thousand_lost_at_once_come_back(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    for batch in 0..20 {
        bench.send(&queue, batch * 1_000..(batch + 1) * 1_000).await;
    }
    let lost = bench.holder(&queue);
    let mut claims = 0;
    while let Lease::Claim(_) = lost.try_lease(&[Lane::Main], 100, true).await {
        claims += 1;
    }
    assert_eq!(claims, 200);
    bench.advance(HOLDER_LEASE);
    let (mut back, mut pages) = (0, 0);
    loop {
        match bench.reclaim().await {
            0 => break,
            more => (back, pages) = (back + more, pages + 1),
        }
    }
    assert_eq!(back, 20_000);
    assert!(2 <= pages, "a page is bounded");
    while bench.relay().await != 0 {}
    let next = bench.holder(&queue);
    let mut ids: BTreeSet<MessageId> = BTreeSet::new();
    while let Lease::Claim(claim) = next.try_lease(&[Lane::Suspect], 1_000, true).await {
        ids.extend(claim.messages.iter().map(|message| message.id));
        assert_eq!(next.ack(&claim).await, applied());
    }
    assert_eq!(ids.len(), 20_000);
    assert_eq!(bench.counts(&queue).await.done, 20_000);
}

/// BR-184: the end of a job and the sending of the next one passed each other, and the next one waited for ever
/// though the only slot was free.
pub async fn br_184_a_send_that_races_with_the_end_of_a_job_is_not_forgotten(bench: &Bench) {
    const ROUNDS: u32 = 200;
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let seen = bench.recorder();
    let mut workers = Vec::new();
    for node in [bench.node(), &second] {
        let (pond, next, recorder) = (node.pond.clone(), (*queue).clone(), Arc::clone(&seen));
        // The last act of each job is to send the next one, so that its end and the send always meet.
        let handler = move |job: Job<u32>| {
            let (pond, next, visit) = (pond.clone(), next.clone(), recorder.enter(&job));
            async move {
                if job.body < ROUNDS {
                    pond.send(&next, [job.body + 1]).await.map_err(|error| error.causes())?;
                }
                drop(visit);
                Ok::<(), String>(())
            }
        };
        workers.push(Running::start(node.worker().concurrency(1).handle(&queue, handler)));
    }
    bench.send(&queue, [1]).await;
    bench.drained(&queue, u64::from(ROUNDS)).await;
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(seen.bodies().into_iter().collect::<BTreeSet<_>>(), (1..=ROUNDS).collect());
    assert_eq!((seen.count(), seen.overlapped()), (ROUNDS as usize, Vec::new()));
}

/// BR-195: a slow worker whose lock was gone completed the job all the same, beside the worker that had it now.
pub async fn br_195_of_two_completions_one_is_accepted(bench: &Bench) {
    bench.clock().run();
    let queue = bench.queue::<u32>(QueueSettings { lease: LEASE_MIN, ..SETTINGS }).await;
    let slow = bench.second_node().await;
    let (late, seen, gate) = (bench.recorder(), bench.recorder(), Arc::new(Gate::default()));
    let (recorder, closed) = (Arc::clone(&late), Arc::clone(&gate));
    let handler = move |job: Job<u32>| {
        let (visit, closed) = (recorder.enter(&job), Arc::clone(&closed));
        async move {
            closed.pass().await;
            drop(visit);
            Verdict::Ack
        }
    };
    let first = Running::start(slow.worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("the slow one works on it", async || (late.running() == 1).then_some(())).await;
    // Its renewals reach nobody, and it notices nothing.
    let store = slow.cut().expect("it was connected");
    let other = recorded(bench, &queue, &seen);
    bench.drained(&queue, 1).await;
    slow.connect(store);
    gate.open();
    bench.eventually("the slow one has ended too", async || (late.running() == 0).then_some(())).await;
    first.stop().await;
    other.stop().await;

    assert_eq!((late.attempts(id), seen.attempts(id)), (vec![1], vec![2]));
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.done, counts.dead, counts.retrying, counts.leased), (1, 0, 0, 0));
}

/// BR-196: the process that rescued lost jobs died while it did, and nobody rescued what it had in hand.
pub async fn br_196_who_dies_while_it_rescues_is_rescued_by_others(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let ids = bench.send(&queue, 0..20).await;
    let lost = bench.holder(&queue);
    for _ in 0..4 {
        lost.lease(5).await;
    }
    bench.advance(HOLDER_LEASE);
    // It takes everything over, and is gone before it has settled anything; so is the second one.
    assert_eq!(bench.take_over_on(&second).await.len(), 4);
    assert!(bench.take_over().await.is_empty(), "they are taken once");
    bench.advance(Duration::from_secs(10));
    assert_eq!(bench.take_over_on(&second).await.len(), 4);
    bench.advance(Duration::from_secs(10));
    assert_eq!(bench.reclaim().await, 20);
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 20).await;
    worker.stop().await;
    let called: BTreeSet<MessageId> = seen.calls().into_iter().map(|call| call.id).collect();
    assert_eq!((seen.count(), called), (20, ids.into_iter().collect()));
    assert!(seen.calls().iter().all(|call| call.attempt == 1), "the deaths of rescuers charge nobody");
}

/// BR-197: jobs that hung until their lease was over went back to the head of the queue, and nothing else ever ran.
pub async fn br_197_jobs_that_hang_starve_nobody_and_die(bench: &Bench) {
    let (limit, grace) = (Duration::from_millis(100), Duration::from_millis(50));
    let backoff = millpond_core::backoff::Backoff::fixed(Duration::ZERO);
    let settings = QueueSettings { attempts_max: 3, backoff, timeout: Some(limit), ..SETTINGS };
    let queue = bench.queue::<u32>(settings).await;
    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            if job.body < 4 {
                std::future::pending::<()>().await;
            }
            drop(visit);
            Verdict::Ack
        }
    };
    // Twice as many as there are slots, and they come back at once, again and again: the good ones run in between.
    let hang = bench.send(&queue, (0..4).map(|body| body.attempts_max(10_000))).await;
    let good = bench.send(&queue, 4..14).await;
    let worker = bench.node().worker().concurrency(2).cancel_grace(grace).handle(&queue, handler);
    let worker = Running::start(worker);
    let all_good = async || (bench.counts(&queue).await.done == 10).then_some(());
    bench.eventually("the good ones are done", all_good).await;
    assert!(good.iter().all(|id| seen.attempts(*id) == [1]));
    assert_eq!(bench.counts(&queue).await.dead, 0, "the others hang still");

    let dying = bench.send(&queue, 0..4).await;
    let dead = async || (bench.counts(&queue).await.dead == 4).then_some(());
    bench.eventually("who may hang three times is dead after that", dead).await;
    worker.stop().await;
    for id in dying {
        assert_eq!(
            (seen.attempts(id), bench.look(id).await.reason.as_deref()),
            (vec![1, 2, 3], Some("exhausted"))
        );
    }
    assert!(hang.iter().all(|id| 1 < seen.attempts(*id).len()));
}

/// BR-198: a job that ran longer than the fixed time after which it was thought lost was started a second time.
pub async fn br_198_a_job_three_leases_long_starts_once(bench: &Bench) {
    bench.clock().run();
    let queue = bench.queue::<u32>(QueueSettings { lease: LEASE_MIN, ..SETTINGS }).await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let handler = gated_handler(&seen, &gate);
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    three_leases_long(bench, &queue, &seen, &gate, 3).await;
    worker.stop().await;
}

/// BR-185, at the level of the store: a worker that was stopped past its lease finished the job that another had
/// finished, and gave a slot back that was not its own.
pub async fn br_185_a_stale_worker_finishes_nothing(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (stale, fresh) = (bench.holder(&queue), bench.holder(&queue));
    bench.send(&queue, [1, 2]).await;
    let lost = stale.lease(1).await;
    bench.advance(HOLDER_LEASE);
    assert_eq!(bench.reclaim().await, 1);
    let again = fresh.lease(1).await;
    assert_eq!(again.messages[0].id, lost.messages[0].id);
    for _ in 0..3 {
        assert_eq!(stale.ack(&lost).await, Settled::LeaseLost);
        assert_eq!(bench.counts(&queue).await.leased, 1, "the other one's hold is untouched");
    }
    assert_eq!(fresh.ack(&again).await, applied());
    assert_eq!(stale.ack(&lost).await, Settled::LeaseLost);
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.done, counts.ready, counts.leased), (1, 1, 0));
}

/// BR-201: with eight workers and two senders on one file, calls failed because the database was locked. In full
/// for five minutes.
pub async fn br_201_eight_workers_and_two_senders_never_see_a_locked_store(bench: &Bench) {
    bench.clock().run();
    let (seconds, patience) = scaled(2, 300);
    let queue = bench.queue::<u32>(QueueSettings { lease: Duration::from_secs(3), ..SETTINGS }).await;
    let mut workers = Vec::new();
    let mut nodes = vec![bench.node().clone()];
    for _ in 0..7 {
        nodes.push(bench.second_node().await);
    }
    let seen = bench.recorder();
    for node in &nodes {
        let recorder = Arc::clone(&seen);
        let handler = move |job: Job<u32>| {
            drop(recorder.enter(&job));
            async { Verdict::Ack }
        };
        workers.push(Running::start(node.worker().concurrency(2).handle(&queue, handler)));
    }
    let mut senders = tokio::task::JoinSet::new();
    for node in nodes.into_iter().take(2) {
        let queue = (*queue).clone();
        senders.spawn(async move {
            let (began, mut sent) = (Instant::now(), 0_u64);
            while began.elapsed() < Duration::from_secs(u64::from(seconds)) {
                let told = node.pond.send(&queue, [1]).await;
                assert!(told.is_ok(), "a send failed: {}", told.expect_err("checked").causes());
                sent += 1;
            }
            sent
        });
    }
    let sent: u64 = senders.join_all().await.into_iter().sum();
    let done = async || (bench.counts(&queue).await.done == sent).then_some(());
    bench.eventually_within(patience, "every message is done", done).await;
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!((seen.count() as u64, seen.overlapped()), (sent, Vec::new()));
    let workers = bench.node().store.workers().await.expect("the workers are listed");
    assert!(workers.iter().all(|worker| worker.error.is_none()), "{workers:?}");
}

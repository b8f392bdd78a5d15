//! Leases: who holds a message, and what becomes of it when its holder is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::Code;
use millpond_core::message::{MessageId, Offset};
use millpond_core::pick::Lane;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::{Ending, Settlement, Verdict};
use millpond_core::state::State;
use millpond_core::store::{Begun, Claim, Lease, Settled};
use millpond_core::view::Find;
use millpond_engine::job::Job;
use millpond_engine::reclaim::verdicts;

use crate::bench::{Bench, Running, SETTINGS};
use crate::contract::delivery::recorded;
use crate::contract::retry::own_runtime;
use crate::contract::{applied, gated_handler};
use crate::gate::Gate;
use crate::holder::{HOLDER_LEASE, Holder};

/// The shortest lease that may be declared, for what runs in real time.
const SHORT: Duration = millpond_core::queue::LEASE_MIN;

/// How long a unit of work may be open here.
const UNIT: Duration = Duration::from_secs(5);

/// C027.
pub async fn c027_no_message_has_two_live_leases(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let (all, ours, theirs) = (bench.recorder(), bench.recorder(), bench.recorder());
    let mut workers = Vec::new();
    for (node, own, other) in [(bench.node(), &ours, &theirs), (&second, &theirs, &ours)] {
        let (all, own, other) = (Arc::clone(&all), Arc::clone(own), Arc::clone(other));
        let both = Arc::new(Gate::default());
        let handler = move |job: Job<u32>| {
            let visits = (all.enter(&job), own.enter(&job));
            if other.count() != 0 {
                both.open();
            }
            let other = Arc::clone(&other);
            async move {
                // Neither node may do everything alone.
                while other.count() == 0 {
                    tokio::task::yield_now().await;
                }
                drop(visits);
                Verdict::Ack
            }
        };
        workers.push(Running::start(node.worker().concurrency(4).handle(&queue, handler)));
    }
    let ids = bench.send(&queue, 0..500).await;
    bench.drained(&queue, 500).await;
    for worker in workers {
        worker.stop().await;
    }

    assert_eq!(all.overlapped(), []);
    let called: BTreeSet<MessageId> = all.calls().into_iter().map(|call| call.id).collect();
    assert_eq!((all.count(), called), (500, ids.into_iter().collect()));
    assert!(ours.count() != 0 && theirs.count() != 0, "both nodes worked");
}

/// C028: the node is cut off from its store in the middle of a handler, which is all that others see of a death.
pub async fn c028_a_dead_nodes_message_is_delivered_by_another(bench: &Bench) {
    bench.clock().run();
    let queue = bench.queue::<u32>(QueueSettings { lease: SHORT, ..SETTINGS }).await;
    let dying = bench.second_node().await;
    let (killed, seen) = (bench.recorder(), bench.recorder());
    let recorder = Arc::clone(&killed);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            std::future::pending::<()>().await;
            drop(visit);
            Verdict::Ack
        }
    };
    let first = Running::start(dying.worker().handle(&queue, handler));
    let id = bench.send(&queue, [1]).await[0];
    bench.eventually("the first node works on it", async || (killed.count() == 1).then_some(())).await;
    let dead = dying.cut();
    let died_at = bench.clock().now();
    first.abort();
    let survivor = recorded(bench, &queue, &seen);
    bench.drained(&queue, 1).await;
    survivor.stop().await;

    let calls = seen.calls();
    assert_eq!((calls.len(), calls[0].id, calls[0].attempt), (1, id, 2));
    let after = calls[0].at.since(died_at);
    assert!(after <= SHORT + Duration::from_secs(2), "it took {after:?}");
    drop(dead);
}

/// C029, a handler that waits.
pub async fn c029_a_long_async_handler_keeps_its_message(bench: &Bench) {
    bench.clock().run();
    let queue = bench.queue::<u32>(QueueSettings { lease: SHORT, ..SETTINGS }).await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let handler = gated_handler(&seen, &gate);
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    three_leases_long(bench, &queue, &seen, &gate, 1).await;
    worker.stop().await;
}

/// C029, handlers that block every thread of their runtime.
pub async fn c029_long_blocking_handlers_keep_their_messages(bench: &Bench) {
    bench.clock().run();
    let queue = bench.queue::<u32>(QueueSettings { lease: SHORT, ..SETTINGS }).await;
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    let (recorder, closed) = (Arc::clone(&seen), Arc::clone(&gate));
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        closed.pass_blocking();
        drop(visit);
        async { Verdict::Ack }
    };
    let runtime = own_runtime();
    let worker = bench.node().worker().concurrency(2).handle(&queue, handler);
    let worker = Running::start_on(runtime.handle(), worker);
    three_leases_long(bench, &queue, &seen, &gate, 2).await;
    worker.stop().await;
    runtime.shutdown_background();
}

/// Lets handlers run for three leases beside a node that would take over what was lost.
pub(super) async fn three_leases_long(
    bench: &Bench,
    queue: &crate::bench::TestQueue<u32>,
    seen: &Arc<crate::recorder::Recorder<u32>>,
    gate: &Gate,
    messages: u32,
) {
    let count = messages as usize;
    let ids = bench.send(queue, 0..messages).await;
    bench.eventually("the handlers run", async || (seen.running() == count).then_some(())).await;
    let second = bench.second_node().await;
    let others = bench.recorder();
    let recorder = Arc::clone(&others);
    let handler = move |job: Job<u32>| {
        drop(recorder.enter(&job));
        async { Verdict::Ack }
    };
    let watcher = Running::start(second.worker().handle(queue, handler));
    let began = bench.clock().now();
    let passed = async || (SHORT * 3 < bench.clock().now().since(began)).then_some(());
    bench.eventually("three leases have passed", passed).await;
    gate.open();
    bench.drained(queue, u64::from(messages)).await;
    watcher.stop().await;

    assert_eq!((seen.count(), others.count()), (count, 0), "delivered once each, to nobody else");
    for id in ids {
        let events = bench.events(id).await;
        assert!(events.iter().all(|event| event.0 != "RECOVER"), "{events:?}");
    }
}

/// C030: the message of a suspended worker was done elsewhere.
pub async fn c030_who_wakes_up_late_settles_nothing(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let (suspended, other) = (bench.holder(&queue), bench.holder_on(&second, &queue));
    let id = bench.send(&queue, [1]).await[0];
    let lost = suspended.lease(1).await;
    bench.advance(HOLDER_LEASE);
    assert_eq!(bench.reclaim().await, 1);
    let next = other.lease(1).await;
    assert_eq!((next.messages[0].id, next.messages[0].attempt), (id, 2));
    assert_eq!(other.ack(&next).await, applied());

    let (events, counts) = (bench.events(id).await, bench.counts(&queue).await);
    let late = [
        Ending::Returned(Verdict::Ack),
        Ending::Returned(Verdict::Retry { after: None }),
        Ending::Returned(Verdict::DeadLetter { reason: "late".to_owned() }),
    ];
    for ending in late {
        assert_eq!(suspended.end(&lost, &ending).await, Settled::LeaseLost);
    }
    no_effect_commits(bench, &lost).await;
    assert_eq!(bench.events(id).await, events);
    let after = bench.counts(&queue).await;
    assert_eq!((after.done, after.dead, after.retrying), (counts.done, counts.dead, counts.retrying));
    assert_eq!((after.done, after.dead), (1, 0));
}

/// A unit of work of a lost lease is refused when it is opened, or when it commits.
async fn no_effect_commits(bench: &Bench, lost: &Claim) {
    if !bench.capabilities().effects_once {
        return;
    }
    let refused = match bench.node().store.begin(lost.held, lost.messages[0].offset, UNIT).await {
        Ok(Begun::Open(tx)) => tx.commit().await,
        Ok(Begun::AlreadyDone) => panic!("no effect of it was committed"),
        Err(error) => Err(error),
    };
    assert_eq!(refused.expect_err("nothing is committed").code(), Code::LeaseLost);
}

/// C030, when the message went to another worker and is not done yet: the old token is refused from the moment of
/// the takeover (M4).
pub async fn c030_a_token_is_refused_after_the_takeover(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let slow = bench.holder(&queue);
    bench.send(&queue, [1]).await;
    let lost = slow.lease(1).await;
    bench.advance(HOLDER_LEASE);
    let taken = bench.take_over().await;
    assert_eq!((taken.len(), taken[0].old_token), (1, lost.held.token));
    assert_ne!(taken[0].held.token, lost.held.token);

    assert_eq!(slow.ack(&lost).await, Settled::LeaseLost);
    no_effect_commits(bench, &lost).await;
    let unsettled = bench.node().store.unsettled(lost.held).await.expect("it is answered");
    assert!(unsettled.is_empty(), "the old holder holds nothing");
    assert!(slow.renew().await.claims.is_empty(), "a renewal does not bring it back");
    assert!(bench.take_over().await.is_empty(), "it is not taken twice");
}

/// Two nodes that reclaim at once take each claim once, and each message comes back once.
pub async fn two_reclaims_at_once_take_each_claim_once(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let ids = bench.send(&queue, 0..20).await;
    let lost = bench.holder(&queue);
    for _ in 0..10 {
        assert_eq!(lost.lease(2).await.messages.len(), 2);
    }
    bench.advance(HOLDER_LEASE);
    let (ours, theirs) = tokio::join!(bench.take_over(), bench.take_over_on(&second));
    assert_eq!(ours.len() + theirs.len(), 10, "{} and {} claims", ours.len(), theirs.len());

    let now = bench.clock().now();
    for (node, taken) in [(bench.node(), ours), (&second, theirs)] {
        let claims: Vec<_> = taken.iter().map(|claim| verdicts(claim, now)).collect();
        let answers = node.store.settle(claims).await.expect("settlements are answered");
        assert!(answers.iter().all(|answer| *answer == applied()), "{answers:?}");
    }
    assert_eq!(bench.relay().await, 20);
    let mut back = Vec::new();
    let next = bench.holder(&queue);
    while let Lease::Claim(claim) = next.try_lease(&[Lane::Suspect], 100, true).await {
        back.extend(claim.messages.iter().map(|message| message.id));
    }
    back.sort_unstable();
    assert_eq!(back, ids);
}

/// A worker that renews keeps its messages, whatever it does.
pub async fn a_renewed_lease_is_not_taken(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    bench.send(&queue, [1]).await;
    let claim = worker.lease(1).await;
    for _ in 0..5 {
        bench.advance(HOLDER_LEASE - Duration::from_millis(1));
        assert!(bench.take_over().await.is_empty());
        assert_eq!(worker.renew().await.claims, [claim.held]);
    }
    assert_eq!(worker.ack(&claim).await, applied());
}

/// A worker that stops leaves its messages to others at once.
pub async fn an_ended_worker_is_reclaimed_at_once(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    let id = bench.send(&queue, [1]).await[0];
    worker.lease(1).await;
    worker.leave().await;
    assert_eq!(bench.reclaim().await, 1);
    assert_eq!(bench.holder(&queue).lease(1).await.messages[0].id, id);
}

/// C031, alone.
pub async fn c031_a_lease_lost_alone_spends_the_last_attempt(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let id = bench.send(&queue, [1]).await[0];
    bench.holder(&queue).lease(1).await;
    bench.advance(HOLDER_LEASE);
    assert_eq!(bench.reclaim().await, 1);
    let dead = bench.dead(&queue).await;
    assert_eq!((dead.len(), dead[0].id, dead[0].reason.as_str()), (1, id, "lease-exhausted"));
}

/// C031, in company.
pub async fn c031_leases_lost_in_company_are_not_charged(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let ids = bench.send(&queue, 0..20).await;
    let worker = bench.holder(&queue);
    // Company is what the worker had in hand altogether, not in one claim.
    assert_eq!(worker.lease(15).await.messages.len() + worker.lease(15).await.messages.len(), 20);
    bench.advance(HOLDER_LEASE);
    assert_eq!(bench.reclaim().await, 20);
    assert!(bench.dead(&queue).await.is_empty());
    for id in ids {
        let view = bench.look(id).await;
        assert_eq!((view.state, view.attempt, view.releases, view.suspect), (State::Ready, 0, 1, 8));
    }

    let next = bench.holder(&queue);
    assert!(matches!(next.try_lease(&[Lane::Return, Lane::Main], 100, true).await, Lease::Empty));
    let Lease::Claim(group) = next.try_lease(&[Lane::Suspect], 100, false).await else {
        panic!("a group of suspects is ready");
    };
    let seen: Vec<_> = group.messages.iter().map(|message| (message.attempt, message.suspect)).collect();
    assert_eq!(seen, [(1, 8); 8], "one group of at most 8, in their first attempt still");
}

/// A body that kills its worker is singled out by at most four deaths and charged until its budget is spent; its
/// neighbours pay nothing (M5).
pub async fn suspects_are_bisected_until_the_killer_is_alone(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 2, ..SETTINGS }).await;
    let ids = bench.send(&queue, 0..600).await;
    let killer = ids[77];
    let (mut in_company, mut alone) = (Vec::new(), 0);
    loop {
        let worker = bench.holder(&queue);
        let lanes = [Lane::Suspect, Lane::Return, Lane::Main];
        let claim = match worker.try_lease(&lanes, 1_000, true).await {
            Lease::Claim(claim) => claim,
            _ => break,
        };
        if !claim.messages.iter().any(|message| message.id == killer) {
            assert!(claim.messages.iter().all(|message| message.attempt == 1), "a neighbour was charged");
            assert_eq!(worker.ack(&claim).await, applied());
            continue;
        }
        match claim.messages.len() {
            1 => alone += 1,
            company => in_company.push(company),
        }
        bench.advance(HOLDER_LEASE);
        bench.reclaim().await;
    }

    assert_eq!((in_company, alone), (vec![600, 512, 64, 8], 2));
    let dead = bench.dead(&queue).await;
    assert_eq!((dead.len(), dead[0].id, dead[0].reason.as_str()), (1, killer, "lease-exhausted"));
    assert_eq!(bench.counts(&queue).await.done, 599);
}

/// The same through an engine that works on what is left: a single suspect waits for empty hands, and every
/// other message is delivered.
pub async fn a_worker_takes_a_single_suspect_with_empty_hands(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let ids = bench.send(&queue, 0..3).await;
    bench.holder(&queue).lease(3).await;
    bench.advance(HOLDER_LEASE);
    assert_eq!(bench.reclaim().await, 3);
    let holder = bench.holder(&queue);
    let answer = holder.try_lease(&[Lane::Suspect], 10, false).await;
    assert!(matches!(answer, Lease::EmptyHandsFirst), "{answer:?}");

    let (seen, suspects) = (bench.recorder(), ids.iter().copied().collect::<BTreeSet<_>>());
    let alone = bench.recorder();
    let (recorder, only) = (Arc::clone(&seen), Arc::clone(&alone));
    let handler = move |job: Job<u32>| {
        let visits = (recorder.enter(&job), suspects.contains(&job.id).then(|| only.enter(&job)));
        let (recorder, is_suspect) = (Arc::clone(&recorder), visits.1.is_some());
        async move {
            tokio::task::yield_now().await;
            let company = recorder.running();
            drop(visits);
            if is_suspect && company != 1 { Err(format!("{company} at once")) } else { Ok(()) }
        }
    };
    bench.send(&queue, 3..50).await;
    let worker = Running::start(bench.node().worker().concurrency(4).handle(&queue, handler));
    bench.drained(&queue, 50).await;
    worker.stop().await;
    assert_eq!((seen.count(), alone.count(), alone.peak()), (50, 3, 1), "no attempt failed");
}

/// C032.
pub async fn c032_a_backlog_survives_a_restart_of_everything(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let later = millpond_engine::item::ItemOptions::delay(1_000_u32, Duration::from_secs(60));
    let mut ids = bench.send(&queue, 0..50).await;
    ids.extend(bench.send(&queue, [later]).await);
    let worker = bench.holder(&queue);
    let claim = worker.lease(10).await;
    assert_eq!(worker.ack(&claim).await, applied());
    let Some(node) = bench.restart().await else { return };

    let seen = bench.recorder();
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        drop(recorder.enter(&job));
        async { Verdict::Ack }
    };
    let worker = Running::start(node.worker().handle(&queue, handler));
    bench.eventually("the ready ones are delivered", async || (40 <= seen.count()).then_some(())).await;
    bench.advance(Duration::from_secs(60));
    bench.eventually("the delayed one is delivered", async || (41 <= seen.count()).then_some(())).await;
    worker.stop().await;
    let mut bodies = seen.bodies();
    bodies.sort_unstable();
    assert_eq!(bodies, (10..50).chain([1_000]).collect::<Vec<_>>());
    assert!(seen.calls().iter().all(|call| call.attempt == 1));
    let dead = node.store.dead_letters(Find { rows_max: 1, ..Find::default() }).await;
    assert_eq!(dead.expect("they are listed").items.len(), 0);
}

/// The highest claim is the cursor: it stays when everything is settled, so that nothing is leased twice (R7).
pub async fn the_highest_claim_is_kept_as_the_cursor(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let (first, second) = (bench.holder(&queue), bench.holder(&queue));
    bench.send(&queue, 0..4).await;
    let (lower, upper) = (first.lease(2).await, second.lease(2).await);
    assert_eq!(second.ack(&upper).await, applied());
    assert!(first.finds_nothing().await, "the settled one above is passed");
    assert_eq!(first.ack(&lower).await, applied());
    for _ in 0..2 {
        assert!(first.finds_nothing().await, "nothing is leased twice");
        bench.node().store.retain("bench".to_owned(), 1_000).await.expect("it cleans up");
        bench.advance(Duration::from_secs(61));
    }
    bench.send(&queue, [4]).await;
    let next = first.lease(10).await;
    let offsets: Vec<Offset> = next.messages.iter().map(|message| message.offset).collect();
    assert_eq!(offsets, [Offset(4)]);
}

/// What has a committed effect is done, whatever is asked for it (R15), also by a reclaim (R9).
pub async fn a_committed_effect_is_done_whatever_the_verdict(bench: &Bench) {
    if !bench.capabilities().effects_once {
        return;
    }
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    bench.send(&queue, 0..3).await;
    let claim = worker.lease(3).await;
    for message in &claim.messages[..2] {
        commit_effect(bench, &claim, message.offset).await;
    }
    let retry = Ending::Returned(Verdict::Retry { after: None });
    let first = &claim.messages[0];
    let asked = worker.decide(&claim, first, &retry);
    let answer = worker.settle(&claim, vec![(first.offset, asked)]).await;
    assert_eq!(answer, Settled::Applied { done_anyway: vec![first.offset] });

    bench.advance(HOLDER_LEASE);
    assert_eq!(bench.reclaim().await, 1, "only the third one was lost");
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.done, counts.dead), (2, 0));
    let next = bench.holder(&queue).lease(10).await;
    let again: Vec<u32> = next.messages.iter().map(|message| message.attempt).collect();
    assert_eq!(again, [2]);
    begin_says_already_done(bench, &queue).await;
}

async fn commit_effect(bench: &Bench, claim: &Claim, offset: Offset) {
    match bench.node().store.begin(claim.held, offset, UNIT).await.expect("the lease is held") {
        Begun::Open(tx) => tx.commit().await.expect("the lease is held still"),
        Begun::AlreadyDone => panic!("it has no effect yet"),
    }
}

/// A handler that committed and died before its verdict finds that out when it begins again.
async fn begin_says_already_done(bench: &Bench, queue: &crate::bench::TestQueue<u32>) {
    let worker: Holder = bench.holder(queue);
    bench.send(queue, [9]).await;
    let claim = worker.lease(1).await;
    let offset = claim.messages[0].offset;
    commit_effect(bench, &claim, offset).await;
    let again = bench.node().store.begin(claim.held, offset, UNIT).await;
    assert!(matches!(again, Ok(Begun::AlreadyDone)), "{again:?}");
    assert_eq!(worker.settle(&claim, vec![(offset, Settlement::Done)]).await, applied());
}

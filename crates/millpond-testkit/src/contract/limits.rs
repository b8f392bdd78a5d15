//! Limits of a queue that hold over all nodes: one message at a time, so many at once, so many in a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millpond_core::error::Code;
use millpond_core::limit::{Limit, Rate};
use millpond_core::pick::Lane;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::{Settlement, Verdict};
use millpond_core::store::{Act, BoxFuture, Claim, Lease};
use millpond_engine::job::Job;
use serde_json::{Value, json};

use crate::bench::{Bench, Node, Running, SETTINGS, TestQueue};
use crate::contract::{applied, gated_handler};
use crate::gate::Gate;
use crate::holder::{HOLDER_LEASE, Holder};
use crate::recorder::Recorder;

const LANES: [Lane; 3] = [Lane::Return, Lane::Suspect, Lane::Main];

const EXCLUSIVE: QueueSettings = QueueSettings { exclusive: true, ..SETTINGS };

const fn at_once(messages: u32) -> QueueSettings {
    QueueSettings { concurrency: Some(messages), ..SETTINGS }
}

/// What a holder gets of any lane; an error is the limit that leaves no room, and for how long.
async fn ask(holder: &Holder, messages_max: usize) -> Result<Claim, (Limit, Option<Duration>)> {
    match holder.try_lease(&LANES, messages_max, true).await {
        Lease::Claim(claim) => Ok(claim),
        Lease::Limited { limit, wait } => Err((limit, wait)),
        other => panic!("something is ready: {other:?}"),
    }
}

async fn no_room(holder: &Holder, limit: Limit) {
    let answer = ask(holder, 1).await.map(|claim| claim.messages.len());
    assert_eq!(answer, Err((limit, None)));
}

async fn set(node: &Node, queue: &TestQueue<u32>, setting: &str, value: Option<Value>) -> QueueSettings {
    let act =
        Act { actor: "ana".into(), verb: "queue set".into(), object: queue.name().into(), reason: None };
    let changed = node.store.change(queue.name().to_owned(), vec![(setting.to_owned(), value)], act).await;
    changed.expect("the setting is changed").settings
}

/// A handler that lets others run for a while and then acknowledges.
fn yielding(
    seen: &Arc<Recorder<u32>>,
) -> impl Fn(Job<u32>) -> BoxFuture<'static, Verdict> + Send + Sync + use<> {
    let recorder = Arc::clone(seen);
    move |job| {
        let visit = recorder.enter(&job);
        Box::pin(async move {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            drop(visit);
            Verdict::Ack
        })
    }
}

/// Nothing was delivered twice or charged, and nothing given back but what `lost` messages were by a death in company.
fn once_each(seen: &Recorder<u32>, messages: usize, lost: usize) {
    let calls = seen.calls();
    let ids: BTreeSet<_> = calls.iter().map(|call| call.id).collect();
    assert_eq!((calls.len(), ids.len()), (messages, messages));
    let spent: Vec<_> = calls.iter().filter(|call| (call.attempt, call.releases) != (1, 0)).collect();
    assert_eq!(spent.len(), lost, "waiting for room used something up: {spent:?}");
    assert!(spent.iter().all(|call| (call.attempt, call.releases) == (1, 1)), "{spent:?}");
}

/// C024. An exclusive queue runs one message after the other over two nodes with four slots each.
pub async fn c024_an_exclusive_queue_runs_one_after_the_other_over_two_nodes(bench: &Bench) {
    let queue = bench.queue::<u32>(EXCLUSIVE).await;
    let (second, seen) = (bench.second_node().await, bench.recorder());
    bench.send(&queue, 0..20).await;
    let start = |node: &Node| Running::start(node.worker().concurrency(4).handle(&queue, yielding(&seen)));
    let workers = [start(bench.node()), start(&second)];
    bench.drained(&queue, 20).await;
    for worker in workers {
        worker.stop().await;
    }
    once_each(&seen, 20, 0);
    assert_eq!(seen.peak(), 1);
}

/// C025. A queue beside an exclusive one that is busy goes on as if it were alone, in the same workers.
pub async fn c025_an_exclusive_queue_holds_no_other_up(bench: &Bench) {
    let (queue, other) = (bench.queue::<u32>(EXCLUSIVE).await, bench.queue::<u32>(SETTINGS).await);
    let (seen, beside, gate) = (bench.recorder(), bench.recorder(), Arc::new(Gate::default()));
    bench.send(&queue, 0..3).await;
    let worker = bench.node().worker().concurrency(4).handle(&queue, gated_handler(&seen, &gate));
    let worker = Running::start(worker.handle(&other, yielding(&beside)));
    bench.eventually("one runs", async || (seen.running() == 1).then_some(())).await;
    bench.send(&other, 0..50).await;
    bench.drained(&other, 50).await;
    assert_eq!((seen.count(), bench.counts(&queue).await.ready), (1, 2));
    gate.open();
    bench.drained(&queue, 3).await;
    worker.stop().await;
    once_each(&seen, 3, 0);
    once_each(&beside, 50, 0);
}

/// C026. Settings that exclude each other are refused at the declaration, by the names of both.
pub async fn c026_exclusive_and_a_limit_on_how_many_are_refused_together(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    for (other, settings) in [
        ("concurrency_per_node", QueueSettings { concurrency_per_node: Some(2), ..EXCLUSIVE }),
        ("concurrency", QueueSettings { concurrency: Some(2), ..EXCLUSIVE }),
    ] {
        let declared = (*queue).clone().with_settings(settings);
        let refused = bench.node().pond.declare(&declared).await.expect_err("it is refused");
        assert_eq!(refused.code(), Code::InvalidConfig);
        assert!(refused.causes().contains(&format!("exclusive and {other}")), "{}", refused.causes());
    }
}

/// A declaration raises `exclusive` and never lowers it; an operator does, and then no declaration raises it again.
pub async fn exclusive_is_raised_by_declarations_and_lowered_by_an_operator(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let second = bench.second_node().await;
    let declare = async |node: &Node, settings| {
        let declared = (*queue).clone().with_settings(settings);
        node.pond.declare(&declared).await.map(|stored| stored.settings)
    };
    let is = |settings: millpond_core::Result<QueueSettings>| settings.expect("it is declared").exclusive;
    assert!(is(declare(&second, EXCLUSIVE).await));
    let earlier = QueueSettings { attempts_max: 9, ..SETTINGS };
    let kept = declare(bench.node(), earlier).await.expect("it is declared");
    assert_eq!((kept.exclusive, kept.attempts_max), (true, 9));
    assert!(bench.counts(&queue).await.settings.exclusive);
    // Beside what is stored it cannot work, and says what would.
    let refused = declare(bench.node(), at_once(3)).await.expect_err("it is refused");
    assert_eq!(refused.code(), Code::InvalidConfig);
    assert!(refused.causes().contains("exclusive=false"), "{}", refused.causes());

    bench.send(&queue, 0..4).await;
    let holders = [bench.holder(&queue), bench.holder_on(&second, &queue)];
    assert_eq!(ask(&holders[0], 1).await.expect("there is room").messages.len(), 1);
    no_room(&holders[1], Limit::Exclusive).await;
    assert!(!set(&second, &queue, "exclusive", Some(json!(false))).await.exclusive);
    assert_eq!(ask(&holders[1], 1).await.expect("there is no limit any more").messages.len(), 1);
    assert!(!is(declare(bench.node(), EXCLUSIVE).await), "what is set wins");
    assert!(declare(bench.node(), at_once(3)).await.is_ok());
    assert_eq!(ask(&holders[1], 9).await.expect("two of three are in hand").messages.len(), 1);
    no_room(&holders[1], Limit::Concurrency).await;
}

/// What is in hand counts until it is settled, over two nodes and all lanes; what a dead worker had counts until
/// somebody has taken it over and settled it, and then its room is there again.
pub async fn room_is_what_is_not_in_hand(bench: &Bench) {
    let queue = bench.queue::<u32>(at_once(5)).await;
    let second = bench.second_node().await;
    let (first, other) = (bench.holder(&queue), bench.holder_on(&second, &queue));
    assert!(first.finds_nothing().await, "where nothing is ready, no limit is met");
    bench.send(&queue, 0..10).await;
    let claim = ask(&first, 100).await.expect("there is room");
    assert_eq!(claim.messages.len(), 5);
    no_room(&other, Limit::Concurrency).await;

    let done = claim.messages[..2].iter().map(|message| (message.offset, Settlement::Done)).collect();
    assert_eq!(first.settle(&claim, done).await, applied());
    let theirs = ask(&other, 100).await.expect("two were settled");
    assert_eq!(theirs.messages.len(), 2);
    no_room(&first, Limit::Concurrency).await;
    assert_eq!(other.ack(&theirs).await, applied());

    // The first one dies with three in hand. Its lease is over, and nobody took them over.
    bench.advance(HOLDER_LEASE);
    let theirs = ask(&other, 100).await.expect("two were settled");
    assert_eq!(theirs.messages.len(), 2);
    no_room(&other, Limit::Concurrency).await;
    assert_eq!(bench.reclaim_on(&second).await, 3);
    let mut claims = vec![theirs];
    for _ in 0..3 {
        let back = ask(&other, 100).await.expect("what the dead one had is in nobody's hands");
        let [message] = &back.messages[..] else { panic!("a suspect comes alone: {:?}", back.messages) };
        assert_eq!((message.attempt, message.suspect), (1, 1), "it counts like the others");
        claims.push(back);
    }
    no_room(&other, Limit::Concurrency).await;
    for claim in claims {
        assert_eq!(other.ack(&claim).await, applied());
    }
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.done, counts.ready), (9, 1));
}

/// Workers of two nodes that lease and settle at once never have more in hand than the limit says.
pub async fn racing_leases_never_pass_the_limit(bench: &Bench) {
    const MESSAGES: u64 = 60;
    let (limited, exclusive) = (bench.queue::<u32>(at_once(5)).await, bench.queue::<u32>(EXCLUSIVE).await);
    let second = bench.second_node().await;
    for (queue, most) in [(&limited, 5), (&exclusive, 2)] {
        bench.send(queue, 0..u32::try_from(MESSAGES).expect("it is small")).await;
        let (in_hand, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut racers = tokio::task::JoinSet::new();
        for number in 0..6 {
            let node = if number % 2 == 0 { bench.node() } else { &second };
            let holder = bench.holder_on(node, queue);
            let (in_hand, peak) = (Arc::clone(&in_hand), Arc::clone(&peak));
            racers.spawn(async move {
                loop {
                    let claim = match holder.try_lease(&LANES, 2, true).await {
                        Lease::Claim(claim) => claim,
                        Lease::Limited { .. } => continue,
                        Lease::Empty => return,
                        other => panic!("{other:?}"),
                    };
                    let count = claim.messages.len();
                    peak.fetch_max(in_hand.fetch_add(count, Ordering::SeqCst) + count, Ordering::SeqCst);
                    // Long enough in hand for another one's lease to be answered.
                    for _ in 0..5 {
                        holder.renew().await;
                    }
                    in_hand.fetch_sub(count, Ordering::SeqCst);
                    assert_eq!(holder.ack(&claim).await, applied());
                }
            });
        }
        while let Some(ended) = racers.join_next().await {
            ended.expect("a racer ends well");
        }
        assert_eq!(bench.counts(queue).await.done, MESSAGES);
        let peak = peak.load(Ordering::SeqCst);
        assert!((1..=most).contains(&peak), "{peak} in hand, at most {most} may be");
    }
}

/// Over three nodes never more run than the queue says, all of them do, and waiting costs nothing. What a dead worker
/// had in hand takes room until it is taken over.
pub async fn never_more_run_than_the_queue_says(bench: &Bench) {
    let queue = bench.queue::<u32>(at_once(3)).await;
    let nodes = [bench.node().clone(), bench.second_node().await, bench.second_node().await];
    let (seen, gate) = (bench.recorder(), Arc::new(Gate::default()));
    bench.send(&queue, 0..40).await;
    let dead = bench.holder(&queue);
    assert_eq!(ask(&dead, 2).await.expect("there is room").messages.len(), 2);
    let start = |node: &Node| {
        Running::start(node.worker().concurrency(4).handle(&queue, gated_handler(&seen, &gate)))
    };
    let workers = nodes.each_ref().map(start);
    bench.eventually("one runs", async || (seen.running() == 1).then_some(())).await;
    bench.advance(HOLDER_LEASE);
    bench.reclaim().await;
    bench.eventually("three run", async || (seen.running() == 3).then_some(())).await;
    assert_eq!(bench.counts(&queue).await.leased, 3);
    gate.open();
    bench.drained(&queue, 40).await;
    for worker in workers {
        worker.stop().await;
    }
    once_each(&seen, 40, 2);
    assert_eq!(seen.peak(), 3);
}

/// A worker that does not say that it handles its messages one after the other gets one of an exclusive queue.
pub async fn an_exclusive_queue_gives_one_to_who_may_run_more(bench: &Bench) {
    let queue = bench.queue::<u32>(EXCLUSIVE).await;
    bench.send(&queue, 0..6).await;
    let (alone, at_once) = (bench.holder(&queue), bench.holder(&queue).at_once());
    let claim = ask(&at_once, 5).await.expect("there is room");
    assert_eq!(claim.messages.len(), 1);
    no_room(&alone, Limit::Exclusive).await;
    assert_eq!(at_once.ack(&claim).await, applied());
    let claim = ask(&alone, 4).await.expect("there is room");
    assert_eq!(claim.messages.len(), 4);
    no_room(&at_once, Limit::Exclusive).await;
    assert_eq!(alone.ack(&claim).await, applied());
}

/// What is cancelled before its turn is in nobody's hands: it takes no room, and costs no rate.
pub async fn what_was_cancelled_takes_no_room(bench: &Bench) {
    let rate = Some(Rate { count: 2, period: Duration::from_secs(60) });
    let queue = bench.queue::<u32>(QueueSettings { rate, ..at_once(2) }).await;
    let ids = bench.send(&queue, 0..5).await;
    let act = Act { actor: "ana".into(), verb: "message cancel".into(), object: "two".into(), reason: None };
    bench.node().store.cancel(ids[..2].to_vec(), act).await.expect("they are cancelled");
    let holder = bench.holder(&queue);
    let claim = ask(&holder, 100).await.expect("there is room");
    let leased: Vec<_> = claim.messages.iter().map(|message| message.id).collect();
    assert_eq!(leased, ids[2..4]);
    no_room(&holder, Limit::Concurrency).await;
    assert_eq!(holder.ack(&claim).await, applied());
    assert_eq!(ask(&holder, 1).await.err(), Some((Limit::Rate, Some(Duration::from_secs(30)))));
}

/// A rate by the clock of the store, over two nodes: as many at once after a rest as it says, then one after the other,
/// each at its time and not before. It is what an operator says it is.
pub async fn a_rate_gives_so_many_in_a_period(bench: &Bench) {
    let rate = Some(Rate { count: 3, period: Duration::from_secs(60) });
    let queue = bench.queue::<u32>(QueueSettings { rate, ..SETTINGS }).await;
    let second = bench.second_node().await;
    let holders = [bench.holder(&queue), bench.holder_on(&second, &queue)];
    bench.send(&queue, 0..30).await;
    let mut leased = Vec::new();
    let began = bench.clock().now();
    let third = Duration::from_secs(20);
    for holder in [&holders[0], &holders[1], &holders[1], &holders[0]] {
        let claim = ask(holder, 100).await.expect("there is room");
        leased.push((bench.clock().now().since(began).as_secs(), claim.messages.len()));
        assert_eq!(bench.counts(&queue).await.rate_until, Some(bench.clock().now() + third));
        for other in &holders {
            assert_eq!(ask(other, 1).await.err(), Some((Limit::Rate, Some(third))));
        }
        assert_eq!(holder.ack(&claim).await, applied());
        bench.advance(third - Duration::from_micros(1));
        assert_eq!(ask(holder, 1).await.err(), Some((Limit::Rate, Some(Duration::from_micros(1)))));
        bench.advance(Duration::from_micros(1));
    }
    assert_eq!(leased, [(0, 3), (20, 1), (40, 1), (60, 1)]);

    bench.advance(Duration::from_secs(600));
    assert_eq!(bench.counts(&queue).await.rate_until, None);
    let claim = ask(&holders[0], 2).await.expect("there is room");
    assert_eq!(claim.messages.len(), 2);
    assert_eq!(ask(&holders[1], 100).await.expect("there is room").messages.len(), 1, "three after a rest");
    assert!(ask(&holders[1], 1).await.is_err());
    set(&second, &queue, "rate", Some(json!(Rate { count: 5, period: Duration::from_secs(1) }))).await;
    assert_eq!(ask(&holders[1], 1).await.err(), Some((Limit::Rate, Some(Duration::from_millis(200)))));
    set(&second, &queue, "rate", Some(Value::Null)).await;
    assert_eq!(ask(&holders[1], 10).await.expect("there is no limit any more").messages.len(), 10);
}

/// Workers follow a rate: what it allows runs at once, the rest when its time comes, and waiting costs nothing.
pub async fn workers_wait_for_a_rate(bench: &Bench) {
    let rate = Some(Rate { count: 3, period: Duration::from_secs(60) });
    let queue = bench.queue::<u32>(QueueSettings { rate, ..SETTINGS }).await;
    let (second, seen) = (bench.second_node().await, bench.recorder());
    bench.send(&queue, 0..6).await;
    let began = bench.clock().now();
    let start = |node: &Node| Running::start(node.worker().concurrency(4).handle(&queue, yielding(&seen)));
    let workers = [start(bench.node()), start(&second)];
    for ran in 3..6 {
        bench
            .eventually(&format!("{ran} are done"), async || {
                (bench.counts(&queue).await.done == ran).then_some(())
            })
            .await;
        bench.advance(Duration::from_secs(20));
    }
    bench.drained(&queue, 6).await;
    for worker in workers {
        worker.stop().await;
    }
    once_each(&seen, 6, 0);
    let mut at: Vec<u64> = seen.calls().iter().map(|call| call.at.since(began).as_secs()).collect();
    at.sort_unstable();
    assert_eq!(at, [0, 0, 0, 20, 40, 60]);
}

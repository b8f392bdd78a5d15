//! The crash matrix: where a send can break, and what holds then. The number in a name is that of the row in
//! `docs/crash-matrix.md`. Here a node dies by being cut off from its store, at a verb that is held or that loses its
//! answer; what needs the death of a process or of a server is in `crates/millpond/tests/crashes.rs`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_core::buffer::Buffer;
use millpond_core::error::{Code, Error};
use millpond_core::message::MessageId;
use millpond_core::queue::{QueueSettings, Transactional};
use millpond_core::reason::DropReason;
use millpond_core::settle::Verdict;
use millpond_core::store::Stored;
use millpond_engine::counters::Counter;
use millpond_engine::hook::Dropped;
use millpond_engine::item::ItemOptions;
use millpond_engine::job::Job;
use millpond_engine::queue::Queue;

use crate::bench::{Bench, Node, Running, SETTINGS, Sent, TestQueue};
use crate::contract::delivery::recorded;
use crate::faults::Fault;
use crate::gate::Gate;

const REQUIRE: QueueSettings = QueueSettings { transactional: Transactional::Require, ..SETTINGS };
const NEVER: QueueSettings = QueueSettings { transactional: Transactional::Never, ..SETTINGS };

/// As often as anybody asks.
const ALWAYS: usize = 1_000_000;

/// All that is delivered, each once, when so many messages are done and none is left.
async fn delivered(bench: &Bench, queue: &TestQueue<u32>, done: u64) -> BTreeSet<u32> {
    let seen = bench.recorder();
    let worker = recorded(bench, queue, &seen);
    bench.drained(queue, done).await;
    worker.stop().await;
    assert_eq!(seen.count() as u64, done, "each once");
    seen.bodies().into_iter().collect()
}

/// A node that has committed these messages to the outbox and moves none of them.
async fn committed(bench: &Bench, queue: &TestQueue<u32>, bodies: std::ops::Range<u32>) -> Node {
    let node = bench.second_node().await;
    node.wire().faults().order("relay", Fault::Unavailable, ALWAYS);
    let mut unit = node.pond.begin().await.expect("it is begun");
    unit.send(&**queue, bodies).await.expect("they are kept");
    unit.commit().await.expect("it is committed");
    let tried = async || (0 < node.wire().faults().fired("relay")).then_some(());
    bench.eventually("it has tried to move them", tried).await;
    node
}

/// A node dies with a unit of work open: before it has written its messages, and when all is written and the commit is on
/// its way.
pub async fn crash_01_before_the_commit_nothing_is_stored_and_nothing_sent(bench: &Bench) {
    let (queue, fast) = (bench.queue::<u32>(REQUIRE).await, bench.queue::<u32>(NEVER).await);
    let (effects, announced) = (bench.make_effects().await, Arc::new(AtomicUsize::new(0)));
    for verb in ["write", "commit"] {
        let (node, gate) = (bench.second_node().await, Arc::new(Gate::default()));
        node.wire().faults().order(verb, Fault::Held(Arc::clone(&gate)), 1);
        let mut unit = node.pond.begin().await.expect("it is begun");
        let sent = unit.send(&*queue, [1]).await.expect("it is kept");
        let id = sent.messages[0].id;
        effects.add(unit.tx().await.expect("it is open"), id).await.expect("it is written");
        unit.send(&*fast, [2]).await.expect("it is kept");
        let counted = Arc::clone(&announced);
        unit.after_commit(move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<(), Error>(())
        });
        let commit = tokio::spawn(unit.commit());
        gate.arrival().await;
        node.cut();
        gate.open();
        let error = commit.await.expect("it does not panic").expect_err("it is not committed");
        assert_eq!(error.code(), Code::StoreUnavailable, "{verb}: {error:?}");
        assert_eq!(bench.node().pond.find(id).await.expect("it answers").map(|found| found.id), None);
    }
    assert_eq!(bench.effect_counts(&*effects).await, (0, 0));
    assert_eq!(announced.load(Ordering::SeqCst), 0);
    for queue in [&queue, &fast] {
        let counts = bench.counts(queue).await;
        assert_eq!((counts.sent, counts.scheduled, counts.ready), (0, 0, 0));
    }
}

/// The node that has committed dies before it has moved anything: another one finds it by its poll.
pub async fn crash_02_after_the_commit_any_node_moves_it(bench: &Bench) {
    let queue = bench.queue::<u32>(REQUIRE).await;
    let node = committed(bench, &queue, 1..3).await;
    node.cut();
    assert_eq!(bench.counts(&queue).await.ready, 0, "it has moved nothing");
    assert_eq!(delivered(bench, &queue, 2).await, [1, 2].into());
}

/// A move that breaks down is one transaction: done, or not.
pub async fn crash_04_a_move_to_the_log_is_done_or_not(bench: &Bench) {
    let queue = bench.queue::<u32>(REQUIRE).await;
    let node = committed(bench, &queue, 0..40).await;
    node.wire().faults().clear();
    let moves = async |fault| {
        node.wire().faults().order("relay", fault, 1);
        let error = node.store.relay(10).await.expect_err("its answer is lost");
        assert_eq!(error.code(), Code::UnknownOutcome);
        let counts = bench.counts(&queue).await;
        (counts.scheduled, counts.ready)
    };
    assert_eq!(moves(Fault::Refused(Code::UnknownOutcome)).await, (40, 0));
    assert_eq!(moves(Fault::LostAnswer).await, (30, 10));
    // In the middle: it waits for a lock when its node dies.
    let occupied = bench.occupy();
    let store = Arc::clone(&node.store);
    let relay = tokio::spawn(async move { store.relay(10).await });
    node.cut();
    drop(occupied);
    drop(relay.await.expect("it does not panic"));
    assert_eq!(delivered(bench, &queue, 40).await, (0..40).collect());
}

/// A node that relays dies with a part of the backlog moved: others move the rest, and nothing twice.
pub async fn crash_07_a_relay_that_dies_leaves_the_rest_to_others(bench: &Bench) {
    let queue = bench.queue::<u32>(REQUIRE).await;
    let node = committed(bench, &queue, 0..120).await;
    node.wire().faults().clear();
    node.wire().faults().order("relay", Fault::LostAnswer, 1);
    node.store.relay(50).await.expect_err("its answer is lost");
    node.cut();
    assert_eq!(bench.relay().await, 70);
    assert_eq!(bench.counts(&queue).await.ready, 120);
    assert_eq!(delivered(bench, &queue, 120).await, (0..120).collect());
}

/// A send whose answer does not come is stored or not; a repeat with the same dedup key makes one message of both.
pub async fn crash_08_a_send_without_an_answer_may_be_repeated(bench: &Bench) {
    let (queue, node) = (bench.queue::<u32>(SETTINGS).await, bench.node());
    let faults = [(1, Fault::Refused(Code::UnknownOutcome), false), (2, Fault::LostAnswer, true)];
    for (body, fault, is_stored) in faults {
        let send = async || node.pond.send(&*queue, [body.dedup_key(format!("key {body}"))]).await;
        node.wire().faults().order("append", fault, 1);
        assert_eq!(send().await.expect_err("its answer is lost").code(), Code::UnknownOutcome);
        let again = send().await.expect("it is answered");
        assert_eq!(matches!(again.messages[0].stored, Stored::Duplicate { .. }), is_stored, "{again:?}");
    }
    assert_eq!(delivered(bench, &queue, 2).await, [1, 2].into());
}

/// Without a store a direct send says that nothing was stored; a buffer keeps what it has up to its bound, beyond it a send
/// is a direct one, and all of it is stored once the store is back.
pub async fn crash_11_without_a_store_a_send_says_so_and_a_buffer_keeps_its_messages(bench: &Bench) {
    let (direct, gathered) = (bench.queue::<u32>(SETTINGS).await, bench.queue::<u32>(SETTINGS).await);
    let node = bench.shared_node();
    let buffer = Buffer::DEFAULT.messages_max(2);
    let buffered = Queue::<u32>::named(gathered.name().to_owned()).with_settings(SETTINGS).buffered(buffer);
    for name in [direct.name(), gathered.name()] {
        node.pond.queue(name).await.expect("it is met");
    }
    let store = node.cut().expect("it was connected");
    let refused = |sent: millpond_core::Result<Sent>| {
        assert_eq!(sent.expect_err("there is no store").code(), Code::StoreUnavailable);
    };
    refused(node.pond.send(&*direct, [1]).await);
    for body in [2, 3] {
        let sent = node.pond.send(&buffered, [body]).await.expect("it is kept");
        assert_eq!(sent.messages[0].stored, Stored::Buffered);
    }
    refused(node.pond.send(&buffered, [4]).await);
    assert_eq!(node.pond.buffered(), [(gathered.name().to_owned(), 2)]);
    node.connect(store);
    node.pond.flush().await;
    assert_eq!(delivered(bench, &gathered, 2).await, [2, 3].into());
    assert_eq!(bench.counts(&direct).await.sent, 0);
    assert_eq!(node.pond.counts().total(Counter::HandoffFailed), 0);
}

/// What hooks were told: message, reason, body.
type Told = Arc<Mutex<Vec<(MessageId, DropReason, Option<u32>)>>>;

/// A commit whose answer is lost. The rows of the outbox are there exactly if it happened, and can be asked for. Messages
/// that were to be sent after it are discarded, counted, and told to their hook, in both cases.
pub async fn crash_13_the_rows_decide_what_an_unknown_commit_was(bench: &Bench) {
    let (queue, fast) = (bench.queue::<u32>(REQUIRE).await, bench.queue::<u32>(NEVER).await);
    let (node, effects, told) = (bench.node(), bench.make_effects().await, Told::default());
    let noted = Arc::clone(&told);
    let hook = move |dropped: Dropped<u32>| {
        let fact = (dropped.id, dropped.reason, dropped.message.body().copied());
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(fact);
        std::future::ready(())
    };
    let worker = node.worker().handle(&fast, |_: Job<u32>| async { Verdict::Ack }).on_error(&fast, hook);
    let worker = Running::start(worker);
    // It has its hooks when it works.
    node.pond.send(&*fast, [0]).await.expect("it is stored");
    bench.drained(&fast, 1).await;

    let mut discarded = Vec::new();
    for (body, fault, is_committed) in
        [(1, Fault::Refused(Code::UnknownOutcome), false), (2, Fault::LostAnswer, true)]
    {
        let before = bench.effect_counts(&*effects).await.0;
        let mut unit = node.pond.begin().await.expect("it is begun");
        let kept = unit.send(&*queue, [body]).await.expect("it is kept").messages[0].id;
        effects.add(unit.tx().await.expect("it is open"), kept).await.expect("it is written");
        let sent = unit.send(&*fast, [10 * body, 10 * body + 1]).await.expect("they are kept");
        discarded.extend(sent.ids().zip([10 * body, 10 * body + 1]));
        unit.after_commit(|| async { panic!("nobody knows that it was committed") as Result<(), Error> });
        node.wire().faults().order("commit", fault, 1);
        let error = unit.commit().await.expect_err("its answer is lost");
        assert_eq!(error.code(), Code::UnknownOutcome);
        let found = node.pond.find(kept).await.expect("it answers");
        assert_eq!(found.is_some(), is_committed, "{found:?}");
        let after = bench.effect_counts(&*effects).await.0;
        assert_eq!(after - before, i64::from(is_committed), "the rows are those of the commit");
    }
    let both = async || (told.lock().unwrap_or_else(PoisonError::into_inner).len() == 4).then_some(());
    bench.eventually("the hook is called for each", both).await;
    worker.stop().await;
    let mut expected: Vec<_> =
        discarded.into_iter().map(|(id, body)| (id, DropReason::CommitUnknown, Some(body))).collect();
    let mut heard = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let by_id = |fact: &(MessageId, DropReason, Option<u32>)| fact.0.0;
    expected.sort_by_key(by_id);
    heard.sort_by_key(by_id);
    assert_eq!(heard, expected, "each once");

    let counts = node.pond.counts();
    assert_eq!(counts.of(Counter::CommitUnknown, fast.name()), 4);
    assert_eq!((counts.total(Counter::CommitOutcomeUnknown), counts.total(Counter::CommitUnknown)), (2, 4));
    assert_eq!(bench.counts(&fast).await.sent, 1, "nobody was told of what may not have happened");
    assert_eq!(delivered(bench, &queue, 1).await, [2].into());
}

/// What a store was told is there after it was closed and opened again.
pub async fn crash_14_what_a_send_has_answered_survives_a_restart(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    bench.send(&queue, 0..20).await;
    bench.send(&queue, [20.delay(Duration::from_secs(1))]).await;
    let Some(node) = bench.restart().await else { return };
    bench.advance(Duration::from_secs(1));
    node.store.relay(10).await.expect("it moves what is due");
    let claim = bench.holder_on(&node, &queue).lease(100).await;
    assert_eq!(claim.messages.len(), 21);
}

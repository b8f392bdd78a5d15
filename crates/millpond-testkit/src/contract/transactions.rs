//! What is sent within a transaction exists exactly if it commits: in a unit of work, and in a transaction of the store's
//! driver, as a program opens it beside the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_core::error::{Code, Error, Result};
use millpond_core::queue::{QueueSettings, Transactional};
use millpond_core::store::Stored;
use millpond_core::within::Dialect;
use millpond_engine::counters::Counter;
use millpond_engine::item::{Item, ItemOptions};
use millpond_engine::send::{Anywhere, Ctx, Out};

use crate::bench::{Bench, SETTINGS, TestQueue, UnitOfWork};
use crate::contract::delivery::recorded;

const REQUIRE: QueueSettings = QueueSettings { transactional: Transactional::Require, ..SETTINGS };
const NEVER: QueueSettings = QueueSettings { transactional: Transactional::Never, ..SETTINGS };

/// All that is delivered, once so many messages are done.
async fn delivered(bench: &Bench, queue: &TestQueue<u32>, done: u64) -> BTreeSet<u32> {
    let seen = bench.recorder();
    let worker = recorded(bench, queue, &seen);
    bench.drained(queue, done).await;
    worker.stop().await;
    assert_eq!(seen.count() as u64, done);
    seen.bodies().into_iter().collect()
}

/// A commit delivers; a unit that is dropped, a savepoint that is rolled back or dropped, and a hook that refuses do not.
pub async fn a_unit_of_work_delivers_what_it_commits_and_nothing_else(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(REQUIRE).await, &bench.node().pond);

    let mut unit = pond.begin().await.expect("it is begun");
    unit.send(&*queue, [1]).await.expect("it is kept");
    let mut kept = unit.savepoint().await.expect("it is set");
    kept.send(&*queue, [2]).await.expect("it is kept");
    let mut undone = kept.savepoint().await.expect("it is set");
    undone.send(&*queue, [3]).await.expect("it is kept");
    undone.roll_back().await.expect("it is undone");
    kept.release().await.expect("it is released");
    let mut forgotten = unit.savepoint().await.expect("it is set");
    forgotten.send(&*queue, [4]).await.expect("it is kept");
    drop(forgotten);
    let committed = unit.commit().await.expect("it is committed");
    assert_eq!(committed.messages.len(), 2);

    let mut dropped = pond.begin().await.expect("it is begun");
    dropped.send(&*queue, [5]).await.expect("it is kept");
    drop(dropped);

    let mut refused = pond.begin().await.expect("it is begun");
    refused.send(&*queue, [6]).await.expect("it is kept");
    refused.before_commit(|_| Box::pin(async { Err(Error::new(Code::InvalidOption, "look at the whole")) }));
    assert_eq!(refused.commit().await.map(drop).expect_err("it is refused").code(), Code::InvalidOption);

    assert_eq!(delivered(bench, &queue, 2).await, [1, 2].into());
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.scheduled), (2, 0));
}

/// The node that commits moves its own rows, though it runs no worker.
pub async fn a_node_without_a_worker_relays_what_it_commits(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let mut unit = bench.node().pond.begin().await.expect("it is begun");
    unit.send(&*queue, [1, 2]).await.expect("it is kept");
    unit.commit().await.expect("it is committed");
    let ready = bench.eventually("both are ready", async || {
        Some(bench.counts(&queue).await).filter(|counts| counts.ready == 2)
    });
    ready.await;
}

/// Hooks run once, in order, those of a unit that did not commit not at all; what fails after a commit is counted.
pub async fn hooks_run_once_with_the_commit(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(SETTINGS).await, &bench.node().pond);
    let (before, after) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for commits in [true, false] {
        let mut unit = pond.begin().await.expect("it is begun");
        let (counted, name) = (Arc::clone(&before), queue.name().to_owned());
        unit.before_commit(move |unit| {
            Box::pin(async move {
                counted.fetch_add(1, Ordering::SeqCst);
                let late = millpond_engine::queue::Queue::<u32>::named(name);
                unit.send(&late, [2]).await.map(drop)
            })
        });
        let (counted, first) = (Arc::clone(&after), Arc::clone(&before));
        unit.after_commit(move || async move {
            assert_eq!(first.load(Ordering::SeqCst), 1, "that before the commit ran first");
            counted.fetch_add(1, Ordering::SeqCst);
            Err::<(), _>("it fails, and the commit is one all the same")
        });
        unit.send(&*queue, [1]).await.expect("it is kept");
        if commits {
            unit.commit().await.expect("it is committed");
        } else {
            unit.roll_back();
        }
    }
    assert_eq!((before.load(Ordering::SeqCst), after.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(pond.counts().total(Counter::AfterCommitFailed), 1);
    assert_eq!(delivered(bench, &queue, 2).await, [1, 2].into());
}

/// What is never a part of a transaction waits for the commit in memory.
pub async fn a_fast_queue_is_sent_to_after_the_commit(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(NEVER).await, &bench.node().pond);
    for (body, commits) in [(1, true), (2, false)] {
        let mut unit = pond.begin().await.expect("it is begun");
        unit.send(&*queue, [body]).await.expect("it is kept");
        if commits {
            unit.commit().await.expect("it is committed");
        }
    }
    pond.send(&*queue, [3]).await.expect("it is stored");
    assert_eq!(delivered(bench, &queue, 2).await, [1, 3].into());
}

/// A name that requires a transaction is refused outside of one, on every node.
pub async fn a_queue_that_requires_a_transaction_is_refused_outside(bench: &Bench) {
    let queue = bench.queue::<u32>(REQUIRE).await;
    let other = bench.second_node().await;
    for pond in [&bench.node().pond, &other.pond] {
        assert_eq!(
            pond.send(&*queue, [1]).await.expect_err("it is refused").code(),
            Code::TransactionRequired
        );
        let stored = pond.queue(queue.name()).await.expect("it is declared");
        assert_eq!(stored.settings().transactional, Transactional::Require);
    }
    assert_eq!(bench.counts(&queue).await.sent, 0);
}

/// A scope sends what it collected if its body succeeds, within a unit of work and outside of one.
pub async fn a_scope_sends_all_or_nothing(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(SETTINGS).await, &bench.node().pond);
    let collect = async |out: &mut Out<Anywhere>, bodies: [u32; 2], fails: bool| -> Result<()> {
        for body in bodies {
            out.put(&*queue, body).await?;
        }
        if fails { Err(Error::new(Code::InvalidOption, "change its mind")) } else { Ok(()) }
    };
    pond.scope(Ctx::NoTx, async |out| collect(out, [1, 2], false).await).await.expect("it is sent");
    let failed = pond.scope(Ctx::NoTx, async |out| collect(out, [3, 4], true).await).await;
    assert_eq!(failed.expect_err("it is refused").code(), Code::InvalidOption);
    let mut unit = pond.begin().await.expect("it is begun");
    let mut ctx = Ctx::Tx(&mut unit);
    let failed = pond.scope(ctx.again(), async |out| collect(out, [5, 6], true).await).await;
    assert_eq!(failed.expect_err("it is refused").code(), Code::InvalidOption);
    pond.scope(ctx, async |out| collect(out, [7, 8], false).await).await.expect("it is kept");
    unit.commit().await.expect("it is committed");
    assert_eq!(delivered(bench, &queue, 4).await, [1, 2, 7, 8].into());
}

/// A driver's transaction delivers if it commits, and a send that is refused leaves it as it was.
pub async fn a_drivers_transaction_delivers_what_it_commits(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(REQUIRE).await, &bench.node().pond);
    let Some(mut tx) = bench.transaction(true) else { return };
    let keyed = |body: u32, key: &str| body.dedup_key(key);
    let sent = tx.send(pond, &queue, vec![1.into(), keyed(2, "a"), keyed(2, "a")]).await;
    let sent = sent.expect("it is written");
    assert_eq!(sent.messages[2].stored, Stored::Duplicate { of: sent.messages[1].id });
    let conflict =
        tx.send(pond, &queue, vec![3.into(), keyed(4, "b"), keyed(5, "a")]).await.expect_err("it is refused");
    assert_eq!((conflict.code(), conflict.index()), (Code::DedupConflict, Some(2)));
    // Of the refused send nothing is left, its own key least of all.
    let again = tx.send(pond, &queue, vec![keyed(6, "b")]).await.expect("it is written");
    assert_eq!(again.messages[0].stored, Stored::New);
    let many: Vec<Item<u32>> = (100..199).map(Item::from).collect();
    tx.send(pond, &queue, many).await.expect("they are written");
    tx.end(true).await;
    // The node finds the commit by itself; nobody tells it, and no worker runs.
    bench
        .eventually("it is ready", async || {
            Some(bench.counts(&queue).await).filter(|counts| counts.ready == 102)
        })
        .await;

    let mut undone = bench.transaction(true).expect("there was one");
    undone.send(pond, &queue, vec![7.into()]).await.expect("it is written");
    undone.end(false).await;
    let expected: BTreeSet<u32> = [1, 2, 6].into_iter().chain(100..199).collect();
    assert_eq!(delivered(bench, &queue, 102).await, expected);
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.scheduled), (102, 0));
}

/// A commit is known of whether or not a relay has moved its messages since: nobody looks for it any longer.
pub async fn a_commit_is_known_of_after_its_messages_were_moved(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(SETTINGS).await, &bench.node().pond);
    let Some(mut tx) = bench.transaction(true) else { return };
    let sent = tx.send(pond, &queue, vec![1.into()]).await.expect("it is written");
    let id = sent.messages[0].id;
    let arrived = async || pond.store().arrived(vec![id]).await.expect("it is answered");
    assert!(arrived().await.is_empty(), "it is not committed");
    tx.end(true).await;
    assert_eq!(arrived().await, [id]);
    bench
        .eventually("it is ready", async || {
            Some(bench.counts(&queue).await).filter(|counts| counts.ready == 1)
        })
        .await;
    assert_eq!(arrived().await, [id], "it was moved");
}

/// Every option of an item arrives by a driver's transaction as by a send.
pub async fn a_drivers_transaction_keeps_every_option(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(SETTINGS).await, &bench.node().pond);
    let full = |body: u32| {
        body.priority(1).key("k\u{e9}y").kind("mail.welcome").attempts_max(7).header("a", "\"quoted\" \\ '")
    };
    let Some(mut tx) = bench.transaction(true) else { return };
    let within = tx.send(pond, &queue, vec![full(1)]).await.expect("it is written");
    tx.end(true).await;
    bench
        .eventually("it is ready", async || {
            Some(bench.counts(&queue).await).filter(|counts| counts.ready == 1)
        })
        .await;
    let direct = bench.send(&queue, [full(1)]).await;
    let claim = bench.holder(&queue).lease(10).await;
    let [one, other] = &claim.messages[..] else { panic!("two are ready: {claim:?}") };
    assert_eq!((one.id, other.id), (within.messages[0].id, direct[0]));
    let told = |message: &millpond_core::message::Leased| {
        let headers: Option<serde_json::Value> =
            message.headers.as_deref().map(|headers| serde_json::from_str(headers).expect("JSON"));
        (
            (message.kind.clone(), message.key.clone(), headers, message.content_type.clone()),
            (message.body.clone(), message.attempts_max, message.retry_until, message.intact),
        )
    };
    assert_eq!(told(one), told(other));
}

/// Where no transaction is open, nothing is written: it would be committed at once.
pub async fn without_a_transaction_nothing_is_written(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(SETTINGS).await, &bench.node().pond);
    let Some(mut tx) = bench.transaction(false) else { return };
    let refused = tx.send(pond, &queue, vec![1.into()]).await.expect_err("it is refused");
    assert_eq!(refused.code(), Code::UnsupportedStore, "{refused:?}");
    tx.end(true).await;
    assert_eq!(bench.counts(&queue).await.sent, 0);
}

/// Two transactions that are open at once send to one queue and do not wait for each other, unless for one dedup key.
pub async fn open_transactions_wait_for_each_other_for_one_key_only(bench: &Bench) {
    let (queue, pond) = (bench.queue::<u32>(SETTINGS).await, &bench.node().pond);
    let Some(mut one) = bench.transaction(true) else { return };
    if bench.node().store.dialect() == Dialect::Sqlite {
        // One transaction writes at a time there.
        return one.end(false).await;
    }
    let mut other = bench.transaction(true).expect("there was one");
    let first = one.send(pond, &queue, vec![1.into(), 2.dedup_key("a")]).await.expect("it is written");
    other.send(pond, &queue, vec![3.into(), 4.dedup_key("b")]).await.expect("it waits for nobody");
    let repeated = vec![2.dedup_key("a")];
    let ((), waited) = tokio::join!(one.end(true), other.send(pond, &queue, repeated));
    let waited = waited.expect("it is answered when the first one has ended");
    assert_eq!(waited.messages[0].stored, Stored::Duplicate { of: first.messages[1].id });
    other.end(true).await;
    assert_eq!(delivered(bench, &queue, 4).await, [1, 2, 3, 4].into());
}

/// Commits a unit in which one statement has failed, and says whether its answer is true: its rows are there, its hook ran
/// and what was to be sent after it was sent exactly if it says `Ok`.
async fn commits_truly(bench: &Bench, mut unit: UnitOfWork, fast: &TestQueue<u32>) {
    let effects = bench.effects();
    let announced = Arc::new(AtomicUsize::new(0));
    let sent = unit.send(&**fast, [1]).await.expect("it is kept");
    let tx = unit.tx().await.expect("it is open");
    effects.add(tx, sent.messages[0].id).await.expect("it is written");
    effects.fail(tx).await;
    let counted = Arc::clone(&announced);
    unit.after_commit(move || async move {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<(), Error>(())
    });
    let committed = usize::from(match unit.commit().await {
        Ok(_) => true,
        Err(error) => {
            assert_ne!(error.code(), Code::UnknownOutcome, "{error:?}");
            false
        }
    });
    assert_eq!(announced.load(Ordering::SeqCst), committed);
    let rows = bench.effect_counts(&*effects).await.0;
    let counts = bench.counts(fast).await;
    assert_eq!((rows, counts.sent), (committed as i64, committed as u64));
}

/// A statement that failed undoes itself alone, or the whole transaction: the database decides, and the commit says it.
pub async fn what_a_commit_says_is_true_after_a_statement_has_failed(bench: &Bench) {
    let fast = bench.queue::<u32>(NEVER).await;
    bench.make_effects().await;
    let unit = bench.node().pond.begin().await.expect("it is begun");
    commits_truly(bench, unit, &fast).await;
}

/// The same of a transaction that was adopted.
pub async fn what_an_adopted_transaction_says_is_true_too(bench: &Bench) {
    let fast = bench.queue::<u32>(NEVER).await;
    bench.make_effects().await;
    let Some(tx) = bench.transaction(true) else { return };
    let unit = tx.adopt(&bench.node().pond).await.expect("it is adopted");
    commits_truly(bench, unit, &fast).await;
}

/// A driver's transaction becomes a unit of work: hooks, savepoints, messages of every mode, and the driver's own
/// statements are committed together, or none of them.
pub async fn an_adopted_transaction_delivers_what_its_unit_commits(bench: &Bench) {
    let (queue, fast) = (bench.queue::<u32>(REQUIRE).await, bench.queue::<u32>(NEVER).await);
    let (effects, pond) = (bench.make_effects().await, &bench.node().pond);
    let ran = Arc::new(AtomicUsize::new(0));
    for (body, commits) in [(1, true), (10, false)] {
        let Some(tx) = bench.transaction(true) else { return };
        let mut unit = tx.adopt(pond).await.expect("it is adopted");
        let sent = unit.send(&*queue, [body]).await.expect("it is kept");
        effects.add(unit.tx().await.expect("it is open"), sent.messages[0].id).await.expect("it is written");
        let mut frame = unit.savepoint().await.expect("it is set");
        frame.send(&*queue, [body + 1]).await.expect("it is kept");
        effects.add(frame.tx().await.expect("it is open"), sent.messages[0].id).await.expect("it is written");
        frame.roll_back().await.expect("it is undone");
        unit.send(&*fast, [body]).await.expect("it is kept");
        let counted = Arc::clone(&ran);
        unit.after_commit(move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<(), Error>(())
        });
        if commits {
            unit.commit().await.expect("it is committed");
        } else {
            drop(unit);
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(bench.effect_counts(&*effects).await, (1, 1));
    assert_eq!(delivered(bench, &queue, 1).await, [1].into());
    assert_eq!(delivered(bench, &fast, 1).await, [1].into());

    let closed = bench.transaction(false).expect("there was one");
    let refused = closed.adopt(pond).await.map(drop).expect_err("no transaction is open");
    assert_eq!(refused.code(), Code::UnsupportedStore, "{refused:?}");
}

/// Around a test: its units commit as always, one sees what the one before has done, and at the end nothing of it is there.
pub async fn what_is_done_in_a_test_root_is_undone_and_its_units_commit(bench: &Bench) {
    let (queue, fast) = (bench.queue::<u32>(SETTINGS).await, bench.queue::<u32>(NEVER).await);
    let (effects, pond) = (bench.make_effects().await, &bench.node().pond);
    let ran = Arc::new(AtomicUsize::new(0));
    let root = pond.begin_test_root().await.expect("it is begun");
    for (body, commits) in [(1, true), (2, false), (3, true)] {
        let mut unit = pond.begin().await.expect("it is begun");
        let sent = unit.send(&*queue, [body]).await.expect("it is kept");
        effects.add(unit.tx().await.expect("it is open"), sent.messages[0].id).await.expect("it is written");
        unit.send(&*fast, [body]).await.expect("it is kept");
        let counted = Arc::clone(&ran);
        unit.after_commit(move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<(), Error>(())
        });
        if commits {
            unit.commit().await.expect("it is committed");
        }
    }
    pond.send(&*queue, [4]).await.expect("it is written");
    assert_eq!(ran.load(Ordering::SeqCst), 2);
    assert_eq!(bench.effect_counts(&*effects).await, (2, 2), "a unit sees what was done before");
    root.roll_back().await;

    assert_eq!(bench.effect_counts(&*effects).await, (0, 0));
    pond.send(&*queue, [5]).await.expect("it is stored");
    assert_eq!(delivered(bench, &queue, 1).await, [5].into());
    assert_eq!(bench.counts(&fast).await.sent, 0);
}

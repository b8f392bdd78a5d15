//! What was sent arrives, as it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millpond_core::error::Code;
use millpond_core::message::{MessageId, NewMessage};
use millpond_core::name::QUEUE_NAME_BYTES_MAX;
use millpond_core::queue::{CLASS_DEFAULT, QueueSettings};
use millpond_core::settle::Verdict;
use millpond_engine::body::Raw;
use millpond_engine::ids::IdSource;
use millpond_engine::job::Job;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{Bench, Running, SETTINGS, TestQueue};
use crate::recorder::Recorder;

/// A worker that records every message of a queue and acknowledges it.
pub(super) fn recorded<B>(bench: &Bench, queue: &TestQueue<B>, seen: &Arc<Recorder<B>>) -> Running
where
    B: millpond_engine::body::Body + Clone + Sync,
{
    let seen = Arc::clone(seen);
    let handler = move |job: Job<B>| {
        let visit = seen.enter(&job);
        async move {
            drop(visit);
            Verdict::Ack
        }
    };
    Running::start(bench.node().worker().handle(queue, handler))
}

/// C001.
pub async fn c001_three_messages_arrive_and_no_other(bench: &Bench) {
    let (queue, other) = (bench.queue::<u32>(SETTINGS).await, bench.queue::<u32>(SETTINGS).await);
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    let ids = bench.send(&queue, [1, 2, 3]).await;
    bench.send(&other, [4]).await;

    bench.drained(&queue, 3).await;
    worker.stop().await;
    let calls = seen.calls();
    let arrived: BTreeMap<MessageId, u32> = calls.iter().map(|call| (call.id, call.body)).collect();
    assert_eq!(calls.len(), 3);
    assert_eq!(arrived, ids.into_iter().zip([1, 2, 3]).collect());
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    nested: BTreeMap<String, BTreeMap<String, Vec<i32>>>,
    large: u64,
    small: i64,
    tiny: f64,
    huge: f64,
    nothing: Option<String>,
    scripts: String,
    choice: Choice,
    day: String,
    anything: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Choice {
    Plain,
    Pair(u8, bool),
    Named { amount: i64 },
}

fn everything(choice: Choice) -> Everything {
    let inner = BTreeMap::from([("ключ".to_owned(), vec![-1, 0, i32::MAX]), (String::new(), Vec::new())]);
    Everything {
        nested: BTreeMap::from([("a.b \"c\"".to_owned(), inner)]),
        large: u64::MAX,
        small: i64::MIN,
        tiny: 5e-324,
        huge: 1.797_693_134_862_315_7e308,
        nothing: None,
        scripts: "Grüße, 世界, שלום, مرحبا, 🦆, \u{0}\u{1f}\u{2028}\\\"".to_owned(),
        choice,
        day: "2028-02-29T23:59:60.000001Z".to_owned(),
        anything: json!({"list": [null, true, [], {}], "number": 0.1}),
    }
}

/// C003.
pub async fn c003_a_body_equals_its_json_form(bench: &Bench) {
    let queue = bench.queue::<Everything>(SETTINGS).await;
    let seen = bench.recorder();
    let sent = [Choice::Plain, Choice::Pair(7, true), Choice::Named { amount: -3 }].map(everything);
    let ids = bench.send(&queue, sent.clone()).await;
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 3).await;
    worker.stop().await;

    for (id, sent) in ids.into_iter().zip(sent) {
        let calls = seen.calls();
        let call = calls.iter().find(|call| call.id == id).expect("it arrived");
        assert_eq!(call.body, sent);
        let stored: Value = serde_json::from_slice(&bench.look(id).await.body).expect("it is stored as JSON");
        assert_eq!(stored, serde_json::to_value(&sent).expect("it has a JSON form"));
    }
}

/// C004.
pub async fn c004_the_smallest_and_the_largest_body_are_kept_byte_for_byte(bench: &Bench) {
    let queue = bench.queue::<Raw>(SETTINGS).await;
    let most = usize::try_from(SETTINGS.message_limit()).expect("it fits") - 1;
    let text = format!("\"{}\"", "y".repeat(most - 2));
    let sent = [
        Raw::json(*b"7"),
        Raw::json(text),
        Raw::new("application/x-any", [0x00, 0xff, 0xfe]),
        Raw::bytes([0xff]),
        Raw::bytes([0x00, 0xff, 0xfe].repeat(most.div_ceil(3)).split_at(most).0),
    ];
    let ids = bench.send(&queue, sent.clone()).await;
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, sent.len() as u64).await;
    worker.stop().await;

    for (id, sent) in ids.into_iter().zip(sent) {
        let stored = bench.look(id).await;
        assert!(stored.body == sent.bytes, "{} bytes are stored as they were sent", sent.bytes.len());
        assert_eq!(stored.content_type, sent.content_type.as_deref().unwrap_or("application/json"));
        let calls = seen.calls();
        let call = calls.iter().find(|call| call.id == id).expect("it arrived");
        assert!(call.body == sent, "{} bytes are delivered as they were sent", sent.bytes.len());
    }
}

/// C005.
pub async fn c005_a_body_that_is_too_large_refuses_its_whole_batch(bench: &Bench) {
    let queue = bench.queue::<Raw>(QueueSettings { message_limit: Some(100), ..SETTINGS }).await;
    let batch = [Raw::bytes([1]), Raw::bytes([2; 100]), Raw::bytes([3])];
    let error = bench.node().pond.send(&queue, batch).await.expect_err("the second one is too large");

    assert_eq!((error.code(), error.index()), (Code::BodyTooLarge, Some(1)));
    let causes = error.causes();
    assert!(causes.contains("has 100 bytes") && causes.contains("is 100"), "{causes}");
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.ready, counts.scheduled), (0, 0, 0));
    bench.send(&queue, [Raw::bytes([2; 99])]).await;
    assert_eq!(bench.counts(&queue).await.ready, 1);
}

/// C006, as far as the store goes.
pub async fn c006_the_longest_name_round_trips(bench: &Bench) {
    let every = ('a'..='z').chain('0'..='9').chain("._-".chars());
    let unique = format!("{}.", bench.clock().now().as_micros());
    let name: String = unique.chars().chain(every.cycle()).take(QUEUE_NAME_BYTES_MAX).collect();
    let queue = bench.named_queue::<u32>(name.clone(), SETTINGS).await;
    let seen = bench.recorder();
    let id = bench.send(&queue, [1]).await[0];
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 1).await;
    worker.stop().await;

    assert_eq!(seen.count(), 1);
    let view = bench.look(id).await;
    assert_eq!((view.queue, view.kind), (name.clone(), name.clone()));
    let found = bench.node().store.queue(name.clone()).await.expect("the look-up is answered");
    assert_eq!(found.map(|found| found.name), Some(name));
}

/// C007.
pub async fn c007_poison_dies_with_its_bytes_and_holds_nothing_up(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let seen = bench.recorder();
    let poison: [&[u8]; 4] = [b"{\"half", b"\xff\xfe\x00", b"", b"\"no number\""];
    let mut ids = Vec::new();
    for body in poison {
        let id = IdSource::new().ids(1).expect("there are random numbers")[0];
        let message = NewMessage {
            id,
            kind: None,
            key: None,
            headers: BTreeMap::new(),
            content_type: None,
            body: body.to_vec(),
            priority: CLASS_DEFAULT,
            due: None,
            attempts_max: None,
            retry_until: None,
            dedup: None,
        };
        let stored = bench.node().store.append(queue.stored.id, vec![message]).await;
        stored.expect("a store looks into no body");
        ids.push(id);
    }
    let good = bench.send(&queue, [1, 2]).await;
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 2).await;
    worker.stop().await;

    let called: BTreeSet<MessageId> = seen.calls().into_iter().map(|call| call.id).collect();
    assert_eq!(called, good.into_iter().collect());
    let dead = bench.dead(&queue).await;
    assert_eq!(dead.len(), poison.len());
    for (id, body) in ids.into_iter().zip(poison) {
        let letter = dead.iter().find(|letter| letter.id == id).expect("it is a dead letter");
        assert_eq!((letter.reason.as_str(), &letter.body[..]), ("undecodable", body));
    }
}

/// C008.
pub async fn c008_a_thousand_messages_pass_four_slots(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let seen = bench.recorder();
    bench.send(&queue, 0..1_000).await;
    let recorder = Arc::clone(&seen);
    let handler = move |job: Job<u32>| {
        let visit = recorder.enter(&job);
        async move {
            tokio::task::yield_now().await;
            drop(visit);
            Verdict::Ack
        }
    };
    let worker = Running::start(bench.node().worker().concurrency(4).handle(&queue, handler));
    bench.drained(&queue, 1_000).await;
    worker.stop().await;

    let mut bodies = seen.bodies();
    bodies.sort_unstable();
    assert_eq!(bodies, (0..1_000).collect::<Vec<_>>(), "each exactly once");
    assert!(seen.peak() <= 4, "{} handlers at once", seen.peak());
}

/// C009.
pub async fn c009_a_queue_without_order_delivers_a_set(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    for body in 0..50 {
        bench.send(&queue, [body]).await;
    }
    bench.drained(&queue, 50).await;
    worker.stop().await;
    assert_eq!(seen.bodies().into_iter().collect::<BTreeSet<_>>(), (0..50).collect());
}

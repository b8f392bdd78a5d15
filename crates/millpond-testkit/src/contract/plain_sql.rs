//! Sending with plain SQL, as a program does that knows nothing of Millpond but a function of its database. What it sends
//! is what a send by code sends. Stores that are their process's alone are left out, as they declare.

use std::time::Duration;

use millpond_core::error::Code;
use millpond_core::message::{Headers, JSON, Leased};
use millpond_core::queue::{QueueSettings, Transactional};
use millpond_core::store::{Act, Stored};
use millpond_core::time::Timestamp;
use millpond_engine::body::Raw;
use millpond_engine::item::ItemOptions;
use serde_json::json;

use crate::bench::{Bench, SETTINGS, TestQueue};
use crate::contract::applied;
use crate::contract::delivery::recorded;

/// The database's clock is that of the host, and the bench's stands still: after this the bench's is ahead.
const AHEAD: Duration = Duration::from_secs(30);

const NOTHING: &str = "{}";

/// Sends and commits.
#[track_caller]
fn sent<B>(bench: &Bench, queue: &TestQueue<B>, body: &[u8], options: &str) {
    let sent = bench.publish(queue.name(), body, options, true).expect("others reach it");
    sent.unwrap_or_else(|refusal| panic!("{options}: {refusal}"));
}

/// A send is refused with this code, and stores nothing.
#[track_caller]
fn refused(bench: &Bench, queue: &str, body: &[u8], options: &str, code: Code) {
    let refusal = bench.publish(queue, body, options, true).expect("others reach it").expect_err(options);
    assert!(refusal.contains(&format!("{}: ", code.as_str())), "{options}: {refusal}");
}

/// Every option reaches the worker, and what is not said is as it is for a send by code.
pub async fn a_message_of_plain_sql_is_delivered_as_it_was_sent(bench: &Bench) {
    let queue = bench.queue::<Raw>(SETTINGS).await;
    if bench.publish(queue.name(), b"{}", NOTHING, false).is_none() {
        return;
    }
    let (body, before) = ("{\"na\u{ef}ve\": \"\u{1f600}\"}".as_bytes(), bench.clock().now());
    let options = json!({
        "key": "k\u{e9}y", "kind": "mail.welcome", "priority": 1, "attempts_max": 7,
        "headers": {"traceparent": "00-a-b-01", "a": "\"quoted\" \\ \u{1f600}"},
        "retry_until": "2031-02-28T23:59:58.5+02:00", "content_type": "application/vnd.a+json",
        "delay": null,
    });
    sent(bench, &queue, body, &options.to_string());
    sent(bench, &queue, &[0, 255, b'\'', b'\\', 0], NOTHING);
    bench.advance(AHEAD);
    let counts = bench.counts(&queue).await;
    assert_eq!((bench.relay().await, counts.ready), (2, 0));

    let holder = bench.holder(&queue);
    let claim = holder.lease(10).await;
    let [full] = &claim.messages[..] else { panic!("the first class comes first: {claim:?}") };
    let made = full.id.made_at().expect("it is a UUIDv7");
    assert!(before.since(made) < Duration::from_millis(1) && made <= bench.clock().now(), "{made:?}");
    let headers: Headers = serde_json::from_str(full.headers.as_deref().unwrap_or_default()).expect("JSON");
    let headers_sent = [("a", "\"quoted\" \\ \u{1f600}"), ("traceparent", "00-a-b-01")];
    assert_eq!(headers, headers_sent.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let expected = Leased {
        offset: full.offset,
        id: full.id,
        kind: Some("mail.welcome".to_owned()),
        key: Some("k\u{e9}y".to_owned()),
        headers: full.headers.clone(),
        content_type: Some("application/vnd.a+json".to_owned()),
        body: body.to_vec(),
        attempt: 1,
        releases: 0,
        suspect: 0,
        attempts_max: Some(7),
        retry_until: Some(Timestamp::from_micros(1_930_082_398_500_000)),
        sent_at: full.sent_at,
        intact: true,
    };
    assert_eq!(*full, expected);
    assert_eq!(holder.ack(&claim).await, applied());

    let claim = holder.lease(10).await;
    let [plain] = &claim.messages[..] else { panic!("one is left: {claim:?}") };
    let expected = Leased {
        offset: plain.offset,
        id: plain.id,
        body: vec![0, 255, b'\'', b'\\', 0],
        kind: None,
        key: None,
        headers: None,
        content_type: None,
        attempts_max: None,
        retry_until: None,
        sent_at: plain.sent_at,
        ..expected
    };
    assert_eq!(*plain, expected);
    assert_eq!(holder.ack(&claim).await, applied());
    let view = bench.look(plain.id).await;
    assert_eq!((view.priority, view.content_type.as_str()), (2, JSON));
    let counts = bench.drained(&queue, 2).await;
    assert_eq!(counts.sent, 2);
}

/// What is committed is delivered by a worker that nobody told; what is rolled back was never sent.
pub async fn what_plain_sql_commits_is_delivered_and_nothing_else(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    if bench.publish(queue.name(), b"1", NOTHING, false).is_none() {
        return;
    }
    let seen = bench.recorder();
    bench.clock().run();
    let worker = recorded(bench, &queue, &seen);
    for body in 2..6 {
        let ended = bench.publish(queue.name(), body.to_string().as_bytes(), NOTHING, body % 2 == 0);
        ended.expect("others reach it").expect("it is accepted");
    }
    bench.drained(&queue, 2).await;
    worker.stop().await;
    let mut bodies = seen.bodies();
    bodies.sort_unstable();
    assert_eq!(bodies, [2, 4]);
}

/// A delay and an instant are counted by the store.
pub async fn plain_sql_says_when_a_message_is_due(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    if bench.publish(queue.name(), b"1", NOTHING, false).is_none() {
        return;
    }
    sent(bench, &queue, b"1", "{\"delay\": 3600000}");
    let at = bench.clock().now() + Duration::from_secs(7_200);
    let at = written(at);
    sent(bench, &queue, b"2", &json!({"at": at}).to_string());
    sent(bench, &queue, b"3", "{\"delay\": 0, \"at\": null}");
    bench.advance(AHEAD);
    assert_eq!(bench.relay().await, 1);
    bench.advance(Duration::from_secs(3_600));
    assert_eq!(bench.relay().await, 1);
    assert_eq!(bench.counts(&queue).await.scheduled, 1);
    bench.advance(Duration::from_secs(3_600));
    assert_eq!(bench.relay().await, 1);
    let bodies: Vec<_> =
        bench.holder(&queue).lease(10).await.messages.into_iter().map(|message| message.body).collect();
    assert_eq!(bodies, [b"3", b"1", b"2"]);
}

/// An instant to the second, as RFC 3339 writes it.
fn written(instant: Timestamp) -> String {
    let secs = instant.as_micros() / 1_000_000;
    let (days, rest) = (secs / 86_400, secs % 86_400);
    // Days since the first of March of the year 0, of which leap days are the last.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 {
        (month + 3, era * 400 + year_of_era)
    } else {
        (month - 9, era * 400 + year_of_era + 1)
    };
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The database refuses what a send by code refuses, with its codes.
pub async fn plain_sql_is_refused_with_the_codes_of_a_send(bench: &Bench) {
    let settings = QueueSettings { message_limit: Some(10), ..SETTINGS };
    let queue = bench.queue::<u32>(settings).await;
    if bench.publish(queue.name(), b"1", NOTHING, false).is_none() {
        return;
    }
    let name = queue.name();
    refused(bench, "nobody-declared-this", b"1", NOTHING, Code::UnknownQueue);
    refused(bench, &format!("{name} "), b"1", NOTHING, Code::UnknownQueue);
    refused(bench, name, b"0123456789", NOTHING, Code::BodyTooLarge);
    let (long, too_long) = ("\u{e9}".repeat(125), "\u{e9}".repeat(126));
    let (many, too_many) = ("x".repeat(16_383), "x".repeat(16_384));
    let cases = [
        (json!([]), Code::InvalidOption),
        (json!({"dleay": 1}), Code::InvalidOption),
        (json!({"delay": "1"}), Code::InvalidOption),
        (json!({"delay": -1}), Code::InvalidOption),
        (json!({"delay": 1.5}), Code::InvalidOption),
        (json!({"delay": 316_224_000_001_u64}), Code::InvalidOption),
        (json!({"delay": 1e300}), Code::InvalidOption),
        (json!({"delay": 1, "at": "2030-01-01T00:00:00Z"}), Code::InvalidOption),
        (json!({"at": 1}), Code::InvalidOption),
        (json!({"at": "2030-01-01T00:00:00"}), Code::InvalidOption),
        (json!({"at": "2030-02-30T00:00:00Z"}), Code::InvalidOption),
        (json!({"at": "2030-13-01T00:00:00Z"}), Code::InvalidOption),
        (json!({"at": "soon"}), Code::InvalidOption),
        (json!({"at": "2099-01-01T00:00:00Z"}), Code::InvalidOption),
        (json!({"retry_until": "2099-01-01T00:00:00Z"}), Code::InvalidOption),
        (json!({"retry_until": 316_224_000_001_u64}), Code::InvalidOption),
        (json!({"retry_until": true}), Code::InvalidOption),
        (json!({"priority": 4}), Code::InvalidOption),
        (json!({"priority": "1"}), Code::InvalidOption),
        (json!({"attempts_max": 0}), Code::InvalidOption),
        (json!({"attempts_max": 4_294_967_296_u64}), Code::InvalidOption),
        (json!({"key": 1}), Code::InvalidOption),
        (json!({"kind": {}}), Code::InvalidOption),
        (json!({"headers": []}), Code::InvalidOption),
        (json!({"kind": ""}), Code::InvalidName),
        (json!({"kind": "a b"}), Code::InvalidName),
        (json!({"kind": "a\n"}), Code::InvalidName),
        (json!({"kind": "k".repeat(101)}), Code::InvalidName),
        (json!({"key": "a\nb"}), Code::InvalidKey),
        (json!({"key": "a\u{7f}"}), Code::InvalidKey),
        (json!({"key": too_long}), Code::InvalidKey),
        (json!({"dedup_key": too_long}), Code::InvalidKey),
        (json!({"content_type": "\u{e9}"}), Code::InvalidHeader),
        (json!({"content_type": "x".repeat(101)}), Code::InvalidHeader),
        (json!({"headers": {"A": "b"}}), Code::InvalidHeader),
        (json!({"headers": {"": "b"}}), Code::InvalidHeader),
        (json!({"headers": {"millpond-attempt": "1"}}), Code::InvalidHeader),
        (json!({"headers": {"a": 1}}), Code::InvalidHeader),
        (json!({"headers": {"a": "b\r\nc"}}), Code::InvalidHeader),
        (json!({"headers": {"h".repeat(65): "b"}}), Code::InvalidHeader),
        (json!({"headers": {"a": too_many}}), Code::InvalidHeader),
    ];
    for (options, code) in cases {
        refused(bench, name, b"1", &options.to_string(), code);
    }
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.scheduled, counts.ready), (0, 0, 0));
    sent(
        bench,
        &queue,
        b"012345678",
        &json!({"headers": {"a": many}, "key": long, "dedup_key": long}).to_string(),
    );
    // `u64::MAX` milliseconds would be more than any clock reaches; ten years are not.
    sent(
        bench,
        &queue,
        b"1",
        "{\"delay\": 316224000000, \"retry_until\": 316224000000, \"attempts_max\": 4294967295}",
    );
    // No option can hold it, and some databases know no such text.
    let nul = bench.publish(name, b"1", "{\"key\": \"a\\u0000b\"}", true).expect("others reach it");
    nul.expect_err("a key without it would be another one");

    // Of this commit nobody is told. A statement that commits by itself is a transaction too.
    let of = async |transactional| bench.queue::<u32>(QueueSettings { transactional, ..SETTINGS }).await;
    let (never, require) = (of(Transactional::Never).await, of(Transactional::Require).await);
    refused(bench, never.name(), b"1", NOTHING, Code::SendInsideTransaction);
    sent(bench, &require, b"1", NOTHING);

    // What an operator says holds at once.
    let act =
        Act { actor: "ada".to_owned(), verb: "queue set".to_owned(), object: name.to_owned(), reason: None };
    let changes = vec![("message_limit".to_owned(), Some(json!(3)))];
    bench.node().store.change(name.to_owned(), changes, act).await.expect("it is changed");
    refused(bench, name, b"123", NOTHING, Code::BodyTooLarge);
    sent(bench, &queue, b"12", NOTHING);
    assert_eq!(bench.counts(&queue).await.sent, 3);
}

/// A dedup key is one, whoever sends it.
pub async fn plain_sql_and_code_hold_the_same_dedup_keys(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    if bench.publish(queue.name(), b"1", "{\"dedup_key\": \"one\"}", false).is_none() {
        return;
    }
    let pond = &bench.node().pond;
    sent(bench, &queue, b"1", "{\"dedup_key\": \"one\"}");
    sent(bench, &queue, b"1", "{\"dedup_key\": \"one\"}");
    refused(bench, queue.name(), b"2", "{\"dedup_key\": \"one\"}", Code::DedupConflict);
    sent(bench, &queue, b"2", "{\"dedup_key\": \"One\"}");
    let again = pond.send(&queue, [1.dedup_key("one")]).await.expect("it is the same message");
    assert!(matches!(again.messages[0].stored, Stored::Duplicate { .. }), "{again:?}");
    let conflict = pond.send(&queue, [2.dedup_key("one")]).await.expect_err("it is another one");
    assert_eq!(conflict.code(), Code::DedupConflict);

    bench.send(&queue, [3.dedup_key("three")]).await;
    sent(bench, &queue, b"3", "{\"dedup_key\": \"three\"}");
    refused(bench, queue.name(), b"4", "{\"dedup_key\": \"three\"}", Code::DedupConflict);
    // An empty one is none.
    sent(bench, &queue, b"5", "{\"dedup_key\": \"\"}");
    sent(bench, &queue, b"5", "{\"dedup_key\": \"\"}");

    let seen = bench.recorder();
    bench.advance(AHEAD);
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, 5).await;
    worker.stop().await;
    let mut bodies = seen.bodies();
    bodies.sort_unstable();
    assert_eq!(bodies, [1, 2, 3, 5, 5]);
}

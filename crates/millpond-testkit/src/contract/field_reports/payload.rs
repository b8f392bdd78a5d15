//! Bodies, headers and error texts: bytes in, the same bytes out, or a refusal that says what and where.

use millpond_core::error::Code;
use millpond_core::query::{Field, Query};
use millpond_core::queue::QueueSettings;
use millpond_core::redact::REDACTED_CHARS_MAX;
use millpond_core::settle::Verdict;
use millpond_core::state::State;
use millpond_core::view::Find;
use millpond_engine::body::Raw;
use millpond_engine::item::{Item, ItemOptions};
use millpond_engine::job::Job;
use serde_json::{Value, json};

use crate::bench::{Bench, Running, SETTINGS};
use crate::contract::delivery::recorded;

/// BR-042: a body was cut at 65,535 bytes without a word.
pub async fn br_042_a_body_is_kept_whole_or_refused(bench: &Bench) {
    const MIB: usize = 1024 * 1024;
    let limit = Some(2 * MIB as u64);
    let queue = bench.queue::<Raw>(QueueSettings { message_limit: limit, ..SETTINGS }).await;
    let sizes = [0, 1, 65_534, 65_535, 65_536, 65_537, MIB - 1, MIB, MIB + 1, 2 * MIB - 1];
    let body = |size: usize| Raw::bytes((0..size).map(|place| (place % 251) as u8).collect::<Vec<_>>());
    let ids = bench.send(&queue, sizes.map(body)).await;
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, sizes.len() as u64).await;
    worker.stop().await;
    for (id, size) in ids.into_iter().zip(sizes) {
        let call = seen.calls().into_iter().find(|call| call.id == id).expect("it arrived");
        assert!(call.body == body(size), "{size} bytes arrive as they were sent");
        assert!(bench.look(id).await.body == body(size).bytes, "{size} bytes are stored as they were sent");
    }
    let refused = bench.node().pond.send(&queue, [body(2 * MIB)]).await.expect_err("that is the limit");
    assert_eq!(refused.code(), Code::BodyTooLarge);
    let default = bench.queue::<Raw>(SETTINGS).await;
    bench.node().pond.send(&default, [body(MIB)]).await.expect_err("1 MiB is the documented limit");
    bench.send(&default, [body(MIB - 1)]).await;
}

/// BR-110: U+0000 in a body gave an opaque error of the database. Here a body is bytes, so it is kept; where text is
/// text of ours (keys, headers, kinds) it is refused by name, with its whole batch.
pub async fn br_110_a_nul_is_kept_in_a_body_and_refused_elsewhere_by_name(bench: &Bench) {
    let queue = bench.queue::<Raw>(SETTINGS).await;
    let bodies =
        [&br#"{"a":"x\u0000y"}"#[..], br#"{"a\u0000":1}"#, br#"{"a":[[["\u0000"]]]}"#, br#""\\u0000""#];
    let ids = bench.send(&queue, bodies.map(|body| Raw::json(body.to_vec()))).await;
    for (id, body) in ids.into_iter().zip(bodies) {
        assert_eq!(bench.look(id).await.body, body);
    }
    let typed = bench.queue::<Value>(SETTINGS).await;
    let sent = json!({"a": "x\u{0}y", "b\u{0}": ["\u{0}"]});
    let id = bench.send(&typed, [sent.clone()]).await[0];
    let seen = bench.recorder();
    let worker = recorded(bench, &typed, &seen);
    bench.drained(&typed, 1).await;
    worker.stop().await;
    assert_eq!((seen.calls()[0].id, &seen.calls()[0].body), (id, &sent));

    let one = || Raw::json(*b"1");
    let bad: [(Item<Raw>, Code, &str); 5] = [
        (one().header("a", "x\u{0}y"), Code::InvalidHeader, "header value"),
        (one().header("a\u{0}", "x"), Code::InvalidHeader, "header name"),
        (one().key("x\u{0}"), Code::InvalidKey, "key"),
        (one().dedup_key("x\u{0}"), Code::InvalidKey, "dedup key"),
        (one().kind("x\u{0}"), Code::InvalidName, "kind"),
    ];
    let before = bench.counts(&queue).await.sent;
    for (item, code, what) in bad {
        let batch = [one().into(), item, one().into()];
        let refused = bench.node().pond.send(&queue, batch).await.expect_err("the second one is refused");
        assert_eq!((refused.code(), refused.index()), (code, Some(1)), "{what}");
        let causes = refused.causes();
        assert!(causes.contains(what) && causes.contains("U+0000"), "{causes}");
        assert!(!causes.contains('\0'), "an error can be printed: {causes:?}");
    }
    assert_eq!(bench.counts(&queue).await.sent, before, "nothing is half written");
}

/// BR-111: a result with U+0000 in it could not be stored, and its execution never ended.
pub async fn br_111_an_error_text_with_a_nul_ends_its_job(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let handler = async |job: Job<u32>| match job.body {
        1 => Err("be\u{0}fore".to_owned()),
        2 => panic!("be\u{0}fore"),
        _ => Ok(Verdict::DeadLetter { reason: "be\u{0}fore".to_owned() }),
    };
    let worker = Running::start(bench.node().worker().concurrency(1).handle(&queue, handler));
    let ids = bench.send(&queue, [1, 2, 3]).await;
    let died = async || (bench.counts(&queue).await.dead == 3).then_some(());
    bench.eventually("three are dead", died).await;
    worker.stop().await;
    for id in ids {
        let dead = bench.dead(&queue).await;
        let letter = dead.iter().find(|letter| letter.id == id).expect("it is a dead letter");
        let detail = letter.detail.as_deref().unwrap_or_default();
        assert!(detail.contains("be\u{fffd}fore"), "the same on every store: {detail:?}");
        assert_eq!(bench.look(id).await.state, State::Dead);
    }
}

/// BR-116: the text of an error was longer than its column, and the worker died while it recorded the failure.
pub async fn br_116_an_error_text_of_any_size_is_cut_to_the_limit(bench: &Bench) {
    let queue = bench.queue::<usize>(QueueSettings { attempts_max: 1, ..SETTINGS }).await;
    let sizes = [0, 1, 1_999, 2_000, 2_001, 65_535, 65_536, 1_000_000];
    // Of letters, of words, and of what has four bytes each.
    let text = move |number: usize| match number % 3 {
        0 => "x".repeat(sizes[number / 3]),
        1 => "no route ".repeat(sizes[number / 3] / 9),
        _ => "🦆".repeat(sizes[number / 3] / 4),
    };
    let count = 3 * sizes.len();
    let handler = move |job: Job<usize>| async move {
        if job.body == usize::MAX { Ok(()) } else { Err(text(job.body)) }
    };
    let worker = Running::start(bench.node().worker().handle(&queue, handler));
    bench.send(&queue, 0..count).await;
    let died = async || (bench.counts(&queue).await.dead == count as u64).then_some(());
    bench.eventually("all are dead", died).await;
    bench.send(&queue, [usize::MAX]).await;
    bench.drained(&queue, 1).await;
    worker.stop().await;
    let dead = bench.dead(&queue).await;
    assert_eq!(dead.len(), count);
    for letter in dead {
        let number: usize = serde_json::from_slice(&letter.body).expect("it is what was sent");
        let (detail, said) = (letter.detail.unwrap_or_default(), text(number));
        assert!(detail.chars().count() <= REDACTED_CHARS_MAX, "{} characters", detail.chars().count());
        match said.chars().count() <= REDACTED_CHARS_MAX {
            true => assert_eq!(detail, said),
            false => assert!(detail.ends_with(" …"), "{number}: it says that it was cut"),
        }
    }
}

/// BR-118: a number of 64 bits was rounded to what a double holds. Whoever looks for one finds it as it was sent, and
/// not its neighbours; and one that no program can hold hides nothing of what stands beside it.
pub async fn br_118_a_number_is_found_as_it_was_sent(bench: &Bench) {
    let queue = bench.queue::<Raw>(SETTINGS).await;
    let numbers = [
        "9007199254740992",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "1.10",
        "1e400",
    ];
    let body =
        |number: &str| Raw::json(format!("{{\"a\":[{{\"id\": {number}}}],\"n\":7,\"é\":\"\\u00e9\"}}"));
    let ids = bench.send(&queue, numbers.map(body)).await;
    let found = async |path: &[&str], value: &str| {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        let query = Query::default().and(Field::Queue, [queue.name().to_owned()]);
        let query = query.and(Field::Body(path), [value.to_owned()]);
        let find = Find { query, rows_max: 100, ..Find::default() };
        let found = bench.node().store.messages(find).await.expect("messages are listed");
        found.items.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    for (id, number) in ids.iter().zip(numbers) {
        assert_eq!(found(&["a", "0", "id"], number).await, [*id], "{number}");
    }
    for none in ["9007199254740994", "1.8446744073709552e19", "1.1", "inf", ""] {
        assert!(found(&["a", "0", "id"], none).await.is_empty(), "{none}");
    }
    assert_eq!((found(&["n"], "7").await.len(), found(&["é"], "é").await.len()), (6, 6));
    assert!(found(&["a"], "7").await.is_empty() && found(&["n", "0"], "7").await.is_empty());
}

/// BR-160: one half of a surrogate pair was refused by a JSON column, deep in the worker; and taking U+0000 out of a
/// text took the six characters of its escape out of texts that only spoke of it.
pub async fn br_160_half_a_surrogate_pair_is_refused_and_a_backslash_is_a_backslash(bench: &Bench) {
    let queue = bench.queue::<Raw>(SETTINGS).await;
    let halves = [
        &br#""\ud800""#[..],
        br#"{"a":"\ud800"}"#,
        br#"{"\udc00":1}"#,
        br#"["\ud83e\ud83e"]"#,
        br#""\udd86\ud83e""#,
        br#""\ud83ex\udd86""#,
        br#""\\\ud800""#,
        br#""\uD800\u0041""#,
    ];
    for body in halves {
        let batch = [Raw::json(*b"1"), Raw::json(body)];
        let refused = bench.node().pond.send(&queue, batch).await.expect_err("no text has half a character");
        let causes = refused.causes();
        assert_eq!((refused.code(), refused.index()), (Code::NotSerialisable, Some(1)), "{causes}");
        assert!(causes.contains("surrogate") && causes.contains("column"), "{causes}");
    }
    assert_eq!(bench.counts(&queue).await.sent, 0);
    let whole =
        [&br#""\ud83e\udd86""#[..], br#""\\u0000""#, br#""\\ud800""#, br#"{"\uD83E\uDD86":"\\\\ud800"}"#];
    let ids = bench.send(&queue, whole.map(|body| Raw::json(body.to_vec()))).await;
    for (id, body) in ids.into_iter().zip(whole) {
        assert_eq!(bench.look(id).await.body, body);
        serde_json::from_slice::<Value>(body).expect("whoever decodes it can");
    }
    // What is not JSON is not looked into.
    bench.send(&queue, [Raw::new("text/plain", halves[0])]).await;
}

/// BR-162: numbers beyond 2⁵³ came back as others. Here nobody reads them on the way.
pub async fn br_162_numbers_are_the_bytes_that_were_sent(bench: &Bench) {
    let queue = bench.queue::<Raw>(SETTINGS).await;
    let numbers = [
        "9007199254740993",
        "-9223372036854775808",
        "18446744073709551615",
        "340282366920938463463374607431768211456",
        "1.0",
        "1.10",
        "-0.0",
        "1e400",
        "1E+2",
        "0.1000000000000000055511151231257827",
    ];
    let body = |number: &str| Raw::json(format!("{{\"b\": {number}, \"a\":[{number}]}}"));
    let ids = bench.send(&queue, numbers.map(body)).await;
    let seen = bench.recorder();
    let worker = recorded(bench, &queue, &seen);
    bench.drained(&queue, numbers.len() as u64).await;
    worker.stop().await;
    for (id, number) in ids.into_iter().zip(numbers) {
        let call = seen.calls().into_iter().find(|call| call.id == id).expect("it arrived");
        assert_eq!(call.body, body(number));
        assert_eq!(bench.look(id).await.body, body(number).bytes);
    }
    let typed = bench.queue::<(u64, i64, f64)>(SETTINGS).await;
    let seen = bench.recorder();
    bench.send(&typed, [(u64::MAX, i64::MIN, 1.0)]).await;
    let worker = recorded(bench, &typed, &seen);
    bench.drained(&typed, 1).await;
    worker.stop().await;
    assert_eq!(seen.bodies(), [(u64::MAX, i64::MIN, 1.0)]);
}

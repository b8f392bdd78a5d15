//! Lists: what a query finds, in pages, in groups and by id.

use std::collections::BTreeSet;
use std::time::Duration;

use millpond_core::error::Code;
use millpond_core::message::MessageId;
use millpond_core::query::{Field, Query, Term, Test};
use millpond_core::reason::Failure;
use millpond_core::settle::{Ending, Verdict};
use millpond_core::state::State;
use millpond_core::store::{Changed, Redrive};
use millpond_core::view::{Count, Find, GroupBy};
use millpond_engine::item::Item;

use crate::bench::{Bench, SETTINGS};
use crate::contract::applied;
use crate::contract::history::{act, all_events, all_messages, of_queue};

const SECOND: Duration = Duration::from_secs(1);

fn body_is(path: &str, text: &str) -> Term {
    let field = Field::Body(path.split('.').map(str::to_owned).collect());
    Term { field, negated: false, any: vec![Test::Is(text.to_owned())] }
}

fn with(query: &Query, term: Term) -> Query {
    let mut terms = query.terms().to_vec();
    terms.push(term);
    Query::new(terms)
}

/// Dead letters come newest first, page by page; one that was sent again is open no more, and both know each other.
pub async fn dead_letters_are_open_until_they_are_sent_again(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let ids = bench.send(&queue, 0..9).await;
    let worker = bench.holder(&queue);
    for _ in &ids {
        let claim = worker.lease(1).await;
        let refuse = Ending::Returned(Verdict::DeadLetter { reason: "no".to_owned() });
        assert_eq!(worker.end(&claim, &refuse).await, applied());
        bench.advance(SECOND);
    }
    let store = &bench.node().store;
    let mut find = Find { query: of_queue(&queue), rows_max: 4, count: Count::All, ..Find::default() };
    let mut listed = Vec::new();
    loop {
        let found = store.dead_letters(find.clone()).await.expect("dead letters are listed");
        assert_eq!((found.matched, found.counted_all, found.cut_short), (9, true, false));
        assert!(found.items.iter().all(|letter| letter.body.is_empty() && 0 < letter.body_bytes));
        listed.extend(found.items.into_iter().map(|letter| letter.id));
        find.after = found.next;
        if find.after.is_none() {
            break;
        }
    }
    let newest_first: Vec<MessageId> = ids.iter().rev().copied().collect();
    assert_eq!(listed, newest_first);

    let new_id = MessageId(uuid::Uuid::from_u128(ids[0].0.as_u128() ^ 1));
    let redrive = Redrive { id: ids[0], new_id, due: None, queue: None, attempts_max: None };
    let redriven = store.redrive(vec![redrive], act("dead redrive")).await.expect("it is answered");
    assert_eq!(redriven, [Changed::Done]);
    assert_eq!(bench.dead(&queue).await.len(), 8);
    let retried = of_queue(&queue).and(Field::Status, ["retried".to_owned()]);
    let retried = store.dead_letters(Find { query: retried, rows_max: 9, ..Find::default() }).await;
    let retried = retried.expect("dead letters are listed").items;
    assert_eq!((retried.len(), retried[0].id, retried[0].redriven_as), (1, ids[0], Some(new_id)));
    assert_eq!(bench.look(new_id).await.retry_of, Some(ids[0]));
    bench.relay().await;
    let claim = worker.lease(1).await;
    assert_eq!(worker.end(&claim, &Ending::Undecodable).await, applied());
    let again = bench.dead(&queue).await;
    let again = again.iter().find(|letter| letter.id == new_id).expect("it died again");
    assert_eq!((again.retry_of, again.reason.as_str()), (Some(ids[0]), "undecodable"));
    assert_eq!(again.body, b"0", "bodies come if they are asked for");
}

/// Dead letters with like errors are one group, and their queue is one.
pub async fn like_failures_are_one_group(bench: &Bench) {
    let queue = bench.queue::<u32>(crate::bench::SETTINGS).await;
    bench.send(&queue, 0..5).await;
    let worker = bench.holder(&queue);
    for number in 0..5 {
        let claim = worker.lease(1).await;
        let reason = match number {
            0..3 => format!("no route to 10.0.0.{number} after {number} s"),
            _ => "no such user".to_owned(),
        };
        assert_eq!(worker.end(&claim, &Ending::Returned(Verdict::DeadLetter { reason })).await, applied());
        bench.advance(SECOND * 3_600 * 13);
    }
    let store = &bench.node().store;
    let by = async |by| store.dead_letter_groups(of_queue(&queue), by).await.expect("groups are made");
    let groups = by(GroupBy::Fingerprint).await;
    assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [3, 2], "the largest first");
    assert_eq!(groups[0].fingerprint.as_deref(), Some(groups[0].key.as_str()));
    assert_eq!(groups[0].reason.as_deref(), Some("refused"));
    assert!(
        groups[0].example.as_deref().is_some_and(|example| example.contains("10.0.0.2")),
        "of the newest"
    );
    assert_eq!(groups[0].last.since(groups[0].first), SECOND * 3_600 * 26);
    assert_eq!(groups[0].per_day, [0, 0, 0, 0, 2, 1, 0], "65, 52 and 39 hours ago");
    let queues = by(GroupBy::Queue).await;
    assert_eq!((queues.len(), queues[0].count, queues[0].key.as_str()), (1, 5, queue.name()));
    assert_eq!(queues[0].fingerprint, None, "they differ");
    let print = of_queue(&queue).and(Field::Fingerprint, [groups[1].key.clone()]);
    let found =
        store.dead_letters(Find { query: print, rows_max: 9, count: Count::All, ..Find::default() }).await;
    assert_eq!(found.expect("dead letters are listed").matched, 2);
}

/// Rows of the outbox come as they are due, and their sums say the same.
pub async fn the_outbox_is_listed_as_it_is_due(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let later = |body: u32| Item::from(body).delay(SECOND * (10 - body));
    let mut ids = bench.send(&queue, (0..6).map(later)).await;
    ids.reverse();
    let store = &bench.node().store;
    let mut find = Find { query: of_queue(&queue), rows_max: 4, ..Find::default() };
    let first = store.outbox(find.clone()).await.expect("the outbox is listed");
    find.after = first.next.clone();
    let second = store.outbox(find).await.expect("the outbox is listed");
    let listed: Vec<MessageId> = first.items.iter().chain(&second.items).map(|row| row.id).collect();
    assert_eq!((listed, second.next), (ids, None));
    assert!(first.items.iter().all(|row| row.reason == "delay" && row.queue == queue.name()));

    bench.advance(SECOND * 6);
    let sums = store.outbox_summary().await.expect("the outbox is summed up");
    let sum = sums.iter().find(|sum| sum.queue == queue.name()).expect("something waits");
    assert_eq!((sum.rows, sum.due, sum.attempts_max), (6, 2, 0));
    assert_eq!(sum.oldest_due, Some(first.items[0].ready_at));
    assert_eq!(sum.next_due, Some(first.items[2].ready_at));
    assert_eq!(bench.relay().await, 2);
}

/// A query finds messages by what is known of them and by what they carry.
pub async fn messages_are_found_by_what_they_carry(bench: &Bench) {
    let queue = bench.queue::<serde_json::Value>(SETTINGS).await;
    let item = |plan: &str, tenant: &str| {
        Item::from(serde_json::json!({ "user": { "plan": plan } })).header("tenant", tenant).key(plan)
    };
    let ids = bench.send(&queue, [item("free", "acme"), item("paid", "acme"), item("paid", "other")]).await;
    let find = async |query: Query| -> BTreeSet<MessageId> {
        all_messages(bench, query).await.into_iter().map(|row| row.id).collect()
    };
    let base = of_queue(&queue);
    assert_eq!(find(base.clone()).await, ids.iter().copied().collect());
    assert_eq!(find(with(&base, body_is("user.plan", "paid"))).await, [ids[1], ids[2]].into());
    let acme = base.clone().and(Field::Header("tenant".into()), ["acme".to_owned()]);
    assert_eq!(find(with(&acme, body_is("user.plan", "paid"))).await, [ids[1]].into());
    assert_eq!(find(base.clone().and(Field::Key, ["free".to_owned()])).await, [ids[0]].into());
    assert_eq!(find(base.clone().and(Field::Queue, ["none".to_owned()])).await, [].into(), "both must hold");

    let worker = bench.holder(&queue);
    bench.advance(SECOND * 5);
    let claim = worker.lease(1).await;
    let waited = Term { field: Field::Wait, negated: false, any: vec![Test::Within(5_000_000, i64::MAX)] };
    assert_eq!(find(with(&base, waited)).await.len(), 3);
    assert_eq!(worker.end(&claim, &Ending::Failed(Failure::Error)).await, applied());
    let error = Term { field: Field::Error, negated: false, any: vec![Test::Contains("BROKE".to_owned())] };
    assert_eq!(find(with(&base, error)).await, [claim.messages[0].id].into());
    let by_id = base.clone().and(Field::Id, [ids[2].to_string(), "no id".to_owned()]);
    let rows = all_messages(bench, by_id.clone()).await;
    assert_eq!((rows.len(), rows[0].id, rows[0].state), (1, ids[2], State::Ready));
    let bodies = Find { query: by_id, rows_max: 1, bodies: true, ..Find::default() };
    let row = bench.node().store.messages(bodies).await.expect("messages are listed").items.remove(0);
    assert!(!row.body.is_empty() && row.headers["tenant"] == "other");
}

/// A list goes on where it was, whatever has arrived since, and refuses a cursor that is none.
pub async fn a_cursor_is_stable_while_rows_arrive(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let ids = bench.send(&queue, 0..6).await;
    let worker = bench.holder(&queue);
    let claim = worker.lease(3).await;
    let store = &bench.node().store;
    let page = |after| Find { query: of_queue(&queue), rows_max: 2, after, ..Find::default() };
    let messages = store.messages(page(None)).await.expect("messages are listed");
    let events = store.events(page(None)).await.expect("the run log is read");

    bench.advance(SECOND);
    bench.send(&queue, 6..20).await;
    assert_eq!(worker.ack(&claim).await, applied());
    bench.advance(SECOND);
    let (mut after, mut listed) = (messages.next, messages.items);
    while after.is_some() {
        let found = store.messages(page(after)).await.expect("messages are listed");
        listed.extend(found.items);
        after = found.next;
    }
    let listed: Vec<MessageId> = listed.into_iter().map(|row| row.id).collect();
    assert_eq!(listed.len(), 6, "what arrived later is above the first page");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), ids.iter().copied().collect());

    let (mut after, mut entries) = (events.next, events.items);
    while after.is_some() {
        let found = store.events(page(after)).await.expect("the run log is read");
        entries.extend(found.items);
        after = found.next;
    }
    let seen: BTreeSet<_> = entries.iter().map(|event| event.id.clone()).collect();
    assert_eq!(
        (seen.len(), entries.len()),
        (9, 9),
        "six were stored and three started before the first page"
    );
    let all = all_events(bench, of_queue(&queue)).await;
    assert!(seen.iter().all(|id| all.iter().any(|event| event.id == *id)));

    let refused = store.messages(page(Some("nonsense".to_owned()))).await.expect_err("it is no cursor");
    assert_eq!(refused.code(), Code::InvalidOption);
}

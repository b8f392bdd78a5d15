//! The run log, counters, and what retention leaves of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millpond_core::message::{Due, MessageId};
use millpond_core::query::{Field, Query};
use millpond_core::queue::QueueSettings;
use millpond_core::reason::{EventKind, Failure, Release};
use millpond_core::settle::{Ending, Verdict};
use millpond_core::state::State;
use millpond_core::store::{Act, Changed, Redrive};
use millpond_core::time::Timestamp;
use millpond_core::view::{Count, EventView, Find, MessageRow, Tallies, Tally};
use millpond_engine::item::Item;

use crate::bench::{Bench, SETTINGS, TestQueue};
use crate::contract::applied;
use crate::holder::{HOLDER_LEASE, Holder};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Entries of a page: small, so that pages end everywhere.
const PAGE: usize = 7;

pub(super) fn act(verb: &str) -> Act {
    Act { actor: "ana".to_owned(), verb: verb.to_owned(), object: "bench".to_owned(), reason: None }
}

pub(super) fn of_queue<B>(queue: &TestQueue<B>) -> Query {
    Query::default().and(Field::Queue, [queue.name().to_owned()])
}

/// The whole run log of a query, page by page.
pub(super) async fn all_events(bench: &Bench, query: Query) -> Vec<EventView> {
    let mut find = Find { query, rows_max: PAGE, ..Find::default() };
    let mut entries = Vec::new();
    loop {
        let found = bench.node().store.events(find.clone()).await.expect("the run log is read");
        assert!(!found.cut_short && found.items.len() <= PAGE, "a small log is read whole");
        entries.extend(found.items);
        find.after = found.next;
        if find.after.is_none() {
            return entries;
        }
    }
}

/// Every message that a query finds, page by page.
pub(super) async fn all_messages(bench: &Bench, query: Query) -> Vec<MessageRow> {
    let mut find = Find { query, rows_max: PAGE, ..Find::default() };
    let mut rows = Vec::new();
    loop {
        let found = bench.node().store.messages(find.clone()).await.expect("messages are listed");
        rows.extend(found.items);
        find.after = found.next;
        if find.after.is_none() {
            return rows;
        }
    }
}

/// What an ending leaves in the run log: kind and reason.
const ENDINGS: usize = 9;

fn ending(number: usize) -> Ending {
    match number % ENDINGS {
        0 | 1 => Ending::Returned(Verdict::Ack),
        2 => Ending::Failed(Failure::Error),
        3 => Ending::Failed(Failure::Timeout),
        4 => Ending::Failed(Failure::Panic),
        5 => Ending::Returned(Verdict::Snooze { until: Due::In(SECOND) }),
        6 => Ending::Returned(Verdict::DeadLetter { reason: "no".to_owned() }),
        7 => Ending::Released(Release::Limited),
        _ => Ending::Released(Release::Shutdown),
    }
}

/// Messages that meet everything that can happen to one.
async fn mixed(bench: &Bench, queue: &TestQueue<u32>) -> Vec<MessageId> {
    let mut ids = bench.send(queue, 0..30).await;
    let later = |body: u32| Item::from(body).delay(SECOND * (body % 9 + 1));
    ids.extend(bench.send(queue, (30..45).map(later)).await);
    let workers = [bench.holder(queue), bench.holder(queue)];
    for round in 0..40_usize {
        bench.advance(Duration::from_millis(700));
        bench.relay().await;
        let worker: &Holder = &workers[round % 2];
        if worker_is_idle(worker).await {
            continue;
        }
        let claim = worker.lease(1 + round % 4).await;
        bench.advance(Duration::from_millis(40));
        // Every seventh claim is lost with its worker; some end in two steps.
        if round % 7 == 6 {
            bench.advance(HOLDER_LEASE);
            bench.reclaim().await;
            continue;
        }
        for (place, message) in claim.messages.iter().enumerate() {
            let settlement = worker.decide(&claim, message, &ending(round + place));
            assert_eq!(worker.settle(&claim, vec![(message.offset, settlement)]).await, applied());
            bench.advance(Duration::from_millis(3));
        }
        if round % 9 == 0 {
            learn_the_time(bench, queue).await;
            ids.extend(bench.send(queue, [100 + round as u32]).await);
        }
    }
    ids.extend(changed(bench, queue).await);
    ids
}

async fn worker_is_idle(worker: &Holder) -> bool {
    use millpond_core::pick::Lane;
    use millpond_core::store::Lease;
    match worker.try_lease(&[Lane::Return, Lane::Suspect, Lane::Main], 1, true).await {
        Lease::Claim(claim) => {
            worker.end(&claim, &Ending::Released(Release::Limited)).await;
            false
        }
        _ => true,
    }
}

/// A ready message and a waiting one are cancelled, a dead one is sent again, one stays leased. Answers new ids.
async fn changed(bench: &Bench, queue: &TestQueue<u32>) -> Vec<MessageId> {
    learn_the_time(bench, queue).await;
    let store = &bench.node().store;
    let mut ids = bench.send(queue, 200..203).await;
    ids.extend(bench.send(queue, [Item::from(203).delay(DAY)]).await);
    let cancelled = store.cancel(vec![ids[1], ids[3]], act("message cancel")).await.expect("it is answered");
    assert_eq!(cancelled, [Changed::Done, Changed::Done]);
    let dead = bench.dead(queue).await;
    let old = dead.iter().find(|letter| letter.reason == "refused").expect("one was refused").id;
    let new = bench.send(queue, [204]).await[0];
    let new_id = MessageId(uuid_after(new));
    ids.push(new);
    let redrive = Redrive { id: old, new_id, due: None, queue: None, attempts_max: None };
    let redriven = store.redrive(vec![redrive], act("dead redrive")).await.expect("it is answered");
    assert_eq!(redriven, [Changed::Done]);
    bench.relay().await;
    bench.holder(queue).lease(2).await;
    ids.push(new_id);
    ids
}

/// A sender makes its ids by what the store said last of the time: at a declaration.
pub(super) async fn learn_the_time<B>(bench: &Bench, queue: &TestQueue<B>) {
    bench.named_queue::<B>(queue.name().to_owned(), queue.stored.settings).await;
}

/// Another id of the same time.
fn uuid_after(id: MessageId) -> uuid::Uuid {
    uuid::Uuid::from_u128(id.0.as_u128() ^ 0xff)
}

/// What a test of one message's log says: nothing is out of place.
fn check_life(id: MessageId, events: &[EventView], state: State) {
    let log: Vec<(EventKind, u32)> = events.iter().map(|event| (event.kind, event.delivery)).collect();
    let kinds = |kind| log.iter().filter(|(found, _)| *found == kind).count();
    assert_eq!((kinds(EventKind::Enqueue), log[0].0), (1, EventKind::Enqueue), "{id}: {log:?}");
    assert!(kinds(EventKind::Success) + kinds(EventKind::Dlq) <= 1, "{id} ends once: {log:?}");
    let ends = |kind| matches!(kind, EventKind::Success | EventKind::Dlq);
    let end = log.iter().position(|(kind, _)| ends(*kind));
    assert!(end.is_none_or(|end| end + 1 == log.len()), "{id}: nothing follows its end: {log:?}");
    let mut open = None;
    for (event, (kind, delivery)) in events.iter().zip(&log) {
        match kind {
            EventKind::Enqueue => {}
            EventKind::Start => {
                assert_eq!(open, None, "{id}: a start before the end of another: {log:?}");
                open = Some(*delivery);
            }
            EventKind::Dlq if open.is_none() => {
                assert_eq!(event.reason.as_deref(), Some("cancelled"), "{id}: {log:?}");
            }
            _ => assert_eq!(open.take(), Some(*delivery), "{id}: an end without its start: {log:?}"),
        }
    }
    assert_eq!(open.is_some(), state == State::Leased, "{id} is {state:?}: {log:?}");
}

/// The run log of everything that can happen: each message begins once, each start has one end, and a list of all of
/// them is what the messages say one by one.
pub async fn the_run_log_adds_up(bench: &Bench) {
    let queue = bench.queue::<u32>(QueueSettings { attempts_max: 3, ..SETTINGS }).await;
    let ids = mixed(bench, &queue).await;

    let (mut by_message, mut states) = (BTreeSet::new(), BTreeMap::new());
    for id in &ids {
        let view = bench.look(*id).await;
        check_life(*id, &view.events, view.state);
        by_message.extend(view.events.into_iter().map(|event| event.id));
        states.insert(*id, view.state);
    }
    let log = all_events(bench, of_queue(&queue)).await;
    let listed: BTreeSet<String> = log.iter().map(|event| event.id.clone()).collect();
    assert_eq!(listed.len(), log.len(), "no entry comes twice");
    let missing: Vec<_> = by_message.difference(&listed).collect();
    let extra: Vec<_> = log.iter().filter(|event| !by_message.contains(&event.id)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, too many {extra:?}");
    assert!(log.is_sorted_by(|one, next| next.at <= one.at), "newest first");

    let count = |kind| log.iter().filter(|event| event.kind == kind).count() as u64;
    let left = [State::Ready, State::Leased, State::Scheduled, State::Retrying];
    let left = states.values().filter(|state| left.contains(state)).count() as u64;
    let ended = count(EventKind::Success) + count(EventKind::Dlq);
    assert_eq!(count(EventKind::Enqueue), ended + left, "what was stored has ended or is there");
    for kind in EventKind::ALL {
        let one = of_queue(&queue).and(Field::Event, [kind.as_str().to_owned()]);
        assert_eq!(all_events(bench, one).await.len() as u64, count(*kind), "{kind}");
    }
    let reasons: BTreeSet<_> = log.iter().filter_map(|event| event.reason.as_deref()).collect();
    for reason in ["send", "redrive", "error", "timeout", "panic", "snooze", "limited", "shutdown"] {
        assert!(reasons.contains(reason), "{reason} is in {reasons:?}");
    }
    assert!(reasons.contains("lease-expired") && reasons.contains("cancelled"), "{reasons:?}");
    let runs = log.iter().filter(|event| event.run.is_some());
    assert!(runs.clone().any(|event| event.kind == EventKind::Retry), "a failed run has its time");
    assert!(runs.clone().any(|event| event.kind == EventKind::Success));

    let redriven = log.iter().find(|event| event.reason.as_deref() == Some("redrive")).expect("it is there");
    assert!(redriven.retry_of.is_some());
    check_tallies(bench, &queue, &log).await;
    check_list(bench, &queue, &states).await;
    check_after_retention(bench, &queue, &ids).await;
}

/// Days later rows of the log are gone: what is still kept begins once, and the list says what each message says.
async fn check_after_retention(bench: &Bench, queue: &TestQueue<u32>, ids: &[MessageId]) {
    bench.advance(DAY * 3);
    while bench.retain(100).await != 0 {}
    bench.relay().await;
    let log = all_events(bench, of_queue(queue)).await;
    let listed: BTreeSet<&str> = log.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(listed.len(), log.len(), "no entry comes twice");
    let rows = all_messages(bench, of_queue(queue)).await;
    let kept: BTreeSet<MessageId> = rows.iter().map(|row| row.id).collect();
    assert_eq!(rows.len(), kept.len(), "each once");
    assert!(!kept.is_empty() && kept.len() < ids.len(), "some are gone, some are kept");
    for row in rows {
        let view = bench.look(row.id).await;
        assert_eq!(view.state, row.state);
        let missing: Vec<_> =
            view.events.iter().filter(|event| !listed.contains(event.id.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    let begun: Vec<_> = log.iter().filter(|event| event.kind == EventKind::Enqueue).collect();
    let began: BTreeSet<_> = begun.iter().filter_map(|event| event.message).collect();
    assert_eq!(began.len(), begun.len(), "each begins once");
    assert!(kept.is_subset(&began), "whatever is kept has a beginning");
}

/// Counters say what the log says.
async fn check_tallies(bench: &Bench, queue: &TestQueue<u32>, log: &[EventView]) {
    let tallies = last_day(bench, queue).await;
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let count = |kind| log.iter().filter(|event| event.kind == kind).count() as u64;
    let sums = [sum(|t| t.sent), sum(|t| t.leased), sum(|t| t.done), sum(|t| t.retried), sum(|t| t.dead)];
    let counts = [
        count(EventKind::Enqueue),
        count(EventKind::Start),
        count(EventKind::Success),
        count(EventKind::Retry),
        count(EventKind::Dlq),
    ];
    assert_eq!(sums, counts);
    assert_eq!(sum(|t| t.recovered), count(EventKind::Recover));
    let run: Duration = log.iter().filter_map(|event| event.run).sum();
    assert_eq!(tallies.iter().map(|tally| tally.run).sum::<Duration>(), run);
}

/// The minutes of a whole day up to now.
async fn last_day(bench: &Bench, queue: &TestQueue<u32>) -> Vec<Tally> {
    let minute = 60_000_000;
    let to = (bench.clock().now().as_micros() / minute + 1) * minute;
    let (from, to) = (Timestamp::from_micros(to - 1_440 * minute), Timestamp::from_micros(to));
    let which = Tallies { queue: Some(queue.name().to_owned()), kind: None, from, to, by_minute: true };
    let tallies = bench.node().store.tallies(which).await.expect("counters are read");
    assert_eq!(tallies.len(), 1_440, "minutes without anything are there too");
    tallies
}

/// The list of messages has each once, in the state that it has.
async fn check_list(bench: &Bench, queue: &TestQueue<u32>, states: &BTreeMap<MessageId, State>) {
    let rows = all_messages(bench, of_queue(queue)).await;
    let listed: BTreeMap<MessageId, State> = rows.iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(rows.len(), listed.len(), "each once");
    assert_eq!(&listed, states);
    assert!(rows.is_sorted_by(|one, next| next.sent_at <= one.sent_at), "the last sent first");
    for state in [
        State::Scheduled,
        State::Retrying,
        State::Ready,
        State::Leased,
        State::Done,
        State::Dead,
        State::Cancelled,
    ] {
        let query = of_queue(queue).and(Field::State, [state.as_str().to_owned()]);
        let found: BTreeSet<_> = all_messages(bench, query).await.into_iter().map(|row| row.id).collect();
        let expected: BTreeSet<_> =
            states.iter().filter(|(_, of)| **of == state).map(|(id, _)| *id).collect();
        assert_eq!(found, expected, "{state:?}");
    }
    let find = Find { query: of_queue(queue), rows_max: 1, count: Count::All, ..Find::default() };
    let counted = bench.node().store.messages(find).await.expect("messages are counted");
    assert_eq!((counted.matched, counted.counted_all), (states.len() as u64, true));
}

/// What happened days ago is counted by the quarter of an hour, and the sums stay what they were; a day in any zone
/// begins with a quarter.
pub async fn trends_add_up_by_the_quarter(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    let quarter = 900_000_000;
    let from = bench.clock().now().as_micros() / quarter * quarter;
    for day in 0..4_u32 {
        bench.send(&queue, 0..day + 1).await;
        let claim = worker.lease(10).await;
        assert_eq!(worker.ack(&claim).await, applied());
        bench.advance(DAY);
        while bench.retain(100).await != 0 {}
    }
    let to = (bench.clock().now().as_micros() / quarter + 1) * quarter;
    let which = |queue: &str| Tallies {
        queue: Some(queue.to_owned()),
        kind: None,
        from: Timestamp::from_micros(from),
        to: Timestamp::from_micros(to),
        by_minute: false,
    };
    let store = &bench.node().store;
    let tallies = store.tallies(which(queue.name())).await.expect("counters are read");
    assert_eq!(tallies.len() as i64, (to - from) / quarter, "quarters without anything are there too");
    let days: Vec<u64> = tallies.chunks(96).map(|day| day.iter().map(|tally| tally.sent).sum()).collect();
    assert_eq!(days[..4], [1, 2, 3, 4]);
    let done: u64 = tallies.iter().map(|tally| tally.done).sum();
    let run: Duration = tallies.iter().map(|tally| tally.run).sum();
    assert_eq!((done, run), (10, Duration::from_millis(50)));
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.done), (10, 10));
    let times = store.run_times(queue.name().to_owned(), 7).await.expect("run times are read");
    assert_eq!(times, [Duration::from_millis(5); 7]);
    let nobody = store.tallies(which("nobody")).await.expect("counters are read");
    assert!(nobody.iter().all(|tally| tally.sent == 0));
}

/// No call takes more of a table than it was told, and in the end everything that is old is gone; the log of what is
/// kept still adds up.
pub async fn retention_takes_everything_in_chunks(bench: &Bench) {
    let queue = bench.queue::<u32>(SETTINGS).await;
    let worker = bench.holder(&queue);
    bench.send(&queue, 0..60).await;
    for number in 0..60 {
        let claim = worker.lease(1).await;
        let ended =
            if number % 2 == 0 { worker.ack(&claim).await } else { worker.end(&claim, &ending(6)).await };
        assert_eq!(ended, applied());
        bench.advance(SECOND * 90);
    }
    let store = &bench.node().store;
    for _ in 0..20 {
        store
            .pause(millpond_core::view::Scope::Global, None, act("queue pause"))
            .await
            .expect("it is paused");
        store.resume(millpond_core::view::Scope::Global, act("queue resume")).await.expect("it goes on");
    }
    let rows = async || -> BTreeMap<String, u64> {
        store.info().await.expect("the store tells").tables.into_iter().collect()
    };
    let before = rows().await;
    for table in ["log", "dead_letter", "event", "history", "audit", "stat"] {
        assert!(20 <= before[table], "{table} has {}", before[table]);
    }
    bench.advance(DAY * 401);
    let mut last = rows().await;
    loop {
        let gone = bench.retain(7).await;
        let now = rows().await;
        for (table, rows) in &last {
            assert!(*rows <= now[table] + 7, "{table}: {rows} before, {} after", now[table]);
        }
        last = now;
        if gone == 0 {
            break;
        }
    }
    for (table, most) in [
        ("log", 1),
        ("dead_letter", 0),
        ("event", 0),
        ("history", 0),
        ("audit", 1),
        ("stat_quarter", 0),
        ("stat", 1),
    ] {
        assert!(last[table] <= most, "{table} keeps {}", last[table]);
    }
    let counts = bench.counts(&queue).await;
    assert_eq!((counts.sent, counts.done), (60, 30), "the sums stay");
    assert!(all_events(bench, of_queue(&queue)).await.len() <= 1, "only the highest row of the log is left");
}

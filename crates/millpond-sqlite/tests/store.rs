//! The verbs of the store, through the ports, under a virtual clock.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use common::{START_MICROS, VirtualClock, number};
use millpond_core::error::Code;
use millpond_core::message::{Dedup, Due, Leased, MessageId, NewMessage, Offset, Token};
use millpond_core::pick::Lane;
use millpond_core::query::{Field, Query};
use millpond_core::queue::{HistoryLevel, QueueSettings};
use millpond_core::reason::{Back, DropReason, Failure};
use millpond_core::settle::{Counters, Ending, Policy, Settlement, Verdict, settle};
use millpond_core::state::State;
use millpond_core::store::{
    Act, Admin, Begun, Changed, Claim, ClaimRef, Clock, EffectTx, Inspect, Lease, LeaseRequest, Log, Operate,
    Outbox, Queue, Redrive, Renewal, SettleClaim, SettleItem, Settled, Stored, TakeOver, TakenOver,
};
use millpond_core::time::Timestamp;
use millpond_core::view::{Count, Find, GroupBy, MessageView, QueueView, WorkerFacts};
use millpond_sqlite::{Options, SqliteStore, SqliteTx};
use rusqlite::Connection;

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(24 * 3600);
const CLASS: u8 = 2;

/// A store with one queue.
struct Fixture {
    store: SqliteStore,
    clock: Arc<VirtualClock>,
    queue: Queue,
}

/// A fixture whose store is in a file, which the test may look into.
struct InFile {
    fixture: Fixture,
    folder: tempfile::TempDir,
}

fn open(url: &str, create: bool) -> Result<(SqliteStore, Arc<VirtualClock>), millpond_core::error::Error> {
    let clock = Arc::new(VirtualClock(AtomicI64::new(START_MICROS)));
    let options = Options { create, clock: clock.clone(), ..Options::default() };
    Ok((SqliteStore::open(url, options)?, clock))
}

#[track_caller]
fn refused(url: &str, create: bool, expected: Code) {
    assert_eq!(open(url, create).map(|_| ()).unwrap_err().code(), expected, "{url}");
}

async fn fixture(url: &str) -> Fixture {
    let (store, clock) = open(url, true).unwrap();
    let queue = store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap();
    Fixture { store, clock, queue }
}

async fn in_memory() -> Fixture {
    fixture("sqlite::memory:").await
}

async fn in_file() -> InFile {
    let folder = tempfile::tempdir().unwrap();
    let fixture = fixture(&url_in(&folder)).await;
    InFile { fixture, folder }
}

fn url_in(folder: &tempfile::TempDir) -> String {
    format!("sqlite://{}", folder.path().join("a.db").display())
}

/// The heartbeat of a worker of this name.
fn renewal(worker: &str) -> Renewal {
    Renewal {
        worker: worker.to_owned(),
        host: "host".to_owned(),
        lease: LEASE,
        queues: vec!["mail".to_owned()],
        slots: 4,
        busy: 0,
        error: None,
        facts: WorkerFacts::default(),
    }
}

impl std::ops::Deref for InFile {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl InFile {
    fn raw(&self) -> Connection {
        Connection::open(self.folder.path().join("a.db")).unwrap()
    }

    /// The one number that a statement answers.
    fn ask(&self, statement: &str) -> i64 {
        self.raw().query_row(statement, [], |row| row.get(0)).unwrap()
    }
}

impl Fixture {
    fn pass(&self, time: Duration) {
        self.clock.0.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.micros())
    }

    fn message(&self, body: &str) -> NewMessage {
        let millis = u64::try_from(self.clock.micros() / 1_000).unwrap();
        let mut bits = [0; 10];
        bits[2..].copy_from_slice(&number().to_be_bytes());
        NewMessage {
            id: MessageId(uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid()),
            kind: None,
            key: None,
            headers: [("tenant".to_owned(), "acme".to_owned())].into(),
            content_type: None,
            body: body.into(),
            priority: CLASS,
            due: None,
            attempts_max: None,
            retry_until: None,
            dedup: None,
        }
    }

    async fn append(&self, message: NewMessage) -> MessageId {
        let id = message.id;
        assert_eq!(self.store.append(self.queue.id, vec![message]).await.unwrap(), [Stored::New]);
        id
    }

    async fn send(&self, body: &str) -> MessageId {
        self.append(self.message(body)).await
    }

    async fn send_all(&self, bodies: &[&str]) -> Vec<MessageId> {
        let mut ids = Vec::new();
        for body in bodies {
            ids.push(self.send(body).await);
        }
        ids
    }

    async fn renew(&self, worker: &str) -> Vec<ClaimRef> {
        self.store.renew(renewal(worker)).await.unwrap().claims
    }

    async fn try_lease(&self, worker: &str, messages_max: usize, hands_empty: bool) -> Lease {
        self.renew(worker).await;
        self.store.lease(self.request(worker, messages_max, hands_empty)).await.unwrap()
    }

    /// A request with a token of its own.
    fn request(&self, worker: &str, messages_max: usize, hands_empty: bool) -> LeaseRequest {
        let mut token = [7; 16];
        token[..8].copy_from_slice(&number().to_be_bytes());
        LeaseRequest {
            queue: self.queue.id,
            worker: worker.to_owned(),
            token: Token(token),
            turns: [Lane::Return, Lane::Suspect, Lane::Main].map(|lane| (CLASS, lane)).into(),
            messages_max,
            bytes_max: usize::MAX,
            hands_empty,
            one_by_one: true,
        }
    }

    async fn lease(&self, worker: &str, messages_max: usize) -> Claim {
        match self.try_lease(worker, messages_max, true).await {
            Lease::Claim(claim) => claim,
            other => panic!("no claim, but {other:?}"),
        }
    }

    async fn nothing_ready(&self) {
        assert!(matches!(self.try_lease("idle", 10, true).await, Lease::Empty));
    }

    async fn settle(&self, held: ClaimRef, items: Vec<(Offset, Settlement)>) -> Settled {
        let item = |(offset, settlement)| SettleItem {
            offset,
            kind: None,
            error: (settlement != Settlement::Done).then(|| "it broke".to_owned()),
            settlement,
            class: None,
            run: Duration::from_millis(5),
        };
        let items = items.into_iter().map(item).collect();
        self.store.settle(vec![SettleClaim { held, items }]).await.unwrap().remove(0)
    }

    /// Ends the delivery of a claim's messages, all in the same way.
    async fn end(&self, claim: &Claim, ending: Ending) -> Settled {
        let items = claim.messages.iter().map(|message| (message.offset, self.decide(message, &ending)));
        self.settle(claim.held, items.collect()).await
    }

    /// What core makes of the end of a delivery.
    fn decide(&self, message: &Leased, ending: &Ending) -> Settlement {
        let policy = Policy::of(&self.queue.settings, message.attempts_max, message.retry_until);
        settle(&policy, Counters::of(message), ending.clone(), self.now(), 0.5)
    }

    async fn done(&self, claim: &Claim) {
        assert_eq!(self.end(claim, Ending::Returned(Verdict::Ack)).await, applied());
    }

    async fn dead(&self, claim: &Claim) {
        let reason = "no such user".to_owned();
        assert_eq!(self.end(claim, Ending::Returned(Verdict::DeadLetter { reason })).await, applied());
    }

    async fn back(&self, claim: &Claim, wait: Duration) {
        let asked = Ending::Returned(Verdict::Retry { after: Some(wait) });
        assert_eq!(self.end(claim, asked).await, applied());
    }

    async fn take_over(&self, claims_max: usize) -> Vec<TakenOver> {
        let request =
            TakeOver { worker: None, lease: LEASE, in_touch_since: Timestamp::from_secs(0), claims_max };
        self.store.take_over(request).await.unwrap()
    }

    async fn relay(&self) -> usize {
        self.store.relay(100).await.unwrap().moved
    }

    async fn begin(&self, claim: &Claim) -> Box<dyn EffectTx> {
        let offset = claim.messages[0].offset;
        match self.store.begin(claim.held, offset, LEASE).await.unwrap() {
            Begun::Open(tx) => tx,
            Begun::AlreadyDone => panic!("already done"),
        }
    }

    async fn look(&self, id: MessageId) -> MessageView {
        self.store.message(id).await.unwrap().unwrap()
    }

    #[track_caller]
    fn check_log(view: &MessageView, expected: &[&str]) {
        let log: Vec<String> =
            view.events.iter().map(|event| format!("{} {}", event.kind, event.attempt)).collect();
        assert_eq!(log, expected);
    }

    async fn view(&self) -> QueueView {
        self.store.queues().await.unwrap().remove(0)
    }

    async fn dead_ids(&self, query: Query) -> Vec<MessageId> {
        let find = Find { query, rows_max: 100, count: Count::All, ..Find::default() };
        let found = self.store.dead_letters(find).await.unwrap();
        assert_eq!((found.matched, found.counted_all), (found.items.len() as u64, true));
        found.items.into_iter().map(|dead| dead.id).collect()
    }

    async fn redrive(&self, id: MessageId, new_id: MessageId) -> Changed {
        let redrive = Redrive { id, new_id, due: None, queue: None, attempts_max: None };
        self.store.redrive(vec![redrive], act("dead redrive")).await.unwrap().remove(0)
    }

    async fn retain(&self) -> u64 {
        self.store.retain("node".to_owned(), 10_000).await.unwrap()
    }
}

fn act(verb: &str) -> Act {
    Act { actor: "local".to_owned(), verb: verb.to_owned(), object: String::new(), reason: None }
}

fn only(field: Field, text: &str) -> Query {
    Query::default().and(field, [text.to_owned()])
}

fn applied() -> Settled {
    Settled::Applied { done_anyway: Vec::new() }
}

fn bodies(messages: &[Leased]) -> Vec<&str> {
    messages.iter().map(|message| std::str::from_utf8(&message.body).unwrap()).collect()
}

async fn write_effect(tx: &mut Box<dyn EffectTx>) {
    let tx = tx.as_any().downcast_mut::<SqliteTx>().unwrap();
    tx.run(|conn| conn.execute("insert into effect values (1)", [])).await.unwrap();
}

fn failed() -> Ending {
    Ending::Failed(Failure::Error)
}

#[tokio::test]
async fn a_message_comes_once_in_order_and_is_done() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b", "c"]).await;
    let claim = fixture.lease("w1", 2).await;
    assert_eq!(bodies(&claim.messages), ["a", "b"]);
    let first = &claim.messages[0];
    assert_eq!((first.offset, first.attempt, first.releases, first.intact), (Offset(0), 1, 0, true));
    assert_eq!(first.headers.as_deref(), Some(r#"{"tenant":"acme"}"#));
    let other = fixture.lease("w2", 2).await;
    assert_eq!(bodies(&other.messages), ["c"]);
    fixture.nothing_ready().await;
    fixture.done(&claim).await;
    fixture.done(&other).await;
    assert_eq!(fixture.renew("w1").await, []);
    assert_eq!(fixture.end(&claim, Ending::Returned(Verdict::Ack)).await, Settled::LeaseLost);
}

#[tokio::test]
async fn settling_twice_under_one_lease_counts_once() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b"]).await;
    let claim = fixture.lease("w1", 2).await;
    for settlement in [Settlement::Done, Settlement::Done, fixture.decide(&claim.messages[0], &failed())] {
        assert_eq!(fixture.settle(claim.held, vec![(Offset(0), settlement)]).await, applied());
    }
    assert_eq!(fixture.settle(claim.held, vec![(Offset(9), Settlement::Done)]).await, applied());
    let view = fixture.view().await;
    assert_eq!((view.done, view.leased, view.retrying), (1, 1, 0));
}

#[tokio::test]
async fn every_attempt_is_counted_and_the_last_one_dies() {
    let fixture = in_memory().await;
    let id = fixture.append(NewMessage { attempts_max: Some(3), ..fixture.message("a") }).await;
    for attempt in 1..=3 {
        let claim = fixture.lease("w1", 1).await;
        assert_eq!(claim.messages[0].attempt, attempt);
        assert_eq!(fixture.end(&claim, failed()).await, applied());
        fixture.pass(DAY / 24);
        fixture.relay().await;
    }
    fixture.nothing_ready().await;
    let view = fixture.look(id).await;
    assert_eq!((view.state, view.reason.as_deref(), view.attempt), (State::Dead, Some("exhausted"), 3));
    let log = ["ENQUEUE 0", "START 1", "RETRY 1", "START 2", "RETRY 2", "START 3", "DLQ 3"];
    Fixture::check_log(&view, &log);
}

#[tokio::test]
async fn what_comes_back_passes_the_backlog() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b"]).await;
    let claim = fixture.lease("w1", 1).await;
    fixture.back(&claim, Duration::from_secs(10)).await;
    assert_eq!(fixture.relay().await, 0, "it is not due");
    fixture.pass(Duration::from_secs(10));
    assert_eq!(fixture.relay().await, 1);
    let again = fixture.lease("w1", 1).await;
    assert_eq!((bodies(&again.messages), again.messages[0].attempt), (vec!["a"], 2));
    assert_eq!(bodies(&fixture.lease("w1", 1).await.messages), ["b"]);
}

#[tokio::test]
async fn a_snooze_gives_the_attempt_back() {
    let fixture = in_memory().await;
    fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let until = Due::In(Duration::from_secs(5));
    fixture.end(&claim, Ending::Returned(Verdict::Snooze { until })).await;
    assert_eq!(fixture.view().await.scheduled, 1);
    fixture.pass(Duration::from_secs(5));
    fixture.relay().await;
    let again = fixture.lease("w1", 1).await;
    assert_eq!((again.messages[0].attempt, again.messages[0].releases), (1, 1));
}

#[tokio::test]
async fn a_delayed_message_is_relayed_when_it_is_due() {
    let fixture = in_memory().await;
    let due = Some(Due::In(Duration::from_secs(60)));
    let id = fixture.append(NewMessage { due, ..fixture.message("later") }).await;
    fixture.nothing_ready().await;
    assert_eq!(fixture.look(id).await.state, State::Scheduled);
    let next = fixture.store.pulse(vec![fixture.queue.id]).await.unwrap().next_due;
    assert_eq!(next, Some(fixture.now() + Duration::from_secs(60)));
    fixture.pass(Duration::from_secs(60));
    assert_eq!(fixture.relay().await, 1);
    assert_eq!(fixture.look(id).await.state, State::Ready);
    fixture.done(&fixture.lease("w1", 1).await).await;
    Fixture::check_log(&fixture.look(id).await, &["ENQUEUE 0", "START 1", "SUCCESS 1"]);
}

#[tokio::test]
async fn a_lost_lease_settles_nothing() {
    let fixture = in_memory().await;
    let id = fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    assert!(fixture.take_over(10).await.is_empty(), "its lease is not over");
    fixture.pass(LEASE);
    let taken = fixture.take_over(10).await;
    assert_eq!((taken.len(), taken[0].in_hand, taken[0].worker.as_str()), (1, 1, "w1"));
    assert_eq!(taken[0].old_token, claim.held.token);
    assert_eq!(fixture.end(&claim, Ending::Returned(Verdict::Ack)).await, Settled::LeaseLost);
    assert_eq!(fixture.end(&claim, failed()).await, Settled::LeaseLost);
    let begun = fixture.store.begin(claim.held, Offset(0), LEASE).await;
    assert_eq!(begun.unwrap_err().code(), Code::LeaseLost);
    assert!(fixture.take_over(10).await.is_empty(), "the reclaimer has it");
    let lost = fixture.decide(&taken[0].unsettled[0], &Ending::Lost { in_hand: 1 });
    assert_eq!(fixture.settle(taken[0].held, vec![(Offset(0), lost)]).await, applied());
    fixture.relay().await;
    assert_eq!(fixture.lease("w2", 1).await.messages[0].attempt, 2, "it was alone, so it is charged");
    let view = fixture.look(id).await;
    assert_eq!((view.state, view.worker.as_deref()), (State::Leased, Some("w2")));
}

#[tokio::test]
async fn a_renewed_lease_is_not_taken_and_an_ended_one_is_at_once() {
    let fixture = in_memory().await;
    fixture.send("a").await;
    fixture.lease("w1", 1).await;
    fixture.pass(LEASE / 2);
    assert_eq!(fixture.renew("w1").await.len(), 1);
    fixture.pass(LEASE / 2);
    assert!(fixture.take_over(10).await.is_empty());
    fixture.store.end_worker("w1".to_owned()).await.unwrap();
    fixture.renew("w1").await;
    assert_eq!(fixture.take_over(10).await.len(), 1, "a late renewal does not bring it back");
}

#[tokio::test]
async fn a_node_out_of_touch_waits_a_third_of_the_lease() {
    let fixture = in_memory().await;
    fixture.send("a").await;
    fixture.lease("w1", 1).await;
    fixture.pass(LEASE * 2);
    let since = fixture.now();
    let request = || TakeOver { worker: None, lease: LEASE, in_touch_since: since, claims_max: 10 };
    assert!(fixture.store.take_over(request()).await.unwrap().is_empty());
    fixture.pass(LEASE / 3);
    assert_eq!(fixture.store.take_over(request()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_node_whose_own_lease_is_over_takes_nothing() {
    let fixture = in_memory().await;
    fixture.send("a").await;
    fixture.lease("w1", 1).await;
    fixture.renew("suspended").await;
    fixture.pass(LEASE * 2);
    let take = || TakeOver {
        worker: Some("suspended".to_owned()),
        lease: LEASE,
        in_touch_since: Timestamp::from_secs(0),
        claims_max: 10,
    };
    assert!(fixture.store.take_over(take()).await.unwrap().is_empty(), "it has to renew first");
    fixture.renew("suspended").await;
    assert_eq!(fixture.store.take_over(take()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_company_of_a_death_is_counted_once() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b", "c", "d"]).await;
    let claim = fixture.lease("w1", 2).await;
    fixture.settle(claim.held, vec![(Offset(1), Settlement::Done)]).await;
    fixture.lease("w1", 2).await;
    fixture.pass(LEASE);
    let first = fixture.take_over(1).await.remove(0);
    let lost = |message: &Leased| (message.offset, fixture.decide(message, &Ending::Lost { in_hand: 3 }));
    assert_eq!(fixture.settle(first.held, first.unsettled.iter().map(lost).collect()).await, applied());
    let second = fixture.take_over(1).await.remove(0);
    assert_eq!((first.in_hand, second.in_hand), (3, 3), "one `done`, three in hand");
    assert_eq!(first.unsettled.len() + second.unsettled.len(), 3);
    // The reclaimer dies: nobody is charged for it.
    fixture.pass(LEASE);
    assert_eq!(fixture.take_over(10).await[0].in_hand, 3);
}

#[tokio::test]
async fn a_suspect_alone_waits_for_empty_hands() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b"]).await;
    fixture.lease("w1", 2).await;
    fixture.pass(LEASE);
    for taken in fixture.take_over(10).await {
        let lost = |message: &Leased| (message.offset, fixture.decide(message, &Ending::Lost { in_hand: 2 }));
        fixture.settle(taken.held, taken.unsettled.iter().map(lost).collect()).await;
    }
    assert_eq!(fixture.relay().await, 2);
    assert!(matches!(fixture.try_lease("w2", 10, false).await, Lease::EmptyHandsFirst));
    let claim = fixture.lease("w2", 10).await;
    assert_eq!((bodies(&claim.messages), claim.messages[0].suspect), (vec!["a"], 1));
}

#[tokio::test]
async fn the_highest_claim_stays_as_the_cursor() {
    let fixture = in_file().await;
    fixture.send_all(&["a", "b"]).await;
    let (low, high) = (fixture.lease("w1", 1).await, fixture.lease("w1", 1).await);
    fixture.done(&high).await;
    fixture.done(&low).await;
    assert_eq!(fixture.ask("select count(*) from millpond_claim"), 1);
    fixture.nothing_ready().await;
    fixture.send("c").await;
    let claim = fixture.lease("w1", 10).await;
    assert_eq!((bodies(&claim.messages), claim.messages[0].offset), (vec!["c"], Offset(2)));
    assert_eq!(fixture.ask("select count(*) from millpond_claim"), 1, "the old marker is gone");
}

#[tokio::test]
async fn two_processes_share_offsets_without_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (fixture(&url_in(&folder)).await, fixture(&url_in(&folder)).await);
    let sends = |fixture: Arc<Fixture>| {
        tokio::spawn(async move {
            for _ in 0..100 {
                fixture.send("a").await;
            }
            fixture
        })
    };
    let (one, two) = (sends(Arc::new(one)), sends(Arc::new(two)));
    let fixture = InFile { fixture: Arc::into_inner(one.await.unwrap()).unwrap(), folder };
    two.await.unwrap();
    assert_eq!(fixture.ask("select count(*) from millpond_log_partition"), 1);
    assert_eq!(fixture.ask("select count(*) from millpond_log"), 200);
    assert_eq!(fixture.ask("select max(log_offset) from millpond_log"), 199);
    assert_eq!(fixture.lease("w1", 1_000).await.messages.len(), 200);
}

#[tokio::test]
async fn a_dedup_key_makes_a_repeated_send_one_message() {
    let fixture = in_memory().await;
    let keyed = |body: &str| {
        let dedup = Some(Dedup { key: "k".to_owned(), window: Duration::from_secs(60) });
        NewMessage { dedup, ..fixture.message(body) }
    };
    let id = fixture.append(keyed("a")).await;
    let repeated = fixture.store.append(fixture.queue.id, vec![keyed("a")]).await.unwrap();
    assert_eq!(repeated, [Stored::Duplicate { of: id }]);
    let other = fixture.store.append(fixture.queue.id, vec![fixture.message("x"), keyed("b")]).await;
    let other = other.unwrap_err();
    assert_eq!((other.code(), other.index()), (Code::DedupConflict, Some(1)), "the item is named");
    assert_eq!(fixture.view().await.ready, 1, "all or none");
    fixture.pass(Duration::from_secs(60));
    fixture.append(keyed("b")).await;
}

#[tokio::test]
async fn a_send_repeated_under_its_id_never_stops_the_queue() {
    let fixture = in_memory().await;
    let later = NewMessage { due: Some(Due::In(LEASE)), ..fixture.message("later") };
    let id = fixture.append(later.clone()).await;
    let repeated = fixture.store.append(fixture.queue.id, vec![later]).await.unwrap();
    assert_eq!(repeated, [Stored::Duplicate { of: id }]);
    let now = fixture.message("now");
    fixture.append(now.clone()).await;
    fixture.append(now).await;
    fixture.back(&fixture.lease("w1", 10).await, Duration::ZERO).await;
    assert_eq!(fixture.view().await.retrying, 1, "one copy is enough");
    assert_eq!(fixture.view().await.leased, 0);
}

#[tokio::test]
async fn an_effect_commits_with_its_inbox_row_and_its_sends() {
    let fixture = in_file().await;
    fixture.raw().execute_batch("create table effect (n integer)").unwrap();
    fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let mut tx = fixture.begin(&claim).await;
    write_effect(&mut tx).await;
    let message = fixture.message("next");
    assert_eq!(tx.send(&fixture.queue, vec![message]).await.unwrap(), [Stored::New]);
    tx.commit().await.unwrap();
    assert_eq!(fixture.ask("select count(*) from effect"), 1);
    let begun = fixture.store.begin(claim.held, Offset(0), LEASE).await.unwrap();
    assert!(matches!(begun, Begun::AlreadyDone));
    fixture.done(&claim).await;
    assert_eq!(fixture.relay().await, 1);
    assert_eq!(bodies(&fixture.lease("w1", 1).await.messages), ["next"]);
}

#[tokio::test]
async fn an_effect_looks_queues_up_on_the_connection_that_it_holds() {
    let fixture = in_memory().await;
    fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let mut tx = fixture.begin(&claim).await;
    assert_eq!(tx.queue("mail".to_owned()).await.unwrap(), Some(fixture.queue.clone()));
    assert_eq!(tx.queue("nowhere".to_owned()).await.unwrap(), None);
}

#[tokio::test]
async fn a_dropped_effect_leaves_nothing() {
    let fixture = in_file().await;
    fixture.raw().execute_batch("create table effect (n integer)").unwrap();
    fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let mut tx = fixture.begin(&claim).await;
    write_effect(&mut tx).await;
    drop(tx);
    fixture.begin(&claim).await.commit().await.unwrap();
    assert_eq!(fixture.ask("select count(*) from effect"), 0);
    assert_eq!(fixture.ask("select count(*) from millpond_inbox"), 1);
}

#[tokio::test]
async fn an_effect_past_its_limit_is_rolled_back() {
    let fixture = in_file().await;
    fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let begun = fixture.store.begin(claim.held, Offset(0), Duration::ZERO).await.unwrap();
    // The writer serves this send only after the limit ended the transaction.
    fixture.send("b").await;
    let Begun::Open(tx) = begun else { panic!("already done") };
    assert_eq!(tx.commit().await.unwrap_err().code(), Code::StoreUnavailable);
    assert_eq!(fixture.ask("select count(*) from millpond_inbox"), 0);
}

#[tokio::test]
async fn a_statement_past_the_limit_is_interrupted() {
    let fixture = in_file().await;
    fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let limit = Duration::from_millis(50);
    let Begun::Open(mut tx) = fixture.store.begin(claim.held, Offset(0), limit).await.unwrap() else {
        panic!("already done")
    };
    let endless = "with recursive n(i) as (select 0 union all select i + 1 from n) select max(i) from n";
    let sqlite = tx.as_any().downcast_mut::<SqliteTx>().unwrap();
    sqlite.run(move |db| db.query_row(endless, [], |row| row.get::<_, i64>(0))).await.unwrap_err();
    drop(tx);
    fixture.send("the writer is free again").await;
    assert_eq!(fixture.ask("select count(*) from millpond_inbox"), 0);
}

#[tokio::test]
async fn a_refused_send_in_an_effect_leaves_no_dedup_key() {
    let fixture = in_memory().await;
    fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let keyed = |key: &str, body: &str| {
        let dedup = Some(Dedup { key: key.to_owned(), window: DAY });
        NewMessage { dedup, ..fixture.message(body) }
    };
    fixture.append(keyed("held", "b")).await;
    let mut tx = fixture.begin(&claim).await;
    let refused = tx.send(&fixture.queue, vec![keyed("new", "c"), keyed("held", "other")]).await;
    assert_eq!(refused.unwrap_err().code(), Code::DedupConflict);
    tx.commit().await.unwrap();
    fixture.append(keyed("new", "c")).await;
}

#[tokio::test]
async fn what_has_an_effect_is_done_whatever_is_asked() {
    let fixture = in_memory().await;
    let id = fixture.send("a").await;
    fixture.send("b").await;
    let claim = fixture.lease("w1", 2).await;
    fixture.begin(&claim).await.commit().await.unwrap();
    let ended = fixture.end(&claim, failed()).await;
    assert_eq!(ended, Settled::Applied { done_anyway: vec![Offset(0)] });
    let view = fixture.look(id).await;
    assert_eq!(view.state, State::Done);
    Fixture::check_log(&view, &["ENQUEUE 0", "START 1", "SUCCESS 1"]);
    assert_eq!(fixture.view().await.retrying, 1);
}

#[tokio::test]
async fn a_settled_message_has_no_effect_any_more() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b"]).await;
    let claim = fixture.lease("w1", 2).await;
    let again = fixture.decide(&claim.messages[0], &failed());
    fixture.settle(claim.held, vec![(Offset(0), again)]).await;
    let begun = fixture.store.begin(claim.held, Offset(0), LEASE).await;
    assert_eq!(begun.unwrap_err().code(), Code::LeaseLost);
}

#[tokio::test]
async fn a_takeover_knows_what_is_done() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b"]).await;
    let claim = fixture.lease("w1", 2).await;
    fixture.begin(&claim).await.commit().await.unwrap();
    fixture.pass(LEASE);
    let taken = fixture.take_over(10).await.remove(0);
    assert_eq!((taken.done, taken.unsettled.len(), taken.in_hand), (vec![Offset(0)], 1, 1));
}

#[tokio::test]
async fn a_redrive_begins_a_new_life_once() {
    let fixture = in_memory().await;
    let ids = fixture.send_all(&["a", "b"]).await;
    fixture.dead(&fixture.lease("w1", 2).await).await;
    assert_eq!(fixture.dead_ids(Query::default()).await, [ids[1], ids[0]], "newest first");
    let new = fixture.message("").id;
    assert_eq!(fixture.redrive(ids[0], new).await, Changed::Done);
    assert_eq!(fixture.redrive(new, fixture.message("").id).await, Changed::WrongState(State::Scheduled));
    assert_ne!(fixture.redrive(ids[0], fixture.message("").id).await, Changed::Done);
    assert_eq!(fixture.look(ids[0]).await.redriven_as, Some(new));
    assert_eq!(fixture.look(new).await.state, State::Scheduled);
    assert_eq!(fixture.dead_ids(Query::default()).await, [ids[1]]);
    assert_eq!(fixture.dead_ids(only(Field::Status, "retried")).await, [ids[0]]);
    fixture.relay().await;
    let claim = fixture.lease("w1", 2).await;
    assert_eq!((bodies(&claim.messages), claim.messages[0].attempt), (vec!["a"], 1));
    let view = fixture.view().await;
    assert_eq!((view.sent, view.dead, view.leased), (3, 1, 1));
}

#[tokio::test]
async fn dead_letters_are_found_by_queue_reason_and_id() {
    let fixture = in_memory().await;
    let ids = fixture.send_all(&["a", "b"]).await;
    fixture.dead(&fixture.lease("w1", 1).await).await;
    let claim = fixture.lease("w1", 1).await;
    fixture.end(&claim, Ending::Undecodable).await;
    assert_eq!(fixture.dead_ids(only(Field::Queue, "mail")).await.len(), 2);
    assert_eq!(fixture.dead_ids(only(Field::Queue, "other")).await, []);
    assert_eq!(fixture.dead_ids(only(Field::Reason, "undecodable")).await, [ids[1]]);
    let both = only(Field::Queue, "mail").and(Field::Id, [ids[0].to_string()]);
    assert_eq!(fixture.dead_ids(both).await, [ids[0]]);
    let mut find = Find { rows_max: 1, ..Find::default() };
    let first = fixture.store.dead_letters(find.clone()).await.unwrap();
    assert_eq!(first.items[0].id, ids[1]);
    find.after = first.next;
    let second = fixture.store.dead_letters(find).await.unwrap();
    assert_eq!(second.next, None);
    let dead = &second.items[0];
    assert_eq!((dead.id, dead.detail.as_deref(), dead.kind.as_str()), (ids[0], Some("no such user"), "mail"));
    assert_eq!((dead.body.len(), dead.body_bytes, dead.worker.as_deref()), (0, 1, Some("w1")));
}

#[tokio::test]
async fn dead_letters_of_an_earlier_release_have_their_group_too() {
    let fixture = in_file().await;
    fixture.send_all(&["a", "b"]).await;
    fixture.dead(&fixture.lease("w1", 1).await).await;
    fixture.pass(LEASE);
    fixture.dead(&fixture.lease("w1", 1).await).await;
    let forget = "update millpond_dead_letter set fingerprint = null where id = 1";
    fixture.raw().execute_batch(forget).unwrap();
    let groups = fixture.store.dead_letter_groups(Query::default(), GroupBy::Fingerprint).await.unwrap();
    assert_eq!((groups.len(), groups[0].count, groups[0].per_day[6]), (1, 2, 2));
    let print = only(Field::Fingerprint, &groups[0].key);
    assert_eq!(fixture.dead_ids(print).await.len(), 2);
}

#[tokio::test]
async fn a_store_tells_about_itself() {
    let fixture = in_file().await;
    fixture.send_all(&["a", "b"]).await;
    let info = fixture.store.info().await.unwrap();
    let fact = |name: &str| info.facts.iter().find(|fact| fact.name == name).unwrap().value.clone();
    assert_eq!((fact("journal"), fact("synchronous")), ("wal".into(), "full".into()));
    assert!(0 < fact("size_bytes").as_u64().unwrap() && 0 < fact("reserve_bytes").as_u64().unwrap());
    assert!(fact("schema").as_str().unwrap().starts_with("00"));
    assert!(info.tables.contains(&("log".to_owned(), 2)) && info.tables.contains(&("queue".to_owned(), 1)));
    assert_eq!((info.findings.len(), info.grants.len()), (0, 4));
}

#[tokio::test]
async fn a_message_is_found_in_every_state() {
    let fixture = in_memory().await;
    fixture.send_all(&["x"; 20]).await;
    fixture.done(&fixture.lease("w1", 20).await).await;
    fixture.pass(DAY / 24);
    fixture.send("before").await;
    let id = fixture.send("a").await;
    let view = fixture.look(id).await;
    assert_eq!((view.state, view.behind, view.attempt), (State::Ready, Some(1), 0));
    assert_eq!((view.kind.as_str(), view.queue.as_str(), view.body), ("mail", "mail", b"a".to_vec()));
    assert_eq!((view.headers["tenant"].as_str(), view.attempts_max), (Some("acme"), Some(5)));
    fixture.done(&fixture.lease("w1", 1).await).await;
    let claim = fixture.lease("w1", 1).await;
    let view = fixture.look(id).await;
    assert_eq!((view.state, view.worker.as_deref(), view.attempt), (State::Leased, Some("w1"), 1));
    assert_eq!(view.lease_until, Some(fixture.now() + LEASE));
    assert_eq!(fixture.end(&claim, failed()).await, applied());
    let view = fixture.look(id).await;
    assert_eq!((view.state, view.reason.as_deref(), view.attempt), (State::Retrying, Some("retry"), 1));
    assert_eq!(view.error.as_deref(), Some("it broke"));
    assert!(view.ready_at.unwrap() > fixture.now());
    fixture.pass(DAY / 24);
    fixture.relay().await;
    assert_eq!(fixture.look(id).await.state, State::Ready);
    let claim = fixture.lease("w2", 1).await;
    assert_eq!(fixture.look(id).await.state, State::Leased);
    fixture.done(&claim).await;
    let view = fixture.look(id).await;
    assert_eq!(
        (view.state, view.attempt, view.since),
        (State::Done, 2, Some(claim.leased_at + Duration::from_millis(5)))
    );
    Fixture::check_log(&view, &["ENQUEUE 0", "START 1", "RETRY 1", "START 2", "SUCCESS 2"]);
    assert_eq!(view.events[4].worker.as_deref(), Some("w2"));
    let cancelled = fixture.send("b").await;
    let claim = fixture.lease("w1", 1).await;
    let drop = Settlement::Dead { reason: DropReason::Cancelled, detail: None };
    fixture.settle(claim.held, vec![(claim.messages[0].offset, drop)]).await;
    assert_eq!(fixture.look(cancelled).await.state, State::Cancelled);
    assert!(fixture.store.message(fixture.message("").id).await.unwrap().is_none());
}

#[tokio::test]
async fn a_queue_without_history_still_knows_where_a_message_is() {
    let fixture = in_memory().await;
    let settings = QueueSettings { events: HistoryLevel::Failures, ..QueueSettings::DEFAULT };
    fixture.store.declare("mail".to_owned(), settings).await.unwrap();
    let id = fixture.send("a").await;
    fixture.done(&fixture.lease("w1", 1).await).await;
    let view = fixture.look(id).await;
    assert_eq!(view.state, State::Done);
    Fixture::check_log(&view, &["ENQUEUE 0"]);
}

#[tokio::test]
async fn the_counts_add_up() {
    let fixture = in_memory().await;
    fixture.send_all(&["done", "back", "dead", "held", "ready"]).await;
    let due = Some(Due::In(DAY));
    fixture.append(NewMessage { due, ..fixture.message("later") }).await;
    fixture.done(&fixture.lease("w1", 1).await).await;
    fixture.back(&fixture.lease("w1", 1).await, LEASE).await;
    fixture.dead(&fixture.lease("w1", 1).await).await;
    fixture.lease("w1", 1).await;
    let view = fixture.view().await;
    let places = [view.ready, view.leased, view.scheduled, view.retrying, view.dead, view.done];
    assert_eq!((places, view.sent), ([1; 6], 6));
    assert_eq!((view.oldest_ready, view.listeners), (Some(fixture.now()), 1));
    fixture.pass(LEASE);
    assert_eq!(fixture.view().await.listeners, 0);
}

#[tokio::test]
async fn workers_are_listed_by_their_last_heartbeat() {
    let fixture = in_memory().await;
    fixture.renew("old").await;
    fixture.pass(LEASE);
    fixture.renew("new").await;
    fixture.store.end_worker("new".to_owned()).await.unwrap();
    let workers = fixture.store.workers().await.unwrap();
    let shown: Vec<_> = workers.iter().map(|worker| (worker.id.as_str(), worker.stopped)).collect();
    assert_eq!(shown, [("new", true), ("old", false)]);
    assert_eq!(workers[0].queues, ["mail"]);
}

#[tokio::test]
async fn retention_keeps_the_highest_row_and_what_is_not_settled() {
    let fixture = in_file().await;
    fixture.send_all(&["a", "b", "c", "d", "e"]).await;
    fixture.done(&fixture.lease("w1", 1).await).await;
    let held = fixture.lease("w1", 2).await;
    fixture.settle(held.held, vec![(Offset(1), Settlement::Done)]).await;
    assert_eq!(fixture.retain().await, 0, "nothing is old");
    fixture.pass(DAY);
    fixture.renew("w1").await;
    let lowest = "select min(log_offset) from millpond_log";
    assert!(2 <= fixture.retain().await);
    assert_eq!(fixture.ask(lowest), 2, "`c` is not settled");
    assert_eq!(fixture.ask("select first_offset from millpond_log_partition"), 2);
    fixture.done(&held).await;
    fixture.done(&fixture.lease("w1", 10).await).await;
    fixture.retain().await;
    assert_eq!(fixture.ask(lowest), 4, "the highest row stays");
    fixture.send("f").await;
    assert_eq!(fixture.lease("w1", 1).await.messages[0].offset, Offset(5));
}

#[tokio::test]
async fn retention_stops_at_its_chunk_and_at_what_is_young() {
    let fixture = in_file().await;
    fixture.send_all(&["a", "b", "c"]).await;
    fixture.pass(DAY);
    let young = fixture.send_all(&["d", "e"]).await;
    fixture.done(&fixture.lease("w1", 10).await).await;
    let lowest = "select min(log_offset) from millpond_log";
    fixture.store.retain("node".to_owned(), 2).await.unwrap();
    assert_eq!(fixture.ask(lowest), 2);
    fixture.retain().await;
    assert_eq!(fixture.ask(lowest), 3);
    assert_eq!(fixture.look(young[1]).await.state, State::Done, "found above the rows that are gone");
}

#[tokio::test]
async fn one_node_at_a_time_deletes() {
    let fixture = in_memory().await;
    fixture.send_all(&["a", "b"]).await;
    fixture.done(&fixture.lease("w1", 2).await).await;
    fixture.store.retain("other".to_owned(), 10).await.unwrap();
    fixture.pass(DAY);
    fixture.store.retain("other".to_owned(), 0).await.unwrap();
    assert_eq!(fixture.retain().await, 0);
    fixture.pass(Duration::from_secs(60));
    assert!(0 < fixture.retain().await);
}

#[tokio::test]
async fn an_inbox_row_outlives_every_place_of_its_message() {
    let fixture = in_file().await;
    fixture.send_all(&["a", "b"]).await;
    let claim = fixture.lease("w1", 1).await;
    fixture.begin(&claim).await.commit().await.unwrap();
    let rows = "select count(*) from millpond_inbox";
    fixture.pass(DAY * 3);
    fixture.retain().await;
    assert_eq!(fixture.ask(rows), 1, "its claim is live");
    fixture.done(&claim).await;
    fixture.retain().await;
    assert_eq!(fixture.ask(rows), 0);
}

#[tokio::test]
async fn old_rows_of_every_kind_go_and_the_sums_stay() {
    let fixture = in_file().await;
    let dedup = Some(Dedup { key: "k".to_owned(), window: LEASE });
    fixture.append(NewMessage { dedup, ..fixture.message("a") }).await;
    fixture.send("b").await;
    fixture.done(&fixture.lease("w1", 1).await).await;
    fixture.dead(&fixture.lease("w1", 1).await).await;
    fixture.pass(DAY * 91);
    fixture.renew("w2").await;
    fixture.retain().await;
    for table in ["history", "event", "dedup"] {
        assert_eq!(fixture.ask(&format!("select count(*) from millpond_{table}")), 0, "{table}");
    }
    assert_eq!(fixture.ask("select count(*) from millpond_worker where id = 'w1'"), 0);
    assert_eq!(fixture.ask("select max(minute) from millpond_stat"), 0);
    let view = fixture.view().await;
    assert_eq!((view.sent, view.done, view.dead), (2, 1, 0));
    assert_eq!(fixture.retain().await, 0, "there is nothing left");
}

#[tokio::test]
async fn leftover_markers_go_and_the_cursor_stays() {
    let fixture = in_file().await;
    fixture.send_all(&["a", "b"]).await;
    fixture.done(&fixture.lease("w1", 1).await).await;
    fixture.done(&fixture.lease("w1", 1).await).await;
    let claims = "select min(to_offset) + 10 * count(*) from millpond_claim";
    let marker =
        "insert into millpond_claim select subscription_id, partition, 0, 0, null, null, null, 0, null,
                  x'', x'' from millpond_claim";
    fixture.raw().execute_batch(marker).unwrap();
    assert_eq!(fixture.ask(claims), 20);
    assert_eq!(fixture.retain().await, 1);
    assert_eq!(fixture.ask(claims), 11);
    fixture.nothing_ready().await;
}

#[tokio::test]
async fn a_store_goes_on_where_it_was_closed() {
    let fixture = in_file().await;
    fixture.send("a").await;
    fixture.pass(DAY);
    fixture.renew("w1").await;
    fixture.store.close().await;
    let closed = fixture.store.append(fixture.queue.id, vec![fixture.message("b")]).await;
    assert_eq!(closed.unwrap_err().code(), Code::ShuttingDown);
    let again = self::fixture(&url_in(&fixture.folder)).await;
    assert_eq!(again.now(), fixture.now(), "its clock does not go back");
    assert_eq!(bodies(&again.lease("w2", 1).await.messages), ["a"]);
}

#[tokio::test]
async fn a_store_that_is_not_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    refused(&url_in(&folder), false, Code::StoreUnreachable);
    std::fs::write(folder.path().join("a.db"), "this is a text and no database, however long".repeat(99))
        .unwrap();
    refused(&url_in(&folder), true, Code::UnsupportedStore);
}

/// A worker of an earlier release may live on while another process migrates: it must change nothing from there on,
/// as it does not know what the new tables mean.
#[tokio::test]
async fn a_store_that_is_migrated_by_a_later_release_is_not_written_any_more() {
    let fixture = in_file().await;
    fixture.send_all(&["1", "2"]).await;
    let claim = fixture.lease("w1", 1).await;
    fixture.raw().execute_batch("insert into millpond_migration values (99, '0099_later', 1, 1)").unwrap();
    let Fixture { store, queue, .. } = &fixture.fixture;
    let settle = SettleClaim { held: claim.held, items: Vec::new() };
    let codes = [
        store.append(queue.id, vec![fixture.message("3")]).await.unwrap_err().code(),
        store.lease(fixture.request("w1", 1, true)).await.unwrap_err().code(),
        store.settle(vec![settle]).await.unwrap_err().code(),
        store.relay(10).await.unwrap_err().code(),
        store.renew(renewal("w1")).await.unwrap_err().code(),
        store.begin(claim.held, Offset(0), LEASE).await.unwrap_err().code(),
    ];
    assert_eq!(codes, [Code::SchemaNewer; 6]);
    let kept: i64 =
        fixture.raw().query_row("select count(*) from millpond_log", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 2);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let fixture = in_file().await;
    fixture.raw().execute_batch("insert into millpond_migration values (99, '0099_later', 1, 1)").unwrap();
    refused(&url_in(&fixture.folder), true, Code::SchemaNewer);
}

#[tokio::test]
async fn a_queue_keeps_its_name_and_takes_new_settings() {
    let fixture = in_memory().await;
    let settings = QueueSettings { attempts_max: 9, ..QueueSettings::DEFAULT };
    assert_eq!(fixture.store.declare("mail".to_owned(), settings).await.unwrap().id, fixture.queue.id);
    assert_eq!(fixture.store.queue("mail".to_owned()).await.unwrap().unwrap().settings, settings);
    assert!(fixture.store.queue("none".to_owned()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_release_without_a_verdict_is_a_recovery() {
    let fixture = in_memory().await;
    let id = fixture.send("a").await;
    let claim = fixture.lease("w1", 1).await;
    let (due, back) = (Due::In(Duration::ZERO), Back::Reclaimed);
    let again = Settlement::Again { due, attempt: 0, releases: 1, suspect: 8, back };
    fixture.settle(claim.held, vec![(Offset(0), again)]).await;
    let view = fixture.look(id).await;
    assert_eq!((view.state, view.suspect, view.releases), (State::Scheduled, 8, 1));
    Fixture::check_log(&view, &["ENQUEUE 0", "START 1", "RECOVER 1"]);
}

#[tokio::test]
async fn a_message_is_found_behind_a_burst_of_the_seconds_before_it() {
    let fixture = in_memory().await;
    // The search by time goes two seconds back, and looks through 200 000 rows of what it finds there.
    for _ in 0..21 {
        let burst = (0..10_000).map(|_| fixture.message("x")).collect();
        fixture.store.append(fixture.queue.id, burst).await.unwrap();
    }
    fixture.pass(Duration::from_millis(100));
    let id = fixture.append(fixture.message("last")).await;
    assert!(fixture.store.message(id).await.unwrap().is_some());
}

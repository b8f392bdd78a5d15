//! Every hot statement is served by an index, whatever the backlog: the server writes down the plan of each statement
//! that runs, those inside functions too, with the rows that it really read. Held to that on a fresh schema, with a
//! million rows, after mass deletes, with and without statistics.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::time::Duration;

use millpond_core::limit::Rate;
use millpond_core::message::{Due, MessageId, NewMessage, Token};
use millpond_core::pick::Lane;
use millpond_core::queue::QueueSettings;
use millpond_core::reason::{Back, DropReason, Failure};
use millpond_core::settle::Settlement;
use millpond_core::store::{
    Admin, Claim, Lease, LeaseRequest, Log, Outbox, Queue, Renewal, SettleClaim, SettleItem, TakeOver,
};
use millpond_core::time::Timestamp;
use millpond_core::view::WorkerFacts;
use millpond_postgres::tokio_postgres::{Client, NoTls, connect};
use millpond_postgres::{Options, PostgresStore};
use millpond_testkit::servers::postgres::{Fsync, Postgres};

/// The server writes the plan of every statement, and vacuums nothing by itself.
const SETTINGS: [&str; 8] = [
    "shared_preload_libraries=auto_explain",
    "auto_explain.log_min_duration=0",
    "auto_explain.log_nested_statements=on",
    "auto_explain.log_analyze=on",
    "auto_explain.log_timing=off",
    "auto_explain.log_level=log",
    "autovacuum=off",
    "max_wal_size=8GB",
];

/// What grows with the backlog or with history: nothing may walk one of these.
const LARGE: [&str; 8] = ["log", "outbox", "claim", "inbox", "dedup", "dead_letter", "history", "event"];

/// Most rows that one step of a plan may read or throw away: a batch, and some dead ones.
const ROWS_MAX: u64 = 5_000;

/// A table of one page is walked faster than its index; a plan that is made at each execution may do that.
const ROWS_OF_A_PAGE: u64 = 150;

/// Rows of the large state.
const ROWS: u32 = 1_000_000;

struct Fixture {
    server: Postgres,
    admin: Client,
    store: PostgresStore,
    queue: Queue,
    /// How much of the server's log was looked at.
    seen: usize,
    number: u64,
}

impl Fixture {
    async fn new() -> Self {
        let server = tokio::task::block_in_place(|| Postgres::start(Fsync::Off, &SETTINGS));
        let (admin, connection) = connect(server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let store = PostgresStore::open(server.url(), Options::default()).await.unwrap();
        let queue = store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap();
        Self { server, admin, store, queue, seen: 0, number: 0 }
    }

    fn id(&mut self) -> MessageId {
        self.number += 1;
        let mut bits = [0; 10];
        bits[2..].copy_from_slice(&self.number.to_be_bytes());
        MessageId(uuid::Builder::from_unix_timestamp_millis(1_800_000_000_000, &bits).into_uuid())
    }

    fn message(&mut self, due: Option<Due>) -> NewMessage {
        NewMessage {
            id: self.id(),
            kind: None,
            key: None,
            headers: Default::default(),
            content_type: None,
            body: vec![b'x'; 200],
            priority: 2,
            due,
            attempts_max: None,
            retry_until: None,
            dedup: None,
        }
    }

    async fn lease(&mut self, worker: &str, messages_max: usize) -> Claim {
        match self.try_lease(worker, messages_max).await {
            Lease::Claim(claim) => claim,
            other => panic!("there is something to lease: {other:?}"),
        }
    }

    async fn try_lease(&mut self, worker: &str, messages_max: usize) -> Lease {
        self.number += 1;
        let mut token = [9; 16];
        token[..8].copy_from_slice(&self.number.to_be_bytes());
        let request = LeaseRequest {
            queue: self.queue.id,
            worker: worker.to_owned(),
            token: Token(token),
            turns: vec![(2, Lane::Return), (2, Lane::Main)],
            messages_max,
            bytes_max: 1_000_000,
            hands_empty: true,
            one_by_one: true,
        };
        self.store.lease(request).await.unwrap()
    }

    /// A lease of the queue while it has limits, up to them and once more. Nothing of it is in hand before.
    async fn everything_limited(&mut self) {
        let rate = Some(Rate { count: 1_000_000, period: Duration::from_secs(1) });
        let settings = QueueSettings { concurrency: Some(3), rate, ..QueueSettings::DEFAULT };
        self.store.declare("mail".to_owned(), settings).await.unwrap();
        let claim = self.lease("w", 20).await;
        assert!((1..=3).contains(&claim.messages.len()), "{}", claim.messages.len());
        let answer = self.try_lease("w", 20).await;
        assert_eq!(matches!(answer, Lease::Limited { .. }), claim.messages.len() == 3, "{answer:?}");
        self.settle(&claim, &Settlement::Done).await;
        if let Lease::Claim(claim) = answer {
            self.settle(&claim, &Settlement::Done).await;
        }
        self.store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap();
    }

    async fn renew(&self, worker: &str, lease: Duration) {
        let renewal = Renewal {
            worker: worker.to_owned(),
            host: "here".to_owned(),
            lease,
            queues: vec!["mail".to_owned()],
            slots: 1,
            busy: 0,
            error: None,
            facts: WorkerFacts::default(),
        };
        self.store.renew(renewal).await.unwrap();
    }

    async fn settle(&self, claim: &Claim, settlement: &Settlement) {
        let item = |message: &millpond_core::message::Leased| SettleItem {
            offset: message.offset,
            kind: None,
            settlement: settlement.clone(),
            error: None,
            class: None,
            run: Duration::from_millis(1),
        };
        let claim = SettleClaim { held: claim.held, items: claim.messages.iter().map(item).collect() };
        self.store.settle(vec![claim]).await.unwrap();
    }

    /// Everything that runs for every message, every claim, every pulse, every second and every minute.
    async fn everything_hot(&mut self) {
        let now = || Some(Due::In(Duration::ZERO));
        for due in [None, now(), Some(Due::In(Duration::from_secs(3_600)))] {
            let messages = (0..20).map(|_| self.message(due)).collect();
            self.store.append(self.queue.id, messages).await.unwrap();
        }
        self.renew("w", Duration::from_secs(30)).await;
        self.store.relay(500).await.unwrap();
        self.store.pulse(vec![self.queue.id]).await.unwrap();
        let again = Settlement::Again {
            due: Due::In(Duration::ZERO),
            attempt: 1,
            releases: 0,
            suspect: 0,
            back: Back::Failed(Failure::Error),
        };
        let dead = Settlement::Dead { reason: DropReason::Refused, detail: None };
        for settlement in [Settlement::Done, again, dead] {
            let (one, two) = (self.lease("w", 5).await, self.lease("w", 3).await);
            self.settle(&one, &settlement).await;
            self.settle(&two, &settlement).await;
        }
        self.store.relay(500).await.unwrap();
        let lost = self.lease("lost", 4).await;
        self.renew("lost", Duration::ZERO).await;
        let request = TakeOver {
            worker: Some("w".to_owned()),
            lease: Duration::from_secs(10),
            in_touch_since: Timestamp::from_secs(0),
            claims_max: 64,
        };
        let taken = self.store.take_over(request).await.unwrap();
        assert_eq!(taken.iter().map(|claim| claim.unsettled.len()).sum::<usize>(), lost.messages.len());
        let settled: Vec<_> = taken
            .iter()
            .map(|claim| SettleClaim {
                held: claim.held,
                items: claim
                    .unsettled
                    .iter()
                    .map(|message| SettleItem {
                        offset: message.offset,
                        kind: None,
                        settlement: Settlement::Done,
                        error: None,
                        class: None,
                        run: Duration::ZERO,
                    })
                    .collect(),
            })
            .collect();
        self.store.settle(settled).await.unwrap();
        self.everything_limited().await;
        self.store.retain("node".to_owned(), 20).await.unwrap();
    }

    /// Runs everything hot several times, so that the plans that are kept are seen too, and looks at every plan.
    async fn check(&mut self, state: &str) {
        self.seen = self.server.log().len();
        for _ in 0..8 {
            self.everything_hot().await;
        }
        let log = self.server.log();
        let plans: Vec<&str> = log[self.seen..].split("LOG:  duration:").skip(1).collect();
        assert!(100 < plans.len(), "{state}: only {} plans were seen", plans.len());
        let mut due = 0;
        for plan in plans {
            if let Some(why) = wrong(plan) {
                panic!("{state}: {why}\n{plan}");
            }
            due += usize::from(plan.contains("Index Cond: (ready_at <=") || plan.contains("outbox_ready"));
        }
        assert!(0 < due, "{state}: due rows are found by their index");
    }

    async fn fill(&self) {
        let fill = format!(
            "set auto_explain.log_min_duration = -1;
             insert into millpond.log (partition, checksum, log_offset, published_at, message_id, body)
             select 1, 0, o.next + n, o.at, gen_random_uuid(), 'x'
             from generate_series(0, {ROWS} - 1) n,
                  (select max(log_offset) + 1 as next, max(published_at) as at from millpond.log where partition = 1) o;
             insert into millpond.outbox (message_id, queue_id, class, lane, suspect, checksum, ready_at, created_at,
                                          sent_at, attempt, releases, reason, body)
             select gen_random_uuid(), 1, 2, 0, 0, 0, (extract(epoch from now()) * 1000000)::bigint + 3600000000 + n, 0, 0,
                    0, 0, 'delay', 'x'
             from generate_series(1, {ROWS} / 2) n;
             insert into millpond.inbox select 1, gen_random_uuid(), n from generate_series(1, {ROWS} / 2) n;
             insert into millpond.history (queue_id, partition, from_offset, to_offset, leased_at, finished_at, runs)
             select 1, 1, -n, -n, 0, n, '0' from generate_series(1, {ROWS} / 5) n;
             insert into millpond.event (message_id, queue_id, attempt, releases, at, kind, reason)
             select gen_random_uuid(), 1, 1, 0, n, 'RETRY', 'error' from generate_series(1, {ROWS} / 5) n;"
        );
        self.admin.batch_execute(&fill).await.unwrap();
    }

    async fn admin(&self, statement: &str) {
        self.admin
            .batch_execute(&format!("set auto_explain.log_min_duration = -1; {statement}"))
            .await
            .unwrap();
    }
}

/// What is wrong with a plan, if anything is.
fn wrong(plan: &str) -> Option<String> {
    let lines: Vec<&str> = plan.lines().collect();
    for (place, line) in lines.iter().enumerate() {
        let step = line.trim_start().trim_start_matches("->").trim_start();
        let of = LARGE.iter().find(|table| step.contains(&format!(" on {table} ")));
        let below = lines.iter().skip(place).take(5);
        let removed = below.map(|line| number(line, "Rows Removed by Filter: ")).max().unwrap_or(0);
        let walked = number(step, "(actual rows=") + removed;
        if of.is_some() && step.starts_with("Seq Scan") && ROWS_OF_A_PAGE < walked {
            return Some(format!("it walks a table: {step}"));
        }
        let follows = lines.get(place + 1).is_some_and(|next| next.contains("Index Cond"));
        let scans = step.starts_with("Index") && of.is_some();
        // Without a condition it is the end of an index, of which one row is taken.
        let read = number(step, "(actual rows=") * number(step, "loops=").max(1);
        if scans && !follows && 1_000 < read || ROWS_MAX < read && of.is_some() {
            return Some(format!("it reads {read} rows: {step}"));
        }
        let removed = number(line, "Rows Removed by Filter: ");
        if ROWS_MAX < removed {
            return Some(format!("it throws {removed} rows away: {step}"));
        }
    }
    None
}

/// The number that follows `word`; 0 if it is not there.
fn number(line: &str, word: &str) -> u64 {
    let after = line.split_once(word).map(|(_, after)| after).unwrap_or_default();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

#[test]
fn a_plan_that_walks_is_found() {
    let walk = "Query Text: select 1\n  ->  Seq Scan on log l  (cost=0.00..1.00 rows=1 width=8) (actual rows=900 loops=1)";
    assert!(wrong(walk).unwrap().contains("walks a table"));
    let all = "Index Scan using outbox_ready on outbox o  (cost=0..1 rows=1 width=8) (actual rows=9000 loops=1)\n  Filter: x";
    assert!(wrong(all).unwrap().contains("reads 9000 rows"));
    let end = "Index Only Scan using log_pkey on log l  (cost=0..1 rows=1 width=8) (actual rows=1 loops=1)\n  Index Cond: x";
    assert_eq!(wrong(end), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_statements_search_an_index_whatever_the_backlog() {
    let mut fixture = Fixture::new().await;
    fixture.check("a fresh schema").await;
    fixture.fill().await;
    fixture.check("a million rows, no statistics").await;
    fixture.admin("analyze").await;
    // Plans that sessions keep are those of the small tables; new sessions plan anew.
    fixture.check("a million rows, with statistics, old sessions").await;
    fixture.store.close().await;
    fixture.store = PostgresStore::open(fixture.server.url(), Options::default()).await.unwrap();
    fixture.check("a million rows, with statistics").await;
    // Nothing is vacuumed: the dead rows are still there to be walked.
    fixture
        .admin(
            "delete from millpond.log l where l.partition = 1
                    and l.log_offset < (select max(to_offset) from millpond.claim where partition = 1);
             delete from millpond.outbox where ready_at > (extract(epoch from now()) * 1000000)::bigint + 3700000000;
             delete from millpond.inbox; delete from millpond.history; delete from millpond.event",
        )
        .await;
    fixture.check("after mass deletes").await;
    fixture.admin("analyze").await;
    fixture.store.close().await;
    fixture.store = PostgresStore::open(fixture.server.url(), Options::default()).await.unwrap();
    fixture.check("after mass deletes, with statistics").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upkeep_that_has_nothing_to_do_asks_once() {
    let mut fixture = Fixture::new().await;
    fixture.everything_hot().await;
    while fixture.store.retain("node".to_owned(), 10_000).await.unwrap() != 0 {}
    for node in ["node", "other"] {
        fixture.seen = fixture.server.log().len();
        assert_eq!(fixture.store.retain(node.to_owned(), 10_000).await.unwrap(), 0);
        let log = fixture.server.log();
        let asked = log[fixture.seen..].matches("Query Text: ").count();
        let of_functions = log[fixture.seen..].matches("select coalesce(given").count();
        assert_eq!(asked - of_functions, 1, "{}", &log[fixture.seen..]);
    }
}

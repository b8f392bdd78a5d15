//! Every hot statement is served by an index, whatever the backlog: the server writes down each statement that runs, with
//! its plan and the rows that it read. Held to that with fresh tables, with a million rows, after mass deletes, with and
//! without statistics.

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
use millpond_mysql::mysql_async::Conn;
use millpond_mysql::mysql_async::prelude::Queryable;
use millpond_mysql::{MysqlStore, Options};
use millpond_testkit::servers::mariadb::Mariadb;
use millpond_testkit::servers::postgres::Fsync;

/// The server writes down every statement with its plan.
const SETTINGS: [&str; 6] = [
    "slow-query-log=1",
    "slow-query-log-file=slow.log",
    "long-query-time=0",
    "log-slow-verbosity=query_plan,explain",
    "innodb-buffer-pool-size=512M",
    "innodb-stats-auto-recalc=0",
];

/// What grows with the backlog or with history: nothing may walk one of these.
const LARGE: [&str; 9] =
    ["log", "log_returned", "outbox", "claim", "inbox", "dedup", "dead_letter", "history", "event"];

/// Most rows that one statement may read: a batch, some dead ones, and what few rows there are of workers and parts.
const ROWS_MAX: u64 = 5_000;

/// A table of one page is walked faster than its index.
const ROWS_OF_A_PAGE: u64 = 150;

/// Rows of the large state.
const ROWS: u32 = 1_000_000;

struct Fixture {
    server: Mariadb,
    admin: Conn,
    store: MysqlStore,
    queue: Queue,
    /// How much of the server's log was looked at.
    seen: usize,
    number: u64,
}

impl Fixture {
    async fn new() -> Self {
        let server = tokio::task::block_in_place(|| Mariadb::start(Fsync::Off, &SETTINGS));
        let mut admin = Conn::from_url(server.url()).await.unwrap();
        admin.query_drop("set session slow_query_log = 0").await.unwrap();
        let store = MysqlStore::open(server.url(), Options::default()).await.unwrap();
        let queue = store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap();
        Self { server, admin, store, queue, seen: 0, number: 0 }
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.server.data().join("slow.log")).unwrap()).into_owned()
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

    /// Runs everything hot several times, and looks at every statement.
    async fn check(&mut self, state: &str) {
        self.seen = self.log().len();
        for _ in 0..4 {
            self.everything_hot().await;
        }
        let log = self.log();
        let statements: Vec<&str> = log[self.seen..].split("# User@Host:").skip(1).collect();
        assert!(100 < statements.len(), "{state}: only {} statements were seen", statements.len());
        let mut due = 0;
        for statement in statements {
            if let Some(why) = wrong(statement) {
                panic!("{state}: {why}\n{statement}");
            }
            due += usize::from(statement.contains("\tmillpond_outbox\trange\toutbox_ready"));
        }
        assert!(0 < due || state == "fresh tables", "{state}: due rows are found by a range of their index");
    }

    async fn admin(&mut self, statements: &[&str]) {
        for statement in statements {
            self.admin.query_drop(*statement).await.unwrap();
        }
    }

    async fn fill(&mut self) {
        let far = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + 3600000000 + seq";
        let statements = [
            "set @next = (select next_offset from millpond_log_partition where id = 1), \
             @at = (select published_at from millpond_log_partition where id = 1)"
                .to_owned(),
            format!(
                "insert into millpond_log (`partition`, checksum, log_offset, published_at, message_id, body) \
                 select 1, 0, @next - 1 + seq, @at, unhex(md5(seq)), 'x' from seq_1_to_{ROWS}"
            ),
            format!("update millpond_log_partition set next_offset = next_offset + {ROWS} where id = 1"),
            format!(
                "insert into millpond_outbox (message_id, queue_id, class, lane, suspect, checksum, ready_at, created_at, \
                 sent_at, attempt, releases, reason, body) select unhex(md5(concat('o', seq))), 1, 2, 0, 0, 0, {far}, 0, \
                 seq, 0, 0, 'delay', 'x' from seq_1_to_{}",
                ROWS / 2
            ),
            format!(
                "insert into millpond_inbox select 1, unhex(md5(concat('i', seq))), seq from seq_1_to_{}",
                ROWS / 2
            ),
            format!(
                "insert into millpond_history (queue_id, `partition`, from_offset, to_offset, leased_at, finished_at, runs) \
                 select 1, 1, -cast(seq as signed), -cast(seq as signed), 0, seq, '0' from seq_1_to_{}",
                ROWS / 5
            ),
            format!(
                "insert into millpond_event (message_id, queue_id, attempt, releases, at, kind, reason) \
                 select unhex(md5(concat('e', seq))), 1, 1, 0, seq, 'RETRY', 'error' from seq_1_to_{}",
                ROWS / 5
            ),
            format!(
                "insert into millpond_log_returned select 1, -cast(seq as signed), seq, unhex(md5(concat('r', seq))) \
                 from seq_1_to_{}",
                ROWS / 5
            ),
        ];
        for statement in statements {
            self.admin.query_drop(statement).await.unwrap();
        }
    }

    async fn analyze(&mut self) {
        let tables = LARGE.map(|table| format!("millpond_{table}")).join(", ");
        self.admin
            .query_drop(format!("analyze table {tables}, millpond_log_partition, millpond_worker"))
            .await
            .unwrap();
    }
}

/// What is wrong with a statement that ran, if anything is.
fn wrong(statement: &str) -> Option<String> {
    let read = number(statement, "Rows_examined: ");
    if ROWS_MAX < read {
        return Some(format!("it reads {read} rows"));
    }
    // The columns of a plan: id, select type, table, type, possible keys, key, length, ref, rows …
    let steps = statement.lines().filter_map(|line| line.strip_prefix("# explain: "));
    for step in steps {
        let columns: Vec<&str> = step.split('\t').collect();
        let Some(table) = columns.get(2) else { continue };
        let is_large = LARGE.iter().any(|large| *table == format!("millpond_{large}"));
        let walks = columns.get(3).is_some_and(|kind| *kind == "ALL");
        if is_large && walks && ROWS_OF_A_PAGE < read {
            return Some(format!("it walks a table: {step}"));
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
fn a_statement_that_walks_is_found() {
    let walk = "# Rows_examined: 900\n# explain: 1\tSIMPLE\tmillpond_log\tALL\tNULL\tNULL\tNULL\tNULL\t1\t900.00\nselect 1";
    assert!(wrong(walk).unwrap().contains("walks a table"));
    assert!(wrong("# Rows_examined: 9000\nselect 1").unwrap().contains("reads 9000 rows"));
    let one = "# Rows_examined: 1\n# explain: 1\tSIMPLE\tmillpond_log\tconst\tPRIMARY\tPRIMARY\t12\tNULL\t1\t1.00\nselect 1";
    assert_eq!(wrong(one), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_statements_read_no_more_than_they_take_whatever_the_backlog() {
    let mut fixture = Fixture::new().await;
    fixture.check("fresh tables").await;
    fixture.fill().await;
    fixture.check("a million rows, no statistics").await;
    fixture.analyze().await;
    fixture.check("a million rows, with statistics").await;
    // A transaction that began before the deletion keeps the dead rows, to be walked.
    let mut old = Conn::from_url(fixture.server.url()).await.unwrap();
    old.query_drop("start transaction with consistent snapshot").await.unwrap();
    fixture
        .admin(&[
            "set @cursor = (select max(to_offset) from millpond_claim where `partition` = 1)",
            "delete from millpond_log where `partition` = 1 and log_offset < @cursor",
            "delete from millpond_outbox where seq % 10 <> 0",
            "delete from millpond_inbox",
            "delete from millpond_history",
            "delete from millpond_event",
        ])
        .await;
    fixture.check("after mass deletes").await;
    fixture.analyze().await;
    fixture.check("after mass deletes, with statistics").await;
    drop(old);
    // The control: a statement that walks is written down and found.
    let seen = fixture.log().len();
    let mut walker = Conn::from_url(fixture.server.url()).await.unwrap();
    walker.query_drop("select count(*) from millpond_outbox where checksum = 5").await.unwrap();
    // A statement is written down once its answer is sent.
    walker.query_drop("do 0").await.unwrap();
    let log = fixture.log();
    assert!(
        log[seen..].split("# User@Host:").any(|statement| wrong(statement).is_some()),
        "{}",
        &log[seen..]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn upkeep_that_has_nothing_to_do_asks_in_one_packet() {
    let mut fixture = Fixture::new().await;
    fixture.everything_hot().await;
    while fixture.store.retain("node".to_owned(), 10_000).await.unwrap() != 0 {}
    for node in ["node", "other"] {
        // A statement is written down once its answer is sent: the last one is the clock's, before and after.
        fixture.store.now().await.unwrap();
        fixture.seen = fixture.log().len();
        assert_eq!(fixture.store.retain(node.to_owned(), 10_000).await.unwrap(), 0);
        fixture.store.now().await.unwrap();
        let log = fixture.log();
        let statements = log[fixture.seen..].split("# User@Host:").skip(1);
        let asked = statements.filter(|statement| !statement.contains("No tables used")).count();
        // The duty, the look, and what was changed of settings.
        assert_eq!(asked, 3, "{}", &log[fixture.seen..]);
    }
}

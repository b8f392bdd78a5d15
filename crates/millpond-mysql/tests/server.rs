//! What a server may do to a store: refuse it, go away, come back, cut its connections, meet it in a lock.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_core::error::Code;
use millpond_core::message::{Dedup, MessageId, NewMessage};
use millpond_core::queue::QueueSettings;
use millpond_core::store::{Admin, Inspect, Log, Outbox, Queue, Stored};
use millpond_mysql::mysql_async::Conn;
use millpond_mysql::mysql_async::prelude::Queryable;
use millpond_mysql::{MysqlStore, Options, schema};
use millpond_testkit::servers::mariadb::{Mariadb, fresh_prefix};
use millpond_testkit::servers::postgres::Fsync;

/// How long a start may take that is refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

/// How long a store may take to be itself again once its server is back.
const BACK_WITHIN: Duration = Duration::from_secs(10);

async fn conn(url: &str) -> Conn {
    Conn::from_url(url).await.unwrap()
}

async fn run(conn: &mut Conn, statements: &[&str]) {
    for statement in statements {
        conn.query_drop(*statement).await.unwrap();
    }
}

async fn open(url: &str) -> MysqlStore {
    MysqlStore::open(url, Options::default()).await.unwrap()
}

fn with_prefix(url: &str, prefix: &str) -> String {
    format!("{url}?prefix={prefix}")
}

fn id() -> uuid::Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut bits = [0; 10];
    bits[2..].copy_from_slice(&NEXT.fetch_add(1, Ordering::SeqCst).to_be_bytes());
    uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid()
}

fn message() -> NewMessage {
    NewMessage {
        id: MessageId(id()),
        kind: None,
        key: None,
        headers: Default::default(),
        content_type: None,
        body: b"{}".to_vec(),
        priority: 2,
        due: None,
        attempts_max: None,
        retry_until: None,
        dedup: None,
    }
}

async fn declared(store: &MysqlStore) -> Queue {
    store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap()
}

/// Opening is refused in time, with this code, and the text names the thing.
async fn refused(url: &str, code: Code, names: &[&str]) {
    let began = Instant::now();
    let error = MysqlStore::open(url, Options::default()).await.unwrap_err();
    assert!(began.elapsed() < REFUSED_WITHIN, "{url}: {:?}", began.elapsed());
    assert_eq!(error.code(), code, "{url}: {error:?}");
    for name in names {
        assert!(error.causes().contains(name), "{url}: `{name}` is not in: {}", error.causes());
    }
    assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_store_from_opening_is_named() {
    let server = tokio::task::block_in_place(|| Mariadb::start(Fsync::Off, &[]));
    let (url, port) = (server.url(), server.port());
    let mut admin = conn(url).await;
    run(
        &mut admin,
        &[
            "create user ada@'%' identified by 'tulpe'",
            "create user reader@'%' identified by ''",
            "grant select, insert, update, delete on test.* to reader@'%'",
            "create table taken_queue (x int)",
        ],
    )
    .await;
    let at = |rest: &str| format!("mysql://{}", rest.replace("HOST", &format!("127.0.0.1:{port}")));
    refused(&at("ada:geheim@HOST/test"), Code::StoreUnreachable, &["password", "`ada`"]).await;
    refused(&at("ada:tulpe@HOST/test"), Code::StoreUnreachable, &["`ada`", "`test`", "grants"]).await;
    refused(&at("test@HOST/nowhere"), Code::StoreUnreachable, &["no database `nowhere`", "create database"])
        .await;
    refused(&at("test@HOST"), Code::InvalidConfig, &["names no database"]).await;
    refused(&at("test@127.0.0.1:1/x"), Code::StoreUnreachable, &["127.0.0.1:1 does not answer"]).await;
    refused(&at("test@HOST/test?sslmode=require"), Code::StoreUnreachable, &["offers no TLS"]).await;
    refused(&at("reader@HOST/test"), Code::StoreUnreachable, &["`reader`", "grant create"]).await;
    refused(&at("test@HOST/test?prefix=taken_"), Code::UnsupportedStore, &["`taken_…`", "did not make"])
        .await;

    open(&with_prefix(url, "ours_")).await.close().await;
    run(&mut admin, &["alter table ours_queue convert to character set latin1"]).await;
    refused(&with_prefix(url, "ours_"), Code::UnsupportedStore, &["ours_queue", "utf8mb4_bin"]).await;
    run(&mut admin, &["alter table ours_queue convert to character set utf8mb4 collate utf8mb4_bin"]).await;
    run(&mut admin, &["alter table ours_dedup modify dedup_key varchar(250) not null"]).await;
    refused(&with_prefix(url, "ours_"), Code::UnsupportedStore, &["ours_dedup.dedup_key", "varbinary"]).await;
    run(&mut admin, &["alter table ours_dedup modify dedup_key varbinary(250) not null"]).await;
    open(&with_prefix(url, "ours_")).await.close().await;
    run(
        &mut admin,
        &[
            "create user part@'%' identified by ''",
            "grant select on test.ours_migration to part@'%'",
            "grant select on test.ours_queue to part@'%'",
        ],
    )
    .await;
    let part = open(&with_prefix(&at("part@HOST/test"), "ours_")).await;
    let error = part.queues().await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnreachable, "{error:?}");
    assert!(error.causes().contains("`part`") || error.causes().contains("'part'"), "{}", error.causes());
    assert!(error.causes().contains("store grants"), "{}", error.causes());
    part.close().await;
    run(&mut admin, &["insert into ours_migration values (99, '0099_later', 1, 1, 1)"]).await;
    refused(&with_prefix(url, "ours_"), Code::SchemaNewer, &["0099_later"]).await;

    run(&mut admin, &["set global max_allowed_packet = 1048576"]).await;
    refused(url, Code::UnsupportedStore, &["1048576", "max_allowed_packet"]).await;
    run(&mut admin, &["set global max_allowed_packet = 16777216", "set global read_only = 1"]).await;
    refused(url, Code::StoreUnreachable, &["read-only", "primary"]).await;
}

#[tokio::test]
async fn a_runtime_user_works_with_the_rights_that_are_listed_and_no_more() {
    let (url, prefix) = (Mariadb::shared().url(), fresh_prefix());
    let store = open(&with_prefix(url, &prefix)).await;
    let queue = declared(&store).await;
    let user = format!("runtime_{prefix}");
    let mut admin = conn(url).await;
    run(&mut admin, &[&format!("create user {user}@'%' identified by ''")]).await;
    let grants = store.info().await.unwrap().grants;
    for grant in grants.iter().filter(|grant| grant.contains("millpond_runtime")) {
        admin.query_drop(grant.replace("millpond_runtime", &format!("{user}@'%'"))).await.unwrap();
    }
    store.close().await;
    let (_, place) = url.split_once('@').unwrap();
    let as_user = format!("mysql://{user}@{place}");
    let options = Options { migrate: false, ..Options::default() };
    let runtime = MysqlStore::open(&with_prefix(&as_user, &prefix), options).await.unwrap();
    runtime.append(queue.id, vec![message()]).await.unwrap();
    runtime.retain("node".to_owned(), 10).await.unwrap();
    assert_eq!(runtime.queues().await.unwrap()[0].ready, 1);
    runtime.info().await.unwrap();
    runtime.close().await;
    let mut direct = conn(&as_user).await;
    assert!(direct.query_drop(format!("delete from {prefix}migration")).await.is_err());
    assert!(direct.query_drop(format!("drop table {prefix}log")).await.is_err());
}

#[tokio::test]
async fn a_sender_sends_with_the_right_that_is_listed_and_can_do_nothing_else() {
    let (url, prefix) = (Mariadb::shared().url(), fresh_prefix());
    let store = open(&with_prefix(url, &prefix)).await;
    declared(&store).await;
    let user = format!("sender_{prefix}");
    let mut admin = conn(url).await;
    run(&mut admin, &[&format!("create user {user}@'%' identified by ''")]).await;
    let grants = store.info().await.unwrap().grants;
    for grant in grants.iter().filter(|grant| grant.contains("millpond_sender")) {
        admin.query_drop(grant.replace("millpond_sender", &format!("{user}@'%'"))).await.unwrap();
    }
    let (_, place) = url.split_once('@').unwrap();
    let mut sender = conn(&format!("mysql://{user}@{place}")).await;
    let send = format!("call {prefix}send('mail', '{{}}', '{{\"key\": \"a\", \"dedup_key\": \"b\"}}', @id)");
    run(&mut sender, &[&send]).await;
    let id: Option<String> = sender.query_first("select @id").await.unwrap();
    assert_eq!(id.unwrap().len(), 36);
    for table in ["outbox", "queue", "log", "dedup", "migration"] {
        for statement in [format!("select * from {prefix}{table}"), format!("delete from {prefix}{table}")] {
            let refused = sender.query_drop(&statement).await.expect_err(&statement).to_string();
            assert!(refused.contains("denied"), "{refused}");
        }
    }
    assert!(sender.query_drop(format!("drop procedure {prefix}send")).await.is_err());
    assert_eq!(store.relay(100).await.unwrap().moved, 1);
    store.close().await;
}

/// A procedure's statements are committed one by one where the caller has no transaction.
#[tokio::test]
async fn a_send_by_sql_that_fails_half_way_leaves_no_key_behind() {
    let (url, prefix) = (Mariadb::shared().url(), fresh_prefix());
    let store = open(&with_prefix(url, &prefix)).await;
    declared(&store).await;
    let mut sender = conn(url).await;
    let fails = format!(
        "create trigger {prefix}fails before insert on {prefix}outbox for each row \
         signal sqlstate '45000' set message_text = 'no room'"
    );
    run(&mut sender, &[&fails]).await;
    let send = format!("call {prefix}send('mail', '{{}}', '{{\"dedup_key\": \"b\"}}', @id)");
    let held = format!("select count(*) from {prefix}dedup");
    let refused = sender.query_drop(&send).await.unwrap_err().to_string();
    assert!(refused.contains("no room"), "{refused}");
    assert_eq!(sender.query_first(&held).await.unwrap(), Some(0), "without a transaction");
    let orders = format!("{prefix}orders");
    run(&mut sender, &[&format!("create table {orders} (id int)"), "begin"]).await;
    run(&mut sender, &[&format!("insert into {orders} values (1)")]).await;
    sender.query_drop(&send).await.unwrap_err();
    run(&mut sender, &["commit"]).await;
    assert_eq!(sender.query_first(&held).await.unwrap(), Some(0), "within one that goes on");
    assert_eq!(sender.query_first(format!("select count(*) from {orders}")).await.unwrap(), Some(1));

    run(&mut sender, &[&format!("drop trigger {prefix}fails"), &send, &send]).await;
    assert_eq!(store.relay(100).await.unwrap().moved, 1, "the key was free, and was held then");
    run(&mut sender, &["set autocommit = 0", &send.replace("\"b\"", "\"c\""), "rollback"]).await;
    assert_eq!(store.relay(100).await.unwrap().moved, 0, "a transaction that nobody began by name");
    store.close().await;
}

#[tokio::test]
async fn a_trigger_of_the_program_may_send() {
    let (url, prefix) = (Mariadb::shared().url(), fresh_prefix());
    let store = open(&with_prefix(url, &prefix)).await;
    declared(&store).await;
    let mut program = conn(url).await;
    let orders = format!("{prefix}orders");
    let sends = format!(
        "create trigger {orders}_sends after insert on {orders} for each row \
         call {prefix}send('mail', '{{}}', null, @id)"
    );
    run(&mut program, &[&format!("create table {orders} (id int)"), &sends]).await;
    run(&mut program, &[&format!("insert into {orders} values (1), (2)")]).await;
    run(&mut program, &["begin", &format!("insert into {orders} values (3)"), "rollback"]).await;
    assert_eq!(store.relay(100).await.unwrap().moved, 2);
    store.close().await;
}

#[tokio::test]
async fn nodes_that_start_at_once_migrate_once() {
    let url = with_prefix(Mariadb::shared().url(), &fresh_prefix());
    let before = schema(&url).await.unwrap();
    assert!(before.iter().all(|migration| migration.applied_at.is_none()), "a look changes nothing");
    let starts = (0..6).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { open(&url).await })
    });
    for start in starts.collect::<Vec<_>>() {
        start.await.unwrap().close().await;
    }
    assert!(schema(&url).await.unwrap().iter().all(|migration| migration.applied_at.is_some()));
    let older = Options { migrate: false, ..Options::default() };
    let missing = with_prefix(Mariadb::shared().url(), &fresh_prefix());
    let error = MysqlStore::open(&missing, older).await.unwrap_err();
    assert_eq!(error.code(), Code::SchemaOlder);
}

#[tokio::test]
async fn a_migration_that_was_interrupted_goes_on() {
    let prefix = fresh_prefix();
    let url = with_prefix(Mariadb::shared().url(), &prefix);
    open(&url).await.close().await;
    let mut admin = conn(Mariadb::shared().url()).await;
    // As after a kill: the first four statements were done, the last of them not counted.
    let all: Vec<String> = admin.query("show tables").await.unwrap();
    let first =
        ["queue", "subscription", "log_partition", "log", "migration"].map(|name| format!("{prefix}{name}"));
    for table in all.iter().filter(|table| table.starts_with(&prefix) && !first.contains(table)) {
        run(&mut admin, &[&format!("drop table {table}")]).await;
    }
    run(&mut admin, &[&format!("drop procedure {prefix}send")]).await;
    run(&mut admin, &[&format!("delete from {prefix}migration where number > 1")]).await;
    run(&mut admin, &[&format!("update {prefix}migration set steps = 3, applied_at = null")]).await;
    let options = Options { migrate: false, ..Options::default() };
    let error = MysqlStore::open(&url, options).await.unwrap_err();
    assert_eq!(error.code(), Code::SchemaOlder);
    assert!(error.causes().contains("0001_log stopped half-way"), "{}", error.causes());
    let store = open(&url).await;
    let queue = declared(&store).await;
    store.append(queue.id, vec![message()]).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn keys_that_a_default_collation_merges_stay_apart() {
    let store = open(&with_prefix(Mariadb::shared().url(), &fresh_prefix())).await;
    let queue = declared(&store).await;
    for key in ["order-1", "ORDER-1", "Örder-1", "order-1 ", "o\u{308}rder-1", "it's \\ \"1\""] {
        let dedup = || Some(Dedup { key: key.to_owned(), window: Duration::from_secs(60) });
        let first = message();
        let of = first.id;
        let sent = store.append(queue.id, vec![NewMessage { dedup: dedup(), ..first }]).await.unwrap();
        assert_eq!(sent, [Stored::New], "{key:?}");
        let again = store.append(queue.id, vec![NewMessage { dedup: dedup(), ..message() }]).await.unwrap();
        assert_eq!(again, [Stored::Duplicate { of }], "{key:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_send_larger_than_a_packet_goes_in_several_and_one_body_that_is_larger_is_refused() {
    let store = open(&with_prefix(Mariadb::shared().url(), &fresh_prefix())).await;
    let queue = declared(&store).await;
    // Every byte of these is escaped, which doubles them.
    let large = |bytes: usize| NewMessage { body: vec![0; bytes], ..message() };
    let twenty: Vec<NewMessage> = (0..20).map(|_| large(1_000_000)).collect();
    store.append(queue.id, twenty).await.unwrap();
    assert_eq!(store.queues().await.unwrap()[0].ready, 20);
    let error = store.append(queue.id, vec![large(9_000_000)]).await.unwrap_err();
    assert_eq!(error.code(), Code::BodyTooLarge, "{error:?}");
    store.append(queue.id, vec![message()]).await.unwrap();
    assert_eq!(store.queues().await.unwrap()[0].ready, 21, "nothing of the refused one is left");
    store.close().await;
}

/// Its answer was lost, and it was stored all the same: the caller repeats it as it was.
#[tokio::test]
async fn a_send_with_keys_that_is_repeated_under_its_ids_is_there_once() {
    let store = open(&with_prefix(Mariadb::shared().url(), &fresh_prefix())).await;
    let queue = declared(&store).await;
    let dedup = |key: &str| Some(Dedup { key: key.to_owned(), window: Duration::from_secs(60) });
    let batch = || ["b", "a", "c"].map(|key| NewMessage { dedup: dedup(key), ..message() }).to_vec();
    let first = batch();
    assert_eq!(store.append(queue.id, first.clone()).await.unwrap(), [Stored::New; 3]);
    let known: Vec<_> = first.iter().map(|message| Stored::Duplicate { of: message.id }).collect();
    assert_eq!(store.append(queue.id, first.clone()).await.unwrap(), known);
    let mut longer = first;
    longer.push(NewMessage { dedup: dedup("d"), ..message() });
    assert_eq!(store.append(queue.id, longer).await.unwrap(), [known.as_slice(), &[Stored::New]].concat());
    assert_eq!(store.queues().await.unwrap()[0].ready, 4);
    store.close().await;
}

/// Sends one after the other until told to stop; answers what was acknowledged and what nobody knows.
async fn keep_sending(
    store: Arc<MysqlStore>,
    queue: Queue,
    stop: Arc<AtomicBool>,
) -> (Vec<MessageId>, usize) {
    let (mut stored, mut unknown) = (Vec::new(), 0);
    while !stop.load(Ordering::SeqCst) {
        let message = message();
        let id = message.id;
        match store.append(queue.id, vec![message]).await {
            Ok(_) => stored.push(id),
            Err(error) if error.code() == Code::UnknownOutcome => unknown += 1,
            Err(error) => assert_eq!(error.code(), Code::StoreUnavailable, "{error:?}"),
        }
    }
    (stored, unknown)
}

/// How often each message is in the log.
async fn copies(conn: &mut Conn, prefix: &str) -> HashMap<uuid::Uuid, i64> {
    let rows: Vec<(Vec<u8>, i64)> =
        conn.query(format!("select message_id, count(*) from {prefix}log group by 1")).await.unwrap();
    rows.into_iter().map(|(id, count)| (uuid::Uuid::from_slice(&id).unwrap(), count)).collect()
}

fn once_each(stored: &[MessageId], copies: &HashMap<uuid::Uuid, i64>) {
    assert!(
        stored.iter().all(|id| copies.get(&id.0) == Some(&1)),
        "each that was acknowledged is there once"
    );
    assert!(copies.values().all(|count| *count == 1), "and nothing twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_whose_connection_is_cut_is_there_once_or_not_at_all() {
    let (url, prefix) = (Mariadb::shared().url(), fresh_prefix());
    let store = Arc::new(open(&with_prefix(url, &prefix)).await);
    let (queue, stop) = (declared(&store).await, Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = (0..4)
        .map(|_| tokio::spawn(keep_sending(Arc::clone(&store), queue.clone(), Arc::clone(&stop))))
        .collect();
    let mut admin = conn(url).await;
    let busy = format!(
        "select id from information_schema.processlist where command = 'Query' and info like '%{prefix}log%' \
         and id <> connection_id()"
    );
    let (mut cuts, until) = (0, Instant::now() + Duration::from_secs(5));
    while Instant::now() < until && cuts < 100 {
        let found: Vec<u64> = admin.query(&busy).await.unwrap();
        for id in found {
            cuts += u64::from(admin.query_drop(format!("kill {id}")).await.is_ok());
        }
    }
    stop.store(true, Ordering::SeqCst);
    let mut stored = Vec::new();
    for sender in senders {
        stored.extend(sender.await.unwrap().0);
    }
    assert!(3 < cuts && 10 < stored.len(), "{cuts} cuts, {} sends", stored.len());
    once_each(&stored, &copies(&mut admin, &prefix).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_and_comes_back_loses_nothing() {
    let server = tokio::task::block_in_place(|| Mariadb::start(Fsync::On, &[]));
    let prefix = fresh_prefix();
    let store = Arc::new(open(&with_prefix(server.url(), &prefix)).await);
    let (queue, stop) = (declared(&store).await, Arc::new(AtomicBool::new(false)));
    let sender = tokio::spawn(keep_sending(Arc::clone(&store), queue.clone(), Arc::clone(&stop)));
    for _ in 0..3 {
        tokio::task::block_in_place(|| server.crash());
        assert!(store.now().await.is_err());
        tokio::task::block_in_place(|| server.start_again());
        let (back, mut last) = (Instant::now(), store.queues().await);
        while last.is_err() {
            assert!(back.elapsed() < BACK_WITHIN, "{:?}", last.unwrap_err());
            last = store.queues().await;
        }
        store.append(queue.id, vec![message()]).await.unwrap();
        assert!(back.elapsed() < BACK_WITHIN);
    }
    stop.store(true, Ordering::SeqCst);
    let (stored, _) = sender.await.unwrap();
    once_each(&stored, &copies(&mut conn(server.url()).await, &prefix).await);
}

/// What the scripts rely on: each statement of a packet has a time of its own.
#[tokio::test]
async fn time_goes_on_within_a_packet() {
    let mut conn = conn(Mariadb::shared().url()).await;
    let packet =
        "set @before = utc_timestamp(6); do benchmark(200000, sha2('a', 512)); set @after = utc_timestamp(6)";
    conn.query_drop(packet).await.unwrap();
    let passed: Option<i64> =
        conn.query_first("select timestampdiff(microsecond, @before, @after)").await.unwrap();
    assert!(10_000 <= passed.unwrap(), "{passed:?}");
}

/// What a poll of an empty range does not do under READ COMMITTED: keep others from inserting into it.
#[tokio::test]
async fn a_poll_that_is_open_keeps_nobody_from_sending() {
    let prefix = fresh_prefix();
    let store = open(&with_prefix(Mariadb::shared().url(), &prefix)).await;
    let queue = declared(&store).await;
    let mut poll = conn(Mariadb::shared().url()).await;
    run(
        &mut poll,
        &[
            "set session transaction isolation level read committed",
            "begin",
            &format!("select seq from {prefix}outbox where ready_at <= 9e18 order by ready_at, seq limit 10 for update skip locked"),
        ],
    )
    .await;
    let due = Some(millpond_core::message::Due::In(Duration::ZERO));
    let began = Instant::now();
    store.append(queue.id, vec![NewMessage { due, ..message() }, message()]).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    store.close().await;
}

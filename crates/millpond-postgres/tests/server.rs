//! What a server may do to a store: refuse it, go away, come back, cut its connections.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_core::error::Code;
use millpond_core::message::{Dedup, MessageId, NewMessage};
use millpond_core::queue::QueueSettings;
use millpond_core::store::{Admin, Inspect, Log, Outbox, Queue, Stored};
use millpond_postgres::tokio_postgres::{Client, NoTls, connect};
use millpond_postgres::{Options, PostgresStore, PostgresTx, schema};
use millpond_testkit::servers::pgbouncer::Pgbouncer;
use millpond_testkit::servers::postgres::{Fsync, Postgres, fresh_schema};

/// How long a start may take that is refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(5);

/// How long a store may take to be itself again once its server is back.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// How long a hint from another node may take.
const HINT_WITHIN: Duration = Duration::from_secs(5);

async fn client(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn client_of(url: &str, role: &str) -> Client {
    client(&url.replace("postgres://postgres@", &format!("postgres://{role}@"))).await
}

async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url, Options::default()).await.unwrap()
}

fn in_schema(url: &str, schema: &str) -> String {
    format!("{url}?schema={schema}")
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

async fn declared(store: &PostgresStore) -> Queue {
    store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap()
}

/// Opening is refused in time, with this code, and the text names the thing.
#[track_caller]
fn refused(url: &str, code: Code, names: &[&str]) -> impl Future<Output = ()> {
    let (url, names): (String, Vec<String>) =
        (url.to_owned(), names.iter().map(|&name| name.to_owned()).collect());
    async move {
        let began = Instant::now();
        let error = PostgresStore::open(&url, Options::default()).await.unwrap_err();
        assert!(began.elapsed() < REFUSED_WITHIN, "{url}: {:?}", began.elapsed());
        assert_eq!(error.code(), code, "{url}: {error:?}");
        for name in names {
            assert!(error.causes().contains(&name), "{url}: `{name}` is not in: {}", error.causes());
        }
        assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_store_from_opening_is_named() {
    let server = tokio::task::block_in_place(|| Postgres::start(Fsync::Off, &[]));
    let (url, port) = (server.url(), server.port());
    let admin = client(url).await;
    admin
        .batch_execute(
            "create role ada login password 'tulpe'; create role reader login; revoke create on database postgres from public;
             create schema taken; create table taken.queue (x integer); create role frozen login superuser;
             alter role frozen set default_transaction_read_only = on",
        )
        .await
        .unwrap();
    admin
        .batch_execute("create database latin encoding 'LATIN1' locale 'C' template template0")
        .await
        .unwrap();
    let rules = "host all ada 127.0.0.1/32 scram-sha-256\nhost all eve 127.0.0.1/32 reject\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    admin.batch_execute("select pg_reload_conf()").await.unwrap();

    let at = |rest: &str| format!("postgres://{}", rest.replace("HOST", &format!("127.0.0.1:{port}")));
    refused(&at("ada:geheim@HOST/postgres"), Code::StoreUnreachable, &["password", "`ada`"]).await;
    refused(&at("eve:geheim@HOST/postgres"), Code::StoreUnreachable, &["`eve`", "pg_hba.conf"]).await;
    refused(&at("postgres@HOST/nowhere"), Code::StoreUnreachable, &["no database `nowhere`", "createdb"])
        .await;
    refused(&at("postgres@127.0.0.1:1/x"), Code::StoreUnreachable, &["127.0.0.1:1 does not answer"]).await;
    refused(&at("postgres@HOST/postgres?sslmode=require"), Code::StoreUnreachable, &["offers no TLS"]).await;
    refused(
        &at("reader@HOST/postgres?schema=new"),
        Code::StoreUnreachable,
        &["`reader`", "`new`", "create schema"],
    )
    .await;
    refused(&at("postgres@HOST/postgres?schema=taken"), Code::UnsupportedStore, &["`taken`", "did not make"])
        .await;
    refused(&at("postgres@HOST/latin"), Code::UnsupportedStore, &["LATIN1", "UTF8"]).await;
    refused(&at("frozen@HOST/postgres"), Code::StoreUnreachable, &["read-only"]).await;

    // A role without rights on a schema that is there.
    open(&in_schema(url, "ours")).await.close().await;
    refused(&at("reader@HOST/postgres?schema=ours"), Code::StoreUnreachable, &["`reader`", "GRANT USAGE"])
        .await;
    admin.batch_execute("grant usage on schema ours to reader").await.unwrap();
    refused(&at("reader@HOST/postgres?schema=ours"), Code::StoreUnreachable, &["migration", "store grants"])
        .await;
    // A schema of somebody else, in which nothing is yet.
    admin.batch_execute("create schema theirs; grant usage on schema theirs to reader").await.unwrap();
    refused(
        &at("reader@HOST/postgres?schema=theirs"),
        Code::StoreUnreachable,
        &["`reader`", "`theirs`", "grant create on schema theirs to reader"],
    )
    .await;
    admin.batch_execute("insert into ours.migration values (99, '0099_later', 1, 1)").await.unwrap();
    refused(&in_schema(url, "ours"), Code::SchemaNewer, &["0099_later"]).await;

    // A standby.
    tokio::task::block_in_place(|| server.crash());
    std::fs::write(server.data().join("standby.signal"), "").unwrap();
    tokio::task::block_in_place(|| server.start_again());
    refused(url, Code::StoreUnreachable, &["in recovery", "primary"]).await;
}

#[tokio::test]
async fn a_runtime_role_works_with_the_rights_that_are_listed_and_no_more() {
    let (url, schema) = (Postgres::shared().url(), fresh_schema());
    let store = open(&in_schema(url, &schema)).await;
    let queue = declared(&store).await;
    let role = format!("runtime_{schema}");
    let admin = client(url).await;
    admin.batch_execute(&format!("create role {role} login")).await.unwrap();
    let grants = store.info().await.unwrap().grants;
    for grant in grants.iter().filter(|grant| grant.contains("millpond_runtime")) {
        admin.batch_execute(&grant.replace("millpond_runtime", &role)).await.unwrap();
    }
    store.close().await;
    let as_role = in_schema(&url.replace("postgres://postgres@", &format!("postgres://{role}@")), &schema);
    let runtime =
        PostgresStore::open(&as_role, Options { migrate: false, ..Options::default() }).await.unwrap();
    runtime.append(queue.id, vec![message()]).await.unwrap();
    runtime.retain("node".to_owned(), 10).await.unwrap();
    assert_eq!(runtime.queues().await.unwrap()[0].ready, 1);
    runtime.close().await;
    let direct = client(&url.replace("postgres://postgres@", &format!("postgres://{role}@"))).await;
    assert!(direct.batch_execute(&format!("delete from {schema}.migration")).await.is_err());
    assert!(direct.batch_execute(&format!("drop table {schema}.log")).await.is_err());
}

#[tokio::test]
async fn a_sender_role_sends_with_the_rights_that_are_listed_and_can_do_nothing_else() {
    let (url, schema) = (Postgres::shared().url(), fresh_schema());
    let store = open(&in_schema(url, &schema)).await;
    declared(&store).await;
    let (role, admin) = (format!("sender_{schema}"), client(url).await);
    admin.batch_execute(&format!("create role {role} login")).await.unwrap();
    let as_role = || client_of(url, &role);
    let send = format!("select {schema}.send('mail', '{{}}')");
    assert!(as_role().await.batch_execute(&send).await.is_err(), "nobody has the right who was not given it");
    let grants = store.info().await.unwrap().grants;
    for grant in grants.iter().filter(|grant| grant.contains("millpond_sender")) {
        admin.batch_execute(&grant.replace("millpond_sender", &role)).await.unwrap();
    }
    let sender = as_role().await;
    for body in
        ["'{}'", "'{}'::text", "'{}'::jsonb", "'{}'::bytea", "'{}', '{\"key\": \"a\", \"dedup_key\": \"b\"}'"]
    {
        sender.batch_execute(&format!("select {schema}.send('mail', {body})")).await.unwrap();
    }
    // An object of its own in front of ours is not what the function finds.
    sender
        .batch_execute("create temp table queue (id integer); create temp table outbox (id integer)")
        .await
        .unwrap();
    sender.batch_execute(&send).await.unwrap();
    let tables =
        admin.query("select tablename::text from pg_tables where schemaname = $1", &[&schema]).await.unwrap();
    for table in tables.iter().map(|row| row.get::<_, String>(0)) {
        for statement in [
            format!("select * from {schema}.{table}"),
            format!("delete from {schema}.{table}"),
            format!("insert into {schema}.{table} default values"),
        ] {
            let refused = sender.batch_execute(&statement).await.expect_err(&statement);
            assert!(refused.as_db_error().unwrap().message().contains("permission denied"), "{refused:?}");
        }
    }
    let append = format!("select * from {schema}.pulse(null, '{{}}', false)");
    assert!(sender.batch_execute(&append).await.is_err(), "other functions run with its own rights");
    assert!(sender.batch_execute(&format!("create table {schema}.mine (id integer)")).await.is_err());
    assert_eq!(store.relay(100).await.unwrap().moved, 6);
    store.close().await;
}

#[tokio::test]
async fn a_program_that_sends_may_wake_the_relay() {
    let url = in_schema(Postgres::shared().url(), &fresh_schema());
    let schema = url.split_once("schema=").unwrap().1.to_owned();
    let store = open(&url).await;
    declared(&store).await;
    let program = client(Postgres::shared().url()).await;
    let heard = tokio::time::timeout(HINT_WITHIN, async {
        loop {
            let hint = store.changed();
            let send = format!("begin; select {schema}.send('mail', '{{}}'); notify {schema}_wake; commit");
            program.batch_execute(&send).await.unwrap();
            hint.await;
            if store.relay(100).await.unwrap().moved != 0 {
                return;
            }
        }
    });
    heard.await.unwrap();
    store.close().await;
}

/// The relay looks from a floor, and by that nothing is due before it was written.
#[tokio::test]
async fn a_send_that_was_due_long_ago_is_due_when_it_is_written() {
    let url = in_schema(Postgres::shared().url(), &fresh_schema());
    let schema = url.split_once("schema=").unwrap().1.to_owned();
    let store = open(&url).await;
    declared(&store).await;
    let program = client(Postgres::shared().url()).await;
    let send = format!("select {schema}.send('mail', '{{}}', '{{\"at\": \"2020-01-01T00:00:00Z\"}}')");
    program.batch_execute(&send).await.unwrap();
    let late = format!("select 1 from {schema}.outbox where ready_at >= created_at");
    assert_eq!(program.query(&late, &[]).await.unwrap().len(), 1);
    store.close().await;
}

/// The server answers `commit` as if it was done, and rolls back.
#[tokio::test]
async fn a_unit_in_which_a_statement_failed_is_not_committed() {
    let (server, schema) = (Postgres::shared(), fresh_schema());
    let store = open(&in_schema(server.url(), &schema)).await;
    let reader = client(server.url()).await;
    reader.batch_execute(&format!("create table {schema}.booking (id integer)")).await.unwrap();
    let book = format!("insert into {schema}.booking values (1)");
    for fails in [true, false] {
        let mut tx = Outbox::open(&store, Duration::from_secs(10)).await.unwrap();
        let lent = tx.as_any().downcast_mut::<PostgresTx>().unwrap().client();
        lent.batch_execute(&book).await.unwrap();
        if fails {
            lent.batch_execute("select 1 / 0").await.unwrap_err();
        }
        let committed = tx.commit().await.map_err(|error| error.code());
        assert_eq!(committed, if fails { Err(Code::StatementFailed) } else { Ok(()) });
    }
    let text = format!("select count(*) from {schema}.booking");
    assert_eq!(reader.query_one(&text, &[]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn nodes_that_start_at_once_migrate_once() {
    let url = in_schema(Postgres::shared().url(), &fresh_schema());
    assert!(
        schema(&url).await.unwrap().iter().all(|migration| migration.applied_at.is_none()),
        "a look changes nothing"
    );
    let starts = (0..6).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { open(&url).await })
    });
    for start in starts.collect::<Vec<_>>() {
        start.await.unwrap().close().await;
    }
    assert!(schema(&url).await.unwrap().iter().all(|migration| migration.applied_at.is_some()));
    let older = Options { migrate: false, ..Options::default() };
    let missing = in_schema(Postgres::shared().url(), &fresh_schema());
    let error = PostgresStore::open(&missing, older).await.unwrap_err();
    assert_eq!(error.code(), Code::SchemaOlder);
}

#[tokio::test]
async fn a_node_hears_of_the_sends_of_another() {
    let url = in_schema(Postgres::shared().url(), &fresh_schema());
    let (one, other) = (open(&url).await, open(&url).await);
    let queue = declared(&one).await;
    // Its own beginning is a hint too: what was sent while nobody listened is looked for.
    let heard = tokio::time::timeout(HINT_WITHIN, async {
        loop {
            let hint = other.changed();
            one.append(queue.id, vec![message()]).await.unwrap();
            hint.await;
            if other.queues().await.unwrap()[0].ready != 0 {
                return;
            }
        }
    });
    heard.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_there_are_no_hints() {
    let proxy = tokio::task::block_in_place(Pgbouncer::shared);
    let url = in_schema(proxy.url(), &fresh_schema());
    let (one, other) = (open(&url).await, open(&url).await);
    let queue = declared(&one).await;
    let hint = other.changed();
    one.append(queue.id, vec![message()]).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), hint).await.is_err());
    assert_eq!(other.queues().await.unwrap()[0].ready, 1, "it is polled");
}

/// Sends one after the other until told to stop; answers what was acknowledged and what nobody knows.
async fn keep_sending(
    store: Arc<PostgresStore>,
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
async fn copies(client: &Client, schema: &str) -> HashMap<uuid::Uuid, i64> {
    let rows = client
        .query(&format!("select message_id, count(*) from {schema}.log group by 1"), &[])
        .await
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
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
    let (url, schema) = (Postgres::shared().url(), fresh_schema());
    let store = Arc::new(open(&in_schema(url, &schema)).await);
    let (queue, stop) = (declared(&store).await, Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = (0..4)
        .map(|_| tokio::spawn(keep_sending(Arc::clone(&store), queue.clone(), Arc::clone(&stop))))
        .collect();
    let admin = client(url).await;
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
               where application_name = 'millpond' and query like '%' || $1 || '.append(%' and state = 'active'";
    let (mut cuts, began) = (0, Instant::now());
    // On a busy machine few sends are met in the middle.
    while cuts < 100 && began.elapsed() < Duration::from_secs(if cuts < 4 { 30 } else { 3 }) {
        cuts += admin.query_one(cut, &[&schema]).await.unwrap().get::<_, i64>(0);
    }
    stop.store(true, Ordering::SeqCst);
    let mut stored = Vec::new();
    for sender in senders {
        stored.extend(sender.await.unwrap().0);
    }
    assert!(3 < cuts && !stored.is_empty(), "{cuts} cuts, {} sends", stored.len());
    once_each(&stored, &copies(&admin, &schema).await);
}

/// Its answer was lost, and it was stored all the same: the caller repeats it as it was.
#[tokio::test]
async fn a_send_with_keys_that_is_repeated_under_its_ids_is_there_once() {
    let (url, schema) = (Postgres::shared().url(), fresh_schema());
    let store = open(&in_schema(url, &schema)).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_and_comes_back_loses_nothing() {
    let server = tokio::task::block_in_place(|| Postgres::start(Fsync::On, &[]));
    let schema = fresh_schema();
    let store = Arc::new(open(&in_schema(server.url(), &schema)).await);
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
    once_each(&stored, &copies(&client(server.url()).await, &schema).await);
}

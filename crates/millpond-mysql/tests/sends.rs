//! Large sends, of which one inserts while another is flushed: in the order of their calls, each once; and a reclaim that
//! believes what a pulse has seen.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond_core::error::Code;
use millpond_core::message::{MessageId, NewMessage, Token};
use millpond_core::pick::Lane;
use millpond_core::queue::QueueSettings;
use millpond_core::store::{Admin, Lease, LeaseRequest, Log, QueueId, Renewal, TakeOver};
use millpond_core::time::Timestamp;
use millpond_core::view::WorkerFacts;
use millpond_mysql::mysql_async::Conn;
use millpond_mysql::mysql_async::prelude::Queryable;
use millpond_mysql::{MysqlStore, Options};
use millpond_testkit::servers::mariadb::{Mariadb, fresh_prefix};

/// Enough that a call does not wait for the one before.
const LARGE: usize = 300;

async fn fixture() -> (Arc<MysqlStore>, QueueId, Conn, String) {
    let (url, prefix) = (Mariadb::shared().url(), fresh_prefix());
    let store = MysqlStore::open(&format!("{url}?prefix={prefix}"), Options::default()).await.unwrap();
    let queue = store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap().id;
    (Arc::new(store), queue, Conn::from_url(url).await.unwrap(), prefix)
}

fn message() -> NewMessage {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bits = [0; 10];
    bits[2..].copy_from_slice(&NEXT.fetch_add(1, Ordering::SeqCst).to_be_bytes());
    NewMessage {
        id: MessageId(uuid::Builder::from_unix_timestamp_millis(1_800_000_000_000, &bits).into_uuid()),
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

fn messages(count: usize) -> Vec<NewMessage> {
    (0..count).map(|_| message()).collect()
}

#[tokio::test]
async fn large_sends_that_overlap_keep_the_order_of_their_calls() {
    let (store, queue, mut admin, prefix) = fixture().await;
    let (mut sent, mut calls) = (Vec::new(), tokio::task::JoinSet::new());
    for call in 0..40 {
        let messages = messages(if call % 7 == 3 { 5 } else { LARGE });
        sent.extend(messages.iter().map(|message| message.id.0));
        let store = Arc::clone(&store);
        // On one thread they begin in this order.
        calls.spawn(async move { store.append(queue, messages).await.unwrap() });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    let rows: Vec<(i64, Vec<u8>)> = admin
        .query(format!("select log_offset, message_id from {prefix}log order by log_offset"))
        .await
        .unwrap();
    assert!((0..).zip(&rows).all(|(place, (offset, _))| place == *offset), "offsets have no gap (M1)");
    let stored: Vec<_> = rows.iter().map(|(_, id)| uuid::Uuid::from_slice(id).unwrap()).collect();
    assert!(stored == sent, "in the order of the calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_sends_whose_connections_are_cut_are_there_once_or_not_at_all() {
    let (store, queue, mut admin, prefix) = fixture().await;
    let stop = Arc::new(AtomicBool::new(false));
    let keep_sending = |store: Arc<MysqlStore>, stop: Arc<AtomicBool>| async move {
        let mut stored = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let messages = messages(LARGE);
            let ids: Vec<_> = messages.iter().map(|message| message.id.0).collect();
            match store.append(queue, messages).await {
                Ok(_) => stored.extend(ids),
                Err(error) if error.code() == Code::UnknownOutcome => {}
                Err(error) => assert_eq!(error.code(), Code::StoreUnavailable, "{error:?}"),
            }
        }
        stored
    };
    let senders: Vec<_> =
        (0..4).map(|_| tokio::spawn(keep_sending(Arc::clone(&store), Arc::clone(&stop)))).collect();
    let busy = format!(
        "select id from information_schema.processlist where command = 'Query' and info like '%{prefix}log%' \
         and id <> connection_id()"
    );
    let (mut cuts, until) = (0, Instant::now() + Duration::from_secs(5));
    while Instant::now() < until && cuts < 60 {
        let found: Vec<u64> = admin.query(&busy).await.unwrap();
        for id in found {
            cuts += u64::from(admin.query_drop(format!("kill {id}")).await.is_ok());
        }
    }
    stop.store(true, Ordering::SeqCst);
    let mut stored = Vec::new();
    for sender in senders {
        stored.extend(sender.await.unwrap());
    }
    assert!(3 < cuts && LARGE < stored.len(), "{cuts} cuts, {} messages", stored.len());
    let rows: Vec<(Vec<u8>, i64)> =
        admin.query(format!("select message_id, count(*) from {prefix}log group by 1")).await.unwrap();
    let copies: HashMap<_, _> = rows.iter().map(|(id, count)| (id.as_slice(), *count)).collect();
    assert!(
        stored.iter().all(|id| copies.get(id.as_bytes().as_slice()) == Some(&1)),
        "what was acknowledged"
    );
    assert!(copies.values().all(|count| *count == 1), "and nothing twice");
}

#[tokio::test]
async fn what_a_pulse_has_not_seen_is_taken_over_soon() {
    let (store, queue, _, prefix) = fixture().await;
    let url = format!("{}?prefix={prefix}", Mariadb::shared().url());
    let other = MysqlStore::open(&url, Options::default()).await.unwrap();
    let renew = |worker: &str, lease: Duration| Renewal {
        worker: worker.to_owned(),
        host: "here".to_owned(),
        lease,
        queues: vec!["mail".to_owned()],
        slots: 1,
        busy: 0,
        error: None,
        facts: WorkerFacts::default(),
    };
    store.renew(renew("ours", Duration::from_secs(30))).await.unwrap();
    other.renew(renew("theirs", Duration::from_secs(30))).await.unwrap();
    store.append(queue, messages(3)).await.unwrap();
    let request = LeaseRequest {
        queue,
        worker: "theirs".to_owned(),
        token: Token([7; 16]),
        turns: vec![(2, Lane::Main)],
        messages_max: 3,
        bytes_max: 1_000,
        hands_empty: true,
        one_by_one: true,
    };
    assert!(matches!(other.lease(request).await.unwrap(), Lease::Claim(_)));
    let look = || TakeOver {
        worker: Some("ours".to_owned()),
        lease: Duration::from_secs(10),
        in_touch_since: Timestamp::from_secs(0),
        claims_max: 64,
    };
    store.pulse(vec![queue]).await.unwrap();
    assert!(store.take_over(look()).await.unwrap().is_empty());
    // Another process gives its lease up with the claim in its hands: the pulse of before knows nothing of it.
    other.renew(renew("theirs", Duration::ZERO)).await.unwrap();
    let since = Instant::now();
    loop {
        store.pulse(vec![queue]).await.unwrap();
        if !store.take_over(look()).await.unwrap().is_empty() {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "it is seen soon");
    }
}

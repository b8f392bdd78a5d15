//! What went wrong in other systems with rows that nobody had expected, as their users reported it: rows of an older
//! or a later release, or of a hand that wrote SQL. A `BR` number is that of the report in `docs/field-reports.md`.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::Result;
use millpond_core::pick::Lane;
use millpond_core::query::Query;
use millpond_core::store::{Clock, Lease, Store};
use millpond_core::view::{Find, GroupBy};
use millpond_sqlite::{Options, SqliteStore};
use millpond_testkit::bench::{Bench, Provider, SETTINGS, TestQueue};
use millpond_testkit::holder::HOLDER_LEASE;
use rusqlite::Connection;

const DECLARED: Capabilities =
    Capabilities { store: "sqlite", survives_restart: true, many_processes: true, effects_once: true };

struct File(PathBuf);

impl Provider for File {
    fn declared(&self) -> Capabilities {
        DECLARED
    }

    fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
        let url = format!("sqlite://{}", self.0.display());
        Ok(Arc::new(SqliteStore::open(&url, Options { clock, ..Options::default() })?))
    }
}

/// A queue of twenty messages, of which a worker holds ten; then `odd` happens to the file, and everything starts
/// again. Whatever was done to it, everything is delivered.
async fn starts_after(odd: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.db");
    let bench = Bench::new(File(path.clone()));
    let queue = bench.queue::<u32>(SETTINGS).await;
    let other = bench.queue::<u32>(SETTINGS).await;
    let ids = bench.send(&queue, 0..20).await;
    bench.send(&other, 0..20).await;
    let (lost, of_other) = (bench.holder(&queue), bench.holder(&other));
    let (first, second) = (lost.lease(5).await, lost.lease(5).await);
    of_other.lease(5).await;
    assert_eq!((first.messages.len(), second.messages.len()), (5, 5));
    change(&path, odd, &other);
    let node = bench.restart().await.expect("it survives that");
    bench.advance(HOLDER_LEASE);

    println!("{odd}");
    assert!(10 <= bench.reclaim_on(&node).await, "what was lost comes back");
    let next = bench.holder_on(&node, &queue);
    let mut seen = BTreeSet::new();
    while let Lease::Claim(claim) =
        next.try_lease(&[Lane::Return, Lane::Suspect, Lane::Main], 100, true).await
    {
        seen.extend(claim.messages.iter().map(|message| message.id));
        next.ack(&claim).await;
    }
    assert_eq!(seen, ids.iter().copied().collect(), "{odd}");
    // And whoever looks sees something.
    let queues = node.store.queues().await.unwrap();
    assert!(queues.iter().any(|view| view.name == queue.name() && view.done == 20), "{odd}");
    node.store.workers().await.unwrap();
    let find = || Find { rows_max: 100, bodies: true, ..Find::default() };
    node.store.dead_letters(find()).await.unwrap();
    node.store.dead_letter_groups(Query::default(), GroupBy::Reason).await.unwrap();
    node.store.outbox(find()).await.unwrap();
    node.store.outbox_summary().await.unwrap();
    node.store.messages(find()).await.unwrap();
    node.store.events(find()).await.unwrap();
    node.store.info().await.unwrap();
    for id in ids {
        node.store.message(id).await.unwrap().expect("it is found");
    }
    node.store.retain("odd".to_owned(), 1_000).await.unwrap();
}

/// `:other` is the number of the queue that nobody asks for.
fn change(path: &std::path::Path, odd: &str, other: &TestQueue<u32>) {
    let conn = Connection::open(path).unwrap();
    conn.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    conn.execute_batch(&odd.replace(":other", &other.stored.id.0.to_string())).unwrap();
    assert_ne!(conn.total_changes(), 0, "it changes something: {odd}");
}

/// BR-186: a job whose record was of an older version brought the server down at each start.
#[tokio::test(flavor = "multi_thread")]
async fn br_186_an_odd_row_stops_no_start() {
    for odd in [
        // Claims whose worker nobody knows any more, or never knew.
        "delete from millpond_worker",
        "update millpond_claim set worker = 'gone' where token is not null",
        "update millpond_claim set worker = null, expires_at = 0 where token is not null",
        "update millpond_claim set in_hand = null, done = x'', runs = x''",
        "update millpond_worker set queues = 'no json', host = '', facts = 'no json', wish = 'no json'",
        // What a message carries.
        "update millpond_log set headers = 'no json', kind = '', key = '', content_type = ''",
        "update millpond_log set headers = '[1]', attempts_max = 0, retry_until = null",
        // Words of a later release.
        "insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, at)
         select message_id, 1, 'LATER', 'later', 0, 0, 0 from millpond_log",
        "insert into millpond_outbox (message_id, queue_id, class, reason, ready_at, created_at, sent_at, attempt,
             releases, suspect, checksum, body)
         values (randomblob(16), :other, 2, 'later', 0, 0, 0, 0, 0, 0, 0, x'')",
        "insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, died_at, sent_at,
             attempt, releases, checksum, body)
         values (zeroblob(16), 1, :other, 9, 'later', 0, 0, 0, 0, 0, x'')",
        "insert into millpond_history (queue_id, partition, from_offset, to_offset, leased_at, finished_at, runs)
         values (1, 1, 0, 1000, 0, 0, x'')",
        // Declarations of a later release, and of no release.
        "update millpond_queue set settings = '{}'",
        "update millpond_queue set settings = json_set(settings, '$.later', 7)",
        "update millpond_queue set settings = json_set(settings, '$.later', 7), delivery = 'later' where id = :other",
        "update millpond_queue set settings = json_set(settings, '$.delivery', 'later') where id = :other",
        "update millpond_queue set settings = json_set(settings, '$.attempts_max', 'many') where id = :other",
        "update millpond_queue set settings = 'no json' where id = :other",
        "update millpond_queue set settings = '' where id = :other",
        "update millpond_queue set settings = json_set(settings, '$.lease', null) where id = :other",
        "insert into millpond_setting_change (queue_id, setting, value, actor, changed_at)
         select id, 'later', '7', 'ada', 0 from millpond_queue",
        "insert into millpond_setting_change (queue_id, setting, value, actor, changed_at)
         values (:other, 'attempts_max', 'no json', 'ada', 0)",
        // A queue that was deleted by hand.
        "delete from millpond_queue where id = :other",
    ] {
        starts_after(odd).await;
    }
}

//! What people's questions cost in a large store. Run by hand, in a release build:
//!
//! `cargo test --release -p millpond-sqlite --test scale -- --ignored --nocapture`

#![expect(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use std::path::Path;
use std::time::{Duration, Instant};

use millpond_core::message::MessageId;
use millpond_core::query::{Field, Query};
use millpond_core::queue::QueueSettings;
use millpond_core::store::{Admin, History, Inspect};
use millpond_core::view::{Count, Find, GroupBy};
use millpond_sqlite::{Options, SqliteStore};
use rusqlite::Connection;

const ROWS: i64 = 1_000_000;

/// Every read is to answer within this.
const READ_MAX: Duration = Duration::from_millis(500);

async fn timed<T>(what: &str, ask: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let answer = ask.await;
    let took = began.elapsed();
    println!("{:>9.2} ms  {what}", took.as_secs_f64() * 1e3);
    (answer, took)
}

fn only(field: Field, text: &str) -> Query {
    Query::default().and(field, [text.to_owned()])
}

fn page(query: Query, count: Count) -> Find {
    Find { query, rows_max: 20, count, ..Find::default() }
}

/// A million messages that are done, a million that died, a million that wait with bodies of 1 KiB.
fn fill(path: &Path, now: i64) {
    let db = Connection::open(path).unwrap();
    let id = "unhex(format('%012x', (:base + i * 1000) / 1000) || '7' || format('%03x', i % 4096) || '8' ||
              format('%015x', i * 7919))";
    let numbers = "with recursive n(i) as (select 0 union all select i + 1 from n where i < :rows - 1)";
    let run = |statement: &str, base: i64| {
        let statement = statement.replace("{id}", id).replace("{numbers}", numbers);
        let mut statement = db.prepare(&statement).unwrap();
        for (name, value) in [(":base", base), (":rows", ROWS), (":now", now)] {
            if let Some(place) = statement.parameter_index(name).unwrap() {
                statement.raw_bind_parameter(place, value).unwrap();
            }
        }
        statement.raw_execute().unwrap();
    };
    db.execute_batch(
        "pragma synchronous = off; begin;
         insert into millpond_log_partition (id, queue_id, class, lane) values (1, 1, 2, 0), (2, 1, 2, 1);",
    )
    .unwrap();
    let hour = 3_600_000_000;
    run(
        "{numbers} insert into millpond_log (partition, log_offset, message_id, attempt, releases, suspect, sent_at,
             published_at, via_outbox, checksum, body)
         select 1, i, {id}, 0, 0, 0, :base + i * 1000, :base + i * 1000, 0, 0, zeroblob(200) from n",
        now - hour,
    );
    run(
        "{numbers} insert into millpond_history (queue_id, partition, from_offset, to_offset, worker, leased_at,
             finished_at, runs)
         select 1, 1, i * 100, i * 100 + 99, 'w', :base + i * 100000, :base + i * 100000 + 90000,
                cast(replace(printf('%.100c', 'x'), 'x', unhex('01e8030000')) as blob) from n where i < :rows / 100",
        now - hour,
    );
    run(
        "insert into millpond_claim (subscription_id, partition, to_offset, from_offset, leased_at, done, runs)
         values (1, 1, :rows - 1, :rows - 1, :now, x'', x'')",
        0,
    );
    run(
        "{numbers} insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, detail,
             died_at, sent_at, attempt, releases, error_class, fingerprint, worker, checksum, body)
         select {id}, 1, 1, 2, 'exhausted', 'connection refused by host ' || i % 50, :base + i * 2000000,
                :base + i * 1000, 5, 0, 'SmtpError', format('%016x', i % 50), 'w' || i % 10, 0, zeroblob(200) from n",
        now - 24 * hour * 24,
    );
    run(
        "{numbers} insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, worker, error, at)
         select {id}, 1, 'DLQ', 'exhausted', 5, 0, 'w', 'connection refused', :base + i * 2000000 from n",
        now - 24 * hour * 24,
    );
    run(
        "{numbers} insert into millpond_outbox (message_id, queue_id, class, reason, ready_at, created_at, sent_at,
             attempt, releases, suspect, checksum, body)
         select {id}, 1, 2, iif(i % 3, 'delay', 'retry'), :now + 3600000000 + i, :base, :base + i * 1000, i % 3 = 0, 0, 0,
                0, zeroblob(1024) from n",
        now - 24 * hour * 30,
    );
    db.execute_batch("commit").unwrap();
}

#[tokio::test]
#[ignore = "takes a minute and 4 GB of disk: it prints what reads cost with millions of rows"]
async fn reads_of_a_large_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&format!("sqlite://{}", path.display()), Options::default()).unwrap();
    store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap();
    store.declare("other".to_owned(), QueueSettings::DEFAULT).await.unwrap();
    let now = store.now().await.unwrap().as_micros();
    fill(&path, now);
    let id = |base: i64, i: i64| {
        let millis = u128::try_from((base + i * 1000) / 1000).unwrap();
        let bits = millis << 80
            | 7 << 76
            | u128::try_from(i % 4096).unwrap() << 64
            | 8 << 60
            | u128::try_from(i * 7919).unwrap();
        MessageId(uuid::Uuid::from_u128(bits))
    };
    let hour = 3_600_000_000;
    let mut slow = Vec::new();
    macro_rules! ask {
        ($what:expr, $ask:expr) => {{
            let (answer, took) = timed($what, $ask).await;
            if READ_MAX < took {
                slow.push(($what, took));
            }
            answer.unwrap()
        }};
    }
    for (what, i) in [
        ("message by id, first of 10^6", 0),
        ("message by id, middle", ROWS / 2),
        ("message by id, last", ROWS - 1),
    ] {
        assert!(ask!(what, store.message(id(now - hour, i))).is_some());
    }
    assert!(ask!("dead message by id", store.message(id(now - 24 * hour * 24, 77))).is_some());
    assert!(ask!("message by an unknown id", store.message(id(now - hour, ROWS + 5))).is_none());
    let views = ask!("queues with their counts", store.queues());
    assert_eq!((views[0].dead, views[0].scheduled + views[0].retrying), (ROWS as u64, ROWS as u64));
    ask!("outbox summary", store.outbox_summary());
    ask!("outbox, first page", store.outbox(page(Query::default(), Count::No)));
    ask!("outbox of a queue without rows", store.outbox(page(only(Field::Queue, "other"), Count::No)));
    ask!("dead letters, first page", store.dead_letters(page(Query::default(), Count::No)));
    ask!(
        "dead letters, first page, counted to 10 000",
        store.dead_letters(page(Query::default(), Count::UpTo(10_000)))
    );
    let mut find = page(Query::default(), Count::No);
    find.rows_max = 10_000;
    find.after = ask!("dead letters, 10 000 rows", store.dead_letters(find.clone())).next;
    find.rows_max = 20;
    ask!("dead letters, page 500", store.dead_letters(find));
    let (all, _) =
        timed("dead letters, all counted", store.dead_letters(page(Query::default(), Count::All))).await;
    assert_eq!(all.unwrap().matched, ROWS as u64);
    let print = only(Field::Fingerprint, "0000000000000007");
    let (some, _) =
        timed("dead letters of a fingerprint, all counted", store.dead_letters(page(print, Count::All)))
            .await;
    assert_eq!(some.unwrap().matched, ROWS as u64 / 50);
    let (groups, _) = timed(
        "dead letters by fingerprint",
        store.dead_letter_groups(Query::default(), GroupBy::Fingerprint),
    )
    .await;
    assert_eq!(groups.unwrap().len(), 50);
    ask!("messages, first page", store.messages(page(Query::default(), Count::No)));
    ask!(
        "messages, first page, counted to 10 000",
        store.messages(page(Query::default(), Count::UpTo(10_000)))
    );
    ask!("messages that are done", store.messages(page(only(Field::State, "done"), Count::UpTo(10_000))));
    ask!("messages that are dead", store.messages(page(only(Field::State, "dead"), Count::UpTo(10_000))));
    ask!("messages that are leased", store.messages(page(only(Field::State, "leased"), Count::UpTo(10_000))));
    ask!("messages that nothing matches", store.messages(page(only(Field::Key, "nothing"), Count::No)));
    let found = ask!("run log, first page", store.events(page(Query::default(), Count::No)));
    let next = Find { after: found.next, ..page(Query::default(), Count::No) };
    ask!("run log, second page", store.events(next));
    let mut find = page(Query::default(), Count::No);
    find.rows_max = 10_000;
    find.after = ask!("run log, 10 000 entries", store.events(find.clone())).next;
    find.rows_max = 20;
    ask!("run log, page 500", store.events(find));
    ask!("run log, first page, counted to 10 000", store.events(page(Query::default(), Count::UpTo(10_000))));
    ask!("run log, DLQ only", store.events(page(only(Field::Event, "DLQ"), Count::UpTo(10_000))));
    let one = only(Field::Id, &id(now - hour, 5).to_string());
    assert_eq!(ask!("run log of a message", store.events(page(one, Count::No))).items.len(), 3);
    ask!("run times of a queue", store.run_times("mail".to_owned(), 1_000));
    ask!("what the store tells about itself", store.info());
    println!("slower than {READ_MAX:?}: {slow:?}");
}

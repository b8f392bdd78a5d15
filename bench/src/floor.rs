//! The floors: plain SQL through the same driver, with the same pragmas and durability.

use std::path::Path;
use std::time::Instant;

use millpond::sqlite::rusqlite::{Connection, Result, TransactionBehavior, params};

/// Rows of one statement or transaction.
pub(crate) const BATCH: usize = 1_000;

/// A table with the columns and the index of our log.
const LOG: &str = "
    create table floor_log (
        partition integer not null, log_offset integer not null, message_id blob not null,
        attempt integer not null, releases integer not null, suspect integer not null, sent_at integer not null,
        published_at integer not null, via_outbox integer not null, attempts_max integer, retry_until integer,
        checksum integer not null, kind text, key text, content_type text, headers text, body blob not null,
        primary key (partition, log_offset)
    ) strict, without rowid;
    create index floor_log_message on floor_log (message_id) where via_outbox = 1;";

/// A queue as most people write it: a row per job, a state, an index over what is ready.
const JOBS: &str = "
    create table floor_job (
        id integer primary key, queue text not null default 'default', kind text not null default 'k',
        priority integer not null default 0, state integer not null default 0, attempt integer not null default 0,
        max_attempts integer not null default 20, run_at integer not null default 1700000000000,
        created_at integer not null default 1700000000000, locked_until integer, payload blob not null
    );
    create index floor_job_ready on floor_job (queue, priority, run_at, id) where state = 0;";

/// A fresh database in `folder`, with the pragmas of our writer.
fn open(folder: &Path, schema: &str) -> Result<Connection> {
    let path = folder.join("floor.db");
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    let conn = Connection::open(path)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "cache_size", -16_000)?;
    conn.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    conn.execute_batch(schema)?;
    Ok(conn)
}

/// Rows a second, inserted a thousand to a durable commit into a table like our log.
pub(crate) fn insert(folder: &Path, bodies: &[Vec<u8>]) -> Result<f64> {
    let mut conn = open(folder, LOG)?;
    let started = Instant::now();
    for (batch, bodies) in bodies.chunks(BATCH).enumerate() {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut insert = tx.prepare_cached(
                "insert into floor_log values (1, ?1, ?2, 0, 0, 0, ?3, ?3, 0, null, null, ?4, null, null, null, null, ?5)",
            )?;
            for (place, body) in bodies.iter().enumerate() {
                let offset = (batch * BATCH + place) as i64;
                let id = (u128::from(1_700_000_000_000_u64) << 80 | offset as u128).to_be_bytes();
                insert.execute(params![offset, id, 1_700_000_000_000_000_i64 + offset, 12_345, body])?;
            }
        }
        tx.commit()?;
    }
    Ok(bodies.len() as f64 / started.elapsed().as_secs_f64())
}

/// Rows a second, one to a durable commit, by one writer.
pub(crate) fn insert_one_by_one(folder: &Path, bodies: &[Vec<u8>]) -> Result<f64> {
    let conn = open(folder, JOBS)?;
    let mut insert = conn.prepare("insert into floor_job (payload) values (?1)")?;
    let started = Instant::now();
    for body in bodies {
        insert.execute([body])?;
    }
    Ok(bodies.len() as f64 / started.elapsed().as_secs_f64())
}

/// Jobs a second, claimed by UPDATE … RETURNING and completed by DELETE, a thousand at a time.
pub(crate) fn claim_and_delete(folder: &Path, bodies: &[Vec<u8>]) -> Result<f64> {
    let mut conn = open(folder, JOBS)?;
    for bodies in bodies.chunks(BATCH) {
        let tx = conn.transaction()?;
        {
            let mut insert = tx.prepare_cached("insert into floor_job (payload) values (?1)")?;
            bodies.iter().try_for_each(|body| insert.execute([body]).map(drop))?;
        }
        tx.commit()?;
    }
    let mut claim = conn.prepare(
        "update floor_job set state = 1, attempt = attempt + 1, locked_until = 1800000000000
         where id in (select id from floor_job where state = 0 and queue = 'default' and run_at <= 1800000000000
                      order by priority, run_at, id limit 1000)
         returning id, payload",
    )?;
    let mut complete = conn.prepare("delete from floor_job where id in (select value from json_each(?1))")?;
    let started = Instant::now();
    loop {
        let rows = claim.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let jobs = rows.collect::<Result<Vec<_>>>()?;
        if jobs.is_empty() {
            return Ok(bodies.len() as f64 / started.elapsed().as_secs_f64());
        }
        let ids: Vec<String> = jobs.iter().map(|(id, _)| id.to_string()).collect();
        complete.execute([format!("[{}]", ids.join(","))])?;
    }
}

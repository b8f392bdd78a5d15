//! The floors: plain SQL through the same driver, on a table as most people write a queue.

use std::time::Instant;

use millpond::mysql::mysql_async::prelude::Queryable;
use millpond::mysql::mysql_async::{Conn, Error, Value};

use super::{Bench, Figures};
use crate::failed;
use crate::payload::bodies;

/// A row per job, a state, an index over what is ready.
const JOBS: &str = "create table floor_job (
        id bigint not null auto_increment primary key, queue varchar(100) not null default 'default',
        kind varchar(100) not null default 'k', priority smallint not null default 0, state smallint not null default 0,
        attempt smallint not null default 0, max_attempts smallint not null default 20,
        run_at datetime(6) not null default current_timestamp(6),
        created_at datetime(6) not null default current_timestamp(6), locked_until datetime(6), payload longblob not null,
        key floor_job_ready (state, queue, priority, run_at, id)
    ) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin";

const CLAIM: &str = "select id, payload from floor_job
    where state = 0 and queue = 'default' and run_at <= now(6)
    order by priority, run_at, id limit 1000 for update skip locked";

async fn fresh_table(bench: &Bench) -> millpond::Result<()> {
    let lost = |error: Error| failed("make the table of the floor", error);
    let mut conn = bench.conn().await?;
    conn.query_drop("drop table if exists floor_job").await.map_err(lost)?;
    conn.query_drop(JOBS).await.map_err(lost)
}

/// One statement over rows with these bodies.
fn insert_text(bodies: &[Vec<u8>]) -> String {
    let rows: Vec<String> =
        bodies.iter().map(|body| format!("({})", Value::Bytes(body.clone()).as_sql(false))).collect();
    format!("insert into floor_job (payload) values {}", rows.join(","))
}

/// Inserts rows, `batch` to a durable commit, on so many connections.
pub(crate) async fn insert(
    bench: &Bench,
    rows: u64,
    batch: u64,
    connections: u64,
    figures: &mut Figures,
) -> millpond::Result<()> {
    fresh_table(bench).await?;
    let (meter, started) = (bench.meter().await?, Instant::now());
    fill(bench, rows, batch, connections).await?;
    figures.take(
        rows / batch / connections * batch * connections,
        started.elapsed().as_secs_f64(),
        meter.spent().await?,
    );
    Ok(())
}

async fn fill(bench: &Bench, rows: u64, batch: u64, connections: u64) -> millpond::Result<()> {
    let statement = insert_text(&bodies(batch));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (mut conn, statement) = (bench.conn().await?, statement.clone());
        tasks.spawn(async move {
            for _ in 0..rows / batch / connections {
                conn.query_drop(statement.as_str()).await?;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended
            .map_err(|error| failed("fill the floor", error))?
            .map_err(|error| failed("measure the floor of inserting", error))?;
    }
    Ok(())
}

/// Claims and deletes everything, `batch` at a time, a durable commit for each step, on so many connections.
pub(crate) async fn claim_and_delete(
    bench: &Bench,
    rows: u64,
    batch: u64,
    connections: u64,
    figures: &mut Figures,
) -> millpond::Result<()> {
    fresh_table(bench).await?;
    fill(bench, rows, batch, connections).await?;
    let (meter, started) = (bench.meter().await?, Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let conn = bench.conn().await?;
        tasks.spawn(drain(conn));
    }
    let mut drained = 0;
    while let Some(ended) = tasks.join_next().await {
        drained += ended
            .map_err(|error| failed("drain the floor", error))?
            .map_err(|error| failed("measure the floor of draining", error))?;
    }
    figures.take(drained, started.elapsed().as_secs_f64(), meter.spent().await?);
    Ok(())
}

async fn drain(mut conn: Conn) -> Result<u64, Error> {
    conn.query_drop("set session transaction isolation level read committed").await?;
    let mut drained = 0;
    loop {
        conn.query_drop("begin").await?;
        let claimed: Vec<(u64, Vec<u8>)> = conn.query(CLAIM).await?;
        if claimed.is_empty() {
            conn.query_drop("commit").await?;
            return Ok(drained);
        }
        let ids: Vec<String> = claimed.iter().map(|(id, _)| id.to_string()).collect();
        let ids = ids.join(",");
        conn.query_drop(format!(
            "update floor_job set state = 1, attempt = attempt + 1, locked_until = now(6) + interval 1 minute \
             where id in ({ids})"
        ))
        .await?;
        conn.query_drop("commit").await?;
        conn.query_drop(format!("delete from floor_job where id in ({ids})")).await?;
        drained += claimed.len() as u64;
    }
}

//! The floors: plain SQL through the same driver, on a table as most people write a queue.

use std::time::Instant;

use millpond::postgres::tokio_postgres::{Client, Error, NoTls, connect};

use super::{Bench, Figures};
use crate::failed;
use crate::payload::bodies;

/// A row per job, a state, an index over what is ready.
const JOBS: &str = "
    drop table if exists floor_job;
    create table floor_job (
        id bigint generated always as identity primary key, queue text not null default 'default',
        kind text not null default 'k', priority smallint not null default 0, state smallint not null default 0,
        attempt smallint not null default 0, max_attempts smallint not null default 20,
        run_at timestamptz not null default now(), created_at timestamptz not null default now(),
        locked_until timestamptz, payload bytea not null
    );
    create index floor_job_ready on floor_job (queue, priority, run_at, id) where state = 0;
    checkpoint";

const INSERT: &str = "insert into floor_job (payload) select x from unnest($1::bytea[]) x";

const CLAIM: &str = "
    update floor_job set state = 1, attempt = attempt + 1, locked_until = now() + interval '1 min'
    from (select id from floor_job where state = 0 and queue = 'default' and run_at <= now()
          order by priority, run_at, id for update skip locked limit 1000) s
    where floor_job.id = s.id returning floor_job.id, floor_job.payload";

const COMPLETE: &str = "delete from floor_job where id = any ($1::bigint[])";

async fn client(bench: &Bench) -> Result<Client, Error> {
    let (client, connection) = connect(bench.server.url(), NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Inserts rows, `batch` to a durable commit, on so many connections.
pub(crate) async fn insert(
    bench: &Bench,
    rows: u64,
    batch: u64,
    connections: u64,
    figures: &mut Figures,
) -> millpond::Result<()> {
    let lost = |error: Error| failed("measure the floor of inserting", error);
    bench.client.batch_execute(JOBS).await.map_err(lost)?;
    let (meter, started) = (bench.meter().await?, Instant::now());
    fill(bench, rows, batch, connections).await.map_err(lost)?;
    figures.take(
        rows / batch / connections * batch * connections,
        started.elapsed().as_secs_f64(),
        meter.spent().await?,
    );
    Ok(())
}

async fn fill(bench: &Bench, rows: u64, batch: u64, connections: u64) -> Result<(), Error> {
    let bodies = bodies(batch);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (client, bodies) = (client(bench).await?, bodies.clone());
        tasks.spawn(async move {
            let insert = client.prepare(INSERT).await?;
            for _ in 0..rows / batch / connections {
                client.execute(&insert, &[&bodies]).await?;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("it does not panic")?;
    }
    Ok(())
}

/// Claims by UPDATE and completes by DELETE, a thousand at a time.
pub(crate) async fn claim_and_delete(
    bench: &Bench,
    rows: u64,
    batch: u64,
    connections: u64,
    figures: &mut Figures,
) -> millpond::Result<()> {
    let lost = |error: Error| failed("measure the floor of draining", error);
    bench.client.batch_execute(JOBS).await.map_err(lost)?;
    fill(bench, rows, batch, connections).await.map_err(lost)?;
    bench.client.batch_execute("vacuum analyze floor_job").await.map_err(lost)?;
    bench.client.batch_execute("checkpoint").await.map_err(lost)?;
    let (meter, started) = (bench.meter().await?, Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let client = client(bench).await.map_err(lost)?;
        tasks.spawn(async move {
            let (claim, complete) = (client.prepare(CLAIM).await?, client.prepare(COMPLETE).await?);
            loop {
                let jobs = client.query(&claim, &[]).await?;
                if jobs.is_empty() {
                    return Ok::<(), Error>(());
                }
                let ids: Vec<i64> = jobs.iter().map(|job| job.get(0)).collect();
                client.execute(&complete, &[&ids]).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("it does not panic").map_err(lost)?;
    }
    figures.take(rows, started.elapsed().as_secs_f64(), meter.spent().await?);
    Ok(())
}

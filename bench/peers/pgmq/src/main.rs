//! PGMQ, installed as plain SQL: the reference of a bare table. It has a claim and a delete, and no worker, no
//! attempts and no history; what reads here is a loop of ours.

use std::process::ExitCode;

use peer::{About, Handled, Mail, ORDER, Outcome, Queue, Settings, Way};
use sqlx::Acquire;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions, Postgres};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

/// One for each of the tasks that send.
const CONNECTIONS: u32 = 64;

/// Readers and the messages of one read.
const BEST: (usize, i32) = (2, 1_000);
const SMALL: (usize, i32) = (50, 1);

/// Between two reads that found nothing.
const POLL_EVERY: Duration = Duration::from_millis(100);

const SEND: &str =
    "select count(*) from pgmq.send_batch('mail', (select array_agg(x::jsonb) from unnest($1::text[]) x))";
const SEND_LATER: &str = "select count(*) from pgmq.send_batch('mail', (select array_agg(x::jsonb) from unnest($1::text[]) x), 3600)";
const SEND_ONE: &str = "select pgmq.send('mail', $1::text::jsonb)";
const READ: &str = "select msg_id, message::text from pgmq.read('mail', 60, $1)";
const DELETE: &str = "select count(*) from pgmq.delete('mail', $1::bigint[])";

struct Pgmq {
    pool: PgPool,
    running: Mutex<Option<(watch::Sender<bool>, JoinSet<Result<(), sqlx::Error>>)>>,
}

fn texts(mails: &[Mail]) -> Outcome<Vec<String>> {
    Ok(mails.iter().map(serde_json::to_string).collect::<Result<_, _>>()?)
}

async fn read_and_delete(
    pool: PgPool,
    batch: i32,
    handled: Handled,
    stop: watch::Receiver<bool>,
) -> Result<(), sqlx::Error> {
    while !*stop.borrow() {
        let rows: Vec<(i64, String)> = sqlx::query_as(READ).bind(batch).fetch_all(&pool).await?;
        if rows.is_empty() {
            sleep(POLL_EVERY).await;
            continue;
        }
        for (_, text) in &rows {
            if let Ok(mail) = serde_json::from_str::<Mail>(text) {
                // Attempts are not counted here: all are as the second one, which does not fail.
                let _ = handled.run(&mail, 2);
            }
        }
        let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
        sqlx::query(DELETE).bind(&ids).execute(&pool).await?;
    }
    Ok(())
}

impl Queue for Pgmq {
    type Session = PoolConnection<Postgres>;

    fn about() -> About {
        About {
            name: "PGMQ",
            version: "crate 0.33.7",
            best: "2 loops, read 1,000 and delete 1,000, 2 connections",
            default: "none of its own: as the best",
            small: "50 loops, read 1 and delete 1, 50 connections",
            transactions: &[Way::Bare, Way::Send],
        }
    }

    async fn open(url: &str) -> Outcome<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        Ok(Self { pool, running: Mutex::new(None) })
    }

    async fn prepare(&self) -> Outcome<()> {
        pgmq::install::install_sql_from_embedded(&self.pool).await?;
        sqlx::query("select pgmq.create('mail')").execute(&self.pool).await?;
        Ok(())
    }

    async fn send(&self, mails: Vec<Mail>) -> Outcome<()> {
        sqlx::query(SEND).bind(texts(&mails)?).execute(&self.pool).await?;
        Ok(())
    }

    async fn send_one(&self, mail: Mail) -> Outcome<()> {
        sqlx::query(SEND_ONE).bind(serde_json::to_string(&mail)?).execute(&self.pool).await?;
        Ok(())
    }

    async fn session(&self) -> Outcome<Self::Session> {
        Ok(self.pool.acquire().await?)
    }

    async fn transact(&self, session: &mut Self::Session, way: Way, mail: Mail) -> Outcome<()> {
        let mut tx = session.begin().await?;
        sqlx::query(ORDER).bind(&mail.to).bind(mail.id.cast_signed()).execute(&mut *tx).await?;
        if way != Way::Bare {
            sqlx::query(SEND_ONE).bind(serde_json::to_string(&mail)?).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn schedule(&self, mails: Vec<Mail>) -> Outcome<()> {
        sqlx::query(SEND_LATER).bind(texts(&mails)?).execute(&self.pool).await?;
        Ok(())
    }

    async fn start(&self, settings: Settings, handled: Handled) -> Outcome<()> {
        let (loops, batch) = if settings == Settings::Small { SMALL } else { BEST };
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for _ in 0..loops {
            running.spawn(read_and_delete(self.pool.clone(), batch, handled.clone(), stopped.clone()));
        }
        *self.running.lock().await = Some((stop, running));
        Ok(())
    }

    async fn stop(&self) -> Outcome<()> {
        let Some((stop, mut running)) = self.running.lock().await.take() else { return Ok(()) };
        stop.send(true)?;
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn left(&self) -> Outcome<i64> {
        let count = "select count(*) from pgmq.q_mail where vt <= now() + interval '30 min'";
        Ok(sqlx::query_scalar(count).fetch_one(&self.pool).await?)
    }

    /// A message that is done is deleted at once.
    async fn prune(&self) -> Outcome<()> {
        Ok(())
    }
}

fn main() -> ExitCode {
    peer::main::<Pgmq>()
}

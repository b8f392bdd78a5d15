//! riverqueue, River for Rust.

use std::process::ExitCode;
use std::time::Duration;

use peer::{About, Handled, Mail, ORDER, Outcome, Queue, Settings, Way};
use riverqueue::jiff::{SignedDuration, Timestamp};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::sqlx::pool::PoolConnection;
use riverqueue::sqlx::postgres::{PgPool, PgPoolOptions, Postgres};
use riverqueue::sqlx::{self, Acquire};
use riverqueue::{
    BoxError, Client, InsertManyItem, InsertOpts, Job, JobArgs, MaintenanceConfig, QueueConfig, Retention,
    RunHandle, WorkContext, WorkOutcome, Workers,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Those of the worker.
const CONNECTIONS: u32 = 10;

/// One for each of the tasks that send.
const SENDERS: u32 = 64;

const BEST_WORKERS: usize = 500;
const DEFAULT_WORKERS: usize = 100;
const SMALL_WORKERS: usize = 50;
const COOLDOWN_MIN: Duration = Duration::from_millis(1);

/// Between two looks at whether all is pruned, and how often at most.
const PRUNE_LOOK_EVERY: Duration = Duration::from_millis(100);
const PRUNE_LOOKS_MAX: usize = 3_000;

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "mail")]
struct Args {
    #[serde(flatten)]
    mail: Mail,
}

struct River {
    pool: PgPool,
    senders: PgPool,
    sender: Client,
    running: Mutex<Option<(Client, RunHandle)>>,
}

impl River {
    async fn count(&self, states: &[&str]) -> Outcome<i64> {
        let states: Vec<String> = states.iter().map(|state| (*state).to_owned()).collect();
        let count = "select count(*) from river_job where state::text = any ($1) \
                     and scheduled_at <= now() + interval '30 min'";
        Ok(sqlx::query_scalar(count).bind(states).fetch_one(&self.pool).await?)
    }
}

impl Queue for River {
    type Session = PoolConnection<Postgres>;

    fn about() -> About {
        About {
            name: "riverqueue",
            version: "0.5.0",
            best: "500 workers, 1 ms cooldown, 10 connections",
            default: "100 workers (as its examples), 100 ms cooldown, 10 connections",
            small: "50 workers, 1 ms cooldown, 10 connections",
            transactions: &[Way::Bare, Way::Send],
        }
    }

    async fn open(url: &str) -> Outcome<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        let senders = PgPoolOptions::new().max_connections(SENDERS).connect(url).await?;
        let sender = Client::builder(senders.clone()).build()?;
        Ok(Self { pool, senders, sender, running: Mutex::new(None) })
    }

    async fn prepare(&self) -> Outcome<()> {
        PostgresMigrator::new(self.pool.clone()).migrate_up().await?;
        Ok(())
    }

    async fn send(&self, mails: Vec<Mail>) -> Outcome<()> {
        self.sender.insert_many(mails.into_iter().map(|mail| Args { mail })).await?;
        Ok(())
    }

    async fn send_one(&self, mail: Mail) -> Outcome<()> {
        self.sender.insert(Args { mail }).await?;
        Ok(())
    }

    async fn session(&self) -> Outcome<Self::Session> {
        Ok(self.senders.acquire().await?)
    }

    async fn transact(&self, session: &mut Self::Session, way: Way, mail: Mail) -> Outcome<()> {
        let mut tx = session.begin().await?;
        sqlx::query(ORDER).bind(&mail.to).bind(mail.id.cast_signed()).execute(&mut *tx).await?;
        if way != Way::Bare {
            self.sender.insert(Args { mail }).tx(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn schedule(&self, mails: Vec<Mail>) -> Outcome<()> {
        let due = Timestamp::now() + SignedDuration::from_hours(1);
        let later = |mail| InsertManyItem::new(Args { mail }, InsertOpts::default().with_scheduled_at(due));
        self.sender.insert_many(mails.into_iter().map(later)).await?;
        Ok(())
    }

    async fn start(&self, settings: Settings, handled: Handled) -> Outcome<()> {
        let mut workers = Workers::new();
        workers.add_fn(move |_: WorkContext, job: Job<Args>| {
            let ok = handled.run(&job.args.mail, u32::try_from(job.row.attempt).unwrap_or(1));
            async move {
                if ok { Ok(WorkOutcome::Complete) } else { Err(BoxError::from("the first attempt fails")) }
            }
        })?;
        let queue = match settings {
            Settings::Best => QueueConfig::new(BEST_WORKERS).with_fetch_cooldown(COOLDOWN_MIN),
            Settings::Small => QueueConfig::new(SMALL_WORKERS).with_fetch_cooldown(COOLDOWN_MIN),
            Settings::Default => QueueConfig::new(DEFAULT_WORKERS),
        };
        let client = Client::builder(self.pool.clone()).workers(workers).queue("default", queue).build()?;
        let handle = client.start()?;
        *self.running.lock().await = Some((client, handle));
        Ok(())
    }

    async fn stop(&self) -> Outcome<()> {
        if let Some((_client, mut handle)) = self.running.lock().await.take() {
            handle.stop().await?;
        }
        Ok(())
    }

    async fn left(&self) -> Outcome<i64> {
        self.count(&["available", "running", "retryable", "scheduled", "pending"]).await
    }

    /// Its own cleaner, told to keep completed jobs for no time.
    async fn prune(&self) -> Outcome<()> {
        let maintenance = MaintenanceConfig::default()
            .with_completed_job_retention(Retention::DeleteAfter(Duration::from_millis(1)))
            .with_elect_interval(Duration::from_millis(200))
            .with_job_cleaner_interval(Duration::from_secs(1));
        let mut workers = Workers::new();
        workers.add_fn(|_: WorkContext, _: Job<Args>| async { Ok::<_, BoxError>(WorkOutcome::Complete) })?;
        let client = Client::builder(self.pool.clone())
            .maintenance(maintenance)
            .workers(workers)
            .queue("other", QueueConfig::new(1))
            .build()?;
        let mut handle = client.start()?;
        let mut looks = 0;
        while self.count(&["completed"]).await? != 0 && looks < PRUNE_LOOKS_MAX {
            looks += 1;
            tokio::time::sleep(PRUNE_LOOK_EVERY).await;
        }
        handle.stop().await?;
        if looks < PRUNE_LOOKS_MAX { Ok(()) } else { Err("its cleaner did not come to an end".into()) }
    }
}

fn main() -> ExitCode {
    peer::main::<River>()
}

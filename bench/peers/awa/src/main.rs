//! awa.

use std::process::ExitCode;
use std::time::Duration;

use awa::awa_model::insert::params_with;
use awa::awa_model::{QueueStorage, QueueStorageConfig, migrations};
use awa::{Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig};
use peer::{About, Handled, Mail, ORDER, Outcome, Queue, Settings, Way};
use serde::{Deserialize, Serialize};
use sqlx::Acquire;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions, Postgres};
use tokio::sync::Mutex;

const QUEUE: &str = "mail";

/// Those of the worker.
const CONNECTIONS: u32 = 20;

/// One for each of the tasks that send.
const SENDERS: u32 = 64;

const BEST_WORKERS: u32 = 500;
const SMALL_WORKERS: u32 = 50;
const BEST_POLL: Duration = Duration::from_millis(50);

/// How long a worker may take to stop.
const STOP_MAX: Duration = Duration::from_secs(10);

/// One more than its rings have slots.
const ROTATIONS: usize = 17;

#[derive(Clone, Serialize, Deserialize, JobArgs)]
struct Args {
    #[serde(flatten)]
    mail: Mail,
}

struct Awa {
    pool: PgPool,
    senders: PgPool,
    storage: QueueStorage,
    running: Mutex<Option<Client>>,
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.to_owned(), ..InsertOpts::default() }
}

impl Awa {
    async fn copy(&self, mails: Vec<Mail>, options: &InsertOpts) -> Outcome<()> {
        let params = mails.into_iter().map(|mail| params_with(&Args { mail }, options.clone()));
        let params: Vec<InsertParams> = params.collect::<Result<_, _>>()?;
        self.storage.enqueue_params_copy(&self.senders, &params).await?;
        Ok(())
    }
}

impl Queue for Awa {
    type Session = PoolConnection<Postgres>;

    fn about() -> About {
        About {
            name: "awa",
            version: "0.6.9",
            best: "500 workers, a poll each 50 ms, no deadline of a job, 20 connections",
            default: "50 workers, a poll each 200 ms, 20 connections",
            small: "50 workers, a poll each 50 ms, no deadline of a job, 20 connections",
            transactions: &[Way::Bare, Way::Send],
        }
    }

    async fn open(url: &str) -> Outcome<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        let senders = PgPoolOptions::new().max_connections(SENDERS).connect(url).await?;
        let storage = QueueStorage::new(QueueStorageConfig::default())?;
        Ok(Self { pool, senders, storage, running: Mutex::new(None) })
    }

    /// A fresh database stays on its older storage until a worker has run.
    async fn prepare(&self) -> Outcome<()> {
        // Its future cannot be sent to another thread.
        let migrate = || tokio::runtime::Handle::current().block_on(migrations::run(&self.pool));
        tokio::task::block_in_place(migrate)?;
        self.start(Settings::Default, Handled::default()).await?;
        self.stop().await
    }

    async fn send(&self, mails: Vec<Mail>) -> Outcome<()> {
        self.copy(mails, &options()).await
    }

    async fn send_one(&self, mail: Mail) -> Outcome<()> {
        awa::insert_with(&self.senders, &Args { mail }, options()).await?;
        Ok(())
    }

    async fn session(&self) -> Outcome<Self::Session> {
        Ok(self.senders.acquire().await?)
    }

    async fn transact(&self, session: &mut Self::Session, way: Way, mail: Mail) -> Outcome<()> {
        let mut tx = session.begin().await?;
        sqlx::query(ORDER).bind(&mail.to).bind(mail.id.cast_signed()).execute(&mut *tx).await?;
        if way != Way::Bare {
            awa::insert_with(&mut *tx, &Args { mail }, options()).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn schedule(&self, mails: Vec<Mail>) -> Outcome<()> {
        let due = chrono::Utc::now() + chrono::TimeDelta::hours(1);
        self.copy(mails, &InsertOpts { run_at: Some(due), ..options() }).await
    }

    async fn start(&self, settings: Settings, handled: Handled) -> Outcome<()> {
        let tuned = |max_workers| QueueConfig {
            max_workers,
            poll_interval: BEST_POLL,
            // Then it takes the shorter way through its tables.
            deadline_duration: Duration::ZERO,
            ..QueueConfig::default()
        };
        let queue = match settings {
            Settings::Best => tuned(BEST_WORKERS),
            Settings::Small => tuned(SMALL_WORKERS),
            Settings::Default => QueueConfig::default(),
        };
        let client = Client::builder(self.pool.clone())
            .queue(QUEUE, queue)
            .register::<Args, _, _>(move |args, context| {
                let attempt = u32::try_from(context.job.attempt).unwrap_or(1);
                let ok = handled.run(&args.mail, attempt);
                async move {
                    let soon = Duration::from_secs(1);
                    Ok(if ok { JobResult::Completed } else { JobResult::RetryAfter(soon) })
                }
            })
            .build()?;
        client.start().await?;
        *self.running.lock().await = Some(client);
        Ok(())
    }

    async fn stop(&self) -> Outcome<()> {
        if let Some(client) = self.running.lock().await.take() {
            client.shutdown(STOP_MAX).await;
        }
        Ok(())
    }

    async fn left(&self) -> Outcome<i64> {
        let count = "select (select count(*) from awa.ready_entries) \
                     - (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)::bigint \
                     - (select count(*) from awa.done_entries)";
        Ok(sqlx::query_scalar(count).fetch_one(&self.pool).await?)
    }

    /// The rings of its storage are turned once around, which is how it prunes.
    async fn prune(&self) -> Outcome<()> {
        for _ in 0..ROTATIONS {
            self.storage.rotate(&self.pool).await?;
            self.storage.rotate_leases(&self.pool).await?;
            self.storage.rotate_claims(&self.pool).await?;
            self.storage.prune_oldest_leases(&self.pool).await?;
            self.storage.prune_oldest_claims(&self.pool).await?;
            self.storage.prune_oldest(&self.pool, Duration::ZERO).await?;
        }
        let left: i64 =
            sqlx::query_scalar("select count(*) from awa.ready_entries").fetch_one(&self.pool).await?;
        if left == 0 { Ok(()) } else { Err(format!("{left} rows were not pruned").into()) }
    }
}

fn main() -> ExitCode {
    peer::main::<Awa>()
}

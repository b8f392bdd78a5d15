//! graphile_worker, the port of Graphile Worker to Rust.

use std::process::ExitCode;
use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, WorkerContext, WorkerOptions, WorkerUtils,
};
use peer::{About, Handled, Mail, ORDER, Outcome, Queue, Settings, Way};
use serde::{Deserialize, Serialize};
use sqlx::Acquire;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions, Postgres};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;

const SCHEMA: &str = "graphile_worker";

const ADD_JOB: &str = "select graphile_worker.add_job('mail', $1::text::json)";

/// What its own builder uses.
const CONNECTIONS: u32 = 20;

/// One for each of the tasks that send.
const SENDERS: u32 = 64;

const BEST_CONCURRENCY: usize = 50;
const BEST_LOCAL_QUEUE: usize = 1_000;
const SMALL_CONCURRENCY: usize = 50;
const COMPLETION_DELAY: Duration = Duration::from_millis(5);

/// How long a worker may take to stop.
const STOP_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Serialize, Deserialize)]
struct Task(Mail);

impl TaskHandler for Task {
    const IDENTIFIER: &'static str = "mail";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let attempt = u32::try_from(*context.job().attempts()).unwrap_or(1);
        let ok = context.get_ext::<Handled>().is_none_or(|handled| handled.run(&self.0, attempt));
        if ok { Ok(()) } else { Err("the first attempt fails".to_owned()) }
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

struct Graphile {
    pool: PgPool,
    senders: PgPool,
    utils: WorkerUtils,
    running: Mutex<Option<Running>>,
}

impl Graphile {
    async fn add(&self, mails: Vec<Mail>, spec: &JobSpec) -> Outcome<()> {
        let jobs: Vec<_> = mails.into_iter().map(|mail| (Task(mail), spec)).collect();
        self.utils.add_jobs(&jobs).await?;
        Ok(())
    }
}

impl Queue for Graphile {
    type Session = PoolConnection<Postgres>;

    fn about() -> About {
        About {
            name: "graphile_worker",
            version: "0.14.1",
            best: "50 handlers, local queue of 1,000, completions in batches of 5 ms, 20 connections",
            default: "as many handlers as cores, 20 connections, a poll each second",
            small: "50 handlers, local queue of 50, completions in batches of 5 ms, 20 connections",
            transactions: &[Way::Bare, Way::Send],
        }
    }

    async fn open(url: &str) -> Outcome<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        let senders = PgPoolOptions::new().max_connections(SENDERS).connect(url).await?;
        let utils = WorkerUtils::new(senders.clone(), SCHEMA);
        Ok(Self { pool, senders, utils, running: Mutex::new(None) })
    }

    async fn prepare(&self) -> Outcome<()> {
        Ok(self.utils.migrate().await?)
    }

    async fn send(&self, mails: Vec<Mail>) -> Outcome<()> {
        self.add(mails, &JobSpec::default()).await
    }

    async fn send_one(&self, mail: Mail) -> Outcome<()> {
        self.utils.add_job(Task(mail), JobSpec::default()).await?;
        Ok(())
    }

    async fn session(&self) -> Outcome<Self::Session> {
        Ok(self.senders.acquire().await?)
    }

    async fn transact(&self, session: &mut Self::Session, way: Way, mail: Mail) -> Outcome<()> {
        let mut tx = session.begin().await?;
        sqlx::query(ORDER).bind(&mail.to).bind(mail.id.cast_signed()).execute(&mut *tx).await?;
        if way != Way::Bare {
            // Its crate sends on connections of its own only; in a transaction it is its function.
            sqlx::query(ADD_JOB).bind(serde_json::to_string(&mail)?).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn schedule(&self, mails: Vec<Mail>) -> Outcome<()> {
        let due = chrono::Utc::now() + chrono::TimeDelta::hours(1);
        self.add(mails, &JobSpec { run_at: Some(due), ..JobSpec::default() }).await
    }

    async fn start(&self, settings: Settings, handled: Handled) -> Outcome<()> {
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let options = WorkerOptions::default()
            .schema(SCHEMA)
            .pg_pool(self.pool.clone())
            .define_job::<Task>()
            .add_extension(handled)
            .shutdown_signal(shutdown)
            .listen_os_shutdown_signals(false);
        let tuned = |options: WorkerOptions, handlers: usize, local: usize| {
            let local = LocalQueueConfig::default().with_size(local);
            options.concurrency(handlers).local_queue(local).complete_job_batch_delay(COMPLETION_DELAY)
        };
        let options = match settings {
            Settings::Best => tuned(options, BEST_CONCURRENCY, BEST_LOCAL_QUEUE),
            Settings::Small => tuned(options, SMALL_CONCURRENCY, SMALL_CONCURRENCY),
            Settings::Default => options,
        };
        let worker = options.init().await?;
        let ended = tokio::spawn(async move {
            if let Err(error) = worker.run().await {
                eprintln!("the worker ended: {error}");
            }
        });
        *self.running.lock().await = Some(Running { stop, ended });
        Ok(())
    }

    async fn stop(&self) -> Outcome<()> {
        let Some(Running { stop, ended }) = self.running.lock().await.take() else { return Ok(()) };
        let _ = stop.send(());
        tokio::time::timeout(STOP_MAX, ended).await??;
        Ok(())
    }

    async fn left(&self) -> Outcome<i64> {
        let count =
            "select count(*) from graphile_worker._private_jobs where run_at <= now() + interval '30 min'";
        Ok(sqlx::query_scalar(count).fetch_one(&self.pool).await?)
    }

    /// A job that is done is deleted at once.
    async fn prune(&self) -> Outcome<()> {
        Ok(())
    }
}

fn main() -> ExitCode {
    peer::main::<Graphile>()
}

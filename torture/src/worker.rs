//! The role of a worker: works on every queue, through a store that reports what passes through it.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use millpond::{Begun, Due, Job, Pond, Store, Verdict, Worker};
use millpond_core::error::{Code, Error, Result};
use millpond_testkit::judge::history::{Event, Op, Phase};
use tokio::time::sleep;

use crate::database::{EffectRow, open_patiently, write_alone, write_effect};
use crate::recorded::Recorded;
use crate::stage::SABOTAGE;
use crate::wire::{Report, Reporter};
use crate::work::{Kind, QUEUES, Work, has_effects};

/// The name of the one bug that is the handler's, not the store's.
const ACK_BEFORE_COMMIT: &str = "ack_before_commit";

/// How late an effect is committed by a handler that acknowledges first.
const LATE: Duration = Duration::from_secs(2);

/// What an effect is worth that must never be committed.
const WRONG: i64 = -1;

/// The wait after a store did not answer a handler. The attempt is given back.
const AGAIN: Duration = Duration::from_millis(100);

/// How often settled messages are deleted, and how many at most.
const RETAIN_EVERY: Duration = Duration::from_secs(2);
const RETAIN_ROWS: usize = 5_000;

/// Every worker does it under one name: a killed one must not keep the duty.
const RETAINER: &str = "torture";

/// How a worker is started.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Setup {
    /// Handlers of a queue that run at once.
    #[arg(long, default_value_t = 8)]
    pub(crate) slots: usize,
    /// How long what was taken over is held back before it is settled.
    #[arg(long, default_value_t = 0)]
    pub(crate) dwell_ms: u64,
    /// How long a handler holds its transaction before it writes.
    #[arg(long, default_value_t = 0)]
    pub(crate) hold_ms: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { slots: 8, dwell_ms: 0, hold_ms: 0 }
    }
}

/// Works until its parent closes the pipe.
pub(crate) fn run(url: &str, setup: Setup) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(Code::Internal, "start a worker").because(error);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)?;
    runtime.block_on(work(url, setup))
}

async fn work(url: &str, setup: Setup) -> Result<()> {
    let reporter = Arc::new(Reporter::default());
    let store = open_patiently(url).await?;
    let dwell = Duration::from_millis(setup.dwell_ms);
    let recorded: Arc<dyn Store> = Arc::new(Recorded::new(store, Arc::clone(&reporter), dwell));
    let pond = Pond::with_store(Arc::clone(&recorded));
    let acks_first = std::env::var(SABOTAGE).is_ok_and(|name| name == ACK_BEFORE_COMMIT);
    let hold = Duration::from_millis(setup.hold_ms);
    let desk = Arc::new(Desk { reporter, acks_first, hold, url: url.to_owned() });
    let mut worker = Worker::new(&pond)
        .state(desk)
        .concurrency(setup.slots)
        .shutdown_timeout(Duration::from_secs(2))
        .cancel_grace(Duration::from_secs(1));
    for queue in &QUEUES {
        worker = worker.handle_any(queue, handle);
    }
    let retaining = tokio::spawn(retain(recorded));
    worker.run_until(orphaned()).await?;
    retaining.abort();
    pond.close().await;
    Ok(())
}

/// Resolves when the parent closed the pipe, or is gone.
pub(crate) async fn orphaned() {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = tell.send(());
    });
    let _ = told.await;
}

async fn retain(store: Arc<dyn Store>) {
    loop {
        sleep(RETAIN_EVERY).await;
        if let Err(error) = store.retain(RETAINER.to_owned(), RETAIN_ROWS).await {
            tracing::warn!(%error, cause = error.causes(), "cannot clean up now");
        }
    }
}

/// What handlers share.
struct Desk {
    reporter: Arc<Reporter>,
    acks_first: bool,
    hold: Duration,
    url: String,
}

async fn handle(job: Job<Work>, desk: Arc<Desk>) -> Result<Verdict, String> {
    if !job.body.belongs_to(job.id.0) {
        desk.report(&job, Op::Lease, Phase::Fail, Some("crc"));
    }
    desk.report(&job, Op::Effect, Phase::Invoke, None);
    match Kind::parse(&job.kind) {
        Some(Kind::Killer) => std::process::abort(),
        Some(Kind::Doomed) => return Err("it always fails".to_owned()),
        Some(Kind::Shaky) if job.attempt == 1 => return Err("it fails the first time".to_owned()),
        Some(Kind::Sleepy) if job.releases == 0 => return Ok(again()),
        Some(Kind::Fickle) if job.releases == 0 => {
            if let Ok(Begun::Open(mut unit)) = job.begin().await
                && let Err(error) =
                    write_effect(&mut unit, &desk.url, EffectRow { amount: WRONG, ..row(&job) }).await
            {
                tracing::info!(%error, cause = error.causes(), "no effect");
            }
            return Ok(again());
        }
        _ => {}
    }
    sleep(Duration::from_millis(job.body.before_ms)).await;
    if has_effects(&job.queue) {
        if desk.acks_first {
            tokio::spawn(commit_late(job, desk));
            return Ok(Verdict::Ack);
        }
        if let Err(error) = commit(&job, &desk).await {
            tracing::info!(%error, cause = error.causes(), "no effect");
            return Ok(again());
        }
    }
    sleep(Duration::from_millis(job.body.after_ms)).await;
    Ok(Verdict::Ack)
}

/// Not now, and no fault of the message.
fn again() -> Verdict {
    Verdict::Snooze { until: Due::In(AGAIN) }
}

async fn commit(job: &Job<Work>, desk: &Desk) -> Result<()> {
    let begun = job.begin().await;
    desk.look_whether_starved(&begun);
    let Begun::Open(mut unit) = begun? else { return Ok(()) };
    sleep(desk.hold).await;
    write_effect(&mut unit, &desk.url, row(job)).await?;
    let committed = unit.commit().await;
    match &committed {
        Ok(_) => desk.report(job, Op::Effect, Phase::Ok, None),
        Err(error) if error.code() == Code::UnknownOutcome => desk.report(job, Op::Effect, Phase::Info, None),
        Err(_) => {}
    }
    committed.map(drop)
}

/// The known bug: the message was acknowledged, its effect is yet to come.
async fn commit_late(job: Job<Work>, desk: Arc<Desk>) {
    sleep(LATE).await;
    if write_alone(&desk.url, row(&job)).await.is_ok() {
        desk.report(&job, Op::Effect, Phase::Ok, None);
    }
}

fn row(job: &Job<Work>) -> EffectRow {
    EffectRow { id: job.id.0, queue: job.queue.to_string(), amount: job.body.amount }
}

impl Desk {
    /// Tells of a call that found no connection, and whether it names the setting.
    fn look_whether_starved(&self, begun: &Result<Begun>) {
        let Err(error) = begun else { return };
        let causes = error.causes();
        if error.code() == Code::StoreUnavailable && causes.contains("were busy for") {
            self.reporter.send(&Report::Starved { named: causes.contains("`?connections=`") });
        }
    }

    fn report(&self, job: &Job<Work>, op: Op, ph: Phase, err: Option<&str>) {
        self.reporter.events(vec![Event {
            queue: Some(job.queue.to_string()),
            id: Some(job.id.0),
            err: err.map(str::to_owned),
            ..Event::new(0, op, ph)
        }]);
    }
}

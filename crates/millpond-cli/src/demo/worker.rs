//! A worker process of the demo: the handlers of every kind. It ends when its standard input does, so that none
//! outlives the demo that started it.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond::sqlite::SqliteUnit;
use millpond::{Begun, Error, Job, JobError, Pond, Result, Verdict, Worker};
use tokio::sync::oneshot;

use crate::demo::WorkerArgs;
use crate::demo::report::{Outcome, Report};
use crate::demo::workload::{FLAKY_FAILURES, Kind, Task};

/// The exit status of a worker that a message killed.
const KILLED_STATUS: i32 = 86;

/// How long a worker may take to end once its input is closed.
const STOP_LIMIT: Duration = Duration::from_secs(8);

/// Runs a worker until standard input ends.
pub(crate) async fn work(args: WorkerArgs) -> Result<ExitCode> {
    let stopped = input_ended();
    let pond = Pond::open(&args.at).await?;
    let desk = Arc::new(Desk { life: args.life });
    Worker::new(&pond)
        .state(desk)
        .handle(Kind::Work.queue(), ordinary)
        .handle(Kind::Booking.queue(), book)
        .handle(Kind::Delayed.queue(), delayed)
        .handle(Kind::Flaky.queue(), flaky)
        .handle(Kind::Broken.queue(), broken)
        .handle(Kind::Killer.queue(), killer)
        .shutdown_timeout(STOP_LIMIT / 4)
        .cancel_grace(STOP_LIMIT / 8)
        .run_until(async {
            let _ = stopped.await;
        })
        .await?;
    pond.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Resolves when standard input ends; the process ends soon after, whatever it is doing.
fn input_ended() -> oneshot::Receiver<()> {
    let (tell, ended) = oneshot::channel();
    thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut byte = [0];
        while matches!(input.read(&mut byte), Ok(1..)) {}
        let _ = tell.send(());
        thread::sleep(STOP_LIMIT);
        std::process::exit(1);
    });
    ended
}

/// Where the handlers of one process report.
struct Desk {
    life: u32,
}

impl Desk {
    /// Tells the demo. A demo that cannot hear us is gone, and so are we.
    fn tell(&self, job: &Job<Task>, outcome: Outcome) {
        let line = Report { id: job.id, attempt: job.attempt, outcome }.line();
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(1);
        }
    }
}

async fn ordinary(job: Job<Task>, desk: Arc<Desk>) -> Verdict {
    desk.tell(&job, Outcome::Worked);
    Verdict::Ack
}

async fn delayed(job: Job<Task>, desk: Arc<Desk>) -> Verdict {
    desk.tell(&job, if is_early(&job) { Outcome::CameEarly } else { Outcome::Worked });
    Verdict::Ack
}

/// Whether the host's clock says that the message is not due yet.
fn is_early(job: &Job<Task>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = millpond::Timestamp::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
    now < job.sent_at + Duration::from_millis(job.body.delay_ms)
}

async fn flaky(job: Job<Task>, desk: Arc<Desk>) -> Result<(), &'static str> {
    if job.attempt <= FLAKY_FAILURES {
        desk.tell(&job, Outcome::Failed);
        return Err("the other side is busy");
    }
    desk.tell(&job, Outcome::Worked);
    Ok(())
}

async fn broken(job: Job<Task>, desk: Arc<Desk>) -> Result<(), &'static str> {
    desk.tell(&job, Outcome::Failed);
    Err("this never works")
}

/// Ends the whole process, as a crash in a library would.
async fn killer(job: Job<Task>, desk: Arc<Desk>) -> Verdict {
    desk.tell(&job, Outcome::Kills);
    std::process::exit(KILLED_STATUS)
}

/// Writes a row in the transaction that acknowledges the message.
async fn book(job: Job<Task>, desk: Arc<Desk>) -> Result<(), JobError> {
    desk.tell(&job, Outcome::Begun);
    match write_row(&job, desk.life).await {
        Ok(outcome) => desk.tell(&job, outcome),
        Err(error) => {
            eprintln!("booking {}: {error}: {}", job.id, error.causes());
            desk.tell(&job, Outcome::Trouble);
            return Err(error.into());
        }
    }
    Ok(())
}

async fn write_row(job: &Job<Task>, life: u32) -> Result<Outcome, Error> {
    let Begun::Open(mut unit) = job.begin().await? else { return Ok(Outcome::BookedBefore) };
    let (id, attempt) = (job.id.0, job.attempt);
    unit.sqlite(move |db| {
        db.prepare_cached("insert into demo_effect (message_id, life, attempt) values (?1, ?2, ?3)")?
            .execute((id, life, attempt))
    })
    .await?;
    unit.commit().await?;
    Ok(Outcome::Booked)
}

//! Millpond: a program of its users, measured as the others are.

use std::process::ExitCode;
use std::time::Duration;

use millpond::{ItemOptions, Job, Pond, Verdict, Worker};
use peer::{About, Failure, Handled, Mail, Outcome, Settings};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

const MAIL: millpond::Queue<Mail> = millpond::Queue::new("mail");

const BEST_CONCURRENCY: usize = 100;
const SMALL_WORKERS: usize = 50;

/// Until a message that failed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Rows of one table in one call of the upkeep, as a node asks for them.
const RETAIN_ROWS: usize = 10_000;

/// The node that prunes.
const NODE: &str = "bench";

/// What is done is past its retention after this.
const SHORT: Duration = Duration::from_secs(1);

/// Between two looks at whether this node may prune: another one may have had the duty.
const DUTY_LOOK_EVERY: Duration = Duration::from_secs(2);
const DUTY_LOOKS_MAX: usize = 60;

struct Ours {
    pond: Pond,
    running: Mutex<Option<(watch::Sender<bool>, JoinSet<millpond::Result<()>>)>>,
}

async fn handler(job: Job<Mail>, handled: Handled) -> Verdict {
    if handled.run(&job.body, job.attempt) {
        return Verdict::Ack;
    }
    Verdict::Retry { after: Some(RETRY_AFTER) }
}

impl peer::Queue for Ours {
    fn about() -> About {
        About {
            name: "Millpond",
            version: env!("CARGO_PKG_VERSION"),
            best: "1 worker, 100 handlers; everything else as it comes",
            default: "1 worker, 10 handlers: nothing is set",
            small: "50 workers of 1 handler each",
        }
    }

    async fn open(url: &str) -> Outcome<Self> {
        Ok(Self { pond: Pond::open(url).await?, running: Mutex::new(None) })
    }

    async fn prepare(&self) -> Outcome<()> {
        self.pond.declare(&MAIL).await?;
        Ok(())
    }

    async fn send(&self, mails: Vec<Mail>) -> Outcome<()> {
        self.pond.send(&MAIL, mails).await?;
        Ok(())
    }

    async fn send_one(&self, mail: Mail) -> Outcome<()> {
        self.pond.send(&MAIL, [mail]).await?;
        Ok(())
    }

    async fn schedule(&self, mails: Vec<Mail>) -> Outcome<()> {
        let later = mails.into_iter().map(|mail| mail.delay(Duration::from_secs(3_600)));
        self.pond.send(&MAIL, later).await?;
        Ok(())
    }

    async fn start(&self, settings: Settings, handled: Handled) -> Outcome<()> {
        let worker = || Worker::new(&self.pond).state(handled.clone()).handle(&MAIL, handler);
        let workers = match settings {
            Settings::Best => vec![worker().concurrency(BEST_CONCURRENCY)],
            Settings::Default => vec![worker()],
            Settings::Small => (0..SMALL_WORKERS).map(|_| worker().concurrency(1)).collect(),
        };
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for worker in workers {
            let mut stopped = stopped.clone();
            running.spawn(worker.run_until(async move { drop(stopped.changed().await) }));
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
        let queues = self.pond.store().queues().await?;
        let left: u64 = queues.iter().map(|queue| queue.ready + queue.leased + queue.retrying).sum();
        Ok(i64::try_from(left)?)
    }

    /// The upkeep of a node, with a retention of a second. What is left of the log is its last message.
    async fn prune(&self) -> Outcome<()> {
        let settings = *MAIL.clone().retention(SHORT).settings();
        self.pond.store().declare(MAIL.name().to_owned(), settings).await?;
        tokio::time::sleep(SHORT * 2).await;
        for _ in 0..DUTY_LOOKS_MAX {
            let mut rows = 0;
            loop {
                match self.pond.store().retain(NODE.to_owned(), RETAIN_ROWS).await? {
                    0 if rows == 0 => break,
                    0 => return Ok(()),
                    gone => rows += gone,
                }
            }
            tokio::time::sleep(DUTY_LOOK_EVERY).await;
        }
        Err(Failure::from("nothing was past its retention"))
    }
}

fn main() -> ExitCode {
    peer::main::<Ours>()
}

//! Measures the ways of one database, one after the other, beside one worker.

use std::time::{Duration, Instant};

use millpond::{Job, PollSettings, Pond, Verdict, Worker};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::outcome::{Delays, Row};
use crate::ways::{MAIL, Outcome, Way};

/// Transactions that are not counted: statements are prepared.
const WARM_UP: u64 = 3;

/// How long one message may take before the measurement fails.
const LIMIT: Duration = Duration::from_secs(10);

/// Between two transactions; what was handled before is settled within the first, and no transaction meets a poll in the
/// same phase.
const PAUSE: Duration = Duration::from_millis(35);
const PAUSE_SPREAD: Duration = Duration::from_millis(32);

/// What else a transaction does between its send and its commit, at most.
const WORK_MAX: Duration = Duration::from_millis(50);

/// The cadence of a worker that has been idle for over a minute, from its first poll on.
fn idle_cadence() -> PollSettings {
    PollSettings {
        min: Duration::from_millis(500),
        max: Duration::from_millis(500),
        ..PollSettings::default()
    }
}

async fn handler(job: Job<u64>, tell: mpsc::Sender<(u64, Instant)>) -> Verdict {
    let began = Instant::now();
    let _ = tell.send((job.body, began)).await;
    Verdict::Ack
}

/// The measurements in one database.
pub(crate) struct Course<'r> {
    database: &'static str,
    url: String,
    samples: u64,
    rows: &'r mut Vec<Row>,
    pond: Pond,
    began: mpsc::Receiver<(u64, Instant)>,
    stop: oneshot::Sender<()>,
    worker: JoinHandle<millpond::Result<()>>,
    next: u64,
}

impl<'r> Course<'r> {
    pub(crate) async fn begin(
        database: &'static str,
        url: &str,
        samples: u64,
        rows: &'r mut Vec<Row>,
    ) -> Outcome<Self> {
        let pond = Pond::open(url).await?;
        pond.declare(&MAIL).await?;
        let (tell, began) = mpsc::channel(8);
        let (stop, stopped) = oneshot::channel();
        let worker = Worker::new(&pond).state(tell).handle(&MAIL, handler).poll(idle_cadence());
        let worker = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
        Ok(Self { database, url: url.to_owned(), samples, rows, pond, began, stop, worker, next: 0 })
    }

    pub(crate) async fn way<W: Way>(&mut self) -> Outcome<()> {
        let mut way = W::open(&self.url).await?;
        let at_once = self.delays(&mut way, Duration::ZERO).await?;
        let after_work = self.delays(&mut way, WORK_MAX).await?;
        let row = Row { database: self.database, way: W::NAME, at_once, after_work };
        eprintln!("{}", row.shown().join("  "));
        self.rows.push(row);
        Ok(())
    }

    async fn delays<W: Way>(&mut self, way: &mut W, work_max: Duration) -> Outcome<Delays> {
        let mut delays = Delays::default();
        for number in 0..WARM_UP + self.samples {
            sleep(PAUSE + spread(self.next, PAUSE_SPREAD)).await;
            let order = self.next;
            self.next += 1;
            let committed = way.place_order(&self.pond, order, spread(number * 7, work_max)).await?;
            let (picked, at) = timeout(LIMIT, self.began.recv()).await?.ok_or("the worker ended")?;
            if picked != order {
                return Err(format!("message {picked} came in place of {order}").into());
            }
            if WARM_UP <= number {
                delays.add(at, &committed);
            }
        }
        Ok(delays)
    }

    pub(crate) async fn end(self) -> Outcome<()> {
        drop(self.stop);
        self.worker.await??;
        self.pond.close().await;
        Ok(())
    }
}

/// Evenly spread from nothing to all of it, in no order that anything else has.
fn spread(number: u64, all: Duration) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_75;
    all.mul_f64((number as f64 * GOLDEN).fract())
}

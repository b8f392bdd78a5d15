//! Draining a backlog through handlers that do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::{Job, Pond, Verdict, Worker};
use tokio::sync::Notify;

use crate::payload::{MAIL, Mail, bodies};
use crate::report::{Goal, Report, median};
use crate::send::{fill, fresh, on_thread};
use crate::{floor, usage};

const MESSAGES: u64 = 500_000;

/// Counts down and tells when nothing is left.
#[derive(Clone)]
pub(crate) struct Countdown {
    left: Arc<AtomicU64>,
    ended: Arc<Notify>,
}

impl Countdown {
    pub(crate) fn from(count: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(count)), ended: Arc::default() }
    }

    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }
}

/// A handler that does nothing but decode and count.
pub(crate) async fn no_op(job: Job<Mail>, countdown: Countdown) -> Verdict {
    std::hint::black_box(&job.body);
    if countdown.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        countdown.ended.notify_one();
    }
    Verdict::Ack
}

/// The time from the start of a worker until the last of `count` handlers ran and all is settled, and the
/// processor time of this process meanwhile.
pub(crate) async fn drain(
    pond: &Pond,
    count: u64,
    concurrency: usize,
) -> millpond::Result<(Duration, Duration)> {
    let countdown = Countdown::from(count);
    let (started, cpu) = (Instant::now(), usage::cpu("self"));
    let done = countdown.clone();
    let worker = Worker::new(pond).state(countdown).handle(&MAIL, no_op).concurrency(concurrency);
    worker.run_until(async move { done.ended().await }).await?;
    Ok((started.elapsed(), usage::cpu("self").saturating_sub(cpu)))
}

pub(crate) async fn drains(report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floors, mut ours, mut ratios, mut cpus) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let bodies = bodies(MESSAGES);
    for _ in 0..rounds {
        let floor = on_thread(|folder| floor::claim_and_delete(folder, &bodies))?;
        let (_folder, pond) = fresh().await?;
        fill(&pond, MESSAGES).await?;
        let (time, cpu) = drain(&pond, MESSAGES, 10).await?;
        let rate = MESSAGES as f64 / time.as_secs_f64();
        pond.close().await;
        floors.push(floor);
        ours.push(rate);
        ratios.push(rate / floor);
        cpus.push(cpu.as_secs_f64() * 1e6 / MESSAGES as f64);
    }
    report.add("claim_delete_floor_per_second", median(floors));
    report.add("drain_per_second", median(ours));
    report.add("drain_cpu_us_per_message", median(cpus));
    report.goal("drain_vs_floor", median(ratios), Goal::AtLeast(1.5));
    Ok(())
}

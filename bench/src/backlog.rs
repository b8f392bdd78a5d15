//! Whether a message costs the same with a million waiting and a million scheduled as with ten thousand.

use std::time::Duration;

use millpond::{ItemOptions, Pond};

use crate::drain::drain;
use crate::payload::{MAIL, mails};
use crate::report::{Goal, Report};
use crate::send::{fill, fresh};
use crate::usage;

const SMALL: u64 = 10_000;
const LARGE: u64 = 1_000_000;
/// Messages whose cost is measured at a time.
const MEASURED: u64 = 100_000;
/// How many times; the cheapest counts, because what else the machine does only makes a message dearer.
const TIMES: usize = 5;

/// Processor time per message, in microseconds.
struct Cost {
    send: f64,
    drain: f64,
}

pub(crate) async fn backlog(report: &mut Report) -> millpond::Result<()> {
    let (small, large) = (cost(SMALL).await?, cost(LARGE).await?);
    let again = cost(SMALL).await?;
    let small = Cost { send: small.send.min(again.send), drain: small.drain.min(again.drain) };
    report.add("backlog_send_cpu_us_10k", small.send);
    report.add("backlog_send_cpu_us_1m", large.send);
    report.add("backlog_drain_cpu_us_10k", small.drain);
    report.add("backlog_drain_cpu_us_1m", large.drain);
    let ratio = ((large.send + large.drain) / (small.send + small.drain)).max(0.0);
    report.goal("backlog_ratio", ratio, Goal::AtMost(1.2));
    Ok(())
}

/// Sends and drains while `waiting` messages are ready and as many are scheduled.
async fn cost(waiting: u64) -> millpond::Result<Cost> {
    let (_folder, pond) = fresh().await?;
    schedule(&pond, waiting).await?;
    fill(&pond, waiting).await?;
    let mut cheapest = Cost { send: f64::INFINITY, drain: f64::INFINITY };
    let per_message = |cpu: Duration| cpu.as_secs_f64() * 1e6 / MEASURED as f64;
    for _ in 0..TIMES {
        let before = usage::cpu("self");
        fill(&pond, MEASURED).await?;
        let send = usage::cpu("self").saturating_sub(before);
        let (_, drained) = drain(&pond, MEASURED, 10).await?;
        cheapest.send = cheapest.send.min(per_message(send));
        cheapest.drain = cheapest.drain.min(per_message(drained));
    }
    pond.close().await;
    Ok(cheapest)
}

async fn schedule(pond: &Pond, count: u64) -> millpond::Result<()> {
    let batch = mails(1_000);
    let hours = |number: u64| Duration::from_secs(3_600 + number);
    for round in 0..count / 1_000 {
        let items = batch.iter().cloned().map(|mail| {
            let wait = hours(round * 1_000 + mail.id);
            mail.delay(wait)
        });
        pond.send(&MAIL, items).await?;
    }
    Ok(())
}

//! MariaDB: ours beside plain SQL on the same server, with what the server spends on each message.

mod floor;
mod meter;
mod transactions;

use std::time::{Duration, Instant};

use millpond::mysql::mysql_async::Conn;
use millpond::mysql::mysql_async::prelude::Queryable;
use millpond::{Pond, Worker};
use millpond_testkit::servers::mariadb::{Mariadb, fresh_prefix};
use millpond_testkit::servers::postgres::Fsync;
use tokio::time::sleep;

use crate::drain::{Countdown, no_op};
use crate::payload::{MAIL, mail};
use crate::report::{Database, Goal, Report, median, percentile};
use crate::{failed, pickup, usage};
use meter::Meter;

const BATCH: u64 = 1_000;
const BATCH_MESSAGES: u64 = 200_000;
const DRAIN_MESSAGES: u64 = 300_000;
const SINGLE_MESSAGES: u64 = 20_000;
const SINGLE_TASKS: u64 = 64;
const FLOOR_SINGLES: u64 = 2_000;

/// How many are drained of a large backlog, and of one that has no more.
const BACKLOG_DRAINED: u64 = 100_000;

/// What the server is told; its own default durability stays.
const SETTINGS: &[&str] = &["innodb-buffer-pool-size=512M", "innodb-log-file-size=1G"];

/// A server that flushes, with a connection for questions.
pub(crate) struct Bench {
    server: Mariadb,
}

/// Medians of what was measured in several rounds.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
    log_bytes: Vec<f64>,
}

impl Figures {
    fn take(&mut self, messages: u64, seconds: f64, spent: meter::Spent) {
        self.rates.push(messages as f64 / seconds);
        self.cpu_us.push(spent.cpu.as_secs_f64() * 1e6 / messages as f64);
        self.log_bytes.push(spent.log_bytes as f64 / messages as f64);
    }

    /// Adds the medians; answers the rates of the rounds.
    fn report(self, report: &mut Report, name: &str) -> Vec<f64> {
        report.add(&format!("{name}_per_second"), median(self.rates.clone()));
        report.add(&format!("{name}_server_cpu_us"), median(self.cpu_us));
        report.add(&format!("{name}_redo_bytes"), median(self.log_bytes));
        self.rates
    }
}

/// Ours against the floor, round by round: a machine that is slow for a while is slow for both.
fn ratio(ours: &[f64], floor: &[f64]) -> f64 {
    median(ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect())
}

impl Bench {
    fn start() -> Self {
        Self { server: tokio::task::block_in_place(|| Mariadb::start(Fsync::On, SETTINGS)) }
    }

    async fn conn(&self) -> millpond::Result<Conn> {
        Conn::from_url(self.server.url()).await.map_err(|error| failed("connect", error))
    }

    /// A pond in tables of its own.
    async fn fresh(&self) -> millpond::Result<Pond> {
        self.open(&fresh_prefix()).await
    }

    async fn open(&self, prefix: &str) -> millpond::Result<Pond> {
        let pond = Pond::open(&format!("{}?prefix={prefix}", self.server.url())).await?;
        pond.declare(&MAIL).await?;
        Ok(pond)
    }

    async fn meter(&self) -> millpond::Result<Meter<'_>> {
        Meter::start(&self.server, self.conn().await?).await
    }
}

/// Measures what is asked for; `waiting` is the large backlog.
pub(crate) async fn run(
    rounds: usize,
    waiting: u64,
    wanted: impl Fn(&str) -> bool,
) -> millpond::Result<Report> {
    let bench = Bench::start();
    let version = bench.conn().await?.query_first("select version()").await;
    let version: Option<String> = version.map_err(|error| failed("ask for the version", error))?;
    let database = Database::server("MariaDB", "mariadb", version.unwrap_or_default(), SETTINGS);
    let mut report = Report::new(rounds, database);
    if wanted("send") {
        sends(&bench, &mut report, rounds).await?;
    }
    if wanted("single") {
        singles(&bench, &mut report, rounds).await?;
    }
    if wanted("transactions") {
        transactions::transactions(&bench, &mut report, rounds).await?;
    }
    if wanted("drain") {
        drains(&bench, &mut report, rounds).await?;
    }
    if wanted("pickup") {
        let pond = bench.fresh().await?;
        let samples = pickup::samples(&pond).await?;
        pond.close().await;
        report.goal("pickup_p50_ms", percentile(samples.clone(), 0.5), Goal::AtMost(15.0));
        report.goal("pickup_p99_ms", percentile(samples, 0.99), Goal::AtMost(40.0));
    }
    if wanted("idle") {
        idle(&bench, &mut report).await?;
    }
    if wanted("backlog") {
        backlog(&bench, &mut report, waiting).await?;
    }
    Ok(report)
}

async fn fill(pond: &Pond, count: u64, tasks: u64) -> millpond::Result<()> {
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let pond = pond.clone();
            tokio::spawn(async move {
                for batch in 0..count / BATCH / tasks {
                    let first = (batch * tasks + task) * BATCH;
                    pond.send(&MAIL, (first..).take(BATCH as usize).map(mail)).await?;
                }
                millpond::Result::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(|error| failed("send", error))??;
    }
    Ok(())
}

async fn sends(bench: &Bench, report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floor, mut ours) = (Figures::default(), Figures::default());
    for _ in 0..rounds {
        floor::insert(bench, BATCH_MESSAGES, BATCH, 2, &mut floor).await?;
        let pond = bench.fresh().await?;
        let (meter, started) = (bench.meter().await?, Instant::now());
        fill(&pond, BATCH_MESSAGES, 2).await?;
        ours.take(BATCH_MESSAGES, started.elapsed().as_secs_f64(), meter.spent().await?);
        pond.close().await;
    }
    let floor = floor.report(report, "insert_floor");
    let ours = ours.report(report, "batch_send");
    report.goal("batch_send_vs_insert_floor", ratio(&ours, &floor), Goal::AtLeast(0.7));
    Ok(())
}

async fn singles(bench: &Bench, report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floor, mut ours) = (Figures::default(), Figures::default());
    for _ in 0..rounds {
        floor::insert(bench, FLOOR_SINGLES, 1, 1, &mut floor).await?;
        let pond = bench.fresh().await?;
        let (meter, started) = (bench.meter().await?, Instant::now());
        let tasks: Vec<_> = (0..SINGLE_TASKS)
            .map(|task| {
                let pond = pond.clone();
                tokio::spawn(async move {
                    for number in 0..SINGLE_MESSAGES / SINGLE_TASKS {
                        pond.send(&MAIL, [mail(task * 1_000_000 + number)]).await?;
                    }
                    millpond::Result::Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.await.map_err(|error| failed("send", error))??;
        }
        let count = SINGLE_MESSAGES / SINGLE_TASKS * SINGLE_TASKS;
        ours.take(count, started.elapsed().as_secs_f64(), meter.spent().await?);
        pond.close().await;
    }
    let floor = floor.report(report, "one_insert_per_commit");
    let ours = ours.report(report, "single_send_64");
    report.goal("single_send_64_vs_floor", ratio(&ours, &floor), Goal::AtLeast(4.0));
    Ok(())
}

/// Drains so many of what waits; answers the seconds.
async fn drain(pond: &Pond, count: u64) -> millpond::Result<f64> {
    let countdown = Countdown::from(count);
    let (started, done) = (Instant::now(), countdown.clone());
    let worker = Worker::new(pond).state(countdown).handle(&MAIL, no_op);
    worker.run_until(async move { done.ended().await }).await?;
    Ok(started.elapsed().as_secs_f64())
}

async fn drains(bench: &Bench, report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floor, mut ours) = (Figures::default(), Figures::default());
    let (mut client_cpu_us, mut per_claim) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        floor::claim_and_delete(bench, DRAIN_MESSAGES, BATCH, 2, &mut floor).await?;
        let prefix = fresh_prefix();
        let pond = bench.open(&prefix).await?;
        fill(&pond, DRAIN_MESSAGES, 2).await?;
        let (meter, client_before) = (bench.meter().await?, usage::cpu("self"));
        let seconds = drain(&pond, DRAIN_MESSAGES).await?;
        ours.take(DRAIN_MESSAGES, seconds, meter.spent().await?);
        let client = usage::cpu("self").saturating_sub(client_before);
        client_cpu_us.push(client.as_secs_f64() * 1e6 / DRAIN_MESSAGES as f64);
        let claims = format!("select count(*) from {prefix}history");
        let claims: Option<u64> =
            bench.conn().await?.query_first(claims).await.map_err(|error| failed("count claims", error))?;
        per_claim.push(DRAIN_MESSAGES as f64 / claims.unwrap_or(1).max(1) as f64);
        pond.close().await;
    }
    let floor = floor.report(report, "claim_delete_floor");
    let ours = ours.report(report, "drain");
    report.add("drain_client_cpu_us", median(client_cpu_us));
    report.add("drain_messages_per_claim", median(per_claim));
    report.goal("drain_vs_floor", ratio(&ours, &floor), Goal::AtLeast(2.0));
    Ok(())
}

/// What a worker asks that has been idle for over a minute: for another one, in which everything comes that it does now
/// and then.
async fn idle(bench: &Bench, report: &mut Report) -> millpond::Result<()> {
    const SETTLE: Duration = Duration::from_secs(61);
    const MEASURE: Duration = Duration::from_secs(60);
    let pond = bench.fresh().await?;
    let mut conn = bench.conn().await?;
    let worker = Worker::new(&pond).state(Countdown::from(1)).handle(&MAIL, no_op);
    let mut asked = 0;
    let measure = async {
        sleep(SETTLE).await;
        let before = questions(&mut conn).await;
        sleep(MEASURE).await;
        asked = questions(&mut conn).await.saturating_sub(before);
    };
    worker.run_until(measure).await?;
    pond.close().await;
    report.goal("idle_queries_per_s", asked as f64 / MEASURE.as_secs_f64(), Goal::AtMost(3.0));
    Ok(())
}

/// Statements that clients have sent to the server.
async fn questions(conn: &mut Conn) -> u64 {
    let asked: Option<(String, u64)> =
        conn.query_first("show global status like 'Questions'").await.unwrap_or_default();
    asked.map_or(0, |(_, count)| count)
}

/// Draining with many waiting, against draining with few.
async fn backlog(bench: &Bench, report: &mut Report, waiting: u64) -> millpond::Result<()> {
    let pond = bench.fresh().await?;
    fill(&pond, BACKLOG_DRAINED, 2).await?;
    let few = drain(&pond, BACKLOG_DRAINED).await?;
    fill(&pond, waiting, 2).await?;
    let many = drain(&pond, BACKLOG_DRAINED).await?;
    pond.close().await;
    report.add("backlog_messages", waiting as f64);
    report.goal("backlog_ratio", few / many, Goal::AtLeast(0.9));
    Ok(())
}

//! Postgres: ours beside plain SQL on the same server, with what the server spends on each message.

mod floor;
mod meter;

use std::time::Instant;

use millpond::postgres::tokio_postgres::{Client, NoTls, connect};
use millpond::{Pond, Worker};
use millpond_testkit::servers::postgres::{Fsync, Postgres, fresh_schema};

use crate::drain::{Countdown, no_op};
use crate::payload::{MAIL, mail};
use crate::report::{Database, Goal, Report, median};
use crate::{failed, usage};
use meter::Meter;
pub(crate) use meter::Spent;

const BATCH: u64 = 1_000;
const BATCH_MESSAGES: u64 = 200_000;
const DRAIN_MESSAGES: u64 = 300_000;
const SINGLE_MESSAGES: u64 = 20_000;
const SINGLE_TASKS: u64 = 64;

/// What the server is told; its own default durability stays.
///
/// The prefix names the database of each line of the log.
pub(crate) const SETTINGS: &[&str] = &["shared_buffers=512MB", "max_wal_size=4GB", "log_line_prefix=db=%d "];

/// A server that flushes, with a connection for questions.
pub(crate) struct Bench {
    pub(crate) server: Postgres,
    pub(crate) client: Client,
}

/// Medians of what was measured in several rounds.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
    wal_bytes: Vec<f64>,
}

impl Figures {
    fn take(&mut self, messages: u64, seconds: f64, spent: Spent) {
        self.rates.push(messages as f64 / seconds);
        self.cpu_us.push(spent.cpu.as_secs_f64() * 1e6 / messages as f64);
        self.wal_bytes.push(spent.wal_bytes as f64 / messages as f64);
    }

    /// Adds the medians; answers the rates of the rounds.
    fn report(self, report: &mut Report, name: &str) -> Vec<f64> {
        report.add(&format!("{name}_per_second"), median(self.rates.clone()));
        report.add(&format!("{name}_server_cpu_us"), median(self.cpu_us));
        report.add(&format!("{name}_wal_bytes"), median(self.wal_bytes));
        self.rates
    }
}

/// Ours against the floor, round by round: a machine that is slow for a while is slow for both.
fn ratio(ours: &[f64], floor: &[f64]) -> f64 {
    median(ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect())
}

impl Bench {
    pub(crate) async fn start() -> millpond::Result<Self> {
        let server = tokio::task::block_in_place(|| Postgres::start(Fsync::On, SETTINGS));
        let asked = connect(server.url(), NoTls).await.map_err(|error| failed("connect", error))?;
        let (client, connection) = asked;
        tokio::spawn(connection);
        Ok(Self { server, client })
    }

    /// A pond in a schema of its own.
    async fn fresh(&self) -> millpond::Result<Pond> {
        self.open(&fresh_schema()).await
    }

    async fn open(&self, schema: &str) -> millpond::Result<Pond> {
        let pond = Pond::open(&format!("{}?schema={schema}", self.server.url())).await?;
        pond.declare(&MAIL).await?;
        Ok(pond)
    }

    /// The URL of another database of the server.
    pub(crate) fn url_of(&self, database: &str) -> String {
        let server = self.server.url().rsplit_once('/').map_or("", |(server, _)| server);
        format!("{server}/{database}")
    }

    pub(crate) async fn meter(&self) -> millpond::Result<Meter<'_>> {
        Meter::start(&self.server, &self.client).await
    }
}

/// Measures what is asked for.
pub(crate) async fn run(rounds: usize, wanted: impl Fn(&str) -> bool) -> millpond::Result<Report> {
    let bench = Bench::start().await?;
    let asked = bench.client.query_one("show server_version", &[]).await;
    let version = asked.map_err(|error| failed("ask for the version", error))?.get(0);
    let database = Database::server("Postgres", "postgres", version, &SETTINGS[..2]);
    let mut report = Report::new(rounds, database);
    if wanted("send") {
        sends(&bench, &mut report, rounds).await?;
    }
    if wanted("single") {
        singles(&bench, &mut report, rounds).await?;
    }
    if wanted("drain") {
        drains(&bench, &mut report, rounds).await?;
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
    report.goal("batch_send_vs_insert_floor", ratio(&ours, &floor), Goal::AtLeast(1.0));
    Ok(())
}

async fn singles(bench: &Bench, report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floor, mut ours) = (Figures::default(), Figures::default());
    for _ in 0..rounds {
        floor::insert(bench, SINGLE_MESSAGES, 1, 8, &mut floor).await?;
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
    let floor = floor.report(report, "single_floor_8");
    let ours = ours.report(report, "single_send_64");
    report.goal("single_send_64_vs_floor", ratio(&ours, &floor), Goal::AtLeast(4.0));
    Ok(())
}

async fn drains(bench: &Bench, report: &mut Report, rounds: usize) -> millpond::Result<()> {
    let (mut floor, mut ours) = (Figures::default(), Figures::default());
    let (mut client_cpu_us, mut per_claim) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        floor::claim_and_delete(bench, DRAIN_MESSAGES, BATCH, 2, &mut floor).await?;
        let schema = fresh_schema();
        let pond = bench.open(&schema).await?;
        fill(&pond, DRAIN_MESSAGES, 2).await?;
        bench.client.batch_execute("checkpoint").await.map_err(|error| failed("checkpoint", error))?;
        let countdown = Countdown::from(DRAIN_MESSAGES);
        let (meter, started, done) = (bench.meter().await?, Instant::now(), countdown.clone());
        let client_before = usage::cpu("self");
        let worker = Worker::new(&pond).state(countdown).handle(&MAIL, no_op);
        worker.run_until(async move { done.ended().await }).await?;
        ours.take(DRAIN_MESSAGES, started.elapsed().as_secs_f64(), meter.spent().await?);
        let client = usage::cpu("self").saturating_sub(client_before);
        client_cpu_us.push(client.as_secs_f64() * 1e6 / DRAIN_MESSAGES as f64);
        let claims = format!("select count(*) from {schema}.history");
        let claims =
            bench.client.query_one(&claims, &[]).await.map_err(|error| failed("count claims", error))?;
        per_claim.push(DRAIN_MESSAGES as f64 / claims.get::<_, i64>(0) as f64);
        pond.close().await;
    }
    let floor = floor.report(report, "claim_delete_floor");
    let ours = ours.report(report, "drain");
    report.add("drain_client_cpu_us", median(client_cpu_us));
    report.add("drain_messages_per_claim", median(per_claim));
    report.goal("drain_vs_floor", ratio(&ours, &floor), Goal::AtLeast(2.5));
    Ok(())
}

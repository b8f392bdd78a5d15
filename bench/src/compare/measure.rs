//! The measurements, each the same for every store: a fresh database, a program on it, and a meter at the server.

mod backlog;
mod drain;
mod held;
mod idle;
mod life;
mod pickup;
mod send;
mod transactions;

use millpond::postgres::tokio_postgres::{Client, NoTls, connect};
use serde_json::Value;

pub(crate) use idle::idle;

use super::figures::Figures;
use super::process::Process;
use super::programs::{Kind, Program};
use super::sizes::Sizes;
use crate::failed;
use crate::postgres::Bench;

/// Messages of one call of a batch send.
const BATCH: u64 = 1_000;

/// Connections that send batches at once.
const SENDERS: u64 = 2;

/// How long a fill before a measurement may take.
const FILL_SECONDS_MAX: u64 = 1_000;

/// How long what is drained may take to be settled.
const SETTLE_SECONDS_MAX: u64 = 20;

/// The measurements of every round.
pub(crate) const NAMES: [&str; 6] = ["send", "single", "transactions", "drain", "default-drain", "life"];

/// Those that are ratios of their own or have many samples, and take long: made in one round.
pub(crate) const NAMES_ONCE: [&str; 3] = ["pickup", "held", "backlog"];

/// The one that is made of all stores at once.
pub(crate) const IDLE: &str = "idle";

/// Makes one measurement of one store.
pub(crate) async fn measure(
    name: &str,
    bench: &Bench,
    program: &Program,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    if name == "held" {
        // It takes a fresh database for each of its drains.
        return held::held(bench, program, sizes, figures).await;
    }
    let mut place = Place::new(bench, program).await?;
    let measured = match name {
        _ if name == "pickup" && place.kind() == Kind::BareTable => Ok(()),
        "send" => send::batches(&mut place, sizes, figures).await,
        "single" => send::singles(&mut place, sizes, figures).await,
        "transactions" => transactions::transactions(&mut place, sizes, figures).await,
        "drain" => drain::best(&mut place, sizes, figures).await,
        "default-drain" => drain::default(&mut place, sizes, figures).await,
        "pickup" => pickup::pickup(&mut place, sizes, figures).await,
        "life" => life::whole_life(&mut place, sizes, figures).await,
        "backlog" => backlog::backlog(&mut place, sizes, figures).await,
        _ => Err(failed("measure", format!("there is no measurement `{name}`"))),
    };
    place.leave().await?;
    measured
}

/// A program on a database of its own.
pub(crate) struct Place<'b> {
    pub(crate) bench: &'b Bench,
    pub(crate) program: &'b Program,
    pub(crate) process: Process,
    pub(crate) client: Client,
    pub(crate) url: String,
    database: String,
}

impl<'b> Place<'b> {
    pub(crate) async fn new(bench: &'b Bench, program: &'b Program) -> millpond::Result<Self> {
        let database = format!("compare_{}", program.key);
        let doing = format!("make the database {database}");
        for statement in [
            format!("drop database if exists {database} with (force)"),
            format!("create database {database}"),
        ] {
            bench.client.batch_execute(&statement).await.map_err(|error| failed(&doing, error))?;
        }
        let url = bench.url_of(&database);
        let (client, connection) = connect(&url, NoTls).await.map_err(|error| failed(&doing, error))?;
        tokio::spawn(connection);
        let mut process = Process::start(program, &url)?;
        process.ask("prepare").await?;
        Ok(Self { bench, program, process, client, url, database })
    }

    pub(crate) async fn leave(self) -> millpond::Result<()> {
        self.process.end().await;
        let drop = format!("drop database {} with (force)", self.database);
        self.bench.client.batch_execute(&drop).await.map_err(|error| failed("drop a database", error))
    }

    pub(crate) const fn key(&self) -> &'static str {
        self.program.key
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.program.kind
    }

    pub(crate) async fn run(&self, statement: &str) -> millpond::Result<()> {
        self.client.batch_execute(statement).await.map_err(|error| failed(statement, error))
    }

    pub(crate) async fn number(&self, question: &str) -> millpond::Result<i64> {
        let row = self.client.query_one(question, &[]).await.map_err(|error| failed(question, error))?;
        Ok(row.get(0))
    }

    /// Sends in batches and answers how many were sent.
    pub(crate) async fn fill(&mut self, count: u64) -> millpond::Result<u64> {
        let command = format!("send {count} {BATCH} {SENDERS} {FILL_SECONDS_MAX}");
        Ok(self.process.ask_number(&command, "sent").await? as u64)
    }

    /// The server as it is in the long run: it knows how large its tables are.
    pub(crate) async fn analyze(&self) -> millpond::Result<()> {
        self.run("analyze").await
    }
}

/// What a drain did.
struct Drained {
    handled: u64,
    seconds: f64,
    spent: crate::postgres::Spent,
    program_cpu_us: f64,
}

impl Drained {
    fn rate(&self) -> f64 {
        self.handled as f64 / self.seconds
    }

    fn cpu_us(&self) -> f64 {
        self.spent.cpu.as_secs_f64() * 1e6 / self.handled as f64
    }

    fn wal_bytes(&self) -> f64 {
        self.spent.wal_bytes as f64 / self.handled as f64
    }
}

/// When the clock of a drain stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// So many messages have been handled; more may wait.
    Handled,
    /// They were all there are, and all are settled.
    Settled,
}

/// A worker with `settings` handles `count` messages, or as many as it can in the time.
async fn drain(
    place: &mut Place<'_>,
    settings: &str,
    retries: u64,
    (count, until): (u64, Until),
    seconds: u64,
) -> millpond::Result<Drained> {
    let (meter, program) = (place.bench.meter().await?, place.process.cpu());
    place.process.ask(&format!("start {settings} {retries}")).await?;
    let answer = place.process.ask(&format!("handled {count} {seconds}")).await?;
    let (handled, mut took) = (number(&answer, "handled")? as u64, number(&answer, "seconds")?);
    if count <= handled && until == Until::Settled {
        let answer = place.process.ask(&format!("settled {SETTLE_SECONDS_MAX}")).await?;
        if number(&answer, "left")? == 0.0 {
            took = number(&answer, "seconds")?;
        }
    }
    let (spent, program) = (meter.spent().await?, place.process.cpu().saturating_sub(program));
    place.process.ask("stop").await?;
    if handled == 0 {
        return Err(failed("measure a drain", "nothing was handled in the time"));
    }
    let program_cpu_us = program.as_secs_f64() * 1e6 / handled as f64;
    Ok(Drained { handled, seconds: took, spent, program_cpu_us })
}

fn number(answer: &Value, name: &str) -> millpond::Result<f64> {
    answer[name].as_f64().ok_or_else(|| failed("read an answer", format!("it has no `{name}`")))
}

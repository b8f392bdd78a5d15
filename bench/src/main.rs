//! Benchmarks of Millpond beside the floors of the same database: what plain SQL reaches through the same driver,
//! in the same run, on the same machine. Ratios of one run are what counts; the figures beside them move with the
//! machine.

mod backlog;
mod compare;
mod document;
mod drain;
mod floor;
mod idle;
mod machine;
mod mysql;
mod payload;
mod pickup;
mod postgres;
mod report;
mod send;
mod transactions;
mod usage;

use std::path::Path;

use clap::{Parser, Subcommand};
use report::{Database, Report};

/// Where the results are, from the root of the repository.
pub(crate) const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md");

/// Measures a store against its own floors.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// SQLite: insert, claim and delete on a plain table; ours beside it.
    Sqlite {
        /// The last line of the output is one JSON object.
        #[arg(long)]
        json: bool,
        /// Rounds of each comparison; the median counts.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Only these parts: send, single, transactions, drain, pickup, idle, backlog.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Writes the part of this store in docs/benchmarks.md. Only a whole run is written.
        #[arg(long, conflicts_with = "only")]
        write: bool,
    },
    /// Postgres: insert, claim and delete on a plain table; ours beside it; a server of its own, with flushes.
    Postgres {
        /// The last line of the output is one JSON object.
        #[arg(long)]
        json: bool,
        /// Rounds of each comparison; the median counts.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Only these parts: send, single, drain.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// Writes the part of this store in docs/benchmarks.md. Only a whole run is written.
        #[arg(long, conflicts_with = "only")]
        write: bool,
    },
    /// MariaDB: insert, claim and delete on a plain table; ours beside it; a server of its own, with flushes.
    Mysql {
        /// The last line of the output is one JSON object.
        #[arg(long)]
        json: bool,
        /// Rounds of each comparison; the median counts.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Only these parts: send, single, transactions, drain, pickup, idle, backlog.
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
        /// How many messages wait in the large backlog.
        #[arg(long, default_value_t = 1_000_000)]
        backlog: u64,
        /// Writes the part of this store in docs/benchmarks.md. Only a whole run is written.
        #[arg(long, conflicts_with = "only")]
        write: bool,
    },
    /// Ours and other queues on one Postgres: needs the registries of cargo and npm the first time.
    Compare(compare::Args),
    /// A worker process for the measurements between processes.
    #[command(hide = true)]
    Worker {
        /// The store.
        url: String,
    },
}

fn main() -> millpond::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("warn").init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("start a runtime", error))?;
    match Args::parse().command {
        Command::Compare(args) => runtime.block_on(compare::run(&args))?,
        Command::Worker { url } => runtime.block_on(pickup::worker(&url))?,
        Command::Postgres { json, rounds, only, write } => {
            end(&runtime.block_on(postgres::run(rounds, wanted(&only)))?, "postgres", json, write)?;
        }
        Command::Mysql { json, rounds, only, backlog, write } => {
            let store = format!("mysql --backlog {backlog}");
            end(&runtime.block_on(mysql::run(rounds, backlog, wanted(&only)))?, &store, json, write)?;
        }
        Command::Sqlite { json, rounds, only, write } => {
            end(&runtime.block_on(sqlite(rounds, wanted(&only)))?, "sqlite", json, write)?;
        }
    }
    Ok(())
}

/// Whether a part is asked for.
fn wanted(only: &[String]) -> impl Fn(&str) -> bool {
    |part| only.is_empty() || only.iter().any(|name| name == part)
}

/// Writes and prints what was measured.
fn end(report: &Report, store: &str, json: bool, write: bool) -> millpond::Result<()> {
    if write {
        let command = format!("cargo xtask bench {store} --rounds {} --write", report.rounds());
        document::write(Path::new(DOCUMENT), report, &command)?;
    }
    report.print(json);
    Ok(())
}

async fn sqlite(rounds: usize, wanted: impl Fn(&str) -> bool) -> millpond::Result<Report> {
    let mut report = Report::new(rounds, Database::sqlite());
    if wanted("send") {
        send::batches(&mut report, rounds).await?;
    }
    if wanted("single") {
        send::singles(&mut report, rounds).await?;
    }
    if wanted("transactions") {
        transactions::transactions(&mut report, rounds).await?;
    }
    if wanted("drain") {
        drain::drains(&mut report, rounds).await?;
    }
    if wanted("pickup") {
        pickup::in_process(&mut report).await?;
        pickup::between_processes(&mut report).await?;
    }
    if wanted("idle") {
        idle::idle(&mut report).await?;
    }
    if wanted("backlog") {
        backlog::backlog(&mut report).await?;
    }
    Ok(report)
}

/// An error of the benchmark itself.
pub(crate) fn failed(
    doing: &str,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> millpond::Error {
    millpond::Error::new(millpond::Code::Internal, doing).because(why)
}

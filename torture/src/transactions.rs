//! Business transactions under kills: each writes rows and sends a message with each of them, in a unit of work, in a
//! transaction of the driver or by plain SQL; three in ten are rolled back, in six ways. A message must be delivered exactly
//! if its row is there at the end. Known bugs are switched on one by one: each must be caught.

mod announcement;
mod audit;
mod bug;
mod clerk;
mod conflict;
mod course;
mod errand;
mod office;
mod open;
mod recipient;
mod refusal;
mod results;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::audit::Told;
pub(crate) use self::clerk::{Share, run as clerk};
pub(crate) use self::recipient::run as recipient;

use self::audit::audit;
use self::bug::Bug;
use self::errand::PAIRS;
use self::office::{Office, Size};
use self::results::{Ending, Results};
use crate::Outcome;
use crate::child::Notice;
use crate::controls::Tried;
use crate::database::Database;
use crate::reader::Reader;
use crate::server::{Server, Way};
use crate::stage::{Stage, commit};

/// How long the backlog may take to be worked off at the end, and how much longer for each thousand transactions.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);
const DRAIN_LIMIT_PER_THOUSAND: Duration = Duration::from_secs(2);

/// A run with a bug, and the same without.
const CONTROL: Size = Size { seed: 0, transactions: 250, kills: 2, clerks: 2, recipients: 1 };

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The store.
    database: Database,
    /// How many business transactions are begun.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    transactions: u64,
    /// How often a process is killed, beside those that a transaction kills.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    kills: u64,
    /// The same seed gives the same transactions, and the same kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ends the output with one JSON object.
    #[arg(long)]
    json: bool,
    /// An empty directory for the store and what children wrote; it is kept. Otherwise they are kept only if something
    /// is broken.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Runs no controls.
    #[arg(long)]
    no_controls: bool,
}

/// The run and its controls; answers whether everything held.
pub(crate) fn torture(args: &Args) -> Outcome<bool> {
    let started = Instant::now();
    let &Args { database, transactions, kills, seed, .. } = args;
    let size = Size { seed, transactions, kills, clerks: 3, recipients: 2 };
    let mut temporary = None;
    let dir = match &args.out {
        Some(dir) => std::path::absolute(dir)?,
        None => temporary.insert(tempfile::tempdir()?).path().to_owned(),
    };
    let (commit, server) = (commit(), Server::start(database, Way::Direct));
    let ending = run(&server, &dir.join("run"), size, None);
    let tried = if args.no_controls { Vec::new() } else { try_all(&server, &dir, seed) };
    let results =
        Results { database, size, commit, server: server.version(), ending, tried, took: started.elapsed() };
    let good = results.good();
    results.print();
    if !good {
        let kept = temporary.map_or(dir, tempfile::TempDir::keep);
        println!("stores and what children wrote: {}", kept.display());
    }
    if args.json {
        println!("{}", results.json());
    }
    Ok(good)
}

/// One run in `dir`, with a bug in its children or without.
fn run(server: &Arc<Server>, dir: &Path, size: Size, bug: Option<Bug>) -> Outcome<Ending> {
    let stage = Stage::set(server, dir, size.seed, &["transactions"], bug.map(Bug::name))?;
    let reader = stage.reader()?;
    make_tables(&reader)?;
    let mut office = Office::open(&stage, size)?;
    office.run()?;
    let thousands = u32::try_from(size.transactions / 1_000).unwrap_or(u32::MAX);
    let limit = DRAIN_LIMIT + DRAIN_LIMIT_PER_THOUSAND.saturating_mul(thousands);
    let drained = stage.drained(limit, |notice| office.attend(notice))?;
    let (recipients, mut books, kills) = office.into_recipients();
    let mut faults = stage.end(recipients)?;
    while let Some(notice) = stage.notice(Duration::ZERO) {
        if let Notice::Report(_, report) = notice {
            books.hear(report);
        }
    }
    if !drained {
        faults.push("the backlog was not worked off in time".to_owned());
    }
    Ok(Ending { audit: audit(&books, &rows(&reader)?), faults, kills })
}

fn make_tables(reader: &Reader) -> Outcome<()> {
    // The store looks at every table with its prefix.
    let end = match reader.database() {
        Database::Mysql => " engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin",
        Database::Sqlite | Database::Postgres => "",
    };
    reader.step(&format!("create table torture_order (tag bigint primary key){end}"))?;
    reader.step(&format!(
        "create table torture_account (id bigint primary key, amount bigint not null default 0){end}"
    ))?;
    let ids: Vec<String> = (0..2 * PAIRS).map(|id| format!("({id})")).collect();
    reader.step(&format!("insert into torture_account (id) values {}", ids.join(", ")))
}

/// The truth.
fn rows(reader: &Reader) -> Outcome<BTreeSet<u64>> {
    let mut rows = BTreeSet::new();
    reader.each("select tag from torture_order", |row| {
        rows.insert(row.count(0)?);
        Ok(())
    })?;
    Ok(rows)
}

/// Runs a small run with each bug, and without any, side by side.
fn try_all(server: &Arc<Server>, dir: &Path, seed: u64) -> Vec<Tried> {
    let size = Size { seed, ..CONTROL };
    std::thread::scope(|scope| {
        let play = |bug: Option<Bug>| {
            let dir = dir.join(bug.map_or("no_bug", Bug::name));
            let started = Instant::now();
            scope.spawn(move || (run(server, &dir, size, bug), started.elapsed()))
        };
        let without = play(None);
        let with = Bug::ALL.map(|bug| (bug, play(Some(bug))));
        let panicked = |_| (Err("its thread panicked".into()), Duration::ZERO);
        let clean = results::wrong_without(&without.join().unwrap_or_else(panicked).0);
        let tried = with.into_iter().map(|(bug, run)| {
            let (ending, took) = run.join().unwrap_or_else(panicked);
            results::tried(bug, &ending, clean.clone(), took)
        });
        tried.collect()
    })
}

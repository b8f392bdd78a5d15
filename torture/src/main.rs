//! Crash tests of Millpond with real processes.
//!
//! Senders and workers run under load and are killed with `kill -9` or stopped past their lease; the server is killed
//! and started again, connections are cut, calls are given up. What the processes reported is written into a history,
//! which the judge reads at the end. A seed gives the same faults at the same moments. Known bugs are switched on one by
//! one: each must be caught. Another run is of business transactions, which are committed and rolled back.

mod child;
mod chronicle;
mod controls;
mod crew;
mod database;
mod dice;
mod drain;
mod dropper;
mod drops;
mod parent;
mod plan;
mod reader;
mod recorded;
mod report;
mod scarce;
mod sender;
mod server;
mod stage;
mod stalls;
mod transactions;
mod wire;
mod work;
mod worker;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::controls::{CONTROLS, Control, Tried};
use crate::database::Database;
use crate::plan::Plan;
use crate::report::Results;
use crate::server::{Server, Way};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "Crash tests of Millpond with real processes and kill -9")]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Tortures a SQLite store in a directory of its own.
    Sqlite(Args),
    /// Tortures a store on a Postgres server that is started for it.
    Postgres(Args),
    /// Tortures a store on a MariaDB server that is started for it.
    Mysql(Args),
    /// Runs business transactions on a store, of which three in ten are rolled back: a message is delivered exactly if
    /// its transaction was committed.
    Transactions(transactions::Args),
    /// Started by the parent.
    #[command(hide = true)]
    Clerk {
        #[arg(long)]
        url: String,
        #[command(flatten)]
        share: transactions::Share,
    },
    /// Started by the parent.
    #[command(hide = true)]
    Recipient {
        #[arg(long)]
        url: String,
    },
    /// Started by the parent.
    #[command(hide = true)]
    Sender {
        #[arg(long)]
        url: String,
    },
    /// Started by the parent.
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        url: String,
        #[command(flatten)]
        setup: worker::Setup,
    },
    /// Started by the parent.
    #[command(hide = true)]
    Dropper {
        #[arg(long)]
        url: String,
        #[arg(long)]
        calls: u64,
        #[arg(long)]
        seed: u64,
    },
}

#[derive(clap::Args)]
struct Args {
    /// How many messages are sent.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    messages: u64,
    /// How often something is killed.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    kills: u64,
    /// How often the server is killed with all its processes, and started again.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    server_kills: u64,
    /// How many connections are cut after a random byte.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    cuts: u64,
    /// How many calls are made in a run of its own of which most are given up.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    drops: u64,
    /// Every process reaches Postgres through a pgbouncer that gives each transaction another connection.
    #[arg(long)]
    pgbouncer: bool,
    /// The same seed gives the same faults at the same moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ends the output with one JSON object.
    #[arg(long)]
    json: bool,
    /// An empty directory for the store, the history and what children wrote; it is kept. Otherwise they are kept
    /// only if something is broken.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Runs this control and nothing else.
    #[arg(long, conflicts_with = "no_controls",
          value_parser = clap::builder::PossibleValuesParser::new(CONTROLS.map(|control| control.name)))]
    only: Option<String>,
    /// Runs no controls.
    #[arg(long)]
    no_controls: bool,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().role {
        Role::Sqlite(args) => torture(Database::Sqlite, &args),
        Role::Postgres(args) => torture(Database::Postgres, &args),
        Role::Mysql(args) => torture(Database::Mysql, &args),
        Role::Transactions(args) => transactions::torture(&args),
        Role::Clerk { url, share } => child(|| transactions::clerk(&url, share)),
        Role::Recipient { url } => child(|| transactions::recipient(&url)),
        Role::Dropper { url, calls, seed } => child(|| dropper::run(&url, calls, seed)),
        Role::Sender { url } => child(|| sender::run(&url)),
        Role::Worker { url, setup } => child(|| worker::run(&url, setup)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn child(role: impl FnOnce() -> millpond::Result<()>) -> Outcome<bool> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    die_with_parent()?;
    role().map_err(|error| format!("{error}: {}", error.causes()))?;
    Ok(true)
}

/// A child that is stopped when its parent dies would never see its pipe close.
#[cfg(target_os = "linux")]
fn die_with_parent() -> Outcome<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> Outcome<()> {
    Ok(())
}

fn torture(database: Database, args: &Args) -> Outcome<bool> {
    let started = Instant::now();
    let &Args { seed, messages, kills, server_kills, cuts, drops, .. } = args;
    if database == Database::Sqlite && server_kills + cuts + drops != 0 {
        return Err("SQLite has no server to kill and no connections to cut".into());
    }
    if args.pgbouncer && database != Database::Postgres {
        return Err("pgbouncer speaks to Postgres only".into());
    }
    let plan = Plan { seed, messages, kills, server_kills, cuts, drops };
    let mut temporary = None;
    let dir = match &args.out {
        Some(dir) => std::path::absolute(dir)?,
        None => temporary.insert(tempfile::tempdir()?).path().to_owned(),
    };
    let mut results = run(database, args, plan, &dir);
    results.took = started.elapsed();
    let good = results.good();
    results.print();
    if !good {
        let through = if args.pgbouncer { " --pgbouncer" } else { "" };
        println!("broken. Again: torture {} {}{through}", database.name(), plan.line());
        println!("faults: {:?}", plan.faults());
        let kept = temporary.map_or(dir, tempfile::TempDir::keep);
        println!("histories: {}", kept.display());
    }
    if args.json {
        println!("{}", results.json());
    }
    Ok(good)
}

fn run(database: Database, args: &Args, plan: Plan, dir: &Path) -> Results {
    let way = if args.pgbouncer { Way::Pgbouncer } else { Way::Direct };
    let (commit, server) = (stage::commit(), Server::start(database, way));
    let whole = args.only.is_none();
    let chosen = |control: &&Control| {
        control.is_for(database, way)
            && !args.no_controls
            && args.only.as_ref().is_none_or(|only| only == control.name)
    };
    // Side by side: processes wait for leases to end most of the time. A server that is killed is not shared.
    let (ending, others, tried) = std::thread::scope(|scope| {
        let main = whole.then(|| {
            scope.spawn(|| {
                let own = if plan.server_kills == 0 { Arc::clone(&server) } else { server.another() };
                parent::run(&own, &dir.join("run"), plan)
            })
        });
        let drops =
            (whole && plan.drops != 0).then(|| scope.spawn(|| drops::run(&server, &dir.join("drops"), plan)));
        let scarce = (whole && database != Database::Sqlite)
            .then(|| scope.spawn(|| scarce::run(&server, &dir.join("scarce"), plan.seed)));
        let tried = try_all(&server, CONTROLS.iter().filter(chosen), dir, plan.seed);
        let panicked = |_| Err("its thread panicked".into());
        let end = |run: std::thread::ScopedJoinHandle<'_, Outcome<_>>| run.join().unwrap_or_else(panicked);
        (main.map(end), drops.into_iter().chain(scarce).map(end).collect(), tried)
    });
    let version = server.version();
    Results { plan, commit, server: version, ending, others, tried, took: Duration::ZERO }
}

/// Runs the controls side by side: they wait for leases to end most of the time.
fn try_all<'c>(
    server: &Arc<Server>,
    controls: impl Iterator<Item = &'c Control>,
    dir: &Path,
    seed: u64,
) -> Vec<Tried> {
    std::thread::scope(|scope| {
        let begin = |control: &'c Control| {
            let dir = dir.join(control.name);
            scope.spawn(move || controls::run(control, server, &dir, seed))
        };
        let begun: Vec<_> = controls.map(begin).collect();
        begun.into_iter().map(|control| control.join().expect("a control catches its own failures")).collect()
    })
}

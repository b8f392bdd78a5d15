//! Crash tests of Millpond with real processes.
//!
//! Senders and workers run under load and are killed with `kill -9` or stopped past their lease; what they
//! reported is written into a history, which the judge reads at the end. A seed gives the same faults at the same
//! moments. Known bugs are switched on one by one: each must be caught.

mod child;
mod chronicle;
mod controls;
mod crew;
mod dice;
mod drain;
mod parent;
mod plan;
mod recorded;
mod report;
mod sender;
mod stage;
mod stalls;
mod wire;
mod work;
mod worker;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::controls::{CONTROLS, Control, Tried};
use crate::plan::Plan;
use crate::report::Results;

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
}

#[derive(clap::Args)]
struct Args {
    /// How many messages are sent.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    messages: u64,
    /// How often something is killed.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    kills: u64,
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
        Role::Sqlite(args) => torture(&args),
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

fn torture(args: &Args) -> Outcome<bool> {
    let started = Instant::now();
    let plan = Plan { seed: args.seed, messages: args.messages, kills: args.kills };
    let mut temporary = None;
    let dir = match &args.out {
        Some(dir) => std::path::absolute(dir)?,
        None => temporary.insert(tempfile::tempdir()?).path().to_owned(),
    };
    let mut results = run(args, plan, &dir);
    results.took = started.elapsed();
    let good = results.good();
    results.print();
    if !good {
        let Plan { seed, messages, kills } = plan;
        println!("broken. Again: torture sqlite --messages {messages} --kills {kills} --seed {seed}");
        println!("faults: {:?}", plan.faults());
        let kept = temporary.map_or(dir, tempfile::TempDir::keep);
        println!("store and histories: {}", kept.display());
    }
    if args.json {
        println!("{}", results.json());
    }
    Ok(good)
}

fn run(args: &Args, plan: Plan, dir: &Path) -> Results {
    let commit = stage::commit();
    let ending = args.only.is_none().then(|| parent::run(&dir.join("run"), plan));
    let chosen =
        |control: &&Control| !args.no_controls && args.only.as_ref().is_none_or(|only| only == control.name);
    let tried = try_all(CONTROLS.iter().filter(chosen), dir, plan.seed);
    Results { plan, commit, ending, tried, took: Duration::ZERO }
}

/// Runs the controls side by side: they wait for leases to end most of the time.
fn try_all<'c>(controls: impl Iterator<Item = &'c Control>, dir: &Path, seed: u64) -> Vec<Tried> {
    std::thread::scope(|scope| {
        let begin = |control: &'c Control| {
            let dir = dir.join(control.name);
            scope.spawn(move || controls::run(control, &dir, seed))
        };
        let begun: Vec<_> = controls.map(begin).collect();
        begun.into_iter().map(|control| control.join().expect("a control catches its own failures")).collect()
    })
}

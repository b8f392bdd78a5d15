//! `millpond demo`: the main job on real work. Two worker processes, messages that work, fail and kill, a worker
//! killed in the middle, and a check at the end that counts by id.

mod check;
mod crew;
mod drive;
mod evidence;
mod ledger;
mod report;
mod screen;
mod summary;
mod worker;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use millpond::sqlite::Location;
use millpond::{Code, Error, Pond, Result};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::demo::check::audit;
use crate::demo::drive::Drive;
use crate::demo::screen::Screen;
use crate::demo::workload::Workload;

pub(crate) use worker::work;

/// Messages of a demo that is not told how many.
const MESSAGES_DEFAULT: u64 = 20_000;

/// Most messages of a demo: their ids and deliveries are kept in memory.
const MESSAGES_MAX: u64 = 2_000_000;

/// How long a demo may take, whatever its size.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// How much longer it may take for each message.
const TIME_PER_MESSAGE: Duration = Duration::from_millis(5);

/// The exit status of a demo that was interrupted: that of a program that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// See a queue at work: two workers, failures, a crash, and a check that nothing is lost.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  millpond demo\n  millpond demo --messages 2000 --json\n  millpond demo --keep"
)]
pub(crate) struct Args {
    /// How many messages to send.
    #[arg(long, value_name = "N", default_value_t = MESSAGES_DEFAULT,
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=MESSAGES_MAX))]
    messages: u64,
    /// Keep the temporary store, to look at it afterwards.
    #[arg(long)]
    keep: bool,
    /// Varies the delays and the moment at which a worker is killed.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// `--store`: the flag alone, for a demo has no business in a store that an environment or a file names.
    #[arg(from_global)]
    store: Option<String>,
}

/// A worker process of a demo.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// Which start of a worker this is.
    #[arg(long)]
    life: u32,
    /// The URL of the store.
    #[arg(long)]
    at: String,
}

/// Runs a demo on the store that `--store` names, or on a new one in a temporary folder. The exit status is 0 only
/// if the self-check holds.
pub(crate) async fn run(args: Args, json: bool) -> Result<ExitCode> {
    let place = Place::new(args.store, args.keep)?;
    let screen = Arc::new(Screen::new(args.messages));
    let workload = Workload::new(usize::try_from(args.messages).unwrap_or(usize::MAX), args.seed);
    let limit = TIME_LIMIT + TIME_PER_MESSAGE * u32::try_from(args.messages).unwrap_or(u32::MAX);
    let pond = Pond::open(&place.url).await?;
    let drive = Drive { pond: &pond, place: &place, screen: &screen, limit };
    let driven = tokio::select! {
        driven = drive.run(workload) => driven,
        interrupted = interrupted() => {
            screen.end();
            interrupted?;
            eprintln!("interrupted; the workers are ended");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    screen.end();
    let driven = driven?;
    pond.close().await;
    let audit = audit(&driven.ledger, &driven.held);
    summary::print(&audit, &driven, &place, json);
    Ok(if audit.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Resolves when somebody wants the demo to end.
async fn interrupted() -> Result<()> {
    let listen =
        |kind| signal(kind).map_err(|error| Error::new(Code::Internal, "listen to signals").because(error));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}

/// Where the store of a demo is.
#[derive(Debug)]
struct Place {
    url: String,
    path: PathBuf,
    /// Deleted with all that is in it when it is dropped.
    folder: Option<TempDir>,
}

impl Place {
    fn new(store: Option<String>, keep: bool) -> Result<Self> {
        let Some(url) = store else { return Self::temporary(keep) };
        let Location { path, .. } = Location::parse(&url)?;
        let path = path.ok_or_else(|| {
            let why = "its workers are processes of their own, which cannot share a store in memory";
            Error::new(Code::UnsupportedStore, "run a demo").because(why)
        })?;
        Ok(Self { url, path, folder: None })
    }

    fn temporary(keep: bool) -> Result<Self> {
        let made = tempfile::Builder::new().prefix("millpond-demo-").disable_cleanup(keep).tempdir();
        let folder = made
            .map_err(|error| Error::new(Code::StoreUnreachable, "make a temporary folder").because(error))?;
        let path = folder.path().join("demo.db");
        Ok(Self { url: format!("sqlite://{}", path.display()), path, folder: (!keep).then_some(folder) })
    }

    /// Whether it is still there after the demo.
    fn stays(&self) -> bool {
        self.folder.is_none()
    }
}

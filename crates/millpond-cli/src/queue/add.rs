//! `millpond queue add`.

use std::process::ExitCode;
use std::time::Duration;

use millpond::{Backoff, Code, HistoryLevel, Pond, Queue, QueueSettings, Rate, Transactional};
use serde::Serialize;

use super::{backoff, rate, view};
use crate::args::{Limit, count, duration, limit, size};
use crate::exit::{Done, Failure};
use crate::{Context, open};

/// What is said about a queue.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Its name: lower-case letters, digits, `.`, `_` and `-`
    name: String,
    #[command(flatten)]
    changes: Changes,
    /// Show what would be stored, and store nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
A queue that is there keeps every setting that is not named.

Examples:
  millpond queue add mail
  millpond queue add mail --attempts-max 8 --backoff 1s..5m
  millpond queue add reports --timeout none --lease 2m --concurrency-per-node 2
  millpond queue add ledger --exclusive
  millpond queue add sms --concurrency 4 --rate 30/1m";

/// Settings that were named.
#[derive(Debug, clap::Args)]
struct Changes {
    /// How a send stands to the sender's transaction: only within one, within one if there is one, or never a part of
    /// one [default: try]
    #[arg(long, value_enum, value_name = "MODE")]
    transactional: Option<Mode>,
    /// Deliveries in all, the first one included [default: 5]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    attempts_max: Option<u32>,
    /// The wait after a failed attempt: `30s`, a list `1s,5s,10s`, or a doubling `1s..5m` [default: 10s..10m]
    #[arg(long, value_name = "WAITS", value_parser = backoff::parse)]
    backoff: Option<Backoff>,
    /// How long a silent worker is waited for, at least 2s [default: 30s]
    #[arg(long, value_parser = duration)]
    lease: Option<Duration>,
    /// How long one run may take, or `none` [default: 5m]
    #[arg(long, value_parser = limit)]
    timeout: Option<Limit>,
    /// A body of this size or more is refused [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    message_limit: Option<u64>,
    /// How long settled messages are kept [default: 1d]
    #[arg(long, value_parser = duration)]
    retention: Option<Duration>,
    /// How long a dedup key is held after sending [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    dedup_window: Option<Duration>,
    /// Handlers that one worker runs at once [default: what the worker says]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    concurrency_per_node: Option<u32>,
    /// One message at a time over all workers. `queue set NAME exclusive=false` ends it
    #[arg(long)]
    exclusive: bool,
    /// Messages in hand at once over all workers [default: as many as they take]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    concurrency: Option<u32>,
    /// Messages in a time over all workers, such as `30/1m`: 30 at once after a rest, then one each 2s [default: no limit]
    #[arg(long, value_name = "N/PERIOD", value_parser = rate::parse, allow_negative_numbers = true)]
    rate: Option<Rate>,
    /// How much of the run log is kept [default: all]
    #[arg(long, value_enum)]
    events: Option<Events>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mode {
    Require,
    Try,
    Never,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Events {
    All,
    Failures,
}

/// What became of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Added<'a> {
    name: &'a str,
    result: &'static str,
    dry_run: bool,
    settings: view::Settings,
}

impl Changes {
    fn over(&self, settings: QueueSettings) -> QueueSettings {
        QueueSettings {
            transactional: match self.transactional {
                Some(Mode::Require) => Transactional::Require,
                Some(Mode::Try) => Transactional::Try,
                Some(Mode::Never) => Transactional::Never,
                None => settings.transactional,
            },
            attempts_max: self.attempts_max.unwrap_or(settings.attempts_max),
            backoff: self.backoff.unwrap_or(settings.backoff),
            lease: self.lease.unwrap_or(settings.lease),
            timeout: self.timeout.map_or(settings.timeout, |limit| limit.0),
            message_limit: self.message_limit.or(settings.message_limit),
            retention: self.retention.unwrap_or(settings.retention),
            dedup_window: self.dedup_window.unwrap_or(settings.dedup_window),
            concurrency_per_node: self.concurrency_per_node.or(settings.concurrency_per_node),
            exclusive: self.exclusive || settings.exclusive,
            concurrency: self.concurrency.or(settings.concurrency),
            rate: self.rate.or(settings.rate),
            events: match self.events {
                Some(Events::All) => HistoryLevel::All,
                Some(Events::Failures) => HistoryLevel::Failures,
                None => settings.events,
            },
            ..settings
        }
    }
}

/// Declares a queue.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { name, changes, dry_run } = args;
    // A name that cannot be must not leave a new store behind.
    changes.over(QueueSettings::DEFAULT).check(&name)?;
    let url = context.config.store();
    let pond = match dry_run {
        false => Some(open::or_new(url).await?),
        true if open::is_there(url)? => Some(open::existing(url).await?),
        true => None,
    };
    let before = match &pond {
        Some(pond) => stored(pond, &name).await?,
        None => None,
    };
    let settings = changes.over(before.unwrap_or(QueueSettings::DEFAULT));
    settings.check(&name)?;
    let result = match before {
        None => "added",
        Some(before) if before == settings => "unchanged",
        Some(_) => "changed",
    };
    if let Some(pond) = pond.filter(|_| !dry_run && result != "unchanged") {
        pond.declare(&Queue::<millpond::Raw>::named(name.clone()).with_settings(settings)).await?;
        pond.close().await;
    }
    let added = Added { name: &name, result, dry_run, settings: settings.into() };
    context.output.one(&added, &name, |_| {
        let said = match (dry_run, result) {
            (true, "added") => "would be added to",
            (true, "changed") => "would be changed in",
            (_, "added") => "is added to",
            (_, "changed") => "is changed in",
            _ => "is already, with these settings, in",
        };
        format!("queue `{name}` {said} {}\n{}", millpond::redact(url, &[]), added.settings.text())
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn stored(pond: &Pond, name: &str) -> Result<Option<QueueSettings>, Failure> {
    match pond.queue(name).await {
        Ok(queue) => Ok(Some(*queue.settings())),
        Err(error) if error.code() == Code::UnknownQueue => Ok(None),
        Err(error) => Err(error.into()),
    }
}

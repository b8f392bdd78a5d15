//! `millpond queue drain`: waiting until a queue is empty.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use millpond::Pond;
use millpond::view::QueueView;
use serde::Serialize;

use super::look_at;
use crate::args::duration;
use crate::exit::{Done, Exit, Failure};
use crate::interrupt::{Interrupt, interrupted};
use crate::output::note;
use crate::progress::Progress;
use crate::{Context, open};

/// How long a look is put off at most; the store may hint at changes earlier.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Which queue, and how long.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The name of the queue
    queue: String,
    /// Give up after this long
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Show what is left, and wait for nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
It is drained when nothing is ready, leased, scheduled or retrying. Dead letters do not count.

Examples:
  millpond queue drain mail
  millpond queue drain mail --timeout 10m";

/// What is left.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Left {
    name: String,
    drained: bool,
    ready: u64,
    leased: u64,
    scheduled: u64,
    retrying: u64,
}

impl From<&QueueView> for Left {
    fn from(view: &QueueView) -> Self {
        let QueueView { ready, leased, scheduled, retrying, .. } = *view;
        let drained = ready + leased + scheduled + retrying == 0;
        Self { name: view.name.clone(), drained, ready, leased, scheduled, retrying }
    }
}

impl Left {
    fn sum(&self) -> u64 {
        self.ready + self.leased + self.scheduled + self.retrying
    }

    fn text(&self) -> String {
        let counts = [
            (self.ready, "ready"),
            (self.leased, "leased"),
            (self.scheduled, "scheduled"),
            (self.retrying, "retrying"),
        ];
        let there = counts.iter().filter(|(count, _)| 0 < *count);
        there.map(|(count, state)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
    }
}

/// Waits.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { queue, timeout, dry_run } = args;
    let pond = open::existing(context.config.store()).await?;
    let view = look_at(&pond, &queue).await?;
    let left = Left::from(&view);
    if dry_run || left.drained {
        return say(&left, context);
    }
    will_it_end(&view)?;
    let interrupt = Interrupt::listen()?;
    let ends = timeout.map(|timeout| Instant::now() + timeout);
    let (left, ended) = wait(&pond, &queue, left, ends, &interrupt).await?;
    match ended {
        true => say(&left, context),
        false if interrupt.is_asked() => {
            let failure = interrupted().why(format!("left in queue `{queue}`: {}", left.text()));
            Err(failure.advice("nothing was changed; run it again to go on waiting"))
        }
        false => {
            let tried = format!("queue `{queue}` is not drained");
            let failure = Failure::new(Exit::Failed, "not-drained", tried);
            let failure = failure.why(format!("left after {}: {}", shown(timeout), left.text()));
            Err(failure.advice(format!(
                "`millpond queue show {queue}` shows who works on it; wait longer, or start workers"
            )))
        }
    }
}

fn shown(timeout: Option<Duration>) -> String {
    timeout.map(millpond::text::format_duration).unwrap_or_default()
}

/// Looks until it is drained, somebody interrupts, or the time is over; answers what is left and whether it is drained.
async fn wait(
    pond: &Pond,
    queue: &str,
    mut left: Left,
    ends: Option<Instant>,
    interrupt: &Interrupt,
) -> Result<(Left, bool), Failure> {
    let (bar, mut shown) = (Progress::bar(left.sum(), "draining"), left.sum());
    while !left.drained {
        let time = ends
            .map_or(LOOK_INTERVAL, |ends| ends.saturating_duration_since(Instant::now()).min(LOOK_INTERVAL));
        if interrupt.is_asked() || time.is_zero() {
            return Ok((left, false));
        }
        // Made before the look, so that no change between the two is missed.
        let changed = pond.store().changed();
        left = Left::from(&look_at(pond, queue).await?);
        bar.advance(shown.saturating_sub(left.sum()));
        shown = shown.min(left.sum());
        if left.drained {
            break;
        }
        tokio::select! {
            _ = tokio::time::timeout(time, changed) => {}
            () = interrupt.asked() => {}
        }
    }
    bar.finish();
    Ok((left, true))
}

/// A queue that nobody works on, or that is paused, does not get emptier.
fn will_it_end(view: &QueueView) -> Result<(), Failure> {
    if !view.paused_by.is_empty() {
        note(&format!("queue `{0}` is paused: `millpond queue resume {0}` lets it go on", view.name))?;
    } else if view.listeners == 0 {
        note(&format!("no live worker listens to queue `{}`", view.name))?;
    }
    Ok(())
}

fn say(left: &Left, context: &Context) -> Done {
    context.output.one(left, &left.name, |_| match left.drained {
        true => format!("queue `{}` is drained", left.name),
        false => format!("left in queue `{}`: {}", left.name, left.text()),
    })?;
    Ok(ExitCode::SUCCESS)
}

//! `millpond work`: any program as the handler of a queue.

mod child;
mod drain;
mod program;
mod stop;
mod tail;
mod verdict;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::text::format_duration;
use millpond::{Job, Outcome, Pond, Queue, Raw, Worker};
use serde::Serialize;

use crate::args::duration;
use crate::exit::{Done, Failure};
use crate::{Context, colour, open};
use program::Program;
use stop::Stop;
use verdict::{Ended, Word};

/// A handler is dropped this long after its program must have ended, so that its outcome is still heard.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// Which queue, and which program.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The queue, which must be there
    queue: String,
    /// What to run for each message, through `/bin/sh -c`
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// Programs that run at once [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: Option<u16>,
    /// How long this worker may be silent before others take its messages, at least 2s [default: the queue's]
    #[arg(long, value_parser = duration)]
    lease: Option<Duration>,
    /// How long one run may take, at most what the queue says [default: the queue's]
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// The wait after exit status 75 [default: 30s]
    #[arg(long, value_parser = duration)]
    snooze: Option<Duration>,
    /// How long programs may go on after the worker was told to stop [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    shutdown_timeout: Option<Duration>,
    /// End when nothing is ready or running
    #[arg(long, alias = "once")]
    drain: bool,
}

const EXAMPLES: &str = "\
The program gets the body on stdin, and in its environment MILLPOND_ID, MILLPOND_QUEUE, MILLPOND_KIND,
MILLPOND_ATTEMPT, MILLPOND_KEY and MILLPOND_TRACEPARENT where there is one, and each header as
MILLPOND_HEADER_<NAME>. How it ends decides:

  exit 0     done
  exit 65    a dead letter, without another attempt
  exit 75    again later, without using up an attempt
  other      again after the backoff; a dead letter when the attempts are used up

The end of its stderr is kept as the error. At a timeout or a stop its process group gets SIGTERM, and SIGKILL
after worker.cancel_grace (5s). SIGTERM ends the worker when its programs are done; a second one hurries.

Examples:
  millpond work mail --exec ./send-mail
  millpond work mail --exec 'curl -fsS --json @- https://example.com/hook' --concurrency 50
  millpond work mail --exec ./send-mail --drain";

/// What became of the runs.
#[derive(Debug, Default)]
struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
    snoozed: AtomicU64,
    refused: AtomicU64,
    given_back: AtomicU64,
}

/// The same, said at the end.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    done: u64,
    failed: u64,
    snoozed: u64,
    refused: u64,
    given_back: u64,
    /// Messages that are due later.
    waiting: u64,
}

/// What every run shares.
#[derive(Clone)]
struct Desk {
    program: Arc<Program>,
    stop: Arc<Stop>,
    tally: Arc<Tally>,
    /// That the program cannot be run is said once.
    told: Arc<AtomicBool>,
}

/// Works until it is told to stop, or the queue is empty.
pub(crate) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::to_write(context.config.store()).await?;
    let queue = pond.queue(&args.queue).await?;
    let timeout = own_timeout(args.timeout, &queue)?.or(context.config.duration("worker.timeout"));
    log_to_stderr();
    let config = &context.config;
    let or = |given: Option<Duration>, key| given.or_else(|| config.duration(key));
    let grace = config.duration("worker.cancel_grace").unwrap_or_default();
    let snooze = or(args.snooze, "worker.snooze").unwrap_or_default();
    let program = Program {
        command: args.exec,
        grace,
        timeout,
        snooze,
        stdout_is_data: context.output.is_table(),
        literals: config.literals(),
    };
    let stop = Stop::listen()?;
    let desk = Desk {
        program: Arc::new(program),
        stop: Arc::clone(&stop),
        tally: Arc::default(),
        told: Arc::default(),
    };
    let tally = Arc::clone(&desk.tally);
    let mut worker =
        Worker::new(&pond).state(desk).handle_any(&queue, handle).cancel_grace(grace + HEARD_WITHIN);
    if let Some(count) = args.concurrency.map(usize::from).or_else(|| config.count("worker.concurrency")) {
        worker = worker.concurrency(count);
    }
    if let Some(lease) = or(args.lease, "worker.lease") {
        worker = worker.lease(lease);
    }
    if let Some(limit) = or(args.shutdown_timeout, "worker.shutdown_timeout") {
        worker = worker.shutdown_timeout(limit);
    }
    tracing::info!(queue = queue.name(), "working; SIGTERM or Ctrl-C ends it");
    let ends = async {
        tokio::select! {
            () = stop.first() => {}
            () = drain::empty(&pond, queue.name()), if args.drain => {}
        }
    };
    worker.run_until_hurried(ends, stop.second()).await?;
    let done = say(&pond, &queue, &tally, context).await;
    pond.close().await;
    done
}

/// One run. The attempt of a program that our stop ended is given back.
async fn handle(job: Job<Raw>, desk: Desk) -> Outcome {
    let started = Instant::now();
    let ended = child::run(&desk.program, &job).await;
    let stopping = desk.stop.is_asked() && matches!(ended, Ended::Cancelled { .. });
    if let Some(why) = verdict::cannot_run(&ended).filter(|_| !desk.told.swap(true, Ordering::Relaxed)) {
        tracing::warn!("{why}: check --exec");
    }
    let (word, outcome) = verdict::of(ended, &desk.program, stopping);
    let counter = match word {
        Word::Done => &desk.tally.done,
        Word::Failed => &desk.tally.failed,
        Word::Snoozed => &desk.tally.snoozed,
        Word::Refused => &desk.tally.refused,
        Word::GivenBack => &desk.tally.given_back,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    let (id, attempt, ms) = (job.id, job.attempt, started.elapsed().as_millis());
    let error = outcome.error.as_deref();
    match word {
        Word::Failed | Word::Refused => tracing::warn!(%id, attempt, ms, error, "{}", word.as_str()),
        _ => tracing::info!(%id, attempt, ms, error, "{}", word.as_str()),
    }
    outcome
}

/// The queue's own timeout ends a run in any case, so a longer one would be a promise that is not kept.
fn own_timeout(asked: Option<Duration>, queue: &Queue<Raw>) -> Result<Option<Duration>, Failure> {
    let (Some(asked), Some(stored)) = (asked, queue.settings().timeout) else { return Ok(asked) };
    if asked <= stored {
        return Ok(Some(asked));
    }
    let (name, asked, stored) = (queue.name(), format_duration(asked), format_duration(stored));
    let tried =
        format!("--timeout {asked} is longer than the {stored} of queue `{name}`, which ends every run");
    let advice = format!("run `millpond queue add {name} --timeout {asked}` first");
    Err(Failure::usage(tried).advice(advice))
}

async fn say(pond: &Pond, queue: &Queue<Raw>, tally: &Tally, context: &Context) -> Done {
    let views = pond.store().queues().await?;
    let view = views.iter().find(|view| view.name == queue.name());
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let summary = Summary {
        done: count(&tally.done),
        failed: count(&tally.failed),
        snoozed: count(&tally.snoozed),
        refused: count(&tally.refused),
        given_back: count(&tally.given_back),
        waiting: view.map_or(0, |view| view.scheduled + view.retrying),
    };
    context.output.one(&summary, queue.name(), |_| {
        let Summary { done, failed, snoozed, refused, given_back, waiting } = summary;
        format!(
            "{done} done, {failed} failed, {snoozed} snoozed, {refused} refused, {given_back} given back; \
             {waiting} wait for later"
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each run. `MILLPOND_LOG` sets how much is said, such as `warn` or `debug`.
fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let asked = std::env::var("MILLPOND_LOG").ok().and_then(|text| EnvFilter::try_new(text).ok());
    let filter = asked.unwrap_or_else(|| EnvFilter::new("warn,millpond::work=info"));
    // A subscriber that is set already is somebody's choice.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour::allowed(colour::Stream::Stderr))
        .with_target(false)
        .with_writer(std::io::stderr)
        .try_init();
}

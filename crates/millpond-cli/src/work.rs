//! `millpond work`: any program as the handler of a queue.

mod child;
mod drain;
mod environment;
mod guard;
mod printer;
mod program;
mod stop;
mod tail;
mod verdict;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::text::format_duration;
use millpond::{Job, Outcome, Pond, Queue, Raw, Stopped, Worker};
use serde::Serialize;

use crate::args::duration;
use crate::exit::{Done, Exit, Failure};
use crate::notify::Notices;
use crate::{Context, colour, open};
use guard::Guard;
pub(crate) use guard::{GuardArgs, guard};
use printer::Printer;
use program::{Program, What};
use stop::Stop;
use verdict::Word;

/// A handler is dropped this long after its program must have ended, so that its outcome is still heard.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// Which queue, and which program.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The queue, which must be there
    queue: String,
    /// What to run for each message, through `/bin/sh -c`
    #[arg(long, value_name = "COMMAND", required_unless_present = "program", conflicts_with = "program")]
    exec: Option<OsString>,
    /// What to run instead, without a shell: a program and its arguments, as they are
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
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
MILLPOND_ATTEMPT, MILLPOND_ATTEMPTS_MAX, MILLPOND_DELIVERY, MILLPOND_SENT_AT, MILLPOND_CONTENT_TYPE, where there
is one MILLPOND_KEY and MILLPOND_TRACEPARENT, and each header as MILLPOND_HEADER_<NAME>. How it ends decides:

  exit 0     done
  exit 65    a dead letter, without another attempt
  exit 75    again later, without using up an attempt
  other      again after the backoff; a dead letter when the attempts are used up

The end of its stderr is kept as the error. At a timeout or a stop its process group gets SIGTERM, and SIGKILL
after worker.cancel_grace (5s). When it ends, what it left in its group is killed; so are all programs of a worker
that is killed itself.

SIGTERM or Ctrl-C ends the worker when its programs are done, --shutdown-timeout at most; a second one tells the
programs to stop, and gives back their attempts; a third one kills them at once. Exit codes: 0 everything was
settled or given back, 1 something is delivered again only when the lease is over, 130 at the third signal.

Examples:
  millpond work mail --exec ./send-mail
  millpond work mail --exec 'curl -fsS --json @- https://example.com/hook' --concurrency 50
  millpond work mail --exec ./send-mail --drain
  millpond work mail -- python3 send.py --verbose";

/// What became of the runs.
#[derive(Debug, Default)]
struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
    snoozed: AtomicU64,
    refused: AtomicU64,
    given_back: AtomicU64,
    lost: AtomicU64,
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
    /// Results that may not count, because the lease was lost.
    lost: u64,
    /// Messages that are delivered again when the lease is over.
    abandoned: u64,
    /// Messages that are due later.
    waiting: u64,
}

/// What every run shares.
#[derive(Clone)]
struct Desk {
    program: Arc<Program>,
    guard: Arc<Guard>,
    printer: Printer,
    tally: Arc<Tally>,
    /// That the program cannot be run is said once.
    told: Arc<AtomicBool>,
}

/// Works until it is told to stop, or the queue is empty.
pub(crate) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::to_write(context.config.store()).await?;
    let queue = pond.queue(&args.queue).await?;
    check_timeout(args.timeout, &queue)?;
    log_to_stderr()?;
    let stop = Stop::listen()?;
    let tally: Arc<Tally> = Arc::default();
    let grace = context.config.duration("worker.cancel_grace").unwrap_or_default();
    let guard = Guard::start(grace)?;
    let (printer, printed) = Printer::start().map_err(|error| {
        Failure::new(Exit::Failed, "internal", "cannot start the thread that prints").why(error.to_string())
    })?;
    let desk = Desk {
        program: Arc::new(program(&args, &queue, grace, context)),
        guard: Arc::clone(&guard),
        printer,
        tally: Arc::clone(&tally),
        told: Arc::default(),
    };
    let worker = worker(&args, &pond, context).state(desk).handle_any(&queue, handle);
    let worker = worker.cancel_grace(grace + HEARD_WITHIN);
    tracing::info!(queue = queue.name(), "working; SIGTERM or Ctrl-C ends it");
    let notices = Notices::of(&context.config)?;
    let worker = notices.delivered_by(worker, &pond).await?;
    let watch = notices.watch(&pond);
    let looked_at = pond.clone();
    let ends = async {
        tokio::select! {
            () = stop.first() => {}
            () = drain::empty(&looked_at, queue.name()), if args.drain => {}
        }
    };
    // Not dropped at the third signal: a run that is dropped is over, and the guard would not look for what it left.
    let mut running = std::pin::pin!(worker.run_until_stopped(ends, stop.second()));
    let ran = tokio::select! {
        ran = &mut running => ran,
        () = stop.third() => Ok(abandon(&guard, context)),
    };
    watch.end().await;
    let stopped = ran?;
    printed.wait().await;
    let done = say(&pond, &queue, &tally, stopped, context).await;
    pond.close().await;
    done
}

fn program(args: &Args, queue: &Queue<Raw>, grace: Duration, context: &Context) -> Program {
    let what = args.exec.clone().map_or_else(|| What::Words(args.program.clone()), What::Line);
    let snooze = args.snooze.or_else(|| context.config.duration("worker.snooze")).unwrap_or_default();
    Program {
        what,
        grace,
        snooze,
        attempts_max: queue.settings().attempts_max,
        stdout_is_data: context.output.is_table(),
        literals: context.config.literals(),
    }
}

fn worker(args: &Args, pond: &Pond, context: &Context) -> Worker {
    let config = &context.config;
    let or = |given: Option<Duration>, key| given.or_else(|| config.duration(key));
    let mut worker = Worker::new(pond);
    if let Some(count) = args.concurrency.map(usize::from).or_else(|| config.count("worker.concurrency")) {
        worker = worker.concurrency(count);
    }
    if let Some(lease) = or(args.lease, "worker.lease") {
        worker = worker.lease(lease);
    }
    if let Some(limit) = or(args.timeout, "worker.timeout") {
        worker = worker.timeout(limit);
    }
    if let Some(limit) = or(args.shutdown_timeout, "worker.shutdown_timeout") {
        worker = worker.shutdown_timeout(limit);
    }
    worker
}

/// One run.
async fn handle(job: Job<Raw>, desk: Desk) -> Outcome {
    let started = Instant::now();
    let ended = child::run(&desk.program, &job, &desk.guard, &desk.printer).await;
    if let Some(why) = verdict::cannot_run(&ended).filter(|_| !desk.told.swap(true, Ordering::Relaxed)) {
        tracing::warn!("{why}: check {}", desk.program.place());
    }
    let (word, outcome) = verdict::of(ended, &desk.program);
    let counter = match word {
        Word::Done => &desk.tally.done,
        Word::Failed => &desk.tally.failed,
        Word::Snoozed => &desk.tally.snoozed,
        Word::Refused => &desk.tally.refused,
        Word::GivenBack => &desk.tally.given_back,
        Word::Lost => &desk.tally.lost,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    let (id, attempt, ms) = (job.id, job.attempt, started.elapsed().as_millis());
    let error = outcome.error.as_deref();
    match word {
        Word::Failed | Word::Refused | Word::Lost => {
            tracing::warn!(%id, attempt, ms, error, "{}", word.as_str());
        }
        _ => tracing::info!(%id, attempt, ms, error, "{}", word.as_str()),
    }
    outcome
}

/// The third signal: nothing is waited for, not even the store. Ends the process.
fn abandon(guard: &Guard, context: &Context) -> Stopped {
    guard.kill_all();
    let tried = "the worker was told not to wait: its programs are killed";
    let advice = "their messages are delivered again when the lease is over";
    let failure = Failure::new(Exit::Interrupted, "shutting-down", tried).advice(advice);
    let _ = failure.report(context.output.is_json());
    std::process::exit(Exit::Interrupted as i32)
}

/// The queue's own timeout ends a run in any case, so a longer one would be a promise that is not kept.
fn check_timeout(asked: Option<Duration>, queue: &Queue<Raw>) -> Result<(), Failure> {
    if asked.is_some_and(|asked| asked.is_zero()) {
        return Err(Failure::usage("--timeout 0s would end every run before it begins"));
    }
    let (Some(asked), Some(stored)) = (asked, queue.settings().timeout) else { return Ok(()) };
    if asked <= stored {
        return Ok(());
    }
    let (name, asked, stored) = (queue.name(), format_duration(asked), format_duration(stored));
    let tried =
        format!("--timeout {asked} is longer than the {stored} of queue `{name}`, which ends every run");
    let advice = format!("run `millpond queue add {name} --timeout {asked}` first");
    Err(Failure::usage(tried).advice(advice))
}

async fn say(pond: &Pond, queue: &Queue<Raw>, tally: &Tally, stopped: Stopped, context: &Context) -> Done {
    let views = pond.store().queues().await?;
    let view = views.iter().find(|view| view.name == queue.name());
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let summary = Summary {
        done: count(&tally.done),
        failed: count(&tally.failed),
        snoozed: count(&tally.snoozed),
        refused: count(&tally.refused),
        given_back: count(&tally.given_back),
        lost: count(&tally.lost),
        abandoned: u64::try_from(stopped.given_up + stopped.unrecorded).unwrap_or(u64::MAX),
        waiting: view.map_or(0, |view| view.scheduled + view.retrying),
    };
    context.output.one(&summary, queue.name(), |_| {
        let Summary { done, failed, snoozed, refused, given_back, lost, abandoned, waiting } = summary;
        let rare = [(lost, " lost"), (abandoned, " abandoned")].into_iter().filter(|(count, _)| *count != 0);
        let rare: String = rare.map(|(count, what)| format!(", {count}{what}")).collect();
        format!(
            "{done} done, {failed} failed, {snoozed} snoozed, {refused} refused, {given_back} given back{rare}; \
             {waiting} wait for later"
        )
    })?;
    if stopped.is_clean() {
        return Ok(ExitCode::SUCCESS);
    }
    tracing::warn!(count = summary.abandoned, "messages are delivered again when the lease is over");
    Ok(Exit::Failed.code())
}

/// A line for each run. `MILLPOND_LOG` sets how much is said, such as `warn` or `debug`.
fn log_to_stderr() -> Result<(), Failure> {
    use tracing_subscriber::EnvFilter;
    let asked = std::env::var("MILLPOND_LOG").ok().filter(|text| !text.is_empty());
    let filter = EnvFilter::try_new(asked.as_deref().unwrap_or("warn,millpond::work=info"));
    let filter = filter.map_err(|error| {
        Failure::usage("MILLPOND_LOG says nothing that can be logged")
            .why(error.to_string())
            .advice("write a level such as warn, or millpond::work=debug")
    })?;
    // A subscriber that is set already is somebody's choice.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour::allowed(colour::Stream::Stderr))
        .with_target(false)
        .with_writer(std::io::stderr)
        .try_init();
    Ok(())
}

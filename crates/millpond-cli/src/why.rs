//! `millpond why`: why a message does not run, or why a queue is slow, from stored facts.

mod decide;
mod rates;
mod slow;

use std::collections::BTreeMap;
use std::process::ExitCode;

use millpond::query::{Field, Query};
use millpond::view::{Find, MessageRow, QueueView, Tallies};
use millpond::{Code, MessageId, Pond, Timestamp};
use serde::Serialize;

use crate::exit::{Done, Exit, Failure};
use crate::output::{Times, clean};
use crate::paste::Paste;
use crate::{Context, instant, open, queue};
use decide::{Facts, Why, decide};
use rates::Rate;
use slow::slow;

/// Jobs that are named as those that hold the slots.
const RUNNING_MAX: usize = 3;

/// Leased messages that are looked at for the longest runs.
const LEASED_MAX: usize = 500;

/// Runs of which the times are looked at.
const RUNS_MAX: usize = 1_000;

/// Which message, or which queue.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond why 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10
                          why this message does not run: every cause, the nearest first
  millpond why mail       why this queue is slow: one sentence of advice, then the numbers

`millpond explain CODE` tells more of a cause. Exit codes: 0 answered, 5 there is no such message or queue.")]
pub(crate) struct Args {
    /// The id that `queue send` answered, or the name of a queue
    #[arg(value_name = "ID|QUEUE")]
    target: String,
}

/// The answer about a message, in the words of the HTTP API.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: MessageId,
    #[serde(flatten)]
    why: &'a Why,
}

/// Says why.
pub(crate) async fn run(Args { target }: Args, context: &Context) -> Done {
    // What is neither is said without a store.
    let id = target.parse::<MessageId>().ok();
    if id.is_none() && millpond_core::name::check_any_queue_name(&target).is_err() {
        let tried = format!("`{target}` is neither a message id nor the name of a queue");
        let advice = "an id is a UUID such as 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10; `millpond queue list` shows the queues";
        return Err(Failure::usage(tried).advice(advice));
    }
    let pond = open::existing(context.config.store()).await?;
    match id {
        Some(id) => of_message(&pond, id, context).await,
        None => of_queue(&pond, &target, context).await,
    }
}

async fn of_message(pond: &Pond, id: MessageId, context: &Context) -> Done {
    let store = pond.store();
    let message = store.message(id).await?;
    let queues = store.queues().await?;
    let queue = message.as_ref().and_then(|message| queues.iter().find(|queue| queue.name == message.queue));
    let workers = store.workers().await?;
    let now = store.now().await?;
    let (rates, leased) = match queue.filter(|queue| 0 < queue.ready) {
        Some(queue) => (rates_of(pond, queue, now).await?, leased(pond, queue).await?),
        None => (None, Vec::new()),
    };
    let rates = rates.map(Vec::from).unwrap_or_default();
    let (running, holders) = (&leased[..leased.len().min(RUNNING_MAX)], &holders(&leased));
    let (message, workers, rates, paste) = (message.as_ref(), &workers, &rates, &Paste::of(context));
    let facts = Facts { id, now, message, queue, workers, rates, running, holders, paste };
    let why = decide(&facts);
    context.output.one(&Shown { id, why: &why }, &id.to_string(), |times| text(&why, times))?;
    Ok(if message.is_some() { ExitCode::SUCCESS } else { Exit::NotFound.code() })
}

async fn of_queue(pond: &Pond, name: &str, context: &Context) -> Done {
    queue::must_be_declared(pond, name).await?;
    let store = pond.store();
    let queues = store.queues().await?;
    let Some(queue) = queues.iter().find(|queue| queue.name == name) else {
        // It was there a moment ago.
        return Err(millpond::Error::new(Code::UnknownQueue, format!("look up queue `{name}`")).into());
    };
    let workers = store.workers().await?;
    let now = store.now().await?;
    let outbox = if_supported(store.outbox_summary().await)?.unwrap_or_default();
    let due = outbox.iter().filter(|row| row.queue == name).map(|row| row.due).sum();
    let rates = rates_of(pond, queue, now).await?;
    let mut runs = if_supported(store.run_times(name.to_owned(), RUNS_MAX).await)?.unwrap_or_default();
    runs.sort_unstable();
    let paste = &Paste::of(context);
    let slow = slow(&slow::Facts { now, queue, workers: &workers, due, rates, runs: &runs, paste });
    context.output.one(&slow, name, |_| slow.text().lines().map(|line| clean(line) + "\n").collect())?;
    Ok(ExitCode::SUCCESS)
}

async fn rates_of(pond: &Pond, queue: &QueueView, now: Timestamp) -> Result<Option<[Rate; 3]>, Failure> {
    let to = crate::trend::minute(now) + crate::trend::MINUTE;
    let which =
        Tallies { queue: Some(queue.name.clone()), kind: None, from: rates::begin(now), to, by_minute: true };
    let tallies = if_supported(pond.store().tallies(which).await)?;
    Ok(tallies.map(|tallies| rates::rates(&tallies, now)))
}

/// What is in hand of a queue, the longest run first.
async fn leased(pond: &Pond, queue: &QueueView) -> Result<Vec<MessageRow>, Failure> {
    let query =
        Query::default().and(Field::Queue, [queue.name.clone()]).and(Field::State, ["leased".to_owned()]);
    let find = Find { query, rows_max: LEASED_MAX, ..Find::default() };
    let found = if_supported(pond.store().messages(find).await)?;
    let mut rows = found.map(|found| found.items).unwrap_or_default();
    rows.sort_by_key(|row| std::cmp::Reverse(row.run));
    Ok(rows)
}

/// Who has messages in hand, and how many, the most first.
fn holders(leased: &[MessageRow]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for worker in leased.iter().filter_map(|row| row.worker.as_deref()) {
        *counts.entry(worker).or_default() += 1;
    }
    let mut holders: Vec<_> = counts.into_iter().map(|(worker, count)| (worker.to_owned(), count)).collect();
    holders.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    holders
}

/// What a store cannot tell is not known; any other error is one.
pub(crate) fn if_supported<T>(answer: millpond::Result<T>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code() == Code::UnsupportedStore => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The state, then a paragraph for each cause.
fn text(why: &Why, times: &Times) -> String {
    let since = why.since.map(|since| format!(" since {}", times.show(since))).unwrap_or_default();
    let mut text = format!("{}{since}\n", why.state);
    for cause in &why.causes {
        text.push_str(&format!("  {}: {}\n", cause.code, clean(&cause.text)));
        if let Some(until) = cause.until {
            text.push_str(&format!("      until {}\n", times.show(until)));
        }
        if let Some(action) = &cause.action {
            text.push_str(&format!("      {action}\n"));
        }
    }
    text
}

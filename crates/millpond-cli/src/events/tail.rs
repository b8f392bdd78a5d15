//! `millpond events tail`: the run log as it is written, oldest first. None is said twice, and none is missed without
//! a word.

use std::process::ExitCode;
use std::time::Duration;

use millpond::Pond;
use millpond::query::{Field, Query};
use millpond::view::{Count, EventView, Find};

use super::entry::{COLUMNS, Entry};
use super::list::{WINDOW, read};
use super::seen::Seen;
use crate::args::{count, duration};
use crate::exit::{Done, Exit, Failure};
use crate::filter::Filter;
use crate::interrupt::Interrupt;
use crate::output::note;
use crate::{Context, open};

/// Entries of one reading.
const PAGE_ROWS: usize = 2_000;

/// Entries of one look, which are held in memory.
const LOOK_ROWS_MAX: usize = 100_000;

/// Which entries, and how many.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond events tail
  millpond events tail 'queue:mail event:RETRY,DLQ' --last 0
  millpond events tail -o ndjson | jq .errorSummary")]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Entries of the past that are printed first
    #[arg(long, value_name = "N", default_value_t = 10)]
    last: u32,
    /// End after so many entries
    #[arg(long, value_name = "N", value_parser = count)]
    count: Option<u32>,
    /// How often the store is asked
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    every: Duration,
}

/// What a reader that follows wants.
pub(super) struct Wanted {
    last: usize,
    count: Option<u64>,
    every: Duration,
}

impl Wanted {
    /// After a list of the newest.
    pub(super) fn after(last: u64) -> Self {
        let last = usize::try_from(last).unwrap_or(usize::MAX);
        Self { last, count: None, every: Duration::from_millis(500) }
    }
}

/// Follows.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let query = read(args.filter, &pond, context).await?;
    let (last, count) = (args.last as usize, args.count.map(u64::from));
    let wanted = Wanted { last, count, every: args.every.max(Duration::from_millis(10)) };
    follow(&pond, query, &wanted, context).await
}

/// Prints the newest entries, then each new one until the process is ended or as many were printed as are wanted.
pub(super) async fn follow(pond: &Pond, query: Query, wanted: &Wanted, context: &Context) -> Done {
    let interrupt = Interrupt::listen()?;
    let mut left = wanted.count.unwrap_or(u64::MAX);
    let mut seen = Seen::from(pond.store().now().await?);
    let past = past(pond, &query, wanted.last, &mut seen).await?;
    context.output.names(&COLUMNS)?;
    say(past, &mut left, context)?;
    let mut ticks = tokio::time::interval(wanted.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while 0 < left {
        tokio::select! {
            _ = ticks.tick() => {}
            () = interrupt.asked() => return Ok(Exit::Interrupted.code()),
        }
        let mut new = all(pond, query.clone().since(Field::At, seen.begin())).await?;
        new.retain(|event| seen.is_new(event));
        seen.forget();
        say(new, &mut left, context)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The newest entries, oldest first. What is young is marked as seen, whether it is among them or not.
async fn past(pond: &Pond, query: &Query, last: usize, seen: &mut Seen) -> Result<Vec<EventView>, Failure> {
    let begin = seen.begin();
    let mut young = all(pond, query.clone().since(Field::At, begin)).await?;
    for event in &young {
        seen.is_new(event);
    }
    let missing = last.saturating_sub(young.len());
    let mut past = Vec::new();
    if 0 < missing {
        let from = query.clone().since(Field::At, begin - WINDOW);
        let find = Find { query: from, rows_max: last, count: Count::No, ..Find::default() };
        past = pond.store().events(find).await?.items;
        past.retain(|event| event.at < begin);
        past.truncate(missing);
        past.reverse();
    }
    past.append(&mut young.split_off(young.len().saturating_sub(last)));
    Ok(past)
}

/// Everything that matches, oldest first; of more than one look takes, the newest, and the gap is said.
async fn all(pond: &Pond, query: Query) -> Result<Vec<EventView>, Failure> {
    let (mut events, mut after) = (Vec::new(), None);
    loop {
        let find = Find { query: query.clone(), after, rows_max: PAGE_ROWS, ..Find::default() };
        let found = pond.store().events(find).await?;
        events.extend(found.items);
        after = found.next;
        if after.is_some() && LOOK_ROWS_MAX <= events.len() {
            let shown = events.len();
            note(&format!("more was written than can be shown: only the newest {shown} of this look are"))?;
            after = None;
        }
        if after.is_none() {
            events.reverse();
            return Ok(events);
        }
    }
}

fn say(events: Vec<EventView>, left: &mut u64, context: &Context) -> Result<(), Failure> {
    for entry in events.into_iter().map(Entry::from) {
        if *left == 0 {
            break;
        }
        *left -= 1;
        context.output.row(&entry, &COLUMNS, |times| entry.text(times))?;
    }
    Ok(())
}

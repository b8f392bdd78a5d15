//! `millpond dead-letter redrive`: shown and counted first, done in pages, each dead letter once.

use std::io::{self, IsTerminal, Write as _};
use std::process::ExitCode;

use millpond::query::Query;
use millpond::view::{Count, Find};
use millpond::{Code, Error, IdSource, MessageId, Pond};
use serde::Serialize;

use millpond_core::store::{Act, Changed, Redrive};

use super::Filter;
use crate::exit::{Done, Exit, Failure};
use crate::{Context, open, queue};

/// Dead letters that are sent again in one transaction.
const PAGE_ROWS: usize = 500;

/// Which, and how sure.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Every dead letter of the store
    #[arg(long, conflicts_with_all = ["queue", "reason", "ids"])]
    all: bool,
    /// Count them, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do it without asking if exactly so many match
    #[arg(long, value_name = "N")]
    expect: Option<u64>,
    /// Do it without asking
    #[arg(short, long)]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  millpond dead-letter redrive --queue mail --reason exhausted --dry-run
  millpond dead-letter redrive --queue mail --reason exhausted --expect 12
  millpond dead-letter redrive --id 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10 --yes";

/// What was done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Redriven {
    matched: u64,
    redriven: u64,
    dry_run: bool,
    /// The old ids with the new ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Again>,
}

#[derive(Debug, Serialize)]
struct Again {
    id: MessageId,
    #[serde(rename = "redrivenAs")]
    redriven_as: MessageId,
}

/// Redrives.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    if args.filter.is_empty() && !args.all {
        let tried = "refused to redrive every dead letter of the store";
        let advice = "name --queue, --reason or --id, or say --all";
        return Err(Failure::new(Exit::Refused, "invalid-filter", tried).advice(advice));
    }
    let Args { filter, dry_run, expect, yes, .. } = args;
    let pond = open::to_write(context.config.store()).await?;
    if let Some(name) = &filter.queue {
        queue::must_be_declared(&pond, name).await?;
    }
    let filter = filter.into_query();
    let matched = count(&pond, &filter).await?;
    if let Some(expected) = expect.filter(|expected| *expected != matched) {
        let why = format!("expected {expected}, now {matched}; nothing was done");
        return Err(Error::new(Code::CountChanged, "redrive dead letters").because(why).into());
    }
    if dry_run || matched == 0 {
        return say(&Redriven { matched, redriven: 0, dry_run, messages: Vec::new() }, context);
    }
    if !yes && expect.is_none() {
        confirm(matched)?;
    }
    let done = redrive(&pond, &filter, matched, context).await;
    pond.close().await;
    done
}

async fn count(pond: &Pond, filter: &Query) -> Result<u64, Failure> {
    let find = Find { query: filter.clone(), count: Count::All, ..Find::default() };
    Ok(pond.store().dead_letters(find).await?.matched)
}

/// Asks a person; a script must have said it.
fn confirm(matched: u64) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let tried = format!("refused to redrive {} without a confirmation", letters(matched));
        let advice = format!("say --yes, or --expect {matched}");
        return Err(Failure::new(Exit::Refused, "invalid-parameter", tried).advice(advice));
    }
    write!(io::stderr(), "redrive {}? [y/N] ", letters(matched))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(Exit::Refused, "invalid-parameter", "nothing was done")
            .advice("answer y to redrive them, or say --yes")),
    }
}

async fn redrive(pond: &Pond, filter: &Query, matched: u64, context: &Context) -> Done {
    let ids = IdSource::new();
    let mut done = Redriven { matched, redriven: 0, dry_run: false, messages: Vec::new() };
    // What is redriven leaves the list, so its first page is always the next one. Dead letters that come
    // meanwhile were not counted, and are not sent.
    while done.redriven < matched {
        match page(pond, filter, &ids, matched - done.redriven).await {
            Ok((0, _)) => break,
            Ok((count, messages)) => {
                done.redriven += count;
                done.messages.extend(messages);
            }
            Err(failure) if done.redriven == 0 => return Err(failure),
            Err(failure) => return Err(partly(&failure, done.redriven, matched)),
        }
    }
    say(&done, context)
}

async fn page(pond: &Pond, filter: &Query, ids: &IdSource, most: u64) -> Result<(u64, Vec<Again>), Failure> {
    let rows_max = PAGE_ROWS.min(usize::try_from(most).unwrap_or(PAGE_ROWS));
    let find = Find { query: filter.clone(), rows_max, ..Find::default() };
    let found = pond.store().dead_letters(find).await?.items;
    let new = ids.ids(found.len())?;
    let pairs: Vec<_> = found.iter().map(|dead| dead.id).zip(new).collect();
    let again = |(id, new_id): &(MessageId, MessageId)| Redrive {
        id: *id,
        new_id: *new_id,
        due: None,
        queue: None,
        attempts_max: None,
    };
    let act = Act {
        actor: "local".to_owned(),
        verb: "dead-letter redrive".to_owned(),
        object: String::new(),
        reason: None,
    };
    let changed = pond.store().redrive(pairs.iter().map(again).collect(), act).await?;
    let count = changed.iter().filter(|changed| **changed == Changed::Done).count() as u64;
    Ok((count, pairs.into_iter().map(|(id, redriven_as)| Again { id, redriven_as }).collect()))
}

fn partly(failure: &Failure, redriven: u64, matched: u64) -> Failure {
    let tried = format!("redrove {redriven} of {}, then stopped", letters(matched));
    let why = failure.to_string().lines().collect::<Vec<_>>().join("; ");
    Failure::new(Exit::Partly, failure.code(), tried)
        .why(why)
        .advice("repeat it for the rest: none is sent twice")
}

fn say(done: &Redriven, context: &Context) -> Done {
    let Redriven { matched, redriven, dry_run, messages } = done;
    let new: Vec<String> = messages.iter().map(|message| message.redriven_as.to_string()).collect();
    context.output.one(done, &new.join("\n"), |_| match (*matched, *dry_run) {
        (0, _) => "no dead letters match".to_owned(),
        (_, true) => format!("would redrive {}", letters(*matched)),
        (_, false) => format!("redrove {}", letters(*redriven)),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn letters(count: u64) -> String {
    if count == 1 { "1 dead letter".to_owned() } else { format!("{count} dead letters") }
}

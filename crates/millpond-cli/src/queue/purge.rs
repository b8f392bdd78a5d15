//! `millpond queue purge`: dropping what waits.

use std::process::ExitCode;

use millpond::{Act, Code, Error, Pond};
use serde::Serialize;

use super::look_at;
use crate::act::{Reason, act};
use crate::bulk::{TRANSACTION_ROWS_MAX, ask_for_name, stopped_short};
use crate::exit::{Done, Failure};
use crate::interrupt::{Interrupt, interrupted};
use crate::output::counted;
use crate::progress::Progress;
use crate::{Context, open};

/// Which queue, and how sure.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The name of the queue
    queue: String,
    /// Show what would be dropped, and drop nothing
    #[arg(long)]
    dry_run: bool,
    /// Do it without asking if exactly so many wait
    #[arg(long, value_name = "N")]
    expect: Option<u64>,
    /// Do it without asking
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    reason: Reason,
}

const EXAMPLES: &str = "\
What is ready, scheduled or retrying is gone for good, without a dead letter; what is leased goes on. Messages that come
meanwhile are left. To keep them, cancel them instead: millpond message cancel queue:mail

Examples:
  millpond queue purge mail --dry-run
  millpond queue purge mail --expect 1200 --reason 'sent by mistake'";

/// What was dropped.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    name: String,
    matched: u64,
    purged: u64,
    remaining: u64,
    ready: u64,
    scheduled: u64,
    retrying: u64,
    /// Left alone.
    leased: u64,
    dry_run: bool,
}

/// Purges.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { queue, dry_run, expect, yes, reason } = args;
    let pond = open::to_write(context.config.store()).await?;
    let view = look_at(&pond, &queue).await?;
    let matched = view.ready + view.scheduled + view.retrying;
    let mut answer = Answer {
        name: queue,
        matched,
        purged: 0,
        remaining: matched,
        ready: view.ready,
        scheduled: view.scheduled,
        retrying: view.retrying,
        leased: view.leased,
        dry_run,
    };
    if let Some(expected) = expect.filter(|expected| *expected != matched) {
        let why = format!("expected {expected}, now {matched}; nothing was done");
        let doing = format!("purge queue `{}`", answer.name);
        return Err(Error::new(Code::CountChanged, doing).because(why).into());
    }
    let stopped = if dry_run || matched == 0 {
        None
    } else {
        if !yes && expect.is_none() {
            let what = format!("purge {} of queue `{}`", messages(matched), answer.name);
            ask_for_name(&what, &answer.name, matched)?;
        }
        let act = act("queue purge", answer.name.clone(), reason.reason);
        drop_all(&pond, &mut answer, &act).await?
    };
    say(&answer, context)?;
    pond.close().await;
    let Some(why) = stopped else { return Ok(ExitCode::SUCCESS) };
    let tried = format!("purged {} of {}", answer.purged, messages(answer.matched));
    Err(stopped_short(&tried, answer.remaining, &why))
}

/// Drops as many as were counted: those that come meanwhile are not meant. Answers what ended it early.
async fn drop_all(pond: &Pond, answer: &mut Answer, act: &Act) -> Result<Option<Failure>, Failure> {
    let interrupt = Interrupt::listen()?;
    let bar = Progress::bar(answer.matched, "purging");
    while 0 < answer.remaining {
        if interrupt.is_asked() {
            return Ok(Some(interrupted()));
        }
        let rows_max = usize::try_from(answer.remaining).unwrap_or(usize::MAX).min(TRANSACTION_ROWS_MAX);
        match pond.store().purge(answer.name.clone(), rows_max, act.clone()).await {
            Ok(purged) => {
                answer.purged += purged.messages;
                answer.remaining = answer.remaining.saturating_sub(purged.messages);
                bar.advance(purged.messages);
                if !purged.more || purged.messages == 0 {
                    // The rest was leased or cancelled meanwhile.
                    answer.remaining = 0;
                }
            }
            Err(error) if answer.purged == 0 => return Err(error.into()),
            Err(error) => return Ok(Some(error.into())),
        }
    }
    bar.finish();
    Ok(None)
}

fn say(answer: &Answer, context: &Context) -> Result<(), Failure> {
    let Answer { name, matched, purged, ready, scheduled, retrying, leased, dry_run, .. } = answer;
    context.output.one(answer, name, |_| {
        let left = if *leased == 0 { String::new() } else { format!("; {leased} leased are left alone") };
        match (*matched, *dry_run) {
            (0, _) => format!("nothing waits in queue `{name}`{left}"),
            (_, true) => {
                let parts = format!("{ready} ready, {scheduled} scheduled, {retrying} retrying");
                format!("would purge {} of queue `{name}`: {parts}{left}", messages(*matched))
            }
            (_, false) => format!("purged {} of queue `{name}`{left}", messages(*purged)),
        }
    })?;
    Ok(())
}

fn messages(count: u64) -> String {
    counted(count, "message")
}

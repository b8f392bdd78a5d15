//! Changing many rows: found and counted first, shown and asked for, then done in transactions of limited size.
//!
//! What was found is what is done: the ids are taken down before anybody is asked, so rows that come meanwhile are not
//! among them, and rows that somebody else changes meanwhile are skipped and counted. Ctrl-C ends it between two
//! transactions; the same command again does the rest.

mod confirm;
mod outcome;
mod preview;
mod search;

use std::process::ExitCode;

use millpond::query::{Field, Subject};
use millpond::{Changed, Code, Error, MessageId, Pond};

use crate::Context;
use crate::exit::{Done, Exit, Failure};
use crate::filter::Chosen;
use crate::interrupt::{Interrupt, interrupted};
use crate::output::counted;
use crate::progress::Progress;
pub(crate) use confirm::{ask, ask_for_name};
use outcome::Outcome;
pub(crate) use outcome::stopped_short;
use preview::Preview;

/// Rows that are changed in one transaction.
pub(crate) const TRANSACTION_ROWS_MAX: usize = 500;

/// How sure somebody is.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Sure {
    /// Everything, where no filter is named
    #[arg(long)]
    pub(crate) all: bool,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do it without asking if exactly so many match
    #[arg(long, value_name = "N")]
    pub(crate) expect: Option<u64>,
    /// Do it without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// What is done to what, and the words for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action<'a> {
    /// As it is typed: `dead-letter redrive`.
    pub(crate) verb: &'static str,
    /// The kind of list that it takes its rows from.
    pub(crate) subject: Subject,
    /// States in which it can be done, where the list has more of them.
    pub(crate) states: &'static [&'static str],
    /// `redrive`.
    pub(crate) infinitive: &'static str,
    /// `redrove`.
    pub(crate) past: &'static str,
    /// `redriving`.
    pub(crate) doing: &'static str,
    /// `dead letter`.
    pub(crate) one: &'static str,
    /// Whether the rows are worked on afterwards, so that it matters who would.
    pub(crate) runs: bool,
    /// The queue that they are moved to.
    pub(crate) to: Option<&'a str>,
}

impl Action<'_> {
    /// `1 dead letter`, `2 dead letters`.
    pub(crate) fn count(&self, count: u64) -> String {
        counted(count, self.one)
    }
}

/// What became of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct One {
    pub(crate) changed: Changed,
    /// The new message, if one was made.
    pub(crate) new_id: Option<MessageId>,
}

impl From<Changed> for One {
    fn from(changed: Changed) -> Self {
        Self { changed, new_id: None }
    }
}

/// A part of the rows, in the order in which they are done.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) ids: &'a [MessageId],
    /// Rows before this part.
    pub(crate) before: usize,
    /// Rows in all.
    pub(crate) total: usize,
}

/// Finds what was chosen, makes sure, and changes it by `change`, one transaction for each call.
pub(crate) async fn run(
    action: &Action<'_>,
    chosen: Chosen,
    sure: &Sure,
    pond: &Pond,
    context: &Context,
    change: impl AsyncFnMut(Part<'_>) -> millpond::Result<Vec<One>>,
) -> Done {
    is_meant(action, &chosen, sure)?;
    let named = chosen.ids.clone();
    let (mut ids, preview) = find(action, chosen, pond).await?;
    let matched = preview.matched;
    if let Some(expected) = sure.expect.filter(|expected| *expected != matched) {
        let why = format!("expected {expected}, now {matched}; nothing was done");
        let doing = format!("{} {}s", action.infinitive, action.one);
        return Err(Error::new(Code::CountChanged, doing).because(why).into());
    }
    if sure.dry_run {
        preview.show(action, context)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(named) = &named {
        // Ids that are not there are tried too: each answers for itself.
        ids.clone_from(named);
    } else if 0 < matched && !sure.yes && sure.expect.is_none() {
        ask(&format!("{} {}", action.infinitive, action.count(matched)), &preview.in_short(), matched)?;
    }
    let outcome = work(action, &ids, change).await?;
    outcome.end(action, named.is_some(), context)
}

/// An empty filter is no filter that was forgotten.
fn is_meant(action: &Action<'_>, chosen: &Chosen, sure: &Sure) -> Result<(), Failure> {
    match (chosen.is_everything(), sure.all) {
        (true, false) => {
            let tried = format!("refused to {} every {} of the store", action.infinitive, action.one);
            let advice = "name a filter such as queue:mail, or say --all";
            Err(Failure::new(Exit::Refused, "invalid-filter", tried).advice(advice))
        }
        (false, true) => {
            let advice = "leave one of them out";
            Err(Failure::usage("--all and a filter were both named").advice(advice))
        }
        _ => Ok(()),
    }
}

/// The ids, the oldest first, and what is to be known about them.
async fn find(
    action: &Action<'_>,
    chosen: Chosen,
    pond: &Pond,
) -> Result<(Vec<MessageId>, Preview), Failure> {
    let mut preview = Preview::default();
    let mut ids = match chosen.ids {
        Some(ids) => search::named(pond, action, &ids, &mut preview).await?,
        None => {
            let states = action.states.iter().map(|state| (*state).to_owned());
            let query = match action.states {
                [] => chosen.query,
                _ => chosen.query.and(Field::State, states),
            };
            search::matching(pond, action, query, &mut preview).await?
        }
    };
    ids.reverse();
    if action.runs {
        preview.look_for_workers(pond, action.to).await?;
    }
    Ok((ids, preview))
}

async fn work(
    action: &Action<'_>,
    ids: &[MessageId],
    mut change: impl AsyncFnMut(Part<'_>) -> millpond::Result<Vec<One>>,
) -> Result<Outcome, Failure> {
    let interrupt = Interrupt::listen()?;
    let bar = Progress::bar(ids.len() as u64, action.doing);
    let mut outcome = Outcome::of(ids.len());
    for (index, part) in ids.chunks(TRANSACTION_ROWS_MAX).enumerate() {
        if interrupt.is_asked() {
            outcome.stop(interrupted());
            break;
        }
        let before = index * TRANSACTION_ROWS_MAX;
        match change(Part { ids: part, before, total: ids.len() }).await {
            Ok(changed) => outcome.add(part, &changed),
            Err(error) if index == 0 => return Err(error.into()),
            Err(error) => {
                outcome.stop(error.into());
                break;
            }
        }
        bar.advance(part.len() as u64);
    }
    bar.finish();
    Ok(outcome)
}

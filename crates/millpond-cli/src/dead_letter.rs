//! `millpond dead-letter`: what no attempt will be made for any more, and how it gets another life.

mod get;
mod groups;
mod list;
mod redrive;
mod remove;
mod view;

use millpond::Pond;
use millpond::query::{Field, Subject};
use millpond::text::nearest;
use millpond_core::reason::DropReason;

use crate::exit::{Done, Failure};
use crate::filter::Chosen;
use crate::{Context, filter};

/// What can be done with dead letters.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Dead letters, newest first
    #[command(alias = "ls")]
    List(list::Args),
    /// Dead letters by what they have in common, the largest group first
    Groups(groups::Args),
    /// One dead letter with its body, its errors and its run log
    Get(get::Args),
    /// Send dead letters again, each under a new id
    Redrive(Box<redrive::Args>),
    /// Delete dead letters for good
    #[command(alias = "rm")]
    Remove(Box<remove::Args>),
}

/// Which dead letters.
#[derive(Debug, Clone, clap::Args)]
struct Letters {
    #[command(flatten)]
    filter: filter::Filter,
    /// With this reason, such as exhausted or refused
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Option<String>,
}

impl Letters {
    async fn read(self, pond: &Pond, context: &Context) -> Result<Chosen, Failure> {
        let reason = self.reason.map(|reason| (Field::Reason, reason));
        self.filter.read(Subject::DeadLetter, reason, pond, context).await
    }
}

/// One of the closed list.
fn reason(text: &str) -> Result<String, String> {
    let known: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.as_str()).collect();
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    let near = nearest(text, &known).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    Err(format!("there is no such reason; {near}known are {}", known.join(", ")))
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::List(args) => list::run(args, context).await,
        Verb::Groups(args) => groups::run(args, context).await,
        Verb::Get(args) => get::run(args, context).await,
        Verb::Redrive(args) => redrive::run(*args, context).await,
        Verb::Remove(args) => remove::run(*args, context).await,
    }
}

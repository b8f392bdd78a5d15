//! `millpond events`: the run log, and what it comes to.

mod entry;
mod list;
mod rates;
mod seen;
mod tail;
mod trends;

use crate::Context;
use crate::exit::Done;

/// What can be asked of the run log.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Entries of the run log, newest first; those of the last 24 hours unless the filter names `at`
    #[command(alias = "ls")]
    List(list::Args),
    /// The newest entries, and each new one as it is written
    Tail(tail::Args),
    /// What happened on each day of a time zone
    Trends(trends::Args),
    /// What happened in each minute
    Rates(rates::Args),
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::List(args) => list::run(args, context).await,
        Verb::Tail(args) => tail::run(args, context).await,
        Verb::Trends(args) => trends::run(args, context).await,
        Verb::Rates(args) => rates::run(args, context).await,
    }
}

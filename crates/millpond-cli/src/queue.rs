//! `millpond queue`: declare queues, look at them, send to them.

mod add;
mod backoff;
mod body;
mod import;
mod lines;
mod list;
mod send;
mod view;

use crate::Context;
use crate::exit::Done;

/// What can be done with a queue.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Declare a queue, or change the settings that are named
    Add(Box<add::Args>),
    /// All queues with their counts
    #[command(alias = "ls")]
    List,
    /// One queue with its counts and settings
    Show(list::ShowArgs),
    /// Send a message, or many from a file
    Send(Box<send::Args>),
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::Add(args) => add::run(*args, context).await,
        Verb::List => list::list(context).await,
        Verb::Show(args) => list::show(args, context).await,
        Verb::Send(args) => send::run(*args, context).await,
    }
}

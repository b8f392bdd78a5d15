//! `millpond queue`: declare queues, look at them, send to them.

mod add;
mod backoff;
mod body;
mod import;
mod lines;
mod list;
mod send;
mod view;

use millpond::{Code, Pond};

use crate::Context;
use crate::exit::{Done, Failure};

/// What can be done with a queue.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Declare a queue, or change the settings that are named
    Add(Box<add::Args>),
    /// All queues with their counts
    #[command(
        alias = "ls",
        after_help = "Examples:\n  millpond queue list\n  millpond queue list -o csv > queues.csv"
    )]
    List,
    /// One queue with its counts and settings
    Show(list::ShowArgs),
    /// Send a message, or many from a file
    Send(Box<send::Args>),
}

/// Refuses a queue that is not declared, with the nearest name that is. For commands that only look.
pub(crate) async fn must_be_declared(pond: &Pond, name: &str) -> Result<(), Failure> {
    pond.queue(name).await.map(drop).map_err(|error| match error.code() {
        Code::UnknownQueue => Failure::from(error).advice("`millpond queue list` shows what is declared"),
        _ => error.into(),
    })
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

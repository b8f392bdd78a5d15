//! `millpond queue`: declare queues, look at them, send to them, and steer what becomes of what is in them.

mod add;
mod backoff;
mod body;
mod drain;
mod envelope;
mod import;
mod lines;
mod list;
mod pause;
mod purge;
mod rate;
mod send;
mod set;
mod setting;
mod tail;
mod view;

use millpond::view::QueueView;
use millpond::{Code, Error, Pond};

use crate::Context;
use crate::exit::{Done, Failure};

/// What can be done with a queue.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Declare a queue, or change the settings that are named
    Add(Box<add::Args>),
    /// All queues with their counts, by name
    #[command(alias = "ls", after_help = list::LIST_EXAMPLES)]
    List,
    /// One queue with its counts, pauses, listeners and settings
    #[command(after_help = list::SHOW_EXAMPLES)]
    Show(list::ShowArgs),
    /// Change settings at run time: they win over the declaration until `unset`
    Set(set::SetArgs),
    /// Go back to the declared value of settings
    Unset(set::UnsetArgs),
    /// Pause a queue, or all: nothing is leased; sending goes on and what runs goes on
    Pause(pause::PauseArgs),
    /// End a pause, and say what still holds the queue
    Resume(pause::ResumeArgs),
    /// Wait until nothing is ready, leased, scheduled or retrying; changes nothing
    Drain(drain::Args),
    /// Drop everything that waits in a queue; what is leased is left alone
    Purge(purge::Args),
    /// Send a message, or many from a file
    Send(Box<send::Args>),
    /// New messages as they arrive; settles nothing
    Tail(tail::Args),
}

/// Refuses a queue that is not declared, with the nearest name that is. For commands that only look.
pub(crate) async fn must_be_declared(pond: &Pond, name: &str) -> Result<(), Failure> {
    pond.queue(name).await.map(drop).map_err(|error| match error.code() {
        Code::UnknownQueue => Failure::from(error).advice("`millpond queue list` shows what is declared"),
        _ => error.into(),
    })
}

/// A declared queue with its counts.
async fn look_at(pond: &Pond, name: &str) -> Result<QueueView, Failure> {
    must_be_declared(pond, name).await?;
    let found = pond.store().queues().await?.into_iter().find(|queue| queue.name == name);
    found.ok_or_else(|| Error::new(Code::UnknownQueue, format!("look up queue `{name}`")).into())
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::Add(args) => add::run(*args, context).await,
        Verb::List => list::list(context).await,
        Verb::Show(args) => list::show(args, context).await,
        Verb::Set(args) => set::set(args, context).await,
        Verb::Unset(args) => set::unset(args, context).await,
        Verb::Pause(args) => pause::pause(args, context).await,
        Verb::Resume(args) => pause::resume(args, context).await,
        Verb::Drain(args) => drain::run(args, context).await,
        Verb::Purge(args) => purge::run(args, context).await,
        Verb::Send(args) => send::run(*args, context).await,
        Verb::Tail(args) => tail::run(args, context).await,
    }
}

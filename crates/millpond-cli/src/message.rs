//! `millpond message`: where messages are and how they fared; making them due, and taking them out.

pub(crate) mod change;
pub(crate) mod list;
mod shown;

use std::process::ExitCode;

use millpond::{Code, Error, MessageId};

use crate::exit::Done;
use crate::{Context, open};
use shown::Shown;
pub(crate) use shown::{Body, Event, Sent};

/// What can be done with messages.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Messages in any state, the last sent first
    #[command(alias = "ls")]
    List(list::Args),
    /// State, body and run log of a message
    #[command(after_help = "Example:\n  millpond message get 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10")]
    Get(GetArgs),
    /// Make messages that wait due now; their attempts stay as they are
    #[command(after_help = change::RETRY_EXAMPLES)]
    Retry(Box<change::Args>),
    /// Take messages out: those that wait become dead letters, those that run are told to stop
    #[command(after_help = change::CANCEL_EXAMPLES)]
    Cancel(Box<change::Args>),
}

/// Which message.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// The id that `queue send` answered
    #[arg(value_parser = id)]
    id: MessageId,
}

/// Reads an id.
pub(crate) fn id(text: &str) -> Result<MessageId, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not a message id, which is a UUID such as 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10")
    })
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::List(args) => list::run(args, context).await,
        Verb::Get(args) => get(args, context).await,
        Verb::Retry(args) => change::retry(*args, context).await,
        Verb::Cancel(args) => change::cancel(*args, context).await,
    }
}

async fn get(GetArgs { id }: GetArgs, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let unknown = || Error::new(Code::MessageNotFound, format!("find message `{id}`"));
    let shown = Shown::from(pond.store().message(id).await?.ok_or_else(unknown)?);
    context.output.one(&shown, &id.to_string(), |times| shown.text(times))?;
    Ok(ExitCode::SUCCESS)
}

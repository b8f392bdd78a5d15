//! `millpond message`: one message, with where it is and how it fared.

mod shown;

use std::process::ExitCode;

use millpond::{Code, Error, MessageId};

use crate::exit::Done;
use crate::{Context, open};
pub(crate) use shown::Body;
use shown::Shown;

/// What can be done with a message.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// State, body and run log of a message
    #[command(after_help = "Example:\n  millpond message get 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10")]
    Get(GetArgs),
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
    let Verb::Get(GetArgs { id }) = verb;
    let pond = open::existing(context.config.store()).await?;
    let unknown = || Error::new(Code::MessageNotFound, format!("find message `{id}`"));
    let shown = Shown::from(pond.store().message(id).await?.ok_or_else(unknown)?);
    context.output.one(&shown, &id.to_string(), |times| shown.text(times))?;
    Ok(ExitCode::SUCCESS)
}

//! `millpond queue list` and `millpond queue show`.

use std::process::ExitCode;

use millpond::{Code, Error};

use super::view::{COLUMNS, Shown};
use crate::exit::Done;
use crate::{Context, open, output};

/// Which queue.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  millpond queue show mail\n  millpond queue show mail -o json")]
pub(crate) struct ShowArgs {
    /// The name of the queue
    name: String,
}

/// All queues.
pub(super) async fn list(context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let queues: Vec<Shown> = pond.store().queues().await?.into_iter().map(Shown::from).collect();
    context.output.list(&queues, &COLUMNS, "no queues yet; `millpond queue add NAME` makes one")?;
    Ok(ExitCode::SUCCESS)
}

/// One queue.
pub(super) async fn show(args: ShowArgs, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    super::must_be_declared(&pond, &args.name).await?;
    let found = pond.store().queues().await?.into_iter().find(|queue| queue.name == args.name);
    let unknown = || Error::new(Code::UnknownQueue, format!("look up queue `{}`", args.name));
    let shown = Shown::from(found.ok_or_else(unknown)?);
    context.output.one(&shown, &shown.name, |times| {
        let counts = output::table(std::slice::from_ref(&shown), &COLUMNS, times);
        format!("{counts}\n{}", shown.settings.text())
    })?;
    Ok(ExitCode::SUCCESS)
}

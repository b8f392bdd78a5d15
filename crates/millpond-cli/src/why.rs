//! `millpond why`: why a message does not run, from stored facts.

mod decide;

use std::process::ExitCode;

use millpond::MessageId;
use serde::Serialize;

use crate::exit::{Done, Exit};
use crate::output::{Times, clean};
use crate::{Context, instant, message, open};
use decide::{Facts, Why, decide};

/// Which message.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  millpond why 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10")]
pub(crate) struct Args {
    /// The id that `queue send` answered
    #[arg(value_parser = message::id)]
    id: MessageId,
}

/// The answer, in the words of the HTTP API.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    id: MessageId,
    #[serde(flatten)]
    why: &'a Why,
}

/// Says why.
pub(crate) async fn run(Args { id }: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let store = pond.store();
    let message = store.message(id).await?;
    let queues = store.queues().await?;
    let queue = message.as_ref().and_then(|message| queues.iter().find(|queue| queue.name == message.queue));
    let workers = store.workers().await?;
    let facts = Facts { id, now: store.now().await?, message: message.as_ref(), queue, workers: &workers };
    let why = decide(&facts);
    context.output.one(&Shown { id, why: &why }, &id.to_string(), |times| text(&why, times))?;
    Ok(if message.is_some() { ExitCode::SUCCESS } else { Exit::NotFound.code() })
}

/// The state, then a paragraph for each cause.
fn text(why: &Why, times: &Times) -> String {
    let since = why.since.map(|since| format!(" since {}", times.show(since))).unwrap_or_default();
    let mut text = format!("{}{since}\n", why.state);
    for cause in &why.causes {
        text.push_str(&format!("  {}: {}\n", cause.code, clean(&cause.text)));
        if let Some(until) = cause.until {
            text.push_str(&format!("      until {}\n", times.show(until)));
        }
        if let Some(action) = &cause.action {
            text.push_str(&format!("      {action}\n"));
        }
    }
    text
}

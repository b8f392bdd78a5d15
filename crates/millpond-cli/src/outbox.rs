//! `millpond outbox`: what may not be worked on yet.

mod list;
mod summary;

use millpond::query::Subject;

use crate::Context;
use crate::bulk::Action;
use crate::exit::Done;
use crate::message::change::{self, Args as ChangeArgs};

/// What can be done with the outbox.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// What waits, the next due first
    #[command(alias = "ls")]
    List(list::Args),
    /// How much waits for each queue, and how late it is
    Summary(summary::Args),
    /// Make what waits due now; its attempts stay as they are
    #[command(after_help = RETRY_EXAMPLES)]
    Retry(Box<ChangeArgs>),
    /// Drop what waits: it becomes a dead letter with the reason `cancelled`
    #[command(alias = "rm", after_help = REMOVE_EXAMPLES)]
    Remove(Box<ChangeArgs>),
}

const RETRY_EXAMPLES: &str = "\
Examples:
  millpond outbox retry 'queue:mail attempt:>3' --dry-run
  millpond outbox retry 'queue:mail attempt:>3' --expect 12 --reason 'the mail server is back'
  millpond outbox retry 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";

const REMOVE_EXAMPLES: &str = "\
`dead-letter redrive status:cancelled` brings it back.

Examples:
  millpond outbox remove 'queue:mail due:>+1d' --dry-run
  millpond outbox remove 'queue:mail due:>+1d' --expect 40
  millpond outbox remove 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";

const RETRY: Action<'_> =
    Action { verb: "outbox retry", subject: Subject::Outbox, states: &[], ..change::RETRY };

const REMOVE: Action<'_> =
    Action { verb: "outbox remove", subject: Subject::Outbox, states: &[], ..change::CANCEL };

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::List(args) => list::run(args, context).await,
        Verb::Summary(args) => summary::run(args, context).await,
        Verb::Retry(args) => change::hasten(&RETRY, *args, context).await,
        Verb::Remove(args) => change::take_out(&REMOVE, *args, context).await,
    }
}

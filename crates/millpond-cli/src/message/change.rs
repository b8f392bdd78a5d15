//! `millpond message retry` and `millpond message cancel`.

use millpond::query::Subject;
use millpond::{Act, Changed, MessageId, Store};
use millpond_core::store::BoxFuture;

use crate::act::{Reason, act};
use crate::bulk::{Action, One, Part, Sure};
use crate::exit::Done;
use crate::filter::Filter;
use crate::{Context, bulk, open};

/// Which, and how sure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) sure: Sure,
    #[command(flatten)]
    pub(crate) reason: Reason,
}

pub(super) const RETRY_EXAMPLES: &str = "\
Only what is scheduled or retrying is meant. Ids need no confirmation.

Examples:
  millpond message retry 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10
  millpond message retry 'queue:mail state:retrying error:\"connection refused\"' --dry-run
  millpond message retry queue:mail --expect 12 --reason 'the mail server is back'";

pub(super) const CANCEL_EXAMPLES: &str = "\
Only what is scheduled, retrying, ready or leased is meant. Ids need no confirmation. What waits becomes a dead letter with
the reason `cancelled`; `dead-letter redrive status:cancelled` brings it back.

Examples:
  millpond message cancel 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10
  millpond message cancel 'queue:mail key:customer:8*' --dry-run
  millpond message cancel 'queue:mail sent:<2026-11-30' --expect 40 --reason 'sent by mistake'";

pub(crate) const RETRY: Action<'_> = Action {
    verb: "message retry",
    subject: Subject::Message,
    states: &["scheduled", "retrying"],
    infinitive: "retry",
    past: "made due:",
    doing: "making due",
    one: "message",
    runs: true,
    to: None,
};

pub(crate) const CANCEL: Action<'_> = Action {
    verb: "message cancel",
    subject: Subject::Message,
    states: &["scheduled", "retrying", "ready", "leased"],
    infinitive: "cancel",
    past: "cancelled",
    doing: "cancelling",
    one: "message",
    runs: false,
    to: None,
};

/// Makes messages due.
pub(super) async fn retry(args: Args, context: &Context) -> Done {
    hasten(&RETRY, args, context).await
}

/// Cancels messages.
pub(super) async fn cancel(args: Args, context: &Context) -> Done {
    take_out(&CANCEL, args, context).await
}

/// Makes what is chosen due.
pub(crate) async fn hasten(action: &Action<'_>, args: Args, context: &Context) -> Done {
    run(action, |store, ids, act| store.hasten(ids, act), args, context).await
}

/// Cancels what is chosen.
pub(crate) async fn take_out(action: &Action<'_>, args: Args, context: &Context) -> Done {
    run(action, |store, ids, act| store.cancel(ids, act), args, context).await
}

/// A verb of a store over ids.
type Change = for<'a> fn(&'a dyn Store, Vec<MessageId>, Act) -> BoxFuture<'a, millpond::Result<Vec<Changed>>>;

async fn run(action: &Action<'_>, change: Change, args: Args, context: &Context) -> Done {
    let Args { filter, sure, reason } = args;
    let pond = open::to_write(context.config.store()).await?;
    let chosen = filter.read(action.subject, None, &pond, context).await?;
    let (act, store) = (act(action.verb, chosen.object(), reason.reason), pond.store().as_ref());
    let change = async |part: Part<'_>| {
        let changed = change(store, part.ids.to_vec(), act.clone()).await?;
        Ok(changed.into_iter().map(One::from).collect())
    };
    let done = bulk::run(action, chosen, &sure, &pond, context, change).await;
    pond.close().await;
    done
}

//! `millpond dead-letter remove`.

use millpond::query::Subject;

use super::Letters;
use crate::act::{Because, act};
use crate::bulk::{Action, One, Part, Sure};
use crate::exit::Done;
use crate::{Context, bulk, open};

/// Which, and how sure.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Letters,
    #[command(flatten)]
    sure: Sure,
    #[command(flatten)]
    because: Because,
}

const EXAMPLES: &str = "\
They are gone with their bodies, and nothing brings them back. Ids need no confirmation.

Examples:
  millpond dead-letter remove 'queue:mail died:<-7d' --dry-run
  millpond dead-letter remove 'queue:mail died:<-7d' --expect 40 --because 'customers were told'
  millpond dead-letter remove 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";

const ACTION: Action<'_> = Action {
    verb: "dead-letter remove",
    subject: Subject::DeadLetter,
    states: &[],
    infinitive: "remove",
    past: "removed",
    doing: "removing",
    one: "dead letter",
    runs: false,
    to: None,
};

/// Removes.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { filter, sure, because } = args;
    let pond = open::to_write(context.config.store()).await?;
    let chosen = filter.read(&pond, context).await?;
    let act = act(ACTION.verb, chosen.object(), because.because);
    let store = pond.store();
    let change = async |part: Part<'_>| {
        let changed = store.remove_dead_letters(part.ids.to_vec(), act.clone()).await?;
        Ok(changed.into_iter().map(One::from).collect())
    };
    let done = bulk::run(&ACTION, chosen, &sure, &pond, context, change).await;
    pond.close().await;
    done
}

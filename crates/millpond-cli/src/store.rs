//! `millpond store`: what the store tells about itself, what a program may do to it, and everything that is in it.

mod export;
mod info;

use crate::Context;
use crate::exit::Done;

/// What can be asked of a store.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Version, place, durability, sizes, tables, what it can do, and what is not as it should be
    #[command(after_help = "Examples:\n  millpond store info\n  millpond store info -o json | jq .facts")]
    Info,
    /// What the programs that use it need to be allowed, and no more
    #[command(after_help = "Example:\n  millpond store grants")]
    Grants,
    /// Everything that is still to be done, as lines that `queue send --ndjson --envelopes` reads
    Export(export::Args),
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::Info => info::run(context).await,
        Verb::Grants => info::grants(context).await,
        Verb::Export(args) => export::run(args, context).await,
    }
}

//! `millpond dead-letter list`.

use std::process::ExitCode;

use super::Letters;
use super::view::{COLUMNS, Shown};
use crate::exit::Done;
use crate::paging::{Paging, page_of, say_what_is_missing};
use crate::{Context, open};

/// Which, and how many.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Letters,
    #[command(flatten)]
    paging: Paging,
    /// Bodies and headers too
    #[arg(long)]
    bodies: bool,
}

const EXAMPLES: &str = "\
Fields of a filter: queue kind key id reason error class fingerprint attempt worker sent died age status header.NAME
body.PATH. Those that were sent again are shown with status:retried.

Examples:
  millpond dead-letter list --queue mail --reason exhausted
  millpond dead-letter list 'queue:mail died:today error:\"connection refused\"' -n 200
  millpond dead-letter list status:open,retried,cancelled -o csv > dead.csv";

/// Lists.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { filter, paging, bodies } = args;
    let pond = open::existing(context.config.store()).await?;
    let chosen = filter.read(&pond, context).await?;
    let provider = pond.store().capabilities().store;
    let found = pond.store().dead_letters(paging.find(chosen.query, bodies)).await?;
    let page = page_of(&found);
    say_what_is_missing(&found, "dead letters", "queue:, kind: or died:")?;
    let shown: Vec<Shown> = found.items.into_iter().map(|view| Shown::new(view, provider, bodies)).collect();
    context.output.page(&shown, &COLUMNS, "no dead letters", &page)?;
    Ok(ExitCode::SUCCESS)
}

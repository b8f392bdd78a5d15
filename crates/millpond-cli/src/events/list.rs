//! `millpond events list`.

use std::process::ExitCode;
use std::time::Duration;

use millpond::query::{Field, Query, Subject};
use millpond::{Pond, Timestamp};

use super::entry::{COLUMNS, Entry};
use super::tail;
use crate::exit::{Done, Failure};
use crate::filter::Filter;
use crate::paging::{Paging, page_of, say_what_is_missing};
use crate::{Context, open};

/// How far back a list goes if nobody names a time.
pub(super) const WINDOW: Duration = Duration::from_secs(24 * 3600);

/// Which entries.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond events list 'queue:mail event:RETRY,DLQ'
  millpond events list 'at:>-10m run:>5s' -o csv
  millpond events list 'error:\"connection refused\"' --follow

Fields: queue, kind, id, worker, event (ENQUEUE START SUCCESS RETRY DLQ RECOVER), reason, error, attempt, run, at.
A condition that begins with `-` comes after `--`: millpond events list -- '-event:START queue:mail'")]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    paging: Paging,
    /// Then print each new one as it is written
    #[arg(long, conflicts_with = "after")]
    follow: bool,
}

/// Lists.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let query = read(args.filter, &pond, context).await?;
    if args.follow {
        return tail::follow(&pond, query, &tail::Wanted::after(args.paging.limit), context).await;
    }
    let query = of_window(query, pond.store().now().await?);
    let mut found = pond.store().events(args.paging.find(query, false)).await?;
    let page = page_of(&found);
    say_what_is_missing(&found, "entries", "queue:, id: or at:")?;
    let entries: Vec<Entry> = found.items.drain(..).map(Entry::from).collect();
    context.output.page(&entries, &COLUMNS, "nothing happened in the last 24 hours that matches", &page)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a filter of entries.
pub(super) async fn read(filter: Filter, pond: &Pond, context: &Context) -> Result<Query, Failure> {
    Ok(filter.read(Subject::Event, None, pond, context).await?.query)
}

/// The same query, of the last 24 hours unless it names a time or a message.
fn of_window(query: Query, now: Timestamp) -> Query {
    let is_bound = query.asks(|field| matches!(field, Field::At | Field::Id));
    if is_bound { query } else { query.since(Field::At, now - WINDOW) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_back_a_day_unless_it_is_bound() {
        let now = Timestamp::from_secs(200_000);
        let day = of_window(Query::default(), now);
        assert_eq!(day.between(&Field::At), ((now - WINDOW).as_micros(), i64::MAX));
        let of_one = Query::default().and(Field::Id, ["x".to_owned()]);
        assert_eq!(of_window(of_one, now).between(&Field::At), (i64::MIN, i64::MAX));
        let bound = Query::default().since(Field::At, Timestamp::from_secs(1));
        assert_eq!(of_window(bound, now).between(&Field::At), (1_000_000, i64::MAX));
    }
}

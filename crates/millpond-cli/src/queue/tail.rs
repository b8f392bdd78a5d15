//! `millpond queue tail`: new messages as they arrive.
//!
//! It asks for what was sent from a little before the newest message that it has seen, and passes over what it has
//! shown: a message whose transaction was committed later than another's is not missed.

use std::collections::{HashSet, VecDeque};
use std::process::ExitCode;
use std::time::Duration;

use millpond::query::{Field, Query, Subject};
use millpond::view::{Find, MessageRow};
use millpond::{MessageId, Pond, Timestamp};

use super::must_be_declared;
use crate::exit::{Done, Exit, Failure};
use crate::filter::Filter;
use crate::interrupt::Interrupt;
use crate::message::list::{COLUMNS, Row};
use crate::output::note;
use crate::{Context, open};

/// How long a look is put off at most; the store may hint at changes earlier.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How far before the newest message a look begins.
const OVERLAP: Duration = Duration::from_secs(5);

/// Rows of one page of a look.
const PAGE_ROWS: usize = 500;

/// Messages of one look; of more, the newest are shown and the gap is said.
const LOOK_ROWS_MAX: usize = 10_000;

/// Ids that are remembered as shown.
const SHOWN_MAX: usize = 50_000;

/// Which queue.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The name of the queue
    name: String,
    #[command(flatten)]
    filter: Filter,
    /// End after so many
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Bodies and headers too
    #[arg(long)]
    bodies: bool,
}

const EXAMPLES: &str = "\
It ends with Ctrl-C, or after --count. A line for each message, also with -o json.

Examples:
  millpond queue tail mail
  millpond queue tail mail kind:mail.welcome --bodies | jq .body
  millpond queue tail mail --count 1";

/// Follows a queue.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { name, filter, count, bodies } = args;
    let pond = open::existing(context.config.store()).await?;
    must_be_declared(&pond, &name).await?;
    let query = filter.read(Subject::Message, None, &pond, context).await?.query.and(Field::Queue, [name]);
    let mut tail = Tail {
        query,
        bodies,
        from: pond.store().now().await?,
        shown: HashSet::new(),
        order: VecDeque::new(),
    };
    let interrupt = Interrupt::listen()?;
    context.output.names(&COLUMNS)?;
    if context.output.is_table() {
        note("waiting for messages; Ctrl-C ends it")?;
    }
    let mut left = count.unwrap_or(u64::MAX);
    loop {
        // Made before the look, so that no change between the two is missed.
        let changed = pond.store().changed();
        for row in tail.look(&pond).await? {
            let row = Row::new(row, bodies);
            context.output.row(&row, &COLUMNS, |times| row.text(times))?;
            left -= 1;
            if left == 0 {
                return Ok(ExitCode::SUCCESS);
            }
        }
        tokio::select! {
            _ = tokio::time::timeout(LOOK_INTERVAL, changed) => {}
            () = interrupt.asked() => return Ok(Exit::Interrupted.code()),
        }
    }
}

struct Tail {
    query: Query,
    bodies: bool,
    /// What was sent before it is not new.
    from: Timestamp,
    shown: HashSet<MessageId>,
    /// The same, in the order in which they were shown.
    order: VecDeque<MessageId>,
}

impl Tail {
    /// What is new, the oldest first.
    async fn look(&mut self, pond: &Pond) -> Result<Vec<MessageRow>, Failure> {
        let query = self.query.clone().since(Field::Sent, self.from);
        let (mut new, mut after) = (Vec::new(), None);
        loop {
            let rows_max = PAGE_ROWS;
            let find = Find { query: query.clone(), after, rows_max, bodies: self.bodies, ..Find::default() };
            let found = pond.store().messages(find).await?;
            let is_new = |row: &MessageRow| !self.shown.contains(&row.id);
            new.extend(found.items.into_iter().filter(is_new));
            after = found.next;
            if after.is_none() {
                break;
            }
            if LOOK_ROWS_MAX <= new.len() {
                note(&format!(
                    "more arrive than can be shown: only the newest {} of this look are",
                    new.len()
                ))?;
                break;
            }
        }
        new.reverse();
        self.remember(&new);
        Ok(new)
    }

    fn remember(&mut self, new: &[MessageRow]) {
        for row in new {
            self.from = self.from.max(row.sent_at - OVERLAP);
            self.shown.insert(row.id);
            self.order.push_back(row.id);
        }
        while SHOWN_MAX < self.order.len() {
            if let Some(oldest) = self.order.pop_front() {
                self.shown.remove(&oldest);
            }
        }
    }
}

//! `millpond dead-letter`: what no attempt will be made for any more, and how it gets another life.

mod list;
mod redrive;

use millpond::MessageId;
use millpond::query::{Field, Query};
use millpond::text::nearest;
use millpond_core::reason::DropReason;

use crate::exit::Done;
use crate::{Context, message};

/// What can be done with dead letters.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Dead letters, newest first
    #[command(alias = "ls")]
    List(list::Args),
    /// Send dead letters again, each under a new id
    Redrive(redrive::Args),
}

/// Which dead letters.
#[derive(Debug, clap::Args)]
struct Filter {
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,
    /// With this reason, such as exhausted or refused
    #[arg(long, value_parser = reason)]
    reason: Option<String>,
    /// This one; may be repeated
    #[arg(long = "id", value_name = "ID", value_parser = message::id)]
    ids: Vec<MessageId>,
}

/// One of the closed list.
fn reason(text: &str) -> Result<String, String> {
    let known: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.as_str()).collect();
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    let near = nearest(text, &known).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    Err(format!("there is no such reason; {near}known are {}", known.join(", ")))
}

impl Filter {
    /// Whether it names anything.
    fn is_empty(&self) -> bool {
        self.queue.is_none() && self.reason.is_none() && self.ids.is_empty()
    }

    /// As the store takes it.
    fn into_query(self) -> Query {
        let mut query = Query::default();
        if let Some(queue) = self.queue {
            query = query.and(Field::Queue, [queue]);
        }
        if let Some(reason) = self.reason {
            query = query.and(Field::Reason, [reason]);
        }
        if !self.ids.is_empty() {
            query = query.and(Field::Id, self.ids.iter().map(ToString::to_string));
        }
        query
    }
}

/// Runs a verb.
pub(crate) async fn run(verb: Verb, context: &Context) -> Done {
    match verb {
        Verb::List(args) => list::run(args, context).await,
        Verb::Redrive(args) => redrive::run(args, context).await,
    }
}

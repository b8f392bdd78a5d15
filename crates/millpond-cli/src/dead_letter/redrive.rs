//! `millpond dead-letter redrive`.

use std::time::Duration;

use millpond::query::Subject;
use millpond::{Code, Due, Error, IdSource, Redrive};
use millpond_core::store::QueueId;

use super::Letters;
use crate::act::{Because, act};
use crate::args::{count, duration};
use crate::bulk::{Action, One, Part, Sure};
use crate::exit::{Done, Failure};
use crate::{Context, bulk, open};

/// Which, how, and how sure.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Letters,
    /// Due after this long instead of at once
    #[arg(long, value_parser = duration, allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Spread their due times evenly over this long, so that what was repaired is not run over
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    over: Option<Duration>,
    /// Into this queue instead of their own
    #[arg(long, value_name = "QUEUE")]
    to: Option<String>,
    /// Deliveries in all, instead of their own number
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    attempts_max: Option<u32>,
    #[command(flatten)]
    sure: Sure,
    #[command(flatten)]
    because: Because,
}

const EXAMPLES: &str = "\
Each gets a new id and no attempts; the dead letter stays, and names its new life. Ids need no confirmation.

Examples:
  millpond dead-letter redrive queue:mail --reason exhausted --dry-run
  millpond dead-letter redrive queue:mail --reason exhausted --expect 12 --over 10m
  millpond dead-letter redrive 'class:Timeout died:today' --to slow --attempts-max 20 --yes
  millpond dead-letter redrive 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";

const ACTION: Action<'_> = Action {
    verb: "dead-letter redrive",
    subject: Subject::DeadLetter,
    states: &[],
    infinitive: "redrive",
    past: "redrove",
    doing: "redriving",
    one: "dead letter",
    runs: true,
    to: None,
};

/// Redrives.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let Args { filter, delay, over, to, attempts_max, sure, because } = args;
    let pond = open::to_write(context.config.store()).await?;
    let queue = match &to {
        Some(name) => Some(target(&pond, name).await?),
        None => None,
    };
    let chosen = filter.read(&pond, context).await?;
    let moved = to.as_ref().map(|to| format!(" --to {to}")).unwrap_or_default();
    let act = act(ACTION.verb, chosen.object() + &moved, because.because);
    let action = Action { to: to.as_deref(), ..ACTION };
    let (ids, store) = (IdSource::new(), pond.store());
    let change = async |part: Part<'_>| {
        let new = ids.ids(part.ids.len())?;
        let redrive = |(index, (id, new_id))| Redrive {
            id,
            new_id,
            due: due(delay, over, part.before + index, part.total),
            queue,
            attempts_max,
        };
        let pairs = part.ids.iter().copied().zip(new.iter().copied());
        let redrives = pairs.enumerate().map(redrive).collect();
        let changed = store.redrive(redrives, act.clone()).await?;
        let one = |(changed, new_id)| One { changed, new_id: Some(new_id) };
        Ok(changed.into_iter().zip(new).map(one).collect())
    };
    let done = bulk::run(&action, chosen, &sure, &pond, context, change).await;
    pond.close().await;
    done
}

async fn target(pond: &millpond::Pond, name: &str) -> Result<QueueId, Failure> {
    crate::queue::must_be_declared(pond, name).await?;
    let unknown = || Error::new(Code::UnknownQueue, format!("look up queue `{name}`"));
    Ok(pond.store().queue(name.to_owned()).await?.ok_or_else(unknown)?.id)
}

/// The first at the beginning, the last a step before the end.
fn due(delay: Option<Duration>, over: Option<Duration>, index: usize, total: usize) -> Option<Due> {
    let Some(over) = over else { return delay.map(Due::In) };
    let step = over.as_secs_f64() / f64::from(u32::try_from(total.max(1)).unwrap_or(u32::MAX));
    let wait = Duration::from_secs_f64(step * f64::from(u32::try_from(index).unwrap_or(u32::MAX)));
    Some(Due::In(delay.unwrap_or_default() + wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_spread_evenly() {
        let secs = |secs| Some(Due::In(Duration::from_secs(secs)));
        let over = Some(Duration::from_secs(600));
        assert_eq!([due(None, over, 0, 4), due(None, over, 3, 4)], [secs(0), secs(450)]);
        assert_eq!(due(Some(Duration::from_secs(5)), over, 1, 4), secs(155));
        assert_eq!(due(Some(Duration::from_secs(5)), None, 1, 4), secs(5));
        assert_eq!(due(None, None, 1, 4), None);
    }
}

//! Counters by spans of time, and how long runs took.

use std::time::Duration;

use millpond_core::error::{Code, Error};
use millpond_core::time::Timestamp;
use millpond_core::view::{Tallies, Tally};

use crate::bits::Bits;
use crate::param::Param;
use crate::reader::{Reader, Tried};
use crate::row::Row;
use crate::runs::{RUN_BYTES, acknowledged};

const MINUTE_MICROS: i64 = 60_000_000;

/// Every zone of today differs from UTC by whole quarters of an hour: days of any zone are made of these.
const QUARTER_MICROS: i64 = 15 * MINUTE_MICROS;

/// Most spans of one answer: 90 days by the quarter, and some.
const SPANS_MAX: i64 = 10_000;

/// Finished claims that are looked through for run times.
const CLAIMS_MAX: i64 = 20_000;

/// One tally for each span, zeros included.
pub async fn tallies<R: Reader>(connection: &R, which: &Tallies) -> Tried<R, Vec<Tally>> {
    let (name, span) = match which.by_minute {
        true => ("tally_minutes", MINUTE_MICROS),
        false => ("tally_quarters", QUARTER_MICROS),
    };
    let from = which.from.as_micros().div_euclid(span);
    let to = (which.to.as_micros() - 1).div_euclid(span) + 1;
    if SPANS_MAX < to.saturating_sub(from) {
        let why = format!("{} spans are too many, {SPANS_MAX} is the most", to.saturating_sub(from));
        return Err(Error::new(Code::InvalidOption, "read counters").because(why).into());
    }
    let zero = |number: i64| Tally { at: Timestamp::from_micros(number * span), ..Tally::default() };
    let mut tallies: Vec<Tally> = (from..to).map(zero).collect();
    let narrow = |number: i64| i32::try_from(number).unwrap_or(i32::MAX / 15);
    let (first, last) = (narrow(from), narrow(to));
    let params: [Param<'_>; 4] =
        [which.queue.as_deref().into(), which.kind.as_deref().into(), first.into(), last.into()];
    for row in connection.rows(name, &params).await? {
        let place = usize::try_from(i64::from(row.get::<i32>(0)) - from).unwrap_or(usize::MAX);
        if let Some(tally) = tallies.get_mut(place) {
            *tally = summed(tally.at, &row);
        }
    }
    Ok(tallies)
}

fn summed(at: Timestamp, row: &impl Row) -> Tally {
    Tally {
        at,
        sent: row.get(1),
        leased: row.get(2),
        done: row.get(3),
        retried: row.get(4),
        dead: row.get(5),
        recovered: row.get(6),
        run: row.get(7),
    }
}

/// How long the newest runs of a queue took that were acknowledged, as far as the history is looked through.
pub async fn run_times<R: Reader>(connection: &R, queue: &str, runs_max: usize) -> Tried<R, Vec<Duration>> {
    let Some(id) =
        connection.row_if_any("queue_by_name", &[queue.into()]).await?.map(|row| row.get::<i32>(0))
    else {
        return Ok(Vec::new());
    };
    let mut times = Vec::new();
    for row in connection.rows("run_times", &[CLAIMS_MAX.into()]).await? {
        if times.len() == runs_max {
            break;
        }
        if row.get::<i32>(0) != id {
            continue;
        }
        let runs: Bits = row.try_get(1)?;
        // From the highest offset, which is the newest.
        let places = 0..runs.bytes().len() / RUN_BYTES;
        times.extend(places.filter_map(|place| acknowledged(&runs, place)).take(runs_max - times.len()));
    }
    Ok(times)
}

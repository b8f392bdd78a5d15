//! Counters by spans of time, and how long runs took.

use std::time::Duration;

use millpond_core::error::{Code, Error};
use millpond_core::time::Timestamp;
use millpond_core::view::{Tallies, Tally};
use rusqlite::{Connection, named_params};

use crate::error::Tried;
use crate::queues::stored_queue;
use crate::settle::{RUN_BYTES, RUN_DONE, run_at};
use crate::sql::sql;

const MINUTE_MICROS: i64 = 60_000_000;

/// Every zone of today differs from UTC by whole quarters of an hour: days of any zone are made of these.
const QUARTER_MICROS: i64 = 15 * MINUTE_MICROS;

/// Most spans of one answer: 90 days by the quarter, and some.
const SPANS_MAX: i64 = 10_000;

/// Finished claims that are looked through for run times.
const CLAIMS_MAX: usize = 20_000;

/// One tally for each span, zeros included.
pub(crate) fn tallies(conn: &Connection, which: &Tallies) -> Tried<Vec<Tally>> {
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
    let named = named_params! { ":queue": which.queue, ":kind": which.kind, ":from": from, ":to": to };
    let mut list = conn.prepare_cached(sql(name))?;
    let mut rows = list.query(named)?;
    while let Some(row) = rows.next()? {
        let place = usize::try_from(row.get::<_, i64>(0)? - from).unwrap_or(usize::MAX);
        let Some(tally) = tallies.get_mut(place) else { continue };
        *tally = Tally {
            at: tally.at,
            sent: row.get(1)?,
            leased: row.get(2)?,
            done: row.get(3)?,
            retried: row.get(4)?,
            dead: row.get(5)?,
            recovered: row.get(6)?,
            run: Duration::from_micros(row.get(7)?),
        };
    }
    Ok(tallies)
}

/// How long the newest runs of a queue took that were acknowledged, as far as the history is looked through.
pub(crate) fn run_times(conn: &Connection, queue: &str, runs_max: usize) -> Tried<Vec<Duration>> {
    let Some(stored) = stored_queue(conn, queue)? else { return Ok(Vec::new()) };
    let mut times = Vec::new();
    let mut list = conn.prepare_cached(sql("run_times"))?;
    let mut rows = list.query(named_params! { ":claims_max": CLAIMS_MAX as i64 })?;
    while let Some(row) = rows.next()? {
        if times.len() == runs_max {
            break;
        }
        if row.get::<_, i64>(0)? != stored.queue.id.0 {
            continue;
        }
        let runs: Vec<u8> = row.get(1)?;
        let done = |place| run_at(&runs, place).filter(|(outcome, _)| *outcome == RUN_DONE);
        let places = (0..runs.len() / RUN_BYTES).rev();
        times.extend(places.filter_map(done).map(|(_, run)| run).take(runs_max - times.len()));
    }
    Ok(times)
}

//! The rows of the log that one message has, with what became of each.
//!
//! Rows of the log stay after their message went back, so a message may have several. Those that came through the
//! outbox have an index; the first one of a direct send is found through the time in its id, by a search in
//! offsets, whose times of publishing never go back.

use std::ops::Range;
use std::time::Duration;

use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::reason::DropReason;
use millpond_core::state::Place;
use millpond_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use crate::error::Tried;
use crate::message::instant;
use crate::settle::{RUN_CANCELLED, RUN_DONE, RUN_PURGED, is_set, run_at};
use crate::sql::sql;

/// How far a sender's clock may be ahead of the store's for its message still to be found.
const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(2);

/// An id names its millisecond.
const ID_PRECISION: Duration = Duration::from_millis(1);

/// How long after its id was made a message may have been stored for it still to be found.
const STORED_AFTER_MAX: Duration = Duration::from_secs(60);

/// Rows of one partition that are looked through for one id.
const SCAN_ROWS_MAX: i64 = 200_000;

/// A row of the log.
pub(crate) struct LogRow {
    pub(crate) partition: i64,
    pub(crate) offset: i64,
    pub(crate) attempt: u32,
    pub(crate) releases: u32,
    pub(crate) published_at: Timestamp,
    pub(crate) lane: u8,
    pub(crate) subscription: i64,
    /// Why it came through the outbox.
    pub(crate) reason: Option<String>,
}

/// A row of the log with what became of it.
pub(crate) struct Delivery {
    pub(crate) row: LogRow,
    pub(crate) place: Place,
    pub(crate) cursor: i64,
    pub(crate) run: Option<Run>,
}

/// The claim that holds or held a message.
pub(crate) struct Run {
    pub(crate) worker: Option<String>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) leased_at: Timestamp,
    /// When it was acknowledged: as early as its run time allows.
    pub(crate) done_at: Option<Timestamp>,
}

/// What is known of a message that has a row elsewhere.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// The queue, so that no other is searched.
    pub(crate) queue: Option<i64>,
    /// It waits for the first time, so the log has nothing of it.
    pub(crate) never_logged: bool,
}

/// A row of the log, and what became of it.
pub(crate) struct LogPlace {
    pub(crate) subscription: i64,
    pub(crate) partition: i64,
    pub(crate) offset: i64,
    pub(crate) place: Place,
}

/// The latest row of the log that a message has which neither waits in the outbox nor is a dead letter.
pub(crate) fn in_log(conn: &Connection, now: Timestamp, id: MessageId) -> Tried<Option<LogPlace>> {
    let latest = deliveries(conn, now, id, Elsewhere::default())?.into_iter().max_by_key(Delivery::order);
    Ok(latest.map(|Delivery { row, place, .. }| {
        let LogRow { subscription, partition, offset, .. } = row;
        LogPlace { subscription, partition, offset, place }
    }))
}

/// The first offset of `range` that was published after `instant`; its end if none was.
pub(crate) fn published_after(
    conn: &Connection,
    partition: i64,
    range: Range<i64>,
    instant: Timestamp,
) -> Tried<i64> {
    let mut published_at = conn.prepare_cached(sql("log_published_at"))?;
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        let at: Option<i64> =
            published_at.query_row(params![partition, middle], |row| row.get(0)).optional()?;
        // A row that is missing was deleted, so it is older than any that is kept.
        if at.is_none_or(|at| at <= instant.as_micros()) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// The offset after the highest one of a partition.
pub(crate) fn end_of(conn: &Connection, partition: i64) -> Tried<i64> {
    let named = named_params! { ":partition": partition };
    let top = conn.prepare_cached(sql("log_top"))?.query_row(named, |row| row.get::<_, i64>(0)).optional()?;
    Ok(top.map_or(0, |top| top + 1))
}

/// Every row of the log that the message has, with what became of it.
pub(crate) fn deliveries(
    conn: &Connection,
    now: Timestamp,
    id: MessageId,
    elsewhere: Elsewhere,
) -> Tried<Vec<Delivery>> {
    let mut returns = conn.prepare_cached(sql("message_returns"))?;
    let mut rows: Vec<LogRow> = returns.query_map([id.0], log_row)?.collect::<rusqlite::Result<_>>()?;
    let sent_through_outbox = rows.iter().any(|row| row.lane == Lane::Main.number());
    if !elsewhere.never_logged && !sent_through_outbox {
        rows.extend(direct_row(conn, id, elsewhere.queue)?);
    }
    rows.into_iter().map(|row| delivery(conn, now, row)).collect()
}

/// The row of a direct send, looked for around the time in its id.
fn direct_row(conn: &Connection, id: MessageId, queue: Option<i64>) -> Tried<Option<LogRow>> {
    let Some(made_at) = id.made_at() else { return Ok(None) };
    let mut list = conn.prepare_cached(sql("main_partitions"))?;
    let partitions: Vec<(i64, i64)> = list
        .query_map(named_params! { ":queue": queue }, |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (partition, first_offset) in partitions {
        let end = end_of(conn, partition)?;
        let from = published_after(conn, partition, first_offset..end, made_at - CLOCK_AHEAD_MAX)?;
        let to = published_after(conn, partition, from..end, made_at + STORED_AFTER_MAX)?;
        // Where clocks agree it was stored after it was made: a burst before that must not use up the rows.
        let near = published_after(conn, partition, from..to, made_at - ID_PRECISION)?;
        let after = near..to.min(near.saturating_add(SCAN_ROWS_MAX));
        let before = from.max(near.saturating_sub(SCAN_ROWS_MAX))..near;
        let mut scan = conn.prepare_cached(sql("message_scan"))?;
        let mut find = |rows: Range<i64>| {
            scan.query_row(params![partition, rows.start, rows.end, id.0], |row| row.get::<_, i64>(0))
                .optional()
        };
        if let Some(offset) = find(after)?.map_or_else(|| find(before), |offset| Ok(Some(offset)))? {
            let mut at = conn.prepare_cached(sql("message_at"))?;
            return Ok(Some(at.query_row(params![partition, offset], log_row)?));
        }
    }
    Ok(None)
}

/// What became of a row of the log: the claim that holds it tells, or the history of the one that did.
fn delivery(conn: &Connection, now: Timestamp, row: LogRow) -> Tried<Delivery> {
    let top = params![row.subscription, row.partition];
    let mut claim_top = conn.prepare_cached(sql("claim_top"))?;
    let cursor = claim_top.query_row(top, |found| found.get::<_, i64>(0)).optional()?.unwrap_or(-1);
    if cursor < row.offset {
        // The lease that reaches the mark passes it by, whatever became of its dead letter.
        let key = params![row.subscription, row.partition, row.offset];
        let marked = conn.prepare_cached(sql("cancel_of_message"))?.exists(key)?;
        let place = if marked { Place::Dead { reason: DropReason::Cancelled } } else { Place::Ahead };
        return Ok(Delivery { row, place, cursor, run: None });
    }
    if let Some((run, settled)) = live_run(conn, now, &row)? {
        let place = if settled { Place::Passed } else { Place::Claimed };
        return Ok(Delivery { row, place, cursor, run: Some(run) });
    }
    let run = match finished_run(conn, &row)? {
        Finished::Purged => {
            let place = Place::Dead { reason: DropReason::Purged };
            return Ok(Delivery { row, place, cursor, run: None });
        }
        Finished::Run(run) => Some(run),
        Finished::Unknown => None,
    };
    Ok(Delivery { row, place: Place::Passed, cursor, run })
}

/// The live claim that holds a row, and whether the message is settled in it.
fn live_run(conn: &Connection, now: Timestamp, row: &LogRow) -> Tried<Option<(Run, bool)>> {
    let key = params![row.subscription, row.partition, row.offset];
    let claim = |found: &Row<'_>| {
        let (from, live): (i64, bool) = (found.get(0)?, found.get(1)?);
        if !live || row.offset < from {
            return Ok(None);
        }
        let place = (row.offset - from).unsigned_abs() as usize;
        let (done, runs): (Vec<u8>, Vec<u8>) = (found.get(5)?, found.get(6)?);
        let leased_at = instant(found.get(4)?);
        let expires_at = found.get::<_, Option<i64>>(3)?.map(instant);
        let done_at = done_at(leased_at, &runs, place).map(|at| at.min(now));
        if is_cancelled(&runs, place) {
            return Ok(None);
        }
        Ok(Some((Run { worker: found.get(2)?, expires_at, leased_at, done_at }, is_set(&done, place))))
    };
    Ok(conn.prepare_cached(sql("message_claim"))?.query_row(key, claim).optional()?.flatten())
}

/// What the history tells of a row of the log.
enum Finished {
    Run(Run),
    /// Dropped with all that waited around it.
    Purged,
    /// It keeps nothing of it, or nobody had it.
    Unknown,
}

fn finished_run(conn: &Connection, row: &LogRow) -> Tried<Finished> {
    let history = |found: &Row<'_>| {
        let from: i64 = found.get(0)?;
        if row.offset < from {
            return Ok(Finished::Unknown);
        }
        let (leased_at, runs): (Timestamp, Vec<u8>) = (instant(found.get(2)?), found.get(3)?);
        let place = (row.offset - from).unsigned_abs() as usize;
        if runs == [RUN_PURGED] {
            return Ok(Finished::Purged);
        }
        if is_cancelled(&runs, place) {
            return Ok(Finished::Unknown);
        }
        let done_at = done_at(leased_at, &runs, place);
        Ok(Finished::Run(Run { worker: found.get(1)?, expires_at: None, leased_at, done_at }))
    };
    let key = params![row.partition, row.offset];
    let found = conn.prepare_cached(sql("message_history"))?.query_row(key, history).optional()?;
    Ok(found.unwrap_or(Finished::Unknown))
}

/// Whether the lease that reached it passed it by.
fn is_cancelled(runs: &[u8], place: usize) -> bool {
    run_at(runs, place).is_some_and(|(outcome, _)| outcome == RUN_CANCELLED)
}

fn done_at(leased_at: Timestamp, runs: &[u8], place: usize) -> Option<Timestamp> {
    run_at(runs, place).filter(|(outcome, _)| *outcome == RUN_DONE).map(|(_, run)| leased_at + run)
}

impl Delivery {
    /// What is live comes last, then the latest.
    pub(crate) fn order(&self) -> (bool, Timestamp, u32, u8, i64) {
        let LogRow { published_at, attempt, releases, lane, offset, .. } = self.row;
        (self.place != Place::Passed, published_at, attempt + releases, lane, offset)
    }
}

/// Whether a message that was sent straight to the log of a queue is kept there.
pub(crate) fn direct_row_exists(conn: &Connection, id: MessageId, queue: i64) -> Tried<bool> {
    Ok(direct_row(conn, id, Some(queue))?.is_some())
}

fn log_row(row: &Row<'_>) -> rusqlite::Result<LogRow> {
    Ok(LogRow {
        partition: row.get(0)?,
        offset: row.get(1)?,
        attempt: row.get(2)?,
        releases: row.get(3)?,
        published_at: instant(row.get(4)?),
        lane: row.get(5)?,
        subscription: row.get(6)?,
        reason: row.get(7)?,
    })
}

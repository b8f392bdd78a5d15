//! The parts of the log, and what became of a row in one: nobody has leased it, somebody has it, it was acknowledged, or
//! its message has left from there.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::deliveries::end_of;
use crate::error::Tried;
use crate::message::instant;
use crate::settle::{RUN_DONE, RUN_PURGED, is_set, run_at};
use crate::sql::sql;

/// A claim that is live.
pub(crate) struct Live {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) worker: Option<String>,
    pub(crate) leased_at: Timestamp,
    pub(crate) done: Vec<u8>,
    pub(crate) runs: Vec<u8>,
}

/// A part of the log, as it is at the moment of the question.
pub(crate) struct Part {
    pub(crate) id: i64,
    pub(crate) queue: i64,
    pub(crate) class: u8,
    pub(crate) lane: Lane,
    pub(crate) first_offset: i64,
    pub(crate) end: i64,
    pub(crate) cursor: i64,
    pub(crate) live: Vec<Live>,
    cancelled: HashSet<i64>,
}

/// A claim that has ended.
#[derive(Clone)]
struct Ended {
    from: i64,
    to: i64,
    worker: Option<String>,
    leased_at: Timestamp,
    runs: Vec<u8>,
}

/// The parts of the log that a question is about.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) list: Vec<Part>,
    /// The last one that was looked up of each part: the next row is mostly in it too.
    ended: RefCell<HashMap<usize, Ended>>,
}

/// What became of a row of the log.
pub(crate) enum Fate {
    /// Nobody has leased it.
    Ahead,
    /// A worker has it.
    Held { worker: Option<String>, leased_at: Timestamp },
    /// It was acknowledged; `None`: nothing is known of its run.
    Done(Option<Run>),
    /// The message has left from here: another row stands for it, or none.
    Left,
}

/// A run that ended with an acknowledgement.
pub(crate) struct Run {
    pub(crate) worker: Option<String>,
    pub(crate) leased_at: Timestamp,
    pub(crate) took: Duration,
}

impl Parts {
    /// The parts of these queues.
    pub(crate) fn read(conn: &Connection, queues: &[i64]) -> Tried<Self> {
        let mut list = conn.prepare_cached(sql("spot_parts"))?;
        let rows = list.query_map([], |row| {
            let lane = Lane::from_number(row.get(3)?).unwrap_or(Lane::Main);
            let found = (row.get(0)?, row.get(1)?, row.get(2)?, lane, row.get(4)?, row.get(5)?);
            Ok(found)
        })?;
        let mut parts = Self::default();
        for row in rows {
            let (id, queue, class, lane, first_offset, subscription): (i64, i64, u8, Lane, i64, i64) = row?;
            if queues.contains(&queue) {
                let key = params![subscription, id];
                let mut top = conn.prepare_cached(sql("claim_top"))?;
                let cursor = top.query_row(key, |row| row.get(0)).optional()?.unwrap_or(-1);
                let mut marks = conn.prepare_cached(sql("spot_cancelled"))?;
                let cancelled = marks.query_map(params![subscription, id, cursor], |row| row.get(0))?;
                let cancelled = cancelled.collect::<rusqlite::Result<_>>()?;
                let mut live = conn.prepare_cached(sql("spot_live"))?;
                let live = live.query_map(key, live_claim)?.collect::<rusqlite::Result<_>>()?;
                let end = end_of(conn, id)?;
                parts.list.push(Part { id, queue, class, lane, first_offset, end, cursor, live, cancelled });
            }
        }
        Ok(parts)
    }

    /// What became of a row.
    pub(crate) fn fate(&self, conn: &Connection, part: usize, offset: i64, id: MessageId) -> Tried<Fate> {
        let Part { id: partition, cursor, live, cancelled, .. } = &self.list[part];
        if *cursor < offset {
            return Ok(if cancelled.contains(&offset) { Fate::Left } else { Fate::Ahead });
        }
        if let Some(claim) = live.iter().find(|claim| claim.from <= offset && offset <= claim.to) {
            let place = (offset - claim.from).unsigned_abs() as usize;
            let (worker, leased_at) = (claim.worker.clone(), claim.leased_at);
            return Ok(match run_at(&claim.runs, place) {
                _ if !is_set(&claim.done, place) => Fate::Held { worker, leased_at },
                Some((RUN_DONE, took)) => Fate::Done(Some(Run { worker, leased_at, took })),
                _ => Fate::Left,
            });
        }
        let Some(ended) = self.ended(conn, part, *partition, offset)? else {
            return Ok(if left_by_id(conn, id, *partition, offset)? { Fate::Left } else { Fate::Done(None) });
        };
        let place = (offset - ended.from).unsigned_abs() as usize;
        Ok(match run_at(&ended.runs, place) {
            Some((RUN_DONE, took)) => {
                Fate::Done(Some(Run { worker: ended.worker, leased_at: ended.leased_at, took }))
            }
            _ => Fate::Left,
        })
    }

    /// The finished claim that held an offset.
    fn ended(&self, conn: &Connection, part: usize, partition: i64, offset: i64) -> Tried<Option<Ended>> {
        let holds = |ended: &Ended| ended.from <= offset && offset <= ended.to;
        if let Some(ended) = self.ended.borrow().get(&part).filter(|ended| holds(ended)) {
            return Ok(Some(ended.clone()));
        }
        let row = |row: &Row<'_>| {
            let (leased_at, runs) = (instant(row.get(3)?), row.get(4)?);
            Ok(Ended { from: row.get(0)?, to: row.get(1)?, worker: row.get(2)?, leased_at, runs })
        };
        let mut find = conn.prepare_cached(sql("spot_ended"))?;
        let found = find.query_row(params![partition, offset], row).optional()?.filter(holds);
        if let Some(ended) = &found {
            self.ended.borrow_mut().insert(part, ended.clone());
        }
        Ok(found)
    }
}

/// Whether a message that nothing is known of is somewhere else now.
fn left_by_id(conn: &Connection, id: MessageId, partition: i64, offset: i64) -> Tried<bool> {
    let mut left = conn.prepare_cached(sql("spot_left"))?;
    Ok(left.query_row(params![id.0, partition, offset], |row| row.get(0))?)
}

fn live_claim(row: &Row<'_>) -> rusqlite::Result<Live> {
    Ok(Live {
        from: row.get(0)?,
        to: row.get(1)?,
        worker: row.get(2)?,
        leased_at: instant(row.get(3)?),
        done: row.get(4)?,
        runs: row.get(5)?,
    })
}

/// Whether a history row says that everything in it was dropped.
pub(crate) fn is_purged(runs: &[u8]) -> bool {
    runs == [RUN_PURGED]
}

//! Where messages are, in the order in which they were sent, the newest first: the one walk behind the list of
//! messages and the run log.
//!
//! A message may have rows in several places, because those of the log stay; who walks decides which of them stands
//! for it. What came through the outbox has an index by the time it was sent. The rest of the log is in the order of
//! publishing, which is never earlier than sending: a row is handed over once all that is unread was published
//! before it was sent.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::reason::DropReason;
use millpond_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use uuid::Uuid;

use crate::error::Tried;
use crate::find::{end_of, instant, published_after};
use crate::list::Mark;
use crate::record::Content;
use crate::settle::{RUN_DONE, RUN_PURGED, is_set, run_at};
use crate::sql::sql;

/// Rows of the first chunk of a source; each further one has twice as many, up to [`CHUNK_MAX`].
const CHUNK_MIN: i64 = 32;

/// Rows of one chunk.
const CHUNK_MAX: i64 = 512;

/// How much earlier than it was sent a message may seem to be published, by clocks of other processes.
const SLACK: Duration = Duration::from_secs(60);

/// A row of a message, without its body.
pub(crate) struct Spot {
    pub(crate) id: MessageId,
    pub(crate) queue: i64,
    pub(crate) class: u8,
    pub(crate) sent_at: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) releases: u32,
    pub(crate) attempts_max: Option<u32>,
    pub(crate) retry_until: Option<Timestamp>,
    pub(crate) kind: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) at: At,
}

/// Where it is.
pub(crate) enum At {
    Outbox {
        seq: i64,
        reason: String,
        ready_at: Timestamp,
        error: Option<String>,
        retry_of: Option<MessageId>,
    },
    DeadLetter {
        number: i64,
        reason: String,
        detail: Option<String>,
        worker: Option<String>,
        retry_of: Option<MessageId>,
    },
    Log {
        /// Its place in [`Parts`].
        part: usize,
        offset: i64,
        published_at: Timestamp,
        /// Why it came through the outbox; `None`: it did not, or was moved by an earlier release.
        reason: Option<String>,
        via_outbox: bool,
    },
}

impl Spot {
    pub(crate) fn mark(&self) -> Mark {
        Mark::new(self.sent_at.as_micros(), self.id.0.as_u128())
    }

    /// Whether a deadline may end it; of a dead letter that is known only where it did.
    pub(crate) fn has_deadline(&self) -> bool {
        let ended = |reason: &str| reason == DropReason::RetryUntil.as_str();
        self.retry_until.is_some() || matches!(&self.at, At::DeadLetter { reason, .. } if ended(reason))
    }

    /// Headers, and the body if it is asked for.
    pub(crate) fn content(&self, conn: &Connection, parts: &Parts, bodies: bool) -> Tried<Content> {
        let row = |row: &Row<'_>| {
            let body: Option<Vec<u8>> = row.get(2)?;
            Ok(Content::new(row.get(0)?, row.get(1)?, body.unwrap_or_default()))
        };
        let found = match self.at {
            At::Outbox { seq, .. } => {
                conn.prepare_cached(sql("outbox_content"))?.query_row(params![seq, bodies], row)
            }
            At::DeadLetter { number, .. } => {
                conn.prepare_cached(sql("dead_letter_content"))?.query_row(params![number, bodies], row)
            }
            At::Log { part, offset, .. } => {
                let key = params![parts.list[part].id, offset, bodies];
                conn.prepare_cached(sql("log_content"))?.query_row(key, row)
            }
        };
        Ok(found.optional()?.unwrap_or_default())
    }
}

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

/// Which places are walked.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) outbox: bool,
    pub(crate) dead: bool,
    /// Of the log: beyond the cursor, in live claims, and the rest.
    pub(crate) ahead: bool,
    pub(crate) held: bool,
    pub(crate) passed: bool,
}

/// A walk over several sources, each in order.
pub(crate) struct Walk<'c> {
    conn: &'c Connection,
    sources: Vec<Source>,
    heads: BinaryHeap<(Mark, usize)>,
    /// Nothing that was sent before this is of interest.
    earliest: i64,
}

impl<'c> Walk<'c> {
    /// Walks everything below `from` that was sent at `earliest` or later.
    pub(crate) fn new(
        conn: &'c Connection,
        queues: &[i64],
        parts: &Parts,
        places: Places,
        from: Mark,
        earliest: i64,
    ) -> Tried<Self> {
        let mut sources = Vec::new();
        for queue in queues {
            if places.outbox {
                sources.push(Source::indexed(Indexed::Outbox(*queue), from));
            }
            if places.dead {
                sources.push(Source::indexed(Indexed::DeadLetters(*queue), from));
            }
        }
        for (index, part) in parts.list.iter().enumerate() {
            let direct_only = places.passed;
            if places.passed {
                sources.push(Source::indexed(Indexed::Log(index, part.id), from));
            }
            if !places.passed || part.lane == Lane::Main {
                let segments = segments(conn, part, places, from, earliest)?;
                sources.push(Source::offsets(index, part, segments, direct_only, from));
            }
        }
        let mut walk = Self { conn, sources, heads: BinaryHeap::new(), earliest };
        for source in 0..walk.sources.len() {
            walk.offer(source)?;
        }
        Ok(walk)
    }

    /// The next one, if there is one: its mark.
    pub(crate) fn peek(&self) -> Option<Mark> {
        self.heads.peek().map(|(mark, _)| *mark)
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Tried<Option<Spot>> {
        let Some((_, source)) = self.heads.pop() else { return Ok(None) };
        let spot = self.sources[source].pop();
        self.offer(source)?;
        Ok(spot)
    }

    fn offer(&mut self, source: usize) -> Tried<()> {
        let mark = self.sources[source].peek(self.conn, self.earliest)?;
        self.heads.extend(mark.filter(|mark| self.earliest <= mark.at).map(|mark| (mark, source)));
        Ok(())
    }
}

/// The ranges of offsets of a part that are walked, both ends included, the highest last.
fn segments(
    conn: &Connection,
    part: &Part,
    places: Places,
    from: Mark,
    earliest: i64,
) -> Tried<Vec<(i64, i64)>> {
    let mut high = part.end - 1;
    if from.at != i64::MAX {
        let latest = instant(from.at) + SLACK;
        high = high.min(published_after(conn, part.id, part.first_offset..part.end, latest)? - 1);
    }
    let low = if earliest == i64::MIN {
        part.first_offset
    } else {
        let before = Timestamp::from_micros(earliest - 1);
        published_after(conn, part.id, part.first_offset..part.end, before)?
    };
    let mut ranges = Vec::new();
    if places.passed {
        ranges.push((low, high));
    } else {
        if places.held {
            let mut live: Vec<_> = part.live.iter().map(|claim| (claim.from, claim.to)).collect();
            live.sort_unstable();
            ranges.extend(live);
        }
        if places.ahead {
            ranges.push((part.cursor + 1, part.end - 1));
        }
    }
    let cut = ranges.into_iter().map(|(from, to)| (from.max(low), to.min(high)));
    Ok(cut.filter(|(from, to)| from <= to).collect())
}

/// Rows in order.
struct Source {
    of: Of,
    ready: VecDeque<Spot>,
    chunk: i64,
    ended: bool,
    from: Mark,
}

enum Of {
    Indexed {
        which: Indexed,
        next: Mark,
    },
    Offsets {
        part: usize,
        partition: i64,
        queue: i64,
        class: u8,
        segments: Vec<(i64, i64)>,
        direct_only: bool,
        heap: BinaryHeap<ByMark>,
        unread: i64,
    },
}

/// Places with an index by the time of sending: of a queue, or of a part of the log.
#[derive(Clone, Copy)]
enum Indexed {
    Outbox(i64),
    DeadLetters(i64),
    Log(usize, i64),
}

struct ByMark(Spot);

impl PartialEq for ByMark {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByMark {}

impl PartialOrd for ByMark {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByMark {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.mark().cmp(&other.0.mark())
    }
}

impl Source {
    fn indexed(which: Indexed, from: Mark) -> Self {
        Self::new(Of::Indexed { which, next: from }, from)
    }

    fn offsets(index: usize, part: &Part, segments: Vec<(i64, i64)>, direct_only: bool, from: Mark) -> Self {
        let (partition, queue, class) = (part.id, part.queue, part.class);
        let (heap, unread) = (BinaryHeap::new(), i64::MAX);
        let of = Of::Offsets { part: index, partition, queue, class, segments, direct_only, heap, unread };
        Self::new(of, from)
    }

    fn new(of: Of, from: Mark) -> Self {
        Self { of, ready: VecDeque::new(), chunk: CHUNK_MIN, ended: false, from }
    }

    fn peek(&mut self, conn: &Connection, earliest: i64) -> Tried<Option<Mark>> {
        while self.ready.is_empty() && !self.ended {
            self.fill(conn, earliest)?;
            self.chunk = (self.chunk * 2).min(CHUNK_MAX);
        }
        Ok(self.ready.front().map(Spot::mark))
    }

    fn pop(&mut self) -> Option<Spot> {
        self.ready.pop_front()
    }

    fn fill(&mut self, conn: &Connection, earliest: i64) -> Tried<()> {
        match &mut self.of {
            Of::Indexed { which, next } => {
                let rows = indexed(conn, *which, *next, earliest, self.chunk)?;
                self.ended = (rows.len() as i64) < self.chunk;
                if let Some(last) = rows.last() {
                    *next = last.mark();
                }
                self.ready.extend(rows);
            }
            Of::Offsets { part, partition, queue, class, segments, direct_only, heap, unread } => {
                match segments.last_mut() {
                    None => *unread = i64::MIN,
                    Some((low, high)) => {
                        let key = params![*partition, *low, *high, self.chunk];
                        let mut list = conn.prepare_cached(sql("log_spots"))?;
                        let mut rows = list.query(key)?;
                        let mut lowest = *low;
                        while let Some(row) = rows.next()? {
                            let spot = log_spot(row, *part, *queue, *class)?;
                            let At::Log { offset, published_at, via_outbox, .. } = spot.at else { continue };
                            (lowest, *unread) = (offset, published_at.as_micros());
                            if !(*direct_only && via_outbox) && spot.mark() < self.from {
                                heap.push(ByMark(spot));
                            }
                        }
                        *high = lowest - 1;
                        if *high < *low {
                            segments.pop();
                        }
                    }
                }
                if segments.is_empty() {
                    *unread = i64::MIN;
                }
                while heap.peek().is_some_and(|top| *unread < top.0.sent_at.as_micros()) {
                    self.ready.extend(heap.pop().map(|top| top.0));
                }
                self.ended = segments.is_empty() && heap.is_empty();
            }
        }
        Ok(())
    }
}

/// The next rows of an index by the time of sending.
fn indexed(conn: &Connection, which: Indexed, below: Mark, earliest: i64, rows_max: i64) -> Tried<Vec<Spot>> {
    let id = Uuid::from_u128(below.id);
    let (name, of) = match which {
        Indexed::Outbox(queue) => ("outbox_spots", queue),
        Indexed::DeadLetters(queue) => ("dead_letter_spots", queue),
        Indexed::Log(_, partition) => ("log_sent_spots", partition),
    };
    let named = named_params! {
        ":of": of, ":at": below.at, ":id": id, ":earliest": earliest, ":rows_max": rows_max,
    };
    let mut list = conn.prepare_cached(sql(name))?;
    let rows = list.query_map(named, |row| match which {
        Indexed::Outbox(_) => outbox_spot(row),
        Indexed::DeadLetters(_) => dead_letter_spot(row),
        Indexed::Log(part, _) => log_spot(row, part, row.get(14)?, row.get(15)?),
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The first ten columns of every statement here.
fn spot(row: &Row<'_>, queue: i64, class: u8, at: At) -> rusqlite::Result<Spot> {
    Ok(Spot {
        id: MessageId(row.get(0)?),
        queue,
        class,
        sent_at: instant(row.get(3)?),
        attempt: row.get(4)?,
        releases: row.get(5)?,
        attempts_max: row.get(6)?,
        retry_until: row.get::<_, Option<i64>>(7)?.map(instant),
        kind: row.get(8)?,
        key: row.get(9)?,
        at,
    })
}

fn other(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<MessageId>> {
    Ok(row.get::<_, Option<Uuid>>(column)?.map(MessageId))
}

fn outbox_spot(row: &Row<'_>) -> rusqlite::Result<Spot> {
    let at = At::Outbox {
        seq: row.get(10)?,
        reason: row.get(11)?,
        ready_at: instant(row.get(12)?),
        error: row.get(13)?,
        retry_of: other(row, 14)?,
    };
    spot(row, row.get(1)?, row.get(2)?, at)
}

fn dead_letter_spot(row: &Row<'_>) -> rusqlite::Result<Spot> {
    let at = At::DeadLetter {
        number: row.get(10)?,
        reason: row.get(11)?,
        detail: row.get(12)?,
        worker: row.get(13)?,
        retry_of: other(row, 14)?,
    };
    spot(row, row.get(1)?, row.get(2)?, at)
}

fn log_spot(row: &Row<'_>, part: usize, queue: i64, class: u8) -> rusqlite::Result<Spot> {
    let at = At::Log {
        part,
        offset: row.get(10)?,
        published_at: instant(row.get(11)?),
        via_outbox: row.get(12)?,
        reason: row.get(13)?,
    };
    spot(row, queue, class, at)
}

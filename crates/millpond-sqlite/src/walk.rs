//! Where messages are, in the order in which they were sent, the newest first: the one walk behind the list of
//! messages and the run log.
//!
//! What came through the outbox has an index by the time it was sent. The rest of the log is in the order of publishing,
//! which is never earlier than sending: a row is handed over once all that is unread was published before it was sent.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use millpond_core::pick::Lane;
use millpond_core::time::Timestamp;
use millpond_sql::list::Mark;
use rusqlite::{Connection, named_params, params};
use uuid::Uuid;

use crate::deliveries::published_after;
use crate::error::Tried;
use crate::message::instant;
use crate::parts::{Part, Parts};
use crate::spots::{At, Spot, dead_letter_spot, log_spot, outbox_spot};
use crate::sql::sql;

/// Rows of the first chunk of a source; each further one has twice as many, up to [`CHUNK_MAX`].
const CHUNK_MIN: i64 = 32;

/// Rows of one chunk.
const CHUNK_MAX: i64 = 512;

/// How much earlier than it was sent a message may seem to be published, by clocks of other processes.
const SLACK: Duration = Duration::from_secs(60);

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
    /// Walks everything below `from` that was sent at `earliest` or later. `published_max`: what an earlier walk said
    /// of the rest ([`Walk::rest_published`]), else the largest.
    pub(crate) fn new(
        conn: &'c Connection,
        queues: &[i64],
        parts: &Parts,
        places: Places,
        (from, published_max): (Mark, i64),
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
            let Some(lowest) = lowest(part, places) else { continue };
            // It may have waited in the outbox for any time, so that offsets say nothing of when it was sent.
            sources.push(Source::indexed(Indexed::Log(index, part.id, lowest), from));
            if part.lane == Lane::Main {
                let segments = segments(conn, part, places, (from, published_max), earliest)?;
                sources.push(Source::offsets(index, part, segments, from));
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

    /// No later than this was published what is still to be handed over, as far as it was sent straight to the log.
    /// A walk that goes on from here need not read again what came after: of a burst, that would be all of it.
    pub(crate) fn rest_published(&self) -> i64 {
        self.sources.iter().map(Source::rest_published).max().unwrap_or(i64::MAX)
    }

    fn offer(&mut self, source: usize) -> Tried<()> {
        let mark = self.sources[source].peek(self.conn, self.earliest)?;
        self.heads.extend(mark.filter(|mark| self.earliest <= mark.at).map(|mark| (mark, source)));
        Ok(())
    }
}

/// The lowest offset of a part that is walked.
fn lowest(part: &Part, places: Places) -> Option<i64> {
    if places.passed {
        return Some(part.first_offset);
    }
    let held = part.live.iter().map(|claim| claim.from).filter(|_| places.held);
    held.chain(places.ahead.then_some(part.cursor + 1)).min()
}

/// The ranges of offsets of a part that are walked, both ends included, the highest last.
fn segments(
    conn: &Connection,
    part: &Part,
    places: Places,
    (from, published_max): (Mark, i64),
    earliest: i64,
) -> Tried<Vec<(i64, i64)>> {
    let mut high = part.end - 1;
    if from.at != i64::MAX {
        let latest = (instant(from.at) + SLACK).min(instant(published_max));
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
        heap: BinaryHeap<ByMark>,
        unread: i64,
    },
}

/// Places with an index by the time of sending: of a queue, or of a part of the log.
#[derive(Clone, Copy)]
enum Indexed {
    Outbox(i64),
    DeadLetters(i64),
    /// From this offset on.
    Log(usize, i64, i64),
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

    fn offsets(index: usize, part: &Part, segments: Vec<(i64, i64)>, from: Mark) -> Self {
        let (partition, queue, class) = (part.id, part.queue, part.class);
        let (heap, unread) = (BinaryHeap::new(), i64::MAX);
        let of = Of::Offsets { part: index, partition, queue, class, segments, heap, unread };
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

    fn rest_published(&self) -> i64 {
        let Of::Offsets { heap, unread, .. } = &self.of else { return i64::MIN };
        let held = self.ready.iter().chain(heap.iter().map(|ByMark(spot)| spot));
        held.map(Spot::published).fold(*unread, i64::max)
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
            Of::Offsets { part, partition, queue, class, segments, heap, unread } => {
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
                            if !via_outbox && spot.mark() < self.from {
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
    let (name, of, lowest) = match which {
        Indexed::Outbox(queue) => ("outbox_spots", queue, None),
        Indexed::DeadLetters(queue) => ("dead_letter_spots", queue, None),
        Indexed::Log(_, partition, lowest) => ("log_sent_spots", partition, Some(lowest)),
    };
    let named = named_params! {
        ":of": of, ":at": below.at, ":id": id, ":earliest": earliest, ":rows_max": rows_max, ":lowest": lowest,
    };
    let named = if lowest.is_some() { named } else { &named[..named.len() - 1] };
    let mut list = conn.prepare_cached(sql(name))?;
    let rows = list.query_map(named, |row| match which {
        Indexed::Outbox(_) => outbox_spot(row),
        Indexed::DeadLetters(_) => dead_letter_spot(row),
        Indexed::Log(part, ..) => log_spot(row, part, row.get(14)?, row.get(15)?),
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

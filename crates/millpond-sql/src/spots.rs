//! Where messages are, in the order in which they were sent, the newest first: the one walk behind the list of
//! messages and the run log.
//!
//! A message may have rows in several places, because those of the log stay; who walks decides which of them stands
//! for it. What came through the outbox has an index by the time it was sent. The rest of the log is in the order of
//! publishing, which is never earlier than sending: a row is handed over once all that is unread was published
//! before it was sent.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millpond_core::error::Error;
use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::reason::DropReason;
use millpond_core::time::Timestamp;
use uuid::Uuid;

use crate::bits::Bits;
use crate::list::Mark;
use crate::param::Param;
use crate::reader::{Reader, Tried};
use crate::record::Content;
use crate::row::Row;
use crate::runs::acknowledged;

/// Rows of the first chunk of a source; each further one has twice as many, up to [`CHUNK_MAX`].
const CHUNK_MIN: i64 = 32;

/// Rows of one chunk.
const CHUNK_MAX: i64 = 512;

/// How much earlier than it was sent a message may seem to be published, by clocks of other processes.
const SLACK: Duration = Duration::from_secs(60);

/// A row of a message, without its body.
pub(crate) struct Spot {
    pub(crate) id: MessageId,
    pub(crate) queue: i32,
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

    /// When it came into the log; for what is not there, the smallest.
    pub(crate) fn published(&self) -> i64 {
        match &self.at {
            At::Log { published_at, .. } => published_at.as_micros(),
            At::Outbox { .. } | At::DeadLetter { .. } => i64::MIN,
        }
    }

    /// Headers, and the body if it is asked for.
    pub(crate) async fn content<R: Reader>(
        &self,
        connection: &R,
        parts: &Parts,
        bodies: bool,
    ) -> Tried<R, Content> {
        let found = match self.at {
            At::Outbox { seq, .. } => {
                connection.row_if_any("outbox_content", &[seq.into(), bodies.into()]).await?
            }
            At::DeadLetter { number, .. } => {
                connection.row_if_any("dead_letter_content", &[number.into(), bodies.into()]).await?
            }
            At::Log { part, offset, .. } => {
                let id = parts.list[part].id;
                let key: [Param<'_>; 3] = [id.into(), offset.into(), bodies.into()];
                connection.row_if_any("log_content", &key).await?
            }
        };
        let content = |row: R::Row| {
            Content::new(row.get(0), row.get(1), row.get::<Option<Vec<u8>>>(2).unwrap_or_default())
        };
        Ok(found.map(content).unwrap_or_default())
    }
}

/// A claim that is live.
pub(crate) struct Live {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) worker: Option<String>,
    pub(crate) leased_at: Timestamp,
    pub(crate) done: Bits,
    pub(crate) runs: Bits,
}

/// A part of the log, as it is at the moment of the question.
pub(crate) struct Part {
    pub(crate) id: i32,
    pub(crate) queue: i32,
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
    runs: Bits,
}

/// The parts of the log that a question is about.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) list: Vec<Part>,
    /// The last one that was looked up of each part: the next row is mostly in it too.
    ended: Mutex<HashMap<usize, Ended>>,
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

/// The place of an offset in a claim: counted from the highest down.
fn place(to: i64, offset: i64) -> usize {
    (to - offset).unsigned_abs() as usize
}

impl Parts {
    /// The parts of these queues.
    pub(crate) async fn read<R: Reader>(connection: &R, queues: &[i32]) -> Tried<R, Self> {
        let mut parts = Self::default();
        for row in connection.rows("spot_parts", &[queues.into()]).await? {
            let (id, subscription, cursor): (i32, i32, i64) = (row.get(0), row.get(5), row.get(7));
            let key: [Param<'_>; 3] = [subscription.into(), id.into(), cursor.into()];
            let cancelled = connection.rows("spot_cancelled", &key).await?;
            let live = connection.rows("spot_live", &key[..2]).await?;
            parts.list.push(Part {
                id,
                queue: row.get(1),
                class: row.get(2),
                lane: Lane::from_number(row.get(3)).unwrap_or(Lane::Main),
                first_offset: row.get(4),
                end: row.get(6),
                cursor,
                live: live.iter().map(live_claim).collect::<Result<_, Error>>()?,
                cancelled: cancelled.iter().map(|row| row.get(0)).collect(),
            });
        }
        Ok(parts)
    }

    /// What became of a row.
    pub(crate) async fn fate<R: Reader>(
        &self,
        connection: &R,
        part: usize,
        offset: i64,
        id: MessageId,
    ) -> Tried<R, Fate> {
        let Part { id: partition, cursor, live, cancelled, .. } = &self.list[part];
        if *cursor < offset {
            return Ok(if cancelled.contains(&offset) { Fate::Left } else { Fate::Ahead });
        }
        if let Some(claim) = live.iter().find(|claim| claim.from <= offset && offset <= claim.to) {
            let place = place(claim.to, offset);
            let (worker, leased_at) = (claim.worker.clone(), claim.leased_at);
            return Ok(match acknowledged(&claim.runs, place) {
                _ if !claim.done.is_set(place) => Fate::Held { worker, leased_at },
                Some(took) => Fate::Done(Some(Run { worker, leased_at, took })),
                None => Fate::Left,
            });
        }
        let Some(ended) = self.ended(connection, part, *partition, offset).await? else {
            let left = left_by_id(connection, id, *partition, offset).await?;
            return Ok(if left { Fate::Left } else { Fate::Done(None) });
        };
        Ok(match acknowledged(&ended.runs, place(ended.to, offset)) {
            Some(took) => Fate::Done(Some(Run { worker: ended.worker, leased_at: ended.leased_at, took })),
            None => Fate::Left,
        })
    }

    /// The finished claim that held an offset.
    async fn ended<R: Reader>(
        &self,
        connection: &R,
        part: usize,
        partition: i32,
        offset: i64,
    ) -> Tried<R, Option<Ended>> {
        let holds = |ended: &Ended| ended.from <= offset && offset <= ended.to;
        let known = self.ended.lock().unwrap_or_else(PoisonError::into_inner).get(&part).cloned();
        if let Some(ended) = known.filter(holds) {
            return Ok(Some(ended));
        }
        let key: [Param<'_>; 2] = [partition.into(), offset.into()];
        let found = connection.row_if_any("spot_ended", &key).await?;
        let found = found.as_ref().map(ended_claim).transpose()?.filter(holds);
        if let Some(ended) = &found {
            self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(part, ended.clone());
        }
        Ok(found)
    }
}

/// Whether a message that nothing is known of is somewhere else now.
async fn left_by_id<R: Reader>(connection: &R, id: MessageId, partition: i32, offset: i64) -> Tried<R, bool> {
    let params: [Param<'_>; 3] = [id.into(), partition.into(), offset.into()];
    Ok(connection.row("spot_left", &params).await?.get(0))
}

fn live_claim(row: &impl Row) -> Result<Live, Error> {
    Ok(Live {
        from: row.try_get(0)?,
        to: row.try_get(1)?,
        worker: row.try_get(2)?,
        leased_at: row.get(3),
        done: row.try_get::<Option<Bits>>(4)?.unwrap_or_default(),
        runs: row.try_get::<Option<Bits>>(5)?.unwrap_or_default(),
    })
}

fn ended_claim(row: &impl Row) -> Result<Ended, Error> {
    Ok(Ended {
        from: row.try_get(0)?,
        to: row.try_get(1)?,
        worker: row.try_get(2)?,
        leased_at: row.get(3),
        runs: row.try_get(4)?,
    })
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
pub(crate) struct Walk<'c, R> {
    connection: &'c R,
    sources: Vec<Source>,
    heads: BinaryHeap<(Mark, usize)>,
    /// Nothing that was sent before this is of interest.
    earliest: i64,
}

impl<'c, R: Reader> Walk<'c, R> {
    /// Walks everything below `from` that was sent at `earliest` or later. `published_max`: what an earlier walk said
    /// of the rest ([`Walk::rest_published`]), else the largest.
    pub(crate) async fn new(
        connection: &'c R,
        queues: &[i32],
        parts: &Parts,
        places: Places,
        (from, published_max): (Mark, i64),
        earliest: i64,
    ) -> Tried<R, Self> {
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
                let segments = segments(connection, part, places, (from, published_max), earliest).await?;
                sources.push(Source::offsets(index, part, segments, from));
            }
        }
        let mut walk = Self { connection, sources, heads: BinaryHeap::new(), earliest };
        for source in 0..walk.sources.len() {
            walk.offer(source).await?;
        }
        Ok(walk)
    }

    /// The next one, if there is one: its mark.
    pub(crate) fn peek(&self) -> Option<Mark> {
        self.heads.peek().map(|(mark, _)| *mark)
    }

    /// The next row.
    pub(crate) async fn next(&mut self) -> Tried<R, Option<Spot>> {
        let Some((_, source)) = self.heads.pop() else { return Ok(None) };
        let spot = self.sources[source].pop();
        self.offer(source).await?;
        Ok(spot)
    }

    /// No later than this was published what is still to be handed over, as far as it was sent straight to the log.
    /// A walk that goes on from here need not read again what came after: of a burst, that would be all of it.
    pub(crate) fn rest_published(&self) -> i64 {
        self.sources.iter().map(Source::rest_published).max().unwrap_or(i64::MAX)
    }

    async fn offer(&mut self, source: usize) -> Tried<R, ()> {
        let mark = self.sources[source].peek(self.connection, self.earliest).await?;
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
async fn segments<R: Reader>(
    connection: &R,
    part: &Part,
    places: Places,
    (from, published_max): (Mark, i64),
    earliest: i64,
) -> Tried<R, Vec<(i64, i64)>> {
    let mut high = part.end - 1;
    if from.at != i64::MAX {
        let latest = (Timestamp::from_micros(from.at) + SLACK).min(Timestamp::from_micros(published_max));
        let after = connection.published_after(part.id, part.first_offset..part.end, latest).await?;
        high = high.min(after - 1);
    }
    let low = if earliest == i64::MIN {
        part.first_offset
    } else {
        let before = Timestamp::from_micros(earliest - 1);
        connection.published_after(part.id, part.first_offset..part.end, before).await?
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
    Indexed { which: Indexed, next: Mark },
    Offsets { part: usize, partition: i32, segments: Vec<(i64, i64)>, heap: BinaryHeap<ByMark>, unread: i64 },
}

/// Places with an index by the time of sending: of a queue, or of a part of the log.
#[derive(Clone, Copy)]
enum Indexed {
    Outbox(i32),
    DeadLetters(i32),
    /// From this offset on.
    Log(usize, i32, i64),
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
        let (partition, heap, unread) = (part.id, BinaryHeap::new(), i64::MAX);
        let of = Of::Offsets { part: index, partition, segments, heap, unread };
        Self::new(of, from)
    }

    fn new(of: Of, from: Mark) -> Self {
        Self { of, ready: VecDeque::new(), chunk: CHUNK_MIN, ended: false, from }
    }

    async fn peek<R: Reader>(&mut self, connection: &R, earliest: i64) -> Tried<R, Option<Mark>> {
        while self.ready.is_empty() && !self.ended {
            self.fill(connection, earliest).await?;
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

    async fn fill<R: Reader>(&mut self, connection: &R, earliest: i64) -> Tried<R, ()> {
        match &mut self.of {
            Of::Indexed { which, next } => {
                let rows = indexed(connection, *which, *next, earliest, self.chunk).await?;
                self.ended = (rows.len() as i64) < self.chunk;
                if let Some(last) = rows.last() {
                    *next = last.mark();
                }
                self.ready.extend(rows);
            }
            Of::Offsets { part, partition, segments, heap, unread } => {
                match segments.last_mut() {
                    None => *unread = i64::MIN,
                    Some((low, high)) => {
                        let key: [Param<'_>; 4] =
                            [(*partition).into(), (*low).into(), (*high).into(), self.chunk.into()];
                        let mut lowest = *low;
                        for row in connection.rows("log_spots", &key).await? {
                            let spot = log_spot(&row, *part);
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
async fn indexed<R: Reader>(
    connection: &R,
    which: Indexed,
    below: Mark,
    earliest: i64,
    rows_max: i64,
) -> Tried<R, Vec<Spot>> {
    let (name, of, lowest) = match which {
        Indexed::Outbox(queue) => ("outbox_spots", queue, None),
        Indexed::DeadLetters(queue) => ("dead_letter_spots", queue, None),
        Indexed::Log(_, partition, lowest) => ("log_sent_spots", partition, Some(lowest)),
    };
    let id = MessageId(Uuid::from_u128(below.id));
    let mut params: Vec<Param<'_>> =
        vec![of.into(), below.at.into(), id.into(), earliest.into(), rows_max.into()];
    params.extend(lowest.map(Param::from));
    let rows = connection.rows(name, &params).await?;
    Ok(rows
        .iter()
        .map(|row| match which {
            Indexed::Outbox(_) => outbox_spot(row),
            Indexed::DeadLetters(_) => dead_letter_spot(row),
            Indexed::Log(part, ..) => log_spot(row, part),
        })
        .collect())
}

/// The first ten columns of every statement here.
fn spot(row: &impl Row, at: At) -> Spot {
    Spot {
        id: row.get(0),
        queue: row.get(1),
        class: row.get(2),
        sent_at: row.get(3),
        attempt: row.get(4),
        releases: row.get(5),
        attempts_max: row.get(6),
        retry_until: row.get(7),
        kind: row.get(8),
        key: row.get(9),
        at,
    }
}

fn outbox_spot(row: &impl Row) -> Spot {
    let at = At::Outbox {
        seq: row.get(10),
        reason: row.get(11),
        ready_at: row.get(12),
        error: row.get(13),
        retry_of: row.get(14),
    };
    spot(row, at)
}

fn dead_letter_spot(row: &impl Row) -> Spot {
    let at = At::DeadLetter {
        number: row.get(10),
        reason: row.get(11),
        detail: row.get(12),
        worker: row.get(13),
        retry_of: row.get(14),
    };
    spot(row, at)
}

fn log_spot(row: &impl Row, part: usize) -> Spot {
    let at = At::Log {
        part,
        offset: row.get(10),
        published_at: row.get(11),
        via_outbox: row.get(12),
        reason: row.get(13),
    };
    spot(row, at)
}

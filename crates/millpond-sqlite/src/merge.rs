//! The sources of the run log, merged by time, and the cursor with which a list of it goes on.
//!
//! Each source knows the latest time that anything it has not read yet can have; what is later than that of every source
//! is next.

use std::collections::{BinaryHeap, HashMap};

use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::query::{Field, Query};
use millpond_core::reason::{EventKind, OutboxReason};
use millpond_core::time::Timestamp;
use millpond_core::view::EventView;
use millpond_sql::list::{Gather, Mark};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use crate::deliveries::direct_row_exists;
use crate::entry::{Entry, enqueue_reason, entry, event_row};
use crate::error::Tried;
use crate::message::instant;
use crate::parts::{Fate, Part, Parts, is_purged};
use crate::record::Queues;
use crate::settle::{RUN_CANCELLED, RUN_DONE, run_at};
use crate::spots::{At, Spot};
use crate::sql::sql;
use crate::walk::{Places, Walk};

/// Rows of one chunk of a source.
const CHUNK: i64 = 256;

/// Claims that a cursor names because they began before it and ended after it.
const OPEN_MAX: usize = 200;

/// Where a list goes on: after an entry, and what of the history must be looked at again.
pub(crate) struct Cursor {
    pub(crate) mark: Mark,
    /// When the first page was made: claims that ended since were live then.
    began: i64,
    /// The last row of history that was read.
    read_to: (i64, i64),
    /// Rows that were read and have entries below the mark.
    open: Vec<i64>,
}

impl Cursor {
    pub(crate) fn parse(text: &str) -> Tried<Self> {
        let (mark, rest) = text.split_once('~').unwrap_or((text, ""));
        let mark = Mark::parse(mark)?;
        let mut numbers = rest.split(',').filter_map(|number| number.parse().ok());
        let top = (i64::MAX, i64::MAX);
        let began = numbers.next().unwrap_or(i64::MAX);
        let read_to = numbers.next().zip(numbers.next()).unwrap_or(top);
        Ok(Self { mark, began, read_to, open: numbers.collect() })
    }
}

/// A finished claim.
struct Ended {
    number: i64,
    finished_at: i64,
    leased_at: i64,
}

/// The sources, and what was read of them and is not handed out yet.
pub(crate) struct Merge<'a> {
    conn: &'a Connection,
    now: Timestamp,
    queues: Queues,
    wanted: Vec<i64>,
    one: Option<i64>,
    parts: Parts,
    from: Mark,
    earliest: i64,
    heap: BinaryHeap<Entry>,
    walk: Option<Walk<'a>>,
    /// The row of events that was read last.
    events: Option<(i64, i64)>,
    /// The row of history that was read last.
    history: Option<(i64, i64)>,
    began: i64,
    read: Vec<Ended>,
    wants_start: bool,
    wants_success: bool,
    first_published: HashMap<usize, Option<Timestamp>>,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(
        conn: &'a Connection,
        now: Timestamp,
        query: &Query,
        from: Mark,
        resumed: Option<Cursor>,
    ) -> Tried<Self> {
        let queues = Queues::read(conn)?;
        let (earliest, latest) = query.between(&Field::At);
        let from = from.min(Mark::new(latest.saturating_add(1), 0));
        let only = query.only(&Field::Event);
        let wants = |kind: EventKind| only.as_ref().is_none_or(|only| only.contains(&kind.as_str()));
        let wanted = queues.wanted(query);
        let parts = Parts::read(conn, &wanted)?;
        let all = Places { outbox: true, dead: true, ahead: true, held: true, passed: true };
        let walk = match wants(EventKind::Enqueue) {
            true => Some(Walk::new(conn, &wanted, &parts, all, (from, i64::MAX), earliest)?),
            false => None,
        };
        let (wants_start, wants_success) = (wants(EventKind::Start), wants(EventKind::Success));
        let has_rows =
            [EventKind::Enqueue, EventKind::Retry, EventKind::Dlq, EventKind::Recover].into_iter().any(wants);
        let mut merge = Self {
            conn,
            now,
            one: queues.the_one(query),
            queues,
            wanted,
            parts,
            from,
            earliest,
            heap: BinaryHeap::new(),
            walk,
            events: has_rows.then_some((from.at, i64::MAX)),
            history: None,
            began: now.as_micros(),
            read: Vec::new(),
            wants_start,
            wants_success,
            first_published: HashMap::new(),
        };
        if wants_start || wants_success {
            merge.add_live()?;
            merge.history = Some((i64::MAX, i64::MAX));
            if let Some(cursor) = resumed {
                merge.resume(&cursor)?;
            }
        }
        Ok(merge)
    }

    /// The next entry; `None`: there is none, or the search is over its limit.
    pub(crate) fn next(&mut self, gather: &mut Gather<EventView>) -> Tried<Option<Entry>> {
        loop {
            let unread = [
                self.walk.as_ref().and_then(|walk| walk.peek()).map(|mark| mark.at),
                self.events.map(|(at, _)| at),
                self.history.map(|(at, _)| at),
            ];
            let latest = unread.iter().flatten().max().copied();
            let is_next = |top: &Entry| latest.is_none_or(|latest| latest < top.mark.at);
            if self.heap.peek().is_some_and(is_next) {
                return Ok(self.heap.pop());
            }
            let Some(latest) = latest else { return Ok(None) };
            let looked = if unread[0] == Some(latest) {
                self.read_spot()?
            } else if unread[1] == Some(latest) {
                self.read_events()?
            } else {
                self.read_history()?
            };
            for _ in 0..looked {
                if !gather.look() {
                    return Ok(None);
                }
            }
        }
    }

    fn push(&mut self, (mark, view): (Mark, EventView), key: Option<String>) {
        if mark < self.from && self.earliest <= mark.at {
            self.heap.push(Entry { mark, view, key });
        }
    }

    /// The ENQUEUE of one message.
    fn read_spot(&mut self) -> Tried<usize> {
        let Some(spot) = self.walk.as_mut().map(Walk::next).transpose()?.flatten() else {
            self.walk = None;
            return Ok(0);
        };
        if let Some(reason) = self.begins(&spot)? {
            let queue = self.queues.name(spot.queue);
            let name = spot.kind.as_deref().unwrap_or(queue);
            let (mark, view) = entry(spot.id, (queue, name), EventKind::Enqueue, (0, 0), spot.sent_at);
            self.push((mark, EventView { reason: Some(reason.to_owned()), ..view }), spot.key);
        }
        Ok(1)
    }

    /// Why a message was stored, if this row tells of it. The row that it has in the main lane does, as long as it is
    /// kept; then the one that stands for the message.
    fn begins(&mut self, spot: &Spot) -> Tried<Option<&'static str>> {
        match &spot.at {
            At::Log { part, reason, via_outbox, .. } if self.parts.list[*part].lane == Lane::Main => {
                return Ok(if *via_outbox { enqueue_reason(reason.as_deref()) } else { Some("send") });
            }
            At::Log { part, offset, .. } => {
                let fate = self.parts.fate(self.conn, *part, *offset, spot.id)?;
                if matches!(fate, Fate::Left) {
                    return Ok(None);
                }
            }
            At::Outbox { retry_of: Some(_), .. } | At::DeadLetter { retry_of: Some(_), .. } => {
                return Ok(None);
            }
            At::Outbox { reason, .. } => {
                use OutboxReason::{Delay, Handoff, Tx};
                if matches!(OutboxReason::parse(reason), Some(Tx | Delay | Handoff)) {
                    return Ok(enqueue_reason(Some(reason)));
                }
            }
            At::DeadLetter { .. } => {}
        }
        Ok(self.first_row_is_gone(spot)?.then_some("send"))
    }

    /// Whether the row with which a message entered the log is not kept any more, or never was.
    fn first_row_is_gone(&mut self, spot: &Spot) -> Tried<bool> {
        let told: bool =
            self.conn.prepare_cached(sql("enqueue_told"))?.query_row([spot.id.0], |row| row.get(0))?;
        if told {
            return Ok(false);
        }
        let is_main =
            |part: &Part| part.queue == spot.queue && part.class == spot.class && part.lane == Lane::Main;
        let Some(main) = self.parts.list.iter().position(is_main) else { return Ok(true) };
        let first = match self.first_published.get(&main) {
            Some(first) => *first,
            None => {
                let part = &self.parts.list[main];
                let mut at = self.conn.prepare_cached(sql("log_published_at"))?;
                let first = at.query_row(params![part.id, part.first_offset], |row| row.get(0)).optional()?;
                let first = first.map(instant);
                self.first_published.insert(main, first);
                first
            }
        };
        // What was sent in one batch is of one instant, and a part of it may be gone. And a message may have died
        // without ever having been in the log.
        let never = matches!(spot.at, At::DeadLetter { .. }) && spot.attempt == 0 && spot.releases == 0;
        match first {
            Some(first) if first < spot.sent_at && !never => Ok(false),
            Some(first) if first <= spot.sent_at => Ok(!direct_row_exists(self.conn, spot.id, spot.queue)?),
            _ => Ok(true),
        }
    }

    fn read_events(&mut self) -> Tried<usize> {
        let Some((at, number)) = self.events else { return Ok(0) };
        let name = if self.one.is_some() { "event_page_of_queue" } else { "event_page" };
        let named: &[(&str, &dyn rusqlite::ToSql)] = named_params! {
            ":at": at, ":number": number, ":earliest": self.earliest, ":rows_max": CHUNK, ":queue": self.one,
        };
        // The page of all queues has no such parameter.
        let named = &named[..named.len() - usize::from(self.one.is_none())];
        let mut page = self.conn.prepare_cached(sql(name))?;
        let mut rows = page.query(named)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            self.events = Some((row.get(9)?, row.get(0)?));
            found.push(event_row(row, &self.queues)?);
        }
        let count = found.len();
        if (count as i64) < CHUNK {
            self.events = None;
        }
        for event in found {
            self.push(event, None);
        }
        Ok(count.max(1))
    }

    /// The entries of claims that are live.
    fn add_live(&mut self) -> Tried<()> {
        let parts = std::mem::take(&mut self.parts);
        for part in &parts.list {
            for claim in &part.live {
                let range = (part.id, part.queue, claim.from, claim.to);
                self.add_runs(range, claim.worker.as_deref(), claim.leased_at, self.now, &claim.runs)?;
            }
        }
        self.parts = parts;
        Ok(())
    }

    /// START and SUCCESS of the messages of one claim.
    fn add_runs(
        &mut self,
        (partition, queue, from, to): (i64, i64, i64, i64),
        worker: Option<&str>,
        leased_at: Timestamp,
        ended_at: Timestamp,
        runs: &[u8],
    ) -> Tried<usize> {
        let mut list = self.conn.prepare_cached(sql("run_messages"))?;
        let mut rows = list.query(params![partition, from, to])?;
        let queue = self.queues.name(queue).to_owned();
        let mut looked = 0;
        while let Some(row) = rows.next()? {
            looked += 1;
            let offset: i64 = row.get(0)?;
            let outcome = run_at(runs, (offset - from).unsigned_abs() as usize);
            if matches!(outcome, Some((RUN_CANCELLED, _))) {
                continue;
            }
            let id = MessageId(row.get(1)?);
            let (charged, releases): (u32, u32) = (row.get(2)?, row.get(3)?);
            let (kind, key): (Option<String>, Option<String>) = (row.get(4)?, row.get(5)?);
            let of = (queue.as_str(), kind.as_deref().unwrap_or(&queue));
            let counted = (charged + 1, charged + releases + 1);
            if self.wants_start {
                let (mark, view) = entry(id, of, EventKind::Start, counted, leased_at);
                self.push((mark, EventView { worker: worker.map(str::to_owned), ..view }), key.clone());
            }
            if let Some((RUN_DONE, took)) = outcome.filter(|_| self.wants_success) {
                let at = (leased_at + took).min(ended_at);
                let (mark, view) = entry(id, of, EventKind::Success, counted, at);
                let worker = worker.map(str::to_owned);
                self.push((mark, EventView { worker, run: Some(took), ..view }), key);
            }
        }
        Ok(looked)
    }

    fn read_history(&mut self) -> Tried<usize> {
        let Some((at, number)) = self.history else { return Ok(0) };
        let mut page = self.conn.prepare_cached(sql("history_page"))?;
        let mut rows = page.query(params![at, number, self.earliest, 1])?;
        match rows.next()? {
            Some(row) => {
                self.history = Some((row.get(1)?, row.get(0)?));
                self.add_ended(row)
            }
            None => {
                self.history = None;
                Ok(1)
            }
        }
    }

    /// The entries of a row of history.
    fn add_ended(&mut self, row: &Row<'_>) -> Tried<usize> {
        let (number, finished_at, leased_at): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (queue, partition, from, to): (i64, i64, i64, i64) =
            (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?);
        let (worker, runs): (Option<String>, Vec<u8>) = (row.get(7)?, row.get(8)?);
        if is_purged(&runs) || self.wanted.binary_search(&queue).is_err() {
            return Ok(1);
        }
        self.read.push(Ended { number, finished_at, leased_at });
        let range = (partition, queue, from, to);
        Ok(1 + self.add_runs(range, worker.as_deref(), instant(leased_at), instant(finished_at), &runs)?)
    }

    /// Reads again what an earlier page has read of the history and not shown, and what ended since.
    fn resume(&mut self, cursor: &Cursor) -> Tried<()> {
        self.began = cursor.began.min(self.began);
        self.history = Some(cursor.read_to);
        let mut again = self.conn.prepare_cached(sql("history_by_number"))?;
        for number in &cursor.open {
            let mut rows = again.query([number])?;
            if let Some(row) = rows.next()? {
                self.add_ended(row)?;
            }
        }
        let mut since = self.conn.prepare_cached(sql("history_since"))?;
        let mut rows = since.query(params![self.began, self.from.at])?;
        while let Some(row) = rows.next()? {
            self.add_ended(row)?;
        }
        Ok(())
    }

    /// The cursor of the next page, which begins below `mark`.
    pub(crate) fn cursor(&self, mark: &str) -> Tried<String> {
        let at = Mark::parse(mark)?.at;
        // All that was read and ended after the first page was made is found by its time.
        let open = |ended: &&Ended| ended.leased_at <= at && ended.finished_at <= self.began;
        let mut open: Vec<&Ended> = self.read.iter().filter(open).collect();
        let mut read_to = self.history.unwrap_or((i64::MIN, i64::MIN));
        if OPEN_MAX < open.len() {
            // Too many to name: what follows the latest of them is read again.
            let latest = open.iter().map(|ended| (ended.finished_at, ended.number)).max();
            read_to = latest.map_or(read_to, |(at, number)| (at, number + 1));
            open.clear();
        }
        let (read_at, read_number) = read_to;
        let mut text = format!("{mark}~{},{read_at},{read_number}", self.began);
        for ended in open {
            text.push_str(&format!(",{}", ended.number));
        }
        Ok(text)
    }
}

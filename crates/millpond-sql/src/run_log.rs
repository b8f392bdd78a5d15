//! The run log, assembled: six kinds of entries, of which only what is rare has rows of its own.
//!
//! - ENQUEUE is read from the message itself, wherever it is; that of a redrive is a row of `event`.
//! - START and SUCCESS come from the claim that holds the message, or from the row of history of the one that did, as
//!   long as the message's row in the log is kept.
//! - RETRY, DLQ and RECOVER are rows of `event`.
//!
//! They are merged by time. Each source knows the latest time that anything it has not read yet can have; what is
//! later than that of every source is next.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use millpond_core::error::Error;
use millpond_core::message::MessageId;
use millpond_core::pick::Lane;
use millpond_core::query::{Field, Query, Record, Value};
use millpond_core::reason::{EventKind, OutboxReason};
use millpond_core::time::Timestamp;
use millpond_core::view::{Count, EventView, Find, Found};
use uuid::Uuid;

use crate::bits::Bits;
use crate::find::{direct_row_exists, message_view};
use crate::list::{Gather, Mark};
use crate::param::Param;
use crate::reader::{Reader, Tried};
use crate::record::{Content, Queues, instant_value, owned, span_value};
use crate::row::Row;
use crate::runs::{acknowledged, is_cancelled, is_purged};
use crate::spots::{At, Fate, Part, Parts, Places, Spot, Walk};

/// Rows of one chunk of a source.
const CHUNK: i64 = 256;

/// Claims that a cursor names because they began before it and ended after it.
const OPEN_MAX: usize = 200;

/// Orders what happens to a message in one instant.
pub(crate) const fn step(kind: EventKind, delivery: u32) -> u64 {
    let rank = match kind {
        EventKind::Enqueue => 0,
        EventKind::Start => 1,
        EventKind::Success | EventKind::Retry | EventKind::Dlq | EventKind::Recover => 2,
    };
    delivery as u64 * 4 + rank
}

/// An entry of one message, without what only some have.
pub(crate) fn entry(
    id: MessageId,
    (queue, name): (&str, &str),
    kind: EventKind,
    (attempt, delivery): (u32, u32),
    at: Timestamp,
) -> (Mark, EventView) {
    let mark = Mark { at: at.as_micros(), step: step(kind, delivery), id: id.0.as_u128() };
    let view = EventView {
        id: mark.text(),
        message: Some(id),
        queue: queue.to_owned(),
        name: name.to_owned(),
        kind,
        reason: None,
        attempt,
        delivery,
        count: 1,
        at,
        worker: None,
        run: None,
        error: None,
        retry_of: None,
    };
    (mark, view)
}

/// Why a message was stored that came through the outbox, as its first entry says it; `None`: a redrive, which has a
/// row of its own.
pub(crate) fn enqueue_reason(outbox_reason: Option<&str>) -> Option<&'static str> {
    match outbox_reason {
        Some("redrive") => None,
        Some(reason) if reason == OutboxReason::Tx.as_str() => Some("tx"),
        _ => Some("send"),
    }
}

/// A row of `event` with its mark: the columns of `event_page` and `message_events`.
pub(crate) fn event_row(row: &impl Row, queues: &Queues) -> (Mark, EventView) {
    let serial: i64 = row.get(0);
    let message: Option<MessageId> = row.get(1);
    // A word of a later release is shown as what it is at least: a move.
    let kind = EventKind::parse(row.get(3)).unwrap_or(EventKind::Recover);
    let (attempt, releases): (u32, u32) = (row.get(5), row.get(6));
    let queue = queues.name(row.get(2));
    let name = row.get::<Option<&str>>(12).unwrap_or(queue);
    // What speaks of many messages has no id of one: its number stands for that.
    let stand_in = MessageId(Uuid::from_u128(u128::from(serial.unsigned_abs())));
    let delivery = attempt.saturating_add(releases);
    let (mark, view) =
        entry(message.unwrap_or(stand_in), (queue, name), kind, (attempt, delivery), row.get(9));
    let view = EventView {
        message,
        reason: Some(row.get(4)),
        worker: row.get(7),
        error: row.get(8),
        run: row.get(10),
        count: row.get(11),
        retry_of: row.get(13),
        ..view
    };
    (mark, view)
}

/// An entry beside what a query may ask of its message.
struct Entry {
    mark: Mark,
    view: EventView,
    key: Option<String>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.mark.cmp(&other.mark)
    }
}

struct Asked<'a> {
    entry: &'a Entry,
    /// Key and headers of its message, if the query asks for what the entry does not have.
    more: Option<(Option<String>, Content)>,
}

impl<'a> Asked<'a> {
    /// Reads what `query` asks for beyond the entry.
    async fn of<R: Reader>(entry: &'a Entry, connection: &R, query: &Query) -> Tried<R, Self> {
        let beyond = |field: &Field| match field {
            Field::Key => entry.key.is_none(),
            Field::Header(_) | Field::Body(_) | Field::Trace | Field::Anything => true,
            _ => false,
        };
        let Some(message) = entry.view.message.filter(|_| query.asks(beyond)) else {
            return Ok(Self { entry, more: None });
        };
        let more = message_view(connection, message).await?.map(|view| {
            let content = Content::new(None, Some(view.headers.to_string()), Vec::new());
            (view.key, content)
        });
        Ok(Self { entry, more })
    }

    fn more(&self) -> Option<&(Option<String>, Content)> {
        self.more.as_ref()
    }
}

impl Record for Asked<'_> {
    fn value(&self, field: &Field) -> Value<'_> {
        let view = &self.entry.view;
        match field {
            Field::Queue => Value::text(Some(&view.queue)),
            Field::Kind => Value::text(Some(&view.name)),
            Field::Key => match &self.entry.key {
                Some(key) => Value::text(Some(key)),
                None => Value::text(self.more().and_then(|(key, _)| key.as_deref())),
            },
            Field::Id => view.message.map_or(Value::Nothing, |id| owned(id.to_string())),
            Field::Worker => Value::text(view.worker.as_deref()),
            Field::Event => Value::text(Some(view.kind.as_str())),
            Field::Reason => Value::text(view.reason.as_deref()),
            Field::Error => Value::text(view.error.as_deref()),
            Field::Attempt => Value::Number(i64::from(view.attempt)),
            Field::Run => span_value(view.run),
            Field::At => instant_value(Some(view.at)),
            other => self.more().map_or(Value::Nothing, |(_, content)| content.value(other)),
        }
    }
}

/// The run log, newest first.
pub async fn events<R: Reader>(connection: &R, find: &Find) -> Tried<R, Found<EventView>> {
    let cursor = find.after.as_deref().map(Cursor::parse).transpose()?;
    let mut gather = Gather::new(find, cursor.as_ref().map(|cursor| cursor.mark));
    if let Some(ids) = find.query.only(&Field::Id) {
        by_id(connection, &find.query, &ids, &mut gather).await?;
        return Ok(gather.found());
    }
    let now = connection.time().await?;
    let queues = Queues::read(connection).await?;
    let parts = Parts::read(connection, &queues.wanted(&find.query)).await?;
    let resumed = cursor.filter(|_| find.count == Count::No);
    let mut merge =
        Merge::new(connection, now, (queues, &parts), &find.query, gather.from(), resumed).await?;
    while let Some(entry) = merge.next(&mut gather).await? {
        let mark = entry.mark;
        if !find.query.matches(&Asked::of(&entry, connection, &find.query).await?) {
            gather.pass(mark);
            continue;
        }
        let item = gather.wants(mark).then_some(entry.view);
        if !gather.take(mark, item) {
            break;
        }
    }
    let mut found = gather.found();
    found.next = found.next.map(|next| merge.cursor(&next)).transpose()?;
    Ok(found)
}

/// Entries of these messages.
async fn by_id<R: Reader>(
    connection: &R,
    query: &Query,
    ids: &[&str],
    gather: &mut Gather<EventView>,
) -> Tried<R, ()> {
    let mut entries = Vec::new();
    for id in ids.iter().filter_map(|id| id.parse::<MessageId>().ok()) {
        let Some(message) = message_view(connection, id).await? else { continue };
        for view in message.events {
            entries.push(Entry { mark: Mark::parse(&view.id)?, view, key: message.key.clone() });
        }
    }
    entries.sort_by(|one, other| other.cmp(one));
    entries.dedup();
    for entry in entries {
        let mark = entry.mark;
        if mark >= gather.from() || !query.matches(&Asked::of(&entry, connection, query).await?) {
            continue;
        }
        let item = gather.wants(mark).then_some(entry.view);
        if !gather.take(mark, item) {
            break;
        }
    }
    Ok(())
}

/// Where a list goes on: after an entry, and what of the history must be looked at again.
struct Cursor {
    mark: Mark,
    /// When the first page was made: claims that ended since were live then.
    began: i64,
    /// The last row of history that was read.
    read_to: (i64, i64),
    /// Rows that were read and have entries below the mark.
    open: Vec<i64>,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, Error> {
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
struct Merge<'a, R> {
    connection: &'a R,
    now: Timestamp,
    queues: Queues,
    wanted: Vec<i32>,
    one: Option<i32>,
    parts: &'a Parts,
    from: Mark,
    earliest: i64,
    heap: BinaryHeap<Entry>,
    walk: Option<Walk<'a, R>>,
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

impl<'a, R: Reader> Merge<'a, R> {
    async fn new(
        connection: &'a R,
        now: Timestamp,
        (queues, parts): (Queues, &'a Parts),
        query: &Query,
        from: Mark,
        resumed: Option<Cursor>,
    ) -> Tried<R, Self> {
        let (earliest, latest) = query.between(&Field::At);
        let from = from.min(Mark::new(latest.saturating_add(1), 0));
        let only = query.only(&Field::Event);
        let wants = |kind: EventKind| only.as_ref().is_none_or(|only| only.contains(&kind.as_str()));
        let wanted = queues.wanted(query);
        let all = Places { outbox: true, dead: true, ahead: true, held: true, passed: true };
        let walk = match wants(EventKind::Enqueue) {
            true => Some(Walk::new(connection, &wanted, parts, all, (from, i64::MAX), earliest).await?),
            false => None,
        };
        let (wants_start, wants_success) = (wants(EventKind::Start), wants(EventKind::Success));
        let has_rows =
            [EventKind::Enqueue, EventKind::Retry, EventKind::Dlq, EventKind::Recover].into_iter().any(wants);
        let mut merge = Self {
            connection,
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
            merge.add_live().await?;
            merge.history = Some((i64::MAX, i64::MAX));
            if let Some(cursor) = resumed {
                merge.resume(&cursor).await?;
            }
        }
        Ok(merge)
    }

    /// The next entry; `None`: there is none, or the search is over its limit.
    async fn next(&mut self, gather: &mut Gather<EventView>) -> Tried<R, Option<Entry>> {
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
                self.read_spot().await?
            } else if unread[1] == Some(latest) {
                self.read_events().await?
            } else {
                self.read_history().await?
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
    async fn read_spot(&mut self) -> Tried<R, usize> {
        let spot = match &mut self.walk {
            Some(walk) => walk.next().await?,
            None => None,
        };
        let Some(spot) = spot else {
            self.walk = None;
            return Ok(0);
        };
        if let Some(reason) = self.begins(&spot).await? {
            let queue = self.queues.name(spot.queue);
            let name = spot.kind.as_deref().unwrap_or(queue);
            let (mark, view) = entry(spot.id, (queue, name), EventKind::Enqueue, (0, 0), spot.sent_at);
            self.push((mark, EventView { reason: Some(reason.to_owned()), ..view }), spot.key);
        }
        Ok(1)
    }

    /// Why a message was stored, if this row tells of it. The row that it has in the main lane does, as long as it is
    /// kept; then the one that stands for the message.
    async fn begins(&mut self, spot: &Spot) -> Tried<R, Option<&'static str>> {
        match &spot.at {
            At::Log { part, reason, via_outbox, .. } if self.parts.list[*part].lane == Lane::Main => {
                return Ok(if *via_outbox { enqueue_reason(reason.as_deref()) } else { Some("send") });
            }
            At::Log { part, offset, .. } => {
                let fate = self.parts.fate(self.connection, *part, *offset, spot.id).await?;
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
        Ok(self.first_row_is_gone(spot).await?.then_some("send"))
    }

    /// Whether the row with which a message entered the log is not kept any more, or never was.
    async fn first_row_is_gone(&mut self, spot: &Spot) -> Tried<R, bool> {
        let told = self.connection.row("enqueue_told", &[spot.id.into()]).await?;
        if told.get(0) {
            return Ok(false);
        }
        let is_main =
            |part: &Part| part.queue == spot.queue && part.class == spot.class && part.lane == Lane::Main;
        let Some(main) = self.parts.list.iter().position(is_main) else { return Ok(true) };
        let first = match self.first_published.get(&main) {
            Some(first) => *first,
            None => {
                let part = &self.parts.list[main];
                let key: [Param<'_>; 2] = [part.id.into(), part.first_offset.into()];
                let first = self.connection.row_if_any("log_published_at", &key).await?;
                let first = first.and_then(|row| row.get(0));
                self.first_published.insert(main, first);
                first
            }
        };
        // What was sent in one batch is of one instant, and a part of it may be gone. And a message may have died
        // without ever having been in the log.
        let never = matches!(spot.at, At::DeadLetter { .. }) && spot.attempt == 0 && spot.releases == 0;
        match first {
            Some(first) if first < spot.sent_at && !never => Ok(false),
            Some(first) if first <= spot.sent_at => {
                Ok(!direct_row_exists(self.connection, spot.id, spot.queue).await?)
            }
            _ => Ok(true),
        }
    }

    async fn read_events(&mut self) -> Tried<R, usize> {
        let Some((at, serial)) = self.events else { return Ok(0) };
        let name = if self.one.is_some() { "event_page_of_queue" } else { "event_page" };
        let mut params: Vec<Param<'_>> = vec![at.into(), serial.into(), self.earliest.into(), CHUNK.into()];
        params.extend(self.one.map(Param::from));
        let rows = self.connection.rows(name, &params).await?;
        self.events = rows.last().filter(|_| rows.len() as i64 == CHUNK).map(|row| (row.get(9), row.get(0)));
        for row in &rows {
            let event = event_row(row, &self.queues);
            self.push(event, None);
        }
        Ok(rows.len().max(1))
    }

    /// The entries of claims that are live.
    async fn add_live(&mut self) -> Tried<R, ()> {
        let parts = self.parts;
        for part in &parts.list {
            for claim in &part.live {
                let range = (part.id, part.queue, claim.from, claim.to);
                let ended_at = self.now;
                self.add_runs(range, claim.worker.as_deref(), claim.leased_at, ended_at, &claim.runs).await?;
            }
        }
        Ok(())
    }

    /// START and SUCCESS of the messages of one claim.
    async fn add_runs(
        &mut self,
        (partition, queue, from, to): (i32, i32, i64, i64),
        worker: Option<&str>,
        leased_at: Timestamp,
        ended_at: Timestamp,
        runs: &Bits,
    ) -> Tried<R, usize> {
        let range: [Param<'_>; 3] = [partition.into(), from.into(), to.into()];
        let rows = self.connection.rows("run_messages", &range).await?;
        let queue = self.queues.name(queue).to_owned();
        for row in &rows {
            let place = (to - row.get::<i64>(0)).unsigned_abs() as usize;
            if is_cancelled(runs, place) {
                continue;
            }
            let id = row.get(1);
            let (charged, releases): (u32, u32) = (row.get(2), row.get(3));
            let (kind, key): (Option<String>, Option<String>) = (row.get(4), row.get(5));
            let of = (queue.as_str(), kind.as_deref().unwrap_or(&queue));
            let counted = (charged + 1, charged + releases + 1);
            if self.wants_start {
                let (mark, view) = entry(id, of, EventKind::Start, counted, leased_at);
                self.push((mark, EventView { worker: worker.map(str::to_owned), ..view }), key.clone());
            }
            if let Some(took) = acknowledged(runs, place).filter(|_| self.wants_success) {
                let at = (leased_at + took).min(ended_at);
                let (mark, view) = entry(id, of, EventKind::Success, counted, at);
                let worker = worker.map(str::to_owned);
                self.push((mark, EventView { worker, run: Some(took), ..view }), key);
            }
        }
        Ok(rows.len())
    }

    async fn read_history(&mut self) -> Tried<R, usize> {
        let Some((at, serial)) = self.history else { return Ok(0) };
        let params: [Param<'_>; 4] = [at.into(), serial.into(), self.earliest.into(), 1_i64.into()];
        match self.connection.row_if_any("history_page", &params).await? {
            Some(row) => {
                self.history = Some((row.get(1), row.get(0)));
                self.add_ended(&row).await
            }
            None => {
                self.history = None;
                Ok(1)
            }
        }
    }

    /// The entries of a row of history.
    async fn add_ended(&mut self, row: &impl Row) -> Tried<R, usize> {
        let (number, finished_at, leased_at): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let (queue, partition, from, to): (i32, i32, i64, i64) =
            (row.get(3), row.get(4), row.get(5), row.get(6));
        let (worker, runs): (Option<String>, Bits) = (row.get(7), row.try_get(8)?);
        if is_purged(&runs) || self.wanted.binary_search(&queue).is_err() {
            return Ok(1);
        }
        self.read.push(Ended { number, finished_at, leased_at });
        let range = (partition, queue, from, to);
        let (leased_at, finished_at) = (row.get(2), row.get(1));
        Ok(1 + self.add_runs(range, worker.as_deref(), leased_at, finished_at, &runs).await?)
    }

    /// Reads again what an earlier page has read of the history and not shown, and what ended since.
    async fn resume(&mut self, cursor: &Cursor) -> Tried<R, ()> {
        self.began = cursor.began.min(self.began);
        self.history = Some(cursor.read_to);
        for number in &cursor.open {
            if let Some(row) = self.connection.row_if_any("history_by_number", &[(*number).into()]).await? {
                self.add_ended(&row).await?;
            }
        }
        let params: [Param<'_>; 2] = [self.began.into(), self.from.at.into()];
        for row in self.connection.rows("history_since", &params).await? {
            self.add_ended(&row).await?;
        }
        Ok(())
    }

    /// The cursor of the next page, which begins below `mark`.
    fn cursor(&self, mark: &str) -> Result<String, Error> {
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

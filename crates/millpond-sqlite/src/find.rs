//! One message: where it is, and how it fared.
//!
//! Rows of the log stay after their message went back, so a message may have several. Those that came through the
//! outbox have an index; the first one of a direct send is found through the time in its id, by a search in
//! offsets, whose times of publishing never go back.

use std::ops::Range;
use std::time::Duration;

use millpond_core::message::{JSON, MessageId};
use millpond_core::pick::Lane;
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::state::{Place, State};
use millpond_core::store::Queue;
use millpond_core::time::Timestamp;
use millpond_core::view::{EventView, MessageView};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use serde_json::Value;

use crate::error::Tried;
use crate::list::Mark;
use crate::queues::stored_queues;
use crate::record::Queues;
use crate::run_log::{enqueue_reason, entry, event_row};
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

/// What a message carries, wherever it is.
struct Envelope {
    queue: i64,
    class: u8,
    kind: Option<String>,
    key: Option<String>,
    headers: Option<String>,
    content_type: Option<String>,
    body: Vec<u8>,
    attempt: u32,
    releases: u32,
    suspect: u16,
    attempts_max: Option<u32>,
    retry_until: Option<Timestamp>,
    /// A deadline may end it; of a dead letter that is known only where it did.
    has_deadline: bool,
    sent_at: Timestamp,
}

/// A row of the outbox.
struct Waiting {
    envelope: Envelope,
    reason: OutboxReason,
    ready_at: Timestamp,
    since: Timestamp,
    error: Option<String>,
}

/// A dead letter.
struct Dead {
    envelope: Envelope,
    reason: String,
    since: Timestamp,
    detail: Option<String>,
    redriven_as: Option<MessageId>,
}

/// A row of the log.
struct LogRow {
    partition: i64,
    offset: i64,
    attempt: u32,
    releases: u32,
    published_at: Timestamp,
    lane: u8,
    subscription: i64,
    /// Why it came through the outbox.
    reason: Option<String>,
}

/// A row of the log with what became of it.
struct Delivery {
    row: LogRow,
    place: Place,
    cursor: i64,
    run: Option<Run>,
}

/// The claim that holds or held a message.
struct Run {
    worker: Option<String>,
    expires_at: Option<Timestamp>,
    leased_at: Timestamp,
    /// When it was acknowledged: as early as its run time allows.
    done_at: Option<Timestamp>,
}

/// Where a message is and how it fared; `None` if nothing is kept of it.
pub(crate) fn message_view(conn: &Connection, now: Timestamp, id: MessageId) -> Tried<Option<MessageView>> {
    let waiting = conn.prepare_cached(sql("message_in_outbox"))?.query_row([id.0], waiting).optional()?;
    let dead = conn.prepare_cached(sql("message_in_dead_letters"))?.query_row([id.0], dead).optional()?;
    let deliveries = deliveries(conn, now, id, waiting.as_ref(), dead.as_ref())?;
    // Why it came into the outbox first; nothing: it was sent straight to the log.
    let main = |delivery: &&Delivery| delivery.row.lane == Lane::Main.number();
    let first = deliveries.iter().find(main).and_then(|delivery| delivery.row.reason.clone());
    let first = first.or_else(|| waiting.as_ref().map(|waiting| waiting.reason.as_str().to_owned()));
    // It has one place: what was put back or buried has left the log, though its rows have not.
    let view = if let Some(waiting) = waiting {
        Some(view_of_waiting(conn, id, waiting)?)
    } else if let Some(dead) = dead {
        Some(view_of_dead(conn, id, dead)?)
    } else if let Some(latest) = deliveries.iter().max_by_key(|delivery| delivery.order()) {
        view_of_delivery(conn, id, latest)?
    } else {
        None
    };
    let Some(mut view) = view else { return Ok(None) };
    view.events = events(conn, &view, first.as_deref(), &deliveries)?;
    died_all_the_same(&mut view);
    dropped_while_it_waited(&mut view);
    let mut old = conn.prepare_cached(sql("dead_letter_before"))?;
    let old: Option<uuid::Uuid> = old.query_row([id.0], |row| row.get(0)).optional()?;
    view.retry_of = old.map(MessageId).or_else(|| view.events.iter().find_map(|event| event.retry_of));
    if let Some(error) = view.events.iter().rev().find_map(|event| event.error.clone()) {
        view.error = Some(error);
    }
    Ok(Some(view))
}

/// A message whose dead letter was removed is not done because nothing else is kept of it: its run log says how it
/// ended.
fn died_all_the_same(view: &mut MessageView) {
    let last =
        view.events.iter().rev().find(|event| matches!(event.kind, EventKind::Success | EventKind::Dlq));
    let Some(death) = last.filter(|last| view.state == State::Done && last.kind == EventKind::Dlq) else {
        return;
    };
    let reason = death.reason.as_deref().and_then(DropReason::parse).unwrap_or(DropReason::Exhausted);
    view.state = State::of(Place::Dead { reason });
    view.since = Some(death.at);
    view.attempt = death.attempt;
    view.reason.clone_from(&death.reason);
}

/// A message that went back and waits no more, though no later row is there, was dropped from the outbox by a purge,
/// whose event names no message.
fn dropped_while_it_waited(view: &mut MessageView) {
    let delivery = view.attempt.saturating_add(view.releases);
    let went_back = |event: &EventView| {
        matches!(event.kind, EventKind::Retry | EventKind::Recover) && event.delivery == delivery
    };
    if view.state != State::Done || !view.events.iter().any(went_back) {
        return;
    }
    view.state = State::of(Place::Dead { reason: DropReason::Purged });
    view.since = None;
    view.reason = Some(DropReason::Purged.as_str().to_owned());
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
    let latest = deliveries(conn, now, id, None, None)?.into_iter().max_by_key(Delivery::order);
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
fn deliveries(
    conn: &Connection,
    now: Timestamp,
    id: MessageId,
    waiting: Option<&Waiting>,
    dead: Option<&Dead>,
) -> Tried<Vec<Delivery>> {
    let mut returns = conn.prepare_cached(sql("message_returns"))?;
    let mut rows: Vec<LogRow> = returns.query_map([id.0], log_row)?.collect::<rusqlite::Result<_>>()?;
    let never_logged =
        waiting.is_some_and(|waiting| matches!(waiting.reason, OutboxReason::Tx | OutboxReason::Delay));
    let sent_through_outbox = rows.iter().any(|row| row.lane == Lane::Main.number());
    if !never_logged && !sent_through_outbox {
        let queue = waiting.map(|waiting| waiting.envelope.queue).or(dead.map(|dead| dead.envelope.queue));
        rows.extend(direct_row(conn, id, queue)?);
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
    fn order(&self) -> (bool, Timestamp, u32, u8, i64) {
        let LogRow { published_at, attempt, releases, lane, offset, .. } = self.row;
        (self.place != Place::Passed, published_at, attempt + releases, lane, offset)
    }
}

fn view_of_waiting(conn: &Connection, id: MessageId, waiting: Waiting) -> Tried<MessageView> {
    let Waiting { envelope, reason, ready_at, since, error } = waiting;
    let state = State::of(Place::Outbox { reason, attempt: envelope.attempt });
    Ok(MessageView {
        since: Some(since),
        ready_at: Some(ready_at),
        reason: Some(reason.as_str().to_owned()),
        error,
        ..view(conn, id, envelope, state)?
    })
}

fn view_of_dead(conn: &Connection, id: MessageId, dead: Dead) -> Tried<MessageView> {
    let Dead { envelope, reason, since, detail, redriven_as } = dead;
    // A word of a later release is a death all the same.
    let known = DropReason::parse(&reason).unwrap_or(DropReason::Exhausted);
    let state = State::of(Place::Dead { reason: known });
    Ok(MessageView {
        since: Some(since),
        reason: Some(reason),
        error: detail,
        redriven_as,
        ..view(conn, id, envelope, state)?
    })
}

fn view_of_delivery(conn: &Connection, id: MessageId, delivery: &Delivery) -> Tried<Option<MessageView>> {
    let Delivery { row, place, cursor, run } = delivery;
    let key = params![row.partition, row.offset];
    let envelope = conn.prepare_cached(sql("message_in_log"))?.query_row(key, envelope).optional()?;
    let Some(envelope) = envelope else { return Ok(None) };
    let mut view = view(conn, id, envelope, State::of(*place))?;
    match (place, run) {
        (Place::Ahead, _) => {
            view.since = Some(row.published_at);
            view.behind = Some((row.offset - cursor - 1).unsigned_abs());
        }
        (Place::Claimed, Some(run)) => {
            view.attempt += 1;
            view.since = Some(run.leased_at);
            view.cancel_asked = conn.prepare_cached(sql("cancel_of_message"))?.exists(params![
                row.subscription,
                row.partition,
                row.offset
            ])?;
            view.worker.clone_from(&run.worker);
            view.lease_until = match run.expires_at {
                Some(expires_at) => Some(expires_at),
                None => worker_lease(conn, run.worker.as_deref())?,
            };
        }
        (Place::Dead { reason }, _) => view.reason = Some(reason.as_str().to_owned()),
        (_, run) => {
            view.attempt += 1;
            view.since = run.as_ref().and_then(|run| run.done_at);
        }
    }
    Ok(Some(view))
}

fn worker_lease(conn: &Connection, worker: Option<&str>) -> Tried<Option<Timestamp>> {
    let mut lease_until = conn.prepare_cached(sql("worker_lease_until"))?;
    Ok(lease_until.query_row([worker], |row| row.get(0)).optional()?.map(instant))
}

fn view(conn: &Connection, id: MessageId, envelope: Envelope, state: State) -> Tried<MessageView> {
    let queue = stored_queues(conn)?.into_iter().find(|queue| queue.id.0 == envelope.queue);
    let (name, attempts_of_queue) = match queue {
        Some(Queue { name, settings, .. }) => (name, Some(settings.attempts_max)),
        None => (String::new(), None),
    };
    let headers = envelope.headers.as_deref().and_then(|text| serde_json::from_str(text).ok());
    Ok(MessageView {
        id,
        state,
        kind: envelope.kind.unwrap_or_else(|| name.clone()),
        queue: name,
        key: envelope.key,
        headers: headers.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
        content_type: envelope.content_type.unwrap_or_else(|| JSON.to_owned()),
        body: envelope.body,
        priority: envelope.class,
        attempt: envelope.attempt,
        releases: envelope.releases,
        // A deadline alone replaces the number of attempts.
        attempts_max: envelope.attempts_max.or(attempts_of_queue.filter(|_| !envelope.has_deadline)),
        retry_until: envelope.retry_until,
        sent_at: envelope.sent_at,
        since: None,
        ready_at: None,
        reason: None,
        error: None,
        worker: None,
        lease_until: None,
        suspect: envelope.suspect,
        behind: None,
        redriven_as: None,
        retry_of: None,
        cancel_asked: false,
        events: Vec::new(),
    })
}

/// The run log of a message. Only what is rare has rows; the rest is read from the message and its claims.
fn events(
    conn: &Connection,
    message: &MessageView,
    first: Option<&str>,
    deliveries: &[Delivery],
) -> Tried<Vec<EventView>> {
    let MessageView { id, sent_at, .. } = *message;
    let of = (message.queue.as_str(), message.kind.as_str());
    let queues = Queues::read(conn)?;
    let mut stored = conn.prepare_cached(sql("message_events"))?;
    let rows = stored.query_map([id.0], |row| event_row(row, &queues))?;
    let mut ordered = rows.collect::<rusqlite::Result<Vec<(Mark, EventView)>>>()?;
    // A redrive has written how it began.
    if !ordered.iter().any(|(_, event)| event.kind == EventKind::Enqueue) {
        let (mark, view) = entry(id, of, EventKind::Enqueue, (0, 0), sent_at);
        let reason = first.map_or(Some("send"), |reason| enqueue_reason(Some(reason)));
        ordered.push((mark, EventView { reason: reason.map(str::to_owned), ..view }));
    }
    for Delivery { row, run, .. } in deliveries {
        let Some(run) = run else { continue };
        let counted = (row.attempt + 1, row.attempt + row.releases + 1);
        let event = |kind, at| {
            let (mark, view) = entry(id, of, kind, counted, at);
            (mark, EventView { worker: run.worker.clone(), ..view })
        };
        ordered.push(event(EventKind::Start, run.leased_at));
        ordered.extend(run.done_at.map(|at| {
            let (mark, view) = event(EventKind::Success, at);
            (mark, EventView { run: Some(at.since(run.leased_at)), ..view })
        }));
    }
    ordered.sort_by_key(|(mark, _)| *mark);
    Ok(ordered.into_iter().map(|(_, event)| event).collect())
}

/// Whether a message that was sent straight to the log of a queue is kept there.
pub(crate) fn direct_row_exists(conn: &Connection, id: MessageId, queue: i64) -> Tried<bool> {
    Ok(direct_row(conn, id, Some(queue))?.is_some())
}

/// A stored time.
pub(crate) const fn instant(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn envelope(row: &Row<'_>) -> rusqlite::Result<Envelope> {
    let retry_until: Option<i64> = row.get(11)?;
    Ok(Envelope {
        queue: row.get(0)?,
        class: row.get(1)?,
        kind: row.get(2)?,
        key: row.get(3)?,
        headers: row.get(4)?,
        content_type: row.get(5)?,
        body: row.get(6)?,
        attempt: row.get(7)?,
        releases: row.get(8)?,
        suspect: row.get(9)?,
        attempts_max: row.get(10)?,
        retry_until: retry_until.map(instant),
        has_deadline: retry_until.is_some(),
        sent_at: instant(row.get(12)?),
    })
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<Waiting> {
    let reason: String = row.get(13)?;
    Ok(Waiting {
        envelope: envelope(row)?,
        reason: OutboxReason::parse(&reason).unwrap_or(OutboxReason::Delay),
        ready_at: instant(row.get(14)?),
        since: instant(row.get(15)?),
        error: row.get(16)?,
    })
}

fn dead(row: &Row<'_>) -> rusqlite::Result<Dead> {
    let reason: String = row.get(13)?;
    let has_deadline = reason == DropReason::RetryUntil.as_str();
    Ok(Dead {
        envelope: Envelope { has_deadline, ..envelope(row)? },
        reason,
        since: instant(row.get(14)?),
        detail: row.get(15)?,
        redriven_as: row.get::<_, Option<uuid::Uuid>>(16)?.map(MessageId),
    })
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

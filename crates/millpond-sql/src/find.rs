//! One message: where it is, and how it fared.
//!
//! Rows of the log stay after their message went back, so a message may have several. Those that came through the
//! outbox have an index; the first one of a direct send is found through the time in its id, by a search in
//! offsets, whose times of publishing never go back.

use std::ops::Range;
use std::time::Duration;

use millpond_core::message::{JSON, MessageId, Offset};
use millpond_core::pick::Lane;
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::state::{Place, State};
use millpond_core::store::Queue;
use millpond_core::time::Timestamp;
use millpond_core::view::{EventView, MessageView};
use serde_json::Value;

use crate::bits::Bits;
use crate::list::Mark;
use crate::param::Param;
use crate::reader::{Reader, Tried};
use crate::record::Queues;
use crate::row::Row;
use crate::run_log::{enqueue_reason, entry, event_row};
use crate::runs::{acknowledged, is_cancelled, is_purged, place};

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
    queue: i32,
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
    partition: i32,
    offset: i64,
    attempt: u32,
    releases: u32,
    published_at: Timestamp,
    lane: u8,
    subscription: i32,
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
pub async fn message_view<R: Reader>(connection: &R, id: MessageId) -> Tried<R, Option<MessageView>> {
    let now = connection.time().await?;
    let by_id: [Param<'_>; 1] = [id.into()];
    let outbox = connection.row_if_any("message_in_outbox", &by_id).await?.map(|row| waiting(&row));
    let dead = connection.row_if_any("message_in_dead_letters", &by_id).await?.map(|row| dead_letter(&row));
    let deliveries = deliveries(connection, now, id, outbox.as_ref(), dead.as_ref()).await?;
    // Why it came into the outbox first; nothing: it was sent straight to the log.
    let main = |delivery: &&Delivery| delivery.row.lane == Lane::Main.number();
    let first = deliveries.iter().find(main).and_then(|delivery| delivery.row.reason.clone());
    let first = first.or_else(|| outbox.as_ref().map(|waiting| waiting.reason.as_str().to_owned()));
    // It has one place: what was put back or buried has left the log, though its rows have not.
    let view = if let Some(waiting) = outbox {
        Some(view_of_waiting(connection, id, waiting).await?)
    } else if let Some(dead) = dead {
        Some(view_of_dead(connection, id, dead).await?)
    } else if let Some(latest) = deliveries.iter().max_by_key(|delivery| delivery.order()) {
        view_of_delivery(connection, id, latest).await?
    } else {
        None
    };
    let Some(mut view) = view else { return Ok(None) };
    view.events = events(connection, &view, first.as_deref(), &deliveries).await?;
    died_all_the_same(&mut view);
    dropped_while_it_waited(&mut view);
    let old = connection.row_if_any("dead_letter_before", &by_id).await?.map(|row| row.get(0));
    view.retry_of = old.or_else(|| view.events.iter().find_map(|event| event.retry_of));
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
pub struct LogPlace {
    /// Who is to work on it.
    pub subscription: i32,
    /// The part of the log.
    pub partition: i32,
    /// Its place there.
    pub offset: i64,
    /// What became of it.
    pub place: Place,
}

/// The latest row of the log that a message has which neither waits in the outbox nor is a dead letter.
pub async fn in_log<R: Reader>(connection: &R, id: MessageId) -> Tried<R, Option<LogPlace>> {
    let now = connection.time().await?;
    let latest = deliveries(connection, now, id, None, None).await?.into_iter().max_by_key(Delivery::order);
    Ok(latest.map(|Delivery { row, place, .. }| {
        let LogRow { subscription, partition, offset, .. } = row;
        LogPlace { subscription, partition, offset, place }
    }))
}

/// Every row of the log that the message has, with what became of it.
async fn deliveries<R: Reader>(
    connection: &R,
    now: Timestamp,
    id: MessageId,
    waiting: Option<&Waiting>,
    dead: Option<&Dead>,
) -> Tried<R, Vec<Delivery>> {
    let returns = connection.rows("message_returns", &[id.into()]).await?;
    let mut rows: Vec<LogRow> = returns.iter().map(log_row).collect();
    let never_logged =
        waiting.is_some_and(|waiting| matches!(waiting.reason, OutboxReason::Tx | OutboxReason::Delay));
    let sent_through_outbox = rows.iter().any(|row| row.lane == Lane::Main.number());
    if !never_logged && !sent_through_outbox {
        let queue = waiting.map(|waiting| waiting.envelope.queue).or(dead.map(|dead| dead.envelope.queue));
        rows.extend(direct_row(connection, id, queue).await?);
    }
    let mut deliveries = Vec::with_capacity(rows.len());
    for row in rows {
        deliveries.push(delivery(connection, now, row).await?);
    }
    Ok(deliveries)
}

/// The row of a direct send, looked for around the time in its id.
async fn direct_row<R: Reader>(
    connection: &R,
    id: MessageId,
    queue: Option<i32>,
) -> Tried<R, Option<LogRow>> {
    let Some(made_at) = id.made_at() else { return Ok(None) };
    for row in connection.rows("main_partitions", &[queue.into()]).await? {
        let (partition, first_offset): (i32, i64) = (row.get(0), row.get(1));
        let end: i64 = connection.row("log_end", &[partition.into()]).await?.get(0);
        let from =
            connection.published_after(partition, first_offset..end, made_at - CLOCK_AHEAD_MAX).await?;
        let to = connection.published_after(partition, from..end, made_at + STORED_AFTER_MAX).await?;
        // Where clocks agree it was stored after it was made: a burst before that must not use up the rows.
        let near = connection.published_after(partition, from..to, made_at - ID_PRECISION).await?;
        let after = near..to.min(near.saturating_add(SCAN_ROWS_MAX));
        let before = from.max(near.saturating_sub(SCAN_ROWS_MAX))..near;
        for range in [after, before] {
            if let Some(row) = scan(connection, partition, range, id).await? {
                return Ok(Some(row));
            }
        }
    }
    Ok(None)
}

/// Looks through a short range of one partition.
async fn scan<R: Reader>(
    connection: &R,
    partition: i32,
    range: Range<i64>,
    id: MessageId,
) -> Tried<R, Option<LogRow>> {
    let params: [Param<'_>; 4] = [partition.into(), range.start.into(), range.end.into(), id.into()];
    let Some(found) = connection.row_if_any("message_scan", &params).await? else { return Ok(None) };
    let offset: i64 = found.get(0);
    let row = connection.row("message_at", &[partition.into(), offset.into()]).await?;
    Ok(Some(log_row(&row)))
}

/// What became of a row of the log: the claim that holds it tells, or the history of the one that did.
async fn delivery<R: Reader>(connection: &R, now: Timestamp, row: LogRow) -> Tried<R, Delivery> {
    let key: [Param<'_>; 2] = [row.subscription.into(), row.partition.into()];
    let top = connection.row_if_any("claim_top", &key).await?;
    let cursor = top.map_or(-1, |found| found.get::<i64>(0));
    if cursor < row.offset {
        // The lease that reaches the mark passes it by, whatever became of its dead letter.
        let marked = is_marked(connection, &row).await?;
        let place = if marked { Place::Dead { reason: DropReason::Cancelled } } else { Place::Ahead };
        return Ok(Delivery { row, place, cursor, run: None });
    }
    if let Some((run, settled)) = live_run(connection, now, &row).await? {
        let place = if settled { Place::Passed } else { Place::Claimed };
        return Ok(Delivery { row, place, cursor, run: Some(run) });
    }
    let run = match finished_run(connection, &row).await? {
        Finished::Purged => {
            let place = Place::Dead { reason: DropReason::Purged };
            return Ok(Delivery { row, place, cursor, run: None });
        }
        Finished::Run(run) => Some(run),
        Finished::Unknown => None,
    };
    Ok(Delivery { row, place: Place::Passed, cursor, run })
}

/// Whether somebody wanted the message of a row stopped.
async fn is_marked<R: Reader>(connection: &R, row: &LogRow) -> Tried<R, bool> {
    let key: [Param<'_>; 3] = [row.subscription.into(), row.partition.into(), row.offset.into()];
    Ok(connection.row_if_any("cancel_of_message", &key).await?.is_some())
}

/// The live claim that holds a row, and whether the message is settled in it.
async fn live_run<R: Reader>(connection: &R, now: Timestamp, row: &LogRow) -> Tried<R, Option<(Run, bool)>> {
    let key: [Param<'_>; 3] = [row.subscription.into(), row.partition.into(), row.offset.into()];
    let Some(found) = connection.row_if_any("message_claim", &key).await? else { return Ok(None) };
    let (from, live): (i64, bool) = (found.get(0), found.get(2));
    if !live || row.offset < from {
        return Ok(None);
    }
    let place = place_in(&found, row);
    let (done, runs): (Option<Bits>, Option<Bits>) = (found.try_get(6)?, found.try_get(7)?);
    if runs.as_ref().is_some_and(|runs| is_cancelled(runs, place)) {
        return Ok(None);
    }
    let leased_at = found.get(5);
    let done_at = done_at(leased_at, runs.as_ref(), place).map(|at| at.min(now));
    let run = Run { worker: found.get(3), expires_at: found.get(4), leased_at, done_at };
    Ok(Some((run, done.is_some_and(|done| done.is_set(place)))))
}

/// What the history tells of a row of the log.
enum Finished {
    Run(Run),
    /// Dropped with all that waited around it.
    Purged,
    /// It keeps nothing of it, or nobody had it.
    Unknown,
}

async fn finished_run<R: Reader>(connection: &R, row: &LogRow) -> Tried<R, Finished> {
    let key: [Param<'_>; 2] = [row.partition.into(), row.offset.into()];
    let Some(found) = connection.row_if_any("message_history", &key).await? else {
        return Ok(Finished::Unknown);
    };
    if row.offset < found.get(0) {
        return Ok(Finished::Unknown);
    }
    let (leased_at, runs): (Timestamp, Bits) = (found.get(3), found.try_get(4)?);
    let place = place_in(&found, row);
    if is_purged(&runs) {
        return Ok(Finished::Purged);
    }
    if is_cancelled(&runs, place) {
        return Ok(Finished::Unknown);
    }
    let done_at = done_at(leased_at, Some(&runs), place);
    Ok(Finished::Run(Run { worker: found.get(2), expires_at: None, leased_at, done_at }))
}

/// The place of a row in the claim or history that was found for it; its second column is its highest offset.
fn place_in(found: &impl Row, row: &LogRow) -> usize {
    let to_offset = Offset(found.get::<i64>(1).unsigned_abs());
    place(to_offset, Offset(row.offset.unsigned_abs())).unwrap_or(usize::MAX / 8)
}

fn done_at(leased_at: Timestamp, runs: Option<&Bits>, place: usize) -> Option<Timestamp> {
    Some(leased_at + acknowledged(runs?, place)?)
}

impl Delivery {
    /// What is live comes last, then the latest.
    fn order(&self) -> (bool, Timestamp, u32, u8, i64) {
        let LogRow { published_at, attempt, releases, lane, offset, .. } = self.row;
        (self.place != Place::Passed, published_at, attempt + releases, lane, offset)
    }
}

async fn view_of_waiting<R: Reader>(
    connection: &R,
    id: MessageId,
    waiting: Waiting,
) -> Tried<R, MessageView> {
    let Waiting { envelope, reason, ready_at, since, error } = waiting;
    let state = State::of(Place::Outbox { reason, attempt: envelope.attempt });
    Ok(MessageView {
        since: Some(since),
        ready_at: Some(ready_at),
        reason: Some(reason.as_str().to_owned()),
        error,
        ..view(connection, id, envelope, state).await?
    })
}

async fn view_of_dead<R: Reader>(connection: &R, id: MessageId, dead: Dead) -> Tried<R, MessageView> {
    let Dead { envelope, reason, since, detail, redriven_as } = dead;
    // A word of a later release is a death all the same.
    let known = DropReason::parse(&reason).unwrap_or(DropReason::Exhausted);
    let state = State::of(Place::Dead { reason: known });
    Ok(MessageView {
        since: Some(since),
        reason: Some(reason),
        error: detail,
        redriven_as,
        ..view(connection, id, envelope, state).await?
    })
}

async fn view_of_delivery<R: Reader>(
    connection: &R,
    id: MessageId,
    delivery: &Delivery,
) -> Tried<R, Option<MessageView>> {
    let Delivery { row, place, cursor, run } = delivery;
    let key: [Param<'_>; 2] = [row.partition.into(), row.offset.into()];
    let Some(stored) = connection.row_if_any("message_in_log", &key).await? else { return Ok(None) };
    let mut view = view(connection, id, envelope(&stored), State::of(*place)).await?;
    match (place, run) {
        (Place::Ahead, _) => {
            view.since = Some(row.published_at);
            view.behind = Some((row.offset - cursor - 1).unsigned_abs());
        }
        (Place::Claimed, Some(run)) => {
            view.attempt += 1;
            view.since = Some(run.leased_at);
            view.cancel_asked = is_marked(connection, row).await?;
            view.worker.clone_from(&run.worker);
            view.lease_until = match run.expires_at {
                Some(expires_at) => Some(expires_at),
                None => worker_lease(connection, run.worker.as_deref()).await?,
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

async fn worker_lease<R: Reader>(connection: &R, worker: Option<&str>) -> Tried<R, Option<Timestamp>> {
    let row = connection.row_if_any("worker_lease_until", &[worker.into()]).await?;
    Ok(row.map(|row| row.get(0)))
}

async fn view<R: Reader>(
    connection: &R,
    id: MessageId,
    envelope: Envelope,
    state: State,
) -> Tried<R, MessageView> {
    let queue = connection.queues().await?.into_iter().find(|queue| queue.id.0 == i64::from(envelope.queue));
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
async fn events<R: Reader>(
    connection: &R,
    message: &MessageView,
    first: Option<&str>,
    deliveries: &[Delivery],
) -> Tried<R, Vec<EventView>> {
    let MessageView { id, sent_at, .. } = *message;
    let of = (message.queue.as_str(), message.kind.as_str());
    let queues = Queues::read(connection).await?;
    let rows = connection.rows("message_events", &[id.into()]).await?;
    let mut ordered: Vec<(Mark, EventView)> = rows.iter().map(|row| event_row(row, &queues)).collect();
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
pub async fn direct_row_exists<R: Reader>(connection: &R, id: MessageId, queue: i32) -> Tried<R, bool> {
    Ok(direct_row(connection, id, Some(queue)).await?.is_some())
}

fn envelope(row: &impl Row) -> Envelope {
    Envelope {
        queue: row.get(0),
        class: row.get(1),
        kind: row.get(2),
        key: row.get(3),
        headers: row.get(4),
        content_type: row.get(5),
        body: row.get(6),
        attempt: row.get(7),
        releases: row.get(8),
        suspect: row.get(9),
        attempts_max: row.get(10),
        retry_until: row.get(11),
        has_deadline: row.get::<Option<i64>>(11).is_some(),
        sent_at: row.get(12),
    }
}

fn waiting(row: &impl Row) -> Waiting {
    Waiting {
        envelope: envelope(row),
        reason: OutboxReason::parse(row.get(13)).unwrap_or(OutboxReason::Delay),
        ready_at: row.get(14),
        since: row.get(15),
        error: row.get(16),
    }
}

fn dead_letter(row: &impl Row) -> Dead {
    let reason: String = row.get(13);
    let has_deadline = reason == DropReason::RetryUntil.as_str();
    Dead {
        envelope: Envelope { has_deadline, ..envelope(row) },
        reason,
        since: row.get(14),
        detail: row.get(15),
        redriven_as: row.get(16),
    }
}

fn log_row(row: &impl Row) -> LogRow {
    LogRow {
        partition: row.get(0),
        offset: row.get(1),
        attempt: row.get(2),
        releases: row.get(3),
        published_at: row.get(4),
        lane: row.get(5),
        subscription: row.get(6),
        reason: row.get(7),
    }
}

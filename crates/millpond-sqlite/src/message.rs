//! One message: where it is, and how it fared.

use millpond_core::message::{JSON, MessageId};
use millpond_core::pick::Lane;
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::state::{Place, State};
use millpond_core::store::Queue;
use millpond_core::time::Timestamp;
use millpond_core::view::{EventView, MessageView};
use millpond_sql::list::Mark;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;

use crate::deliveries::{Delivery, Elsewhere, deliveries};
use crate::entry::{enqueue_reason, entry, event_row};
use crate::error::Tried;
use crate::queues::stored_queues;
use crate::record::Queues;
use crate::sql::sql;

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

/// Where a message is and how it fared; `None` if nothing is kept of it.
pub(crate) fn message_view(conn: &Connection, now: Timestamp, id: MessageId) -> Tried<Option<MessageView>> {
    let waiting = conn.prepare_cached(sql("message_in_outbox"))?.query_row([id.0], waiting).optional()?;
    let dead = conn.prepare_cached(sql("message_in_dead_letters"))?.query_row([id.0], dead).optional()?;
    let envelopes = [waiting.as_ref().map(|row| &row.envelope), dead.as_ref().map(|row| &row.envelope)];
    let queue = envelopes.into_iter().flatten().map(|envelope| envelope.queue).next();
    let first_wait = |waiting: &Waiting| matches!(waiting.reason, OutboxReason::Tx | OutboxReason::Delay);
    let elsewhere = Elsewhere { queue, never_logged: waiting.as_ref().is_some_and(first_wait) };
    let deliveries = deliveries(conn, now, id, elsewhere)?;
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

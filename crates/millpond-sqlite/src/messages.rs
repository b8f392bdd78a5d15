//! The list of messages, wherever they are: each once, by the row that stands for it.

use std::time::Duration;

use millpond_core::message::{JSON, MessageId};
use millpond_core::query::{Field, Query, Record, Value};
use millpond_core::reason::{DropReason, EventKind, OutboxReason};
use millpond_core::state::{Place, State};
use millpond_core::time::Timestamp;
use millpond_core::view::{Count, Find, Found, MessageRow, MessageView};
use millpond_sql::list::{Gather, Mark};
use millpond_sql::record::{Content, asks_bodies, asks_headers, instant_value, owned, span_value};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Tried;
use crate::message::{instant, message_view};
use crate::parts::{Fate, Parts, Run};
use crate::record::Queues;
use crate::spots::{At, Spot};
use crate::sql::sql;
use crate::walk::{Places, Walk};

/// A message beside what it carries.
struct Listed {
    row: MessageRow,
    content: Content,
    now: Timestamp,
}

impl Record for Listed {
    fn value(&self, field: &Field) -> Value<'_> {
        let Self { row, content, now } = self;
        match field {
            Field::Queue => Value::text(Some(&row.queue)),
            Field::Kind => Value::text(Some(&row.kind)),
            Field::Key => Value::text(row.key.as_deref()),
            Field::Id => owned(row.id.to_string()),
            Field::Worker => Value::text(row.worker.as_deref()),
            Field::State => Value::text(Some(row.state.as_str())),
            Field::Reason => Value::text(row.reason.as_deref()),
            Field::Error => Value::text(row.error.as_deref()),
            Field::Attempt => Value::Number(i64::from(row.attempt)),
            Field::Wait => span_value(row.wait),
            Field::Run => span_value(row.run),
            Field::Age => Value::Number(now.as_micros() - row.sent_at.as_micros()),
            Field::Sent => instant_value(Some(row.sent_at)),
            Field::Due => instant_value(row.ready_at),
            other => content.value(other),
        }
    }
}

/// The list, the last sent first.
pub(crate) fn messages(conn: &Connection, now: Timestamp, find: &Find) -> Tried<Found<MessageRow>> {
    let search = Search { conn, now, find, queues: Queues::read(conn)? };
    let cursor = find.after.as_deref().map(Cursor::parse).transpose()?;
    let mut gather = Gather::new(find, cursor.as_ref().map(|cursor| cursor.mark));
    if let Some(ids) = find.query.only(&Field::Id) {
        search.by_id(&ids, &mut gather)?;
        return Ok(gather.found());
    }
    // What is counted again is read again.
    let goes_on = matches!(find.count, Count::No);
    let published_max = cursor.filter(|_| goes_on).map_or(i64::MAX, |cursor| cursor.published_max);
    let rest_published = search.walk(&mut gather, published_max)?;
    let found = gather.found();
    Ok(Found { next: found.next.map(|mark| format!("{mark}~{rest_published}")), ..found })
}

/// Where a list goes on, and what need not be read again for that ([`Walk::rest_published`]).
struct Cursor {
    mark: Mark,
    published_max: i64,
}

impl Cursor {
    fn parse(text: &str) -> Tried<Self> {
        let (mark, rest) = text.split_once('~').unwrap_or((text, ""));
        Ok(Self { mark: Mark::parse(mark)?, published_max: rest.parse().unwrap_or(i64::MAX) })
    }
}

struct Search<'a> {
    conn: &'a Connection,
    now: Timestamp,
    find: &'a Find,
    queues: Queues,
}

impl Search<'_> {
    fn by_id(&self, ids: &[&str], gather: &mut Gather<MessageRow>) -> Tried<()> {
        let mut found = Vec::new();
        for id in ids.iter().filter_map(|id| id.parse::<MessageId>().ok()) {
            found.extend(message_view(self.conn, self.now, id)?);
        }
        let mark = |view: &MessageView| Mark::new(view.sent_at.as_micros(), view.id.0.as_u128());
        found.sort_by_key(|view| std::cmp::Reverse(mark(view)));
        found.dedup_by_key(|view| view.id);
        for view in found {
            let mark = mark(&view);
            if mark >= gather.from() {
                continue;
            }
            let listed = self.of_view(view);
            if !self.find.query.matches(&listed) {
                continue;
            }
            let item = gather.wants(mark).then(|| self.shown(listed));
            if !gather.take(mark, item) {
                break;
            }
        }
        Ok(())
    }

    /// Walks until the page is there, and answers what the next one need not read again.
    fn walk(&self, gather: &mut Gather<MessageRow>, published_max: i64) -> Tried<i64> {
        let query = &self.find.query;
        let (earliest, latest) = sent_between(query, self.now);
        let from = gather.from().min(Mark::new(latest.saturating_add(1), 0));
        let wanted = self.queues.wanted(query);
        let parts = Parts::read(self.conn, &wanted)?;
        let mut walk = Walk::new(self.conn, &wanted, &parts, places(query), (from, published_max), earliest)?;
        let past =
            query.asks(|field| matches!(field, Field::Error | Field::Worker | Field::Run | Field::Anything));
        let (bodies, headers) = (asks_bodies(query), asks_headers(query));
        let mut rest_published = None;
        loop {
            if rest_published.is_none() && gather.is_full() {
                rest_published = Some(walk.rest_published());
            }
            let Some(spot) = walk.next()? else { break };
            if !gather.look() {
                rest_published.get_or_insert_with(|| spot.published().max(walk.rest_published()));
                break;
            }
            let mark = spot.mark();
            let Some(mut row) = self.row(&parts, &spot)? else {
                gather.pass(mark);
                continue;
            };
            if past {
                self.add_past(&mut row, &spot)?;
            }
            let content =
                if bodies || headers { spot.content(self.conn, &parts, bodies)? } else { Content::default() };
            let mut listed = Listed { row, content, now: self.now };
            if !query.matches(&listed) {
                gather.pass(mark);
                continue;
            }
            let item = if gather.wants(mark) {
                if !past {
                    self.add_past(&mut listed.row, &spot)?;
                }
                listed.content = spot.content(self.conn, &parts, self.find.bodies)?;
                Some(self.shown(listed))
            } else {
                None
            };
            if !gather.take(mark, item) {
                break;
            }
        }
        Ok(rest_published.unwrap_or(i64::MAX))
    }

    /// What the row of a spot says; `None`: it does not stand for its message.
    fn row(&self, parts: &Parts, spot: &Spot) -> Tried<Option<MessageRow>> {
        let base = |state| self.base(spot, state);
        Ok(match &spot.at {
            At::Outbox { reason, ready_at, error, .. } => {
                let known = OutboxReason::parse(reason).unwrap_or(OutboxReason::Delay);
                let state = State::of(Place::Outbox { reason: known, attempt: spot.attempt });
                let wait = (*ready_at <= self.now).then(|| self.now.since(*ready_at));
                let (reason, error) = (Some(reason.clone()), error.clone());
                Some(MessageRow { ready_at: Some(*ready_at), wait, reason, error, ..base(state) })
            }
            At::DeadLetter { reason, detail, worker, .. } => {
                let known = DropReason::parse(reason).unwrap_or(DropReason::Exhausted);
                let state = State::of(Place::Dead { reason: known });
                let (reason, error, worker) = (Some(reason.clone()), detail.clone(), worker.clone());
                Some(MessageRow { reason, error, worker, ..base(state) })
            }
            At::Log { part, offset, published_at, .. } => {
                match parts.fate(self.conn, *part, *offset, spot.id)? {
                    Fate::Left => None,
                    Fate::Ahead => {
                        let wait = Some(self.now.since(*published_at));
                        Some(MessageRow { wait, ..base(State::Ready) })
                    }
                    Fate::Held { worker, leased_at } => Some(MessageRow {
                        attempt: spot.attempt + 1,
                        wait: Some(leased_at.since(*published_at)),
                        run: Some(self.now.since(leased_at)),
                        worker,
                        ..base(State::Leased)
                    }),
                    Fate::Done(run) => {
                        let base = MessageRow { attempt: spot.attempt + 1, ..base(State::Done) };
                        Some(match run {
                            None => base,
                            Some(Run { worker, leased_at, took }) => MessageRow {
                                wait: Some(leased_at.since(*published_at)),
                                run: Some(took),
                                worker,
                                ..base
                            },
                        })
                    }
                }
            }
        })
    }

    fn base(&self, spot: &Spot, state: State) -> MessageRow {
        let queue = self.queues.name(spot.queue);
        MessageRow {
            id: spot.id,
            queue: queue.to_owned(),
            kind: spot.kind.clone().unwrap_or_else(|| queue.to_owned()),
            key: spot.key.clone(),
            priority: spot.class,
            state,
            attempt: spot.attempt,
            attempts_max: self.queues.attempts_max(spot.queue, spot.attempts_max, spot.has_deadline()),
            retry_until: spot.retry_until,
            sent_at: spot.sent_at,
            ready_at: None,
            wait: None,
            run: None,
            reason: None,
            error: None,
            worker: None,
            headers: serde_json::json!({}),
            content_type: JSON.to_owned(),
            body: Vec::new(),
        }
    }

    /// The last error, and the worker and the run time of the last attempt, where the row itself has none.
    fn add_past(&self, row: &mut MessageRow, spot: &Spot) -> Tried<()> {
        if spot.attempt == 0 && spot.releases == 0 {
            return Ok(());
        }
        let mut last = self.conn.prepare_cached(sql("event_last"))?;
        let found = last
            .query_row([spot.id.0], |found| {
                let run: Option<i64> = found.get(2)?;
                Ok((found.get::<_, Option<String>>(0)?, found.get::<_, Option<String>>(1)?, run))
            })
            .optional()?;
        if let Some((error, worker, run)) = found {
            row.error = row.error.take().or(error);
            row.worker = row.worker.take().or(worker);
            row.run = row.run.or(run.map(|run| Duration::from_micros(run.unsigned_abs())));
        }
        Ok(())
    }

    fn of_view(&self, view: MessageView) -> Listed {
        let last = |kind| view.events.iter().rev().find(|event| event.kind == kind);
        let ended = view.events.iter().rev().find(|event| event.run.is_some());
        let started = last(EventKind::Start);
        let since = |at: Option<Timestamp>| at.map(|at| self.now.since(at));
        let (wait, run) = match view.state {
            State::Ready => (since(view.since), ended.and_then(|event| event.run)),
            State::Leased => (None, since(view.since)),
            State::Scheduled | State::Retrying => {
                let due = view.ready_at.filter(|due| *due <= self.now);
                (since(due), ended.and_then(|event| event.run))
            }
            _ => (None, ended.and_then(|event| event.run)),
        };
        let worker = view.worker.clone().or_else(|| started.and_then(|event| event.worker.clone()));
        let headers = view.headers.as_object().is_some_and(|names| !names.is_empty());
        let headers = headers.then(|| view.headers.to_string());
        Listed {
            row: MessageRow {
                id: view.id,
                queue: view.queue,
                kind: view.kind,
                key: view.key,
                priority: view.priority,
                state: view.state,
                attempt: view.attempt,
                attempts_max: view.attempts_max,
                retry_until: view.retry_until,
                sent_at: view.sent_at,
                ready_at: view.ready_at,
                wait,
                run,
                reason: view.reason,
                error: view.error,
                worker,
                headers: serde_json::json!({}),
                content_type: JSON.to_owned(),
                body: Vec::new(),
            },
            content: Content::new(Some(view.content_type), headers, view.body),
            now: self.now,
        }
    }

    /// The row as it is handed out.
    fn shown(&self, listed: Listed) -> MessageRow {
        let Listed { mut row, content, .. } = listed;
        if self.find.bodies {
            row.headers = content.headers();
            row.body = content.body;
        }
        if let Some(content_type) = content.content_type {
            row.content_type = content_type;
        }
        row
    }
}

/// The places in which messages of the wanted states can be.
fn places(query: &Query) -> Places {
    let only = query.only(&Field::State);
    let any = |states: &[State]| {
        only.as_ref().is_none_or(|only| states.iter().any(|state| only.contains(&state.as_str())))
    };
    Places {
        outbox: any(&[State::Scheduled, State::Retrying]),
        dead: any(&[State::Dead, State::Cancelled]),
        ahead: any(&[State::Ready]),
        held: any(&[State::Leased]),
        // What is done may be in a claim that is live.
        passed: any(&[State::Done]),
    }
}

/// When what matches can have been sent, both included.
fn sent_between(query: &Query, now: Timestamp) -> (i64, i64) {
    let (from, to) = query.between(&Field::Sent);
    let (youngest, oldest) = query.between(&Field::Age);
    let ago = |age: i64| instant(now.as_micros().saturating_sub(age)).as_micros();
    (from.max(ago(oldest)), to.min(ago(youngest)))
}

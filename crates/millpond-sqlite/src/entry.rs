//! An entry of the run log: how one is made, in which order they are, and what a query can ask about one.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::time::Duration;

use millpond_core::message::MessageId;
use millpond_core::query::{Field, Record, Value};
use millpond_core::reason::{EventKind, OutboxReason};
use millpond_core::time::Timestamp;
use millpond_core::view::EventView;
use millpond_sql::list::Mark;
use millpond_sql::record::{Content, instant_value, owned, span_value};
use rusqlite::{Connection, Row};
use uuid::Uuid;

use crate::message::{instant, message_view};
use crate::record::Queues;

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

/// A row of `millpond_event` with its mark: the columns of `event_page` and `message_events`.
pub(crate) fn event_row(row: &Row<'_>, queues: &Queues) -> rusqlite::Result<(Mark, EventView)> {
    let number: i64 = row.get(0)?;
    let id: Vec<u8> = row.get(1)?;
    let (queue, kind): (i64, String) = (row.get(2)?, row.get(3)?);
    let (attempt, releases, at): (u32, u32, i64) = (row.get(5)?, row.get(6)?, row.get(9)?);
    // A word of a later release is shown as what it is at least: a move.
    let kind = EventKind::parse(&kind).unwrap_or(EventKind::Recover);
    let name: Option<String> = row.get(12)?;
    let queue = queues.name(queue);
    let name = name.as_deref().unwrap_or(queue);
    let message = Uuid::from_slice(&id).ok().map(MessageId);
    // What speaks of many messages has no id of one: its number stands for that.
    let stand_in = MessageId(Uuid::from_u128(u128::from(number.unsigned_abs())));
    let delivery = attempt.saturating_add(releases);
    let (mark, view) =
        entry(message.unwrap_or(stand_in), (queue, name), kind, (attempt, delivery), instant(at));
    let view = EventView {
        message,
        reason: Some(row.get(4)?),
        worker: row.get(7)?,
        error: row.get(8)?,
        run: row.get::<_, Option<i64>>(10)?.map(|run| Duration::from_micros(run.unsigned_abs())),
        count: row.get(11)?,
        retry_of: row.get::<_, Option<Uuid>>(13)?.map(MessageId),
        ..view
    };
    Ok((mark, view))
}

/// An entry beside what a query may ask of its message.
pub(crate) struct Entry {
    pub(crate) mark: Mark,
    pub(crate) view: EventView,
    pub(crate) key: Option<String>,
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

pub(crate) struct Asked<'a> {
    entry: &'a Entry,
    /// Key and headers of a message whose entry does not have them.
    more: OnceCell<Option<(Option<String>, Content)>>,
    conn: &'a Connection,
    now: Timestamp,
}

impl<'a> Asked<'a> {
    pub(crate) const fn new(entry: &'a Entry, conn: &'a Connection, now: Timestamp) -> Self {
        Self { entry, more: OnceCell::new(), conn, now }
    }

    fn more(&self) -> Option<&(Option<String>, Content)> {
        let read = || {
            let view = message_view(self.conn, self.now, self.entry.view.message?).ok()??;
            let content = Content::new(None, Some(view.headers.to_string()), Vec::new());
            Some((view.key, content))
        };
        self.more.get_or_init(read).as_ref()
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

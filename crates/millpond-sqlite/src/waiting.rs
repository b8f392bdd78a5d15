//! The outbox as people see it: the list, and its sums by queue.

use millpond_core::message::{JSON, MessageId};
use millpond_core::query::{Field, Record, Value};
use millpond_core::time::Timestamp;
use millpond_core::view::{Find, Found, OutboxRow, OutboxSummary};
use millpond_sql::list::{Gather, Mark, after};
use millpond_sql::record::{Content, asks_bodies, asks_headers, instant_value, owned};
use rusqlite::{Connection, Row, named_params, params};

use crate::error::Tried;
use crate::message::instant;
use crate::record::Queues;
use crate::sql::sql;

/// A row of the list.
struct Waiting {
    seq: i64,
    id: MessageId,
    queue: i64,
    reason: String,
    ready_at: Timestamp,
    since: Timestamp,
    sent_at: Timestamp,
    attempt: u32,
    error: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    content: Content,
}

struct Asked<'a> {
    row: &'a Waiting,
    queues: &'a Queues,
    now: Timestamp,
}

impl Waiting {
    /// The next due is the largest.
    fn mark(&self) -> Mark {
        Mark::new(-self.ready_at.as_micros(), u128::MAX - u128::from(self.seq.unsigned_abs()))
    }

    fn kind<'a>(&'a self, queues: &'a Queues) -> &'a str {
        self.kind.as_deref().unwrap_or_else(|| queues.name(self.queue))
    }

    fn view(self, queues: &Queues, bodies: bool) -> OutboxRow {
        OutboxRow {
            id: self.id,
            queue: queues.name(self.queue).to_owned(),
            kind: self.kind(queues).to_owned(),
            key: self.key,
            reason: self.reason,
            ready_at: self.ready_at,
            since: self.since,
            sent_at: self.sent_at,
            attempt: self.attempt,
            error: self.error,
            headers: if bodies { self.content.headers() } else { serde_json::json!({}) },
            content_type: self.content.content_type.unwrap_or_else(|| JSON.to_owned()),
            body: if bodies { self.content.body } else { Vec::new() },
        }
    }
}

impl Record for Asked<'_> {
    fn value(&self, field: &Field) -> Value<'_> {
        let Self { row, queues, now } = self;
        match field {
            Field::Queue => Value::text(Some(queues.name(row.queue))),
            Field::Kind => Value::text(Some(row.kind(queues))),
            Field::Key => Value::text(row.key.as_deref()),
            Field::Id => owned(row.id.to_string()),
            Field::Reason => Value::text(Some(&row.reason)),
            Field::Error => Value::text(row.error.as_deref()),
            Field::Attempt => Value::Number(i64::from(row.attempt)),
            Field::Age => Value::Number(now.as_micros() - row.sent_at.as_micros()),
            Field::Sent => instant_value(Some(row.sent_at)),
            Field::Due => instant_value(Some(row.ready_at)),
            other => row.content.value(other),
        }
    }
}

/// The list, the next due first.
pub(crate) fn outbox(conn: &Connection, now: Timestamp, find: &Find) -> Tried<Found<OutboxRow>> {
    let queues = Queues::read(conn)?;
    let mut gather = Gather::new(find, after(find)?);
    let from = gather.from();
    walk(conn, &queues, find, from, |row| {
        if !gather.look() {
            return Ok(false);
        }
        let mark = row.mark();
        if !find.query.matches(&Asked { row: &row, queues: &queues, now }) {
            gather.pass(mark);
            return Ok(true);
        }
        let item = gather.wants(mark).then(|| row.view(&queues, find.bodies));
        Ok(gather.take(mark, item))
    })?;
    Ok(gather.found())
}

/// Hands over the rows that may match, the next due first, until `take` says no.
fn walk(
    conn: &Connection,
    queues: &Queues,
    find: &Find,
    from: Mark,
    mut take: impl FnMut(Waiting) -> Tried<bool>,
) -> Tried<()> {
    let query = &find.query;
    let bodies = find.bodies || asks_bodies(query);
    let headers = bodies || asks_headers(query);
    if let Some(ids) = query.only(&Field::Id) {
        for row in by_id(conn, &ids, bodies)?.into_iter().filter(|row| row.mark() < from) {
            if !take(row)? {
                break;
            }
        }
        return Ok(());
    }
    let (earliest, latest) = query.between(&Field::Due);
    let begin = (from.at.saturating_neg(), i64::try_from(u128::MAX - from.id).unwrap_or(-1));
    let (at, after) = if from == Mark::TOP || begin.0 < earliest { (earliest, -1) } else { begin };
    let one = queues.the_one(query);
    let name = if one.is_some() { "outbox_list_of_queue" } else { "outbox_list" };
    let named: &[(&str, &dyn rusqlite::ToSql)] = named_params! {
        ":at": at, ":after": after, ":to": latest, ":bodies": bodies, ":headers": headers, ":queue": one,
    };
    // The list of all queues has no such parameter.
    let named = &named[..named.len() - usize::from(one.is_none())];
    let mut list = conn.prepare_cached(sql(name))?;
    let mut rows = list.query(named)?;
    while let Some(row) = rows.next()? {
        if !take(waiting(row)?)? {
            break;
        }
    }
    Ok(())
}

/// Rows of these messages, the next due first. What is no id names nothing.
fn by_id(conn: &Connection, ids: &[&str], bodies: bool) -> Tried<Vec<Waiting>> {
    let mut found = Vec::new();
    let mut get = conn.prepare_cached(sql("outbox_by_message"))?;
    for id in ids.iter().filter_map(|id| id.parse::<MessageId>().ok()) {
        let rows = get.query_map(params![id.0, bodies], waiting)?;
        found.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    found.sort_by_key(|row: &Waiting| std::cmp::Reverse(row.mark()));
    found.dedup_by_key(|row| row.seq);
    Ok(found)
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<Waiting> {
    let body: Option<Vec<u8>> = row.get(13)?;
    Ok(Waiting {
        seq: row.get(0)?,
        ready_at: instant(row.get(1)?),
        id: MessageId(row.get(2)?),
        queue: row.get(3)?,
        reason: row.get(4)?,
        since: instant(row.get(5)?),
        sent_at: instant(row.get(6)?),
        attempt: row.get(7)?,
        error: row.get(8)?,
        kind: row.get(9)?,
        key: row.get(10)?,
        content: Content::new(row.get(11)?, row.get(12)?, body.unwrap_or_default()),
    })
}

/// The sums by queue; a queue for which nothing waits has none.
pub(crate) fn summary(conn: &Connection, now: Timestamp) -> Tried<Vec<OutboxSummary>> {
    let queues = Queues::read(conn)?;
    let mut sums = conn.prepare_cached(sql("outbox_sums"))?;
    let rows = sums.query_map(named_params! { ":now": now.as_micros() }, |row| {
        let due: u64 = row.get(2)?;
        Ok(OutboxSummary {
            queue: queues.name(row.get(0)?).to_owned(),
            rows: row.get(1)?,
            due,
            oldest_due: if due == 0 { None } else { Some(instant(row.get(3)?)) },
            next_due: row.get::<_, Option<i64>>(4)?.map(instant),
            attempts_max: row.get(5)?,
        })
    })?;
    let mut summary = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    summary.sort_by(|one, other| one.queue.cmp(&other.queue));
    Ok(summary)
}

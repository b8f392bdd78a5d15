//! The outbox as people see it: the list, and its sums by queue.

use millpond_core::message::{JSON, MessageId};
use millpond_core::query::{Field, Record, Value};
use millpond_core::time::Timestamp;
use millpond_core::view::{Find, Found, OutboxRow, OutboxSummary};

use crate::list::{Gather, Mark, after};
use crate::param::Param;
use crate::reader::{Reader, Tried};
use crate::record::{Content, Queues, asks_bodies, asks_headers, instant_value, owned};
use crate::row::Row;

/// Rows of one question.
const CHUNK: i64 = 500;

/// A row of the list.
struct Waiting {
    seq: i64,
    id: MessageId,
    queue: i32,
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
pub async fn outbox<R: Reader>(connection: &R, find: &Find) -> Tried<R, Found<OutboxRow>> {
    let (now, queues) = (connection.time().await?, Queues::read(connection).await?);
    let mut gather = Gather::new(find, after(find)?);
    let from = gather.from();
    let take = |row: Waiting| {
        if !gather.look() {
            return false;
        }
        let mark = row.mark();
        if !find.query.matches(&Asked { row: &row, queues: &queues, now }) {
            gather.pass(mark);
            return true;
        }
        let item = gather.wants(mark).then(|| row.view(&queues, find.bodies));
        gather.take(mark, item)
    };
    walk(connection, &queues, find, from, take).await?;
    Ok(gather.found())
}

/// Hands over the rows that may match, the next due first, until `take` says no.
async fn walk<R: Reader>(
    connection: &R,
    queues: &Queues,
    find: &Find,
    from: Mark,
    mut take: impl FnMut(Waiting) -> bool,
) -> Tried<R, ()> {
    let query = &find.query;
    let bodies = find.bodies || asks_bodies(query);
    let headers = bodies || asks_headers(query);
    if let Some(ids) = query.only(&Field::Id) {
        let rows = by_id(connection, &ids, bodies).await?;
        rows.into_iter().filter(|row| row.mark() < from).all(take);
        return Ok(());
    }
    let (earliest, latest) = query.between(&Field::Due);
    let begin = (from.at.saturating_neg(), i64::try_from(u128::MAX - from.id).unwrap_or(-1));
    let (mut at, mut after) = if from == Mark::TOP || begin.0 < earliest { (earliest, -1) } else { begin };
    let one = queues.the_one(query);
    let name = if one.is_some() { "outbox_list_of_queue" } else { "outbox_list" };
    loop {
        let mut params: Vec<Param<'_>> =
            vec![at.into(), after.into(), latest.into(), headers.into(), bodies.into(), CHUNK.into()];
        params.extend(one.map(Param::from));
        let rows = connection.rows(name, &params).await?;
        let more = rows.len() as i64 == CHUNK;
        let Some(last) = rows.last() else { return Ok(()) };
        (at, after) = (last.get(1), last.get(0));
        if !rows.iter().map(waiting).all(&mut take) || !more {
            return Ok(());
        }
    }
}

/// Rows of these messages, the next due first. What is no id names nothing.
async fn by_id<R: Reader>(connection: &R, ids: &[&str], bodies: bool) -> Tried<R, Vec<Waiting>> {
    let mut found = Vec::new();
    for id in ids.iter().filter_map(|id| id.parse::<MessageId>().ok()) {
        let params: [Param<'_>; 2] = [id.into(), bodies.into()];
        found.extend(connection.rows("outbox_by_message", &params).await?.iter().map(waiting));
    }
    found.sort_by_key(|row: &Waiting| std::cmp::Reverse(row.mark()));
    found.dedup_by_key(|row| row.seq);
    Ok(found)
}

fn waiting(row: &impl Row) -> Waiting {
    Waiting {
        seq: row.get(0),
        ready_at: row.get(1),
        id: row.get(2),
        queue: row.get(3),
        reason: row.get(4),
        since: row.get(5),
        sent_at: row.get(6),
        attempt: row.get(7),
        error: row.get(8),
        kind: row.get(9),
        key: row.get(10),
        content: Content::new(row.get(11), row.get(12), row.get::<Option<Vec<u8>>>(13).unwrap_or_default()),
    }
}

/// The sums by queue; a queue for which nothing waits has none.
pub async fn summary<R: Reader>(connection: &R) -> Tried<R, Vec<OutboxSummary>> {
    let (now, queues) = (connection.time().await?, Queues::read(connection).await?);
    let rows = connection.rows("outbox_sums", &[now.as_micros().into()]).await?;
    let sum = |row: &R::Row| {
        let due = row.get(2);
        OutboxSummary {
            queue: queues.name(row.get(0)).to_owned(),
            rows: row.get(1),
            due,
            oldest_due: if due == 0 { None } else { Some(row.get(3)) },
            next_due: row.get(4),
            attempts_max: row.get(5),
        }
    };
    let mut summary: Vec<OutboxSummary> = rows.iter().map(sum).collect();
    summary.sort_by(|one, other| one.queue.cmp(&other.queue));
    Ok(summary)
}

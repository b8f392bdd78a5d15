//! Dead letters: the list, and what they have in common.

use std::collections::HashMap;
use std::time::Duration;

use millpond_core::fingerprint::fingerprint;
use millpond_core::message::{JSON, MessageId};
use millpond_core::query::{Field, Query, Record, Value};
use millpond_core::reason::DropReason;
use millpond_core::time::Timestamp;
use millpond_core::view::{Count, DeadLetterView, FailureGroup, Find, Found, GroupBy, dead_letter_status};
use millpond_sql::list::{Gather, Mark, after};
use millpond_sql::record::{Content, asks_bodies, asks_headers, instant_value, owned};
use rusqlite::{Connection, Row, Statement, named_params, params};
use uuid::Uuid;

use crate::error::Tried;
use crate::message::instant;
use crate::record::Queues;
use crate::sql::sql;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A row of the list.
struct Letter {
    number: i64,
    id: MessageId,
    queue: i64,
    class: u8,
    reason: String,
    detail: Option<String>,
    died_at: Timestamp,
    sent_at: Timestamp,
    attempt: u32,
    attempts_max: Option<u32>,
    kind: Option<String>,
    key: Option<String>,
    error_class: Option<String>,
    fingerprint: Option<String>,
    worker: Option<String>,
    redriven_as: Option<MessageId>,
    retry_of: Option<MessageId>,
    body_bytes: u64,
    content: Content,
}

/// A letter beside what its queue says.
struct Asked<'a> {
    letter: &'a Letter,
    queues: &'a Queues,
    now: Timestamp,
}

impl Letter {
    fn kind<'a>(&'a self, queues: &'a Queues) -> &'a str {
        self.kind.as_deref().unwrap_or_else(|| queues.name(self.queue))
    }

    /// As it was stored; of one from before it was, as it would have been.
    fn fingerprint(&self, queues: &Queues) -> String {
        let Self { reason, error_class, detail, .. } = self;
        let made = || fingerprint(self.kind(queues), reason, error_class.as_deref(), detail.as_deref());
        self.fingerprint.clone().unwrap_or_else(made)
    }

    fn mark(&self) -> Mark {
        Mark::new(self.died_at.as_micros(), u128::from(self.number.unsigned_abs()))
    }

    fn view(self, queues: &Queues, bodies: bool) -> DeadLetterView {
        let has_deadline = self.reason == DropReason::RetryUntil.as_str();
        let headers = if bodies { self.content.headers() } else { serde_json::json!({}) };
        DeadLetterView {
            id: self.id,
            kind: self.kind(queues).to_owned(),
            fingerprint: Some(self.fingerprint(queues)),
            queue: queues.name(self.queue).to_owned(),
            key: self.key,
            priority: self.class,
            reason: self.reason,
            detail: self.detail,
            class: self.error_class,
            attempt: self.attempt,
            attempts_max: queues.attempts_max(self.queue, self.attempts_max, has_deadline),
            worker: self.worker,
            headers,
            content_type: self.content.content_type.unwrap_or_else(|| JSON.to_owned()),
            body: if bodies { self.content.body } else { Vec::new() },
            body_bytes: self.body_bytes,
            sent_at: self.sent_at,
            died_at: self.died_at,
            redriven_as: self.redriven_as,
            retry_of: self.retry_of,
        }
    }
}

impl Record for Asked<'_> {
    fn value(&self, field: &Field) -> Value<'_> {
        let Self { letter, queues, now } = self;
        match field {
            Field::Queue => Value::text(Some(queues.name(letter.queue))),
            Field::Kind => Value::text(Some(letter.kind(queues))),
            Field::Key => Value::text(letter.key.as_deref()),
            Field::Id => owned(letter.id.to_string()),
            Field::Worker => Value::text(letter.worker.as_deref()),
            Field::Status => Value::text(Some(dead_letter_status(&letter.reason, letter.redriven_as))),
            Field::Reason => Value::text(Some(&letter.reason)),
            Field::Error => Value::text(letter.detail.as_deref()),
            Field::Class => Value::text(letter.error_class.as_deref()),
            Field::Fingerprint => owned(letter.fingerprint(queues)),
            Field::Attempt => Value::Number(i64::from(letter.attempt)),
            Field::Age => Value::Number(now.as_micros() - letter.sent_at.as_micros()),
            Field::Sent => instant_value(Some(letter.sent_at)),
            Field::Died => instant_value(Some(letter.died_at)),
            other => letter.content.value(other),
        }
    }
}

/// The query with what it means if it does not ask for a status: open ones.
fn with_status(query: &Query) -> Query {
    if query.asks(|field| *field == Field::Status) {
        return query.clone();
    }
    query.clone().and(Field::Status, ["open".to_owned()])
}

/// The list, newest first.
pub(crate) fn dead_letters(conn: &Connection, now: Timestamp, find: &Find) -> Tried<Found<DeadLetterView>> {
    let queues = Queues::read(conn)?;
    let query = with_status(&find.query);
    let mut gather = Gather::new(find, after(find)?);
    let from = gather.from();
    walk(conn, &queues, &query, from, find.bodies, |letter| {
        if !gather.look() {
            return Ok(false);
        }
        let mark = letter.mark();
        if !query.matches(&Asked { letter: &letter, queues: &queues, now }) {
            gather.pass(mark);
            return Ok(true);
        }
        let item = gather.wants(mark).then(|| letter.view(&queues, find.bodies));
        Ok(gather.take(mark, item))
    })?;
    Ok(gather.found())
}

/// Hands over the letters that may match, newest first, until `take` says no.
fn walk(
    conn: &Connection,
    queues: &Queues,
    query: &Query,
    from: Mark,
    bodies: bool,
    mut take: impl FnMut(Letter) -> Tried<bool>,
) -> Tried<()> {
    let bodies = bodies || asks_bodies(query);
    let headers = bodies || asks_headers(query);
    if let Some(ids) = query.only(&Field::Id) {
        for letter in by_id(conn, &ids, bodies)?.into_iter().filter(|letter| letter.mark() < from) {
            if !take(letter)? {
                break;
            }
        }
        return Ok(());
    }
    let (earliest, latest) = query.between(&Field::Died);
    let (at, before) = match from.at <= latest {
        true => (from.at, i64::try_from(from.id).unwrap_or(i64::MAX)),
        false => (latest, i64::MAX),
    };
    let one = queues.the_one(query);
    let name = if one.is_some() { "dead_letter_list_of_queue" } else { "dead_letter_list" };
    let mut list = conn.prepare_cached(sql(name))?;
    let named: &[(&str, &dyn rusqlite::ToSql)] = named_params! {
        ":at": at, ":before": before, ":from": earliest, ":bodies": bodies, ":headers": headers, ":queue": one,
    };
    // The list of all queues has no such parameter.
    let named = &named[..named.len() - usize::from(one.is_none())];
    each_letter(&mut list, named, take)
}

fn each_letter(
    list: &mut Statement<'_>,
    named: &[(&str, &dyn rusqlite::ToSql)],
    mut take: impl FnMut(Letter) -> Tried<bool>,
) -> Tried<()> {
    let mut rows = list.query(named)?;
    while let Some(row) = rows.next()? {
        if !take(letter(row)?)? {
            break;
        }
    }
    Ok(())
}

/// Those with these ids, newest first. What is no id names nothing.
fn by_id(conn: &Connection, ids: &[&str], bodies: bool) -> Tried<Vec<Letter>> {
    let mut letters = Vec::new();
    let mut get = conn.prepare_cached(sql("dead_letter_by_message"))?;
    for id in ids.iter().filter_map(|id| id.parse::<MessageId>().ok()) {
        let rows = get.query_map(params![id.0, bodies], letter)?;
        letters.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    letters.sort_by_key(|letter: &Letter| std::cmp::Reverse(letter.mark()));
    letters.dedup_by_key(|letter| letter.number);
    Ok(letters)
}

fn letter(row: &Row<'_>) -> rusqlite::Result<Letter> {
    let other = |id: Option<Uuid>| id.map(MessageId);
    Ok(Letter {
        number: row.get(0)?,
        died_at: instant(row.get(1)?),
        id: MessageId(row.get(2)?),
        queue: row.get(3)?,
        class: row.get(4)?,
        reason: row.get(5)?,
        detail: row.get(6)?,
        sent_at: instant(row.get(7)?),
        attempt: row.get(8)?,
        attempts_max: row.get(9)?,
        kind: row.get(10)?,
        key: row.get(11)?,
        error_class: row.get(12)?,
        fingerprint: row.get(13)?,
        worker: row.get(14)?,
        redriven_as: other(row.get(15)?),
        retry_of: other(row.get(16)?),
        body_bytes: row.get(17)?,
        content: Content::new(
            row.get(18)?,
            row.get(19)?,
            row.get::<_, Option<Vec<u8>>>(20)?.unwrap_or_default(),
        ),
    })
}

/// Groups by what they have in common, the largest first.
pub(crate) fn groups(
    conn: &Connection,
    now: Timestamp,
    query: &Query,
    by: GroupBy,
) -> Tried<Vec<FailureGroup>> {
    let queues = Queues::read(conn)?;
    let query = with_status(query);
    let mut groups: HashMap<String, FailureGroup> = HashMap::new();
    let mut limit = Gather::<()>::new(&Find { count: Count::All, ..Find::default() }, None);
    walk(conn, &queues, &query, Mark::TOP, false, |letter| {
        if query.matches(&Asked { letter: &letter, queues: &queues, now }) {
            add(&mut groups, &letter, &queues, now, by);
        }
        Ok(limit.look())
    })?;
    let mut groups: Vec<FailureGroup> = groups.into_values().collect();
    groups.sort_by(|one, other| {
        let order = |group: &FailureGroup| (std::cmp::Reverse((group.count, group.last)), group.key.clone());
        order(one).cmp(&order(other))
    });
    Ok(groups)
}

/// Adds a letter to its group. Letters come newest first.
fn add(
    groups: &mut HashMap<String, FailureGroup>,
    letter: &Letter,
    queues: &Queues,
    now: Timestamp,
    by: GroupBy,
) {
    let print = letter.fingerprint(queues);
    let (queue, kind) = (queues.name(letter.queue), letter.kind(queues));
    let key = match by {
        GroupBy::Fingerprint => &print,
        GroupBy::Queue => queue,
        GroupBy::Kind => kind,
        GroupBy::Reason => &letter.reason,
        GroupBy::Worker => letter.worker.as_deref().unwrap_or_default(),
    };
    let day = days_ago(now, letter.died_at);
    if let Some(group) = groups.get_mut(key) {
        group.count += 1;
        group.first = letter.died_at;
        keep_if(&mut group.fingerprint, Some(&print));
        keep_if(&mut group.queue, Some(queue));
        keep_if(&mut group.kind, Some(kind));
        keep_if(&mut group.reason, Some(&letter.reason));
        keep_if(&mut group.class, letter.error_class.as_deref());
        if let Some(day) = day {
            group.per_day[day] += 1;
        }
        return;
    }
    let mut per_day = [0; 7];
    if let Some(day) = day {
        per_day[day] = 1;
    }
    let group = FailureGroup {
        key: key.to_owned(),
        queue: Some(queue.to_owned()),
        kind: Some(kind.to_owned()),
        reason: Some(letter.reason.clone()),
        class: letter.error_class.clone(),
        example: letter.detail.clone(),
        count: 1,
        first: letter.died_at,
        last: letter.died_at,
        per_day,
        fingerprint: Some(print.clone()),
    };
    groups.insert(group.key.clone(), group);
}

/// Forgets a value that is not common to all.
fn keep_if(kept: &mut Option<String>, value: Option<&str>) {
    if kept.as_deref() != value {
        *kept = None;
    }
}

/// Its place among the last seven spans of 24 hours, the oldest first.
fn days_ago(now: Timestamp, died_at: Timestamp) -> Option<usize> {
    let days = now.since(died_at).as_micros() / DAY.as_micros();
    (days < 7).then(|| 6 - days as usize)
}

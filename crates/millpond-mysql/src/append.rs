//! Append: all of a send or none, in the log and in the outbox.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millpond_core::error::{Code, Error};
use millpond_core::message::{Due, Headers, MessageId, NewMessage};
use millpond_core::pick::Lane;
use millpond_core::reason::OutboxReason;
use millpond_core::store::{QueueId, Stored};
use millpond_core::time::micros;
pub(crate) use millpond_sql::queues::number;
use uuid::Uuid;

use crate::connection::Connection;
use crate::error::Tried;
use crate::literal::{Cell, List};
use crate::script::Script;

/// Where the messages of one call go that are due at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// Into the log: the call is its own transaction.
    Log,
    /// Into the outbox: they belong to a handler's transaction, and the relay moves them.
    Outbox,
}

/// The numbers of partitions, which never change once they are committed.
#[derive(Debug, Default)]
pub(crate) struct Partitions(Mutex<HashMap<(QueueId, u8), i32>>);

impl Partitions {
    /// The main partition of a class, made if it is new. In a transaction of its own: it must be committed before
    /// anybody remembers it.
    pub(crate) async fn main(&self, connection: &Connection, queue: QueueId, class: u8) -> Tried<i32> {
        let known =
            |map: &Self| map.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(queue, class)).copied();
        if let Some(partition) = known(self) {
            return Ok(partition);
        }
        let partition = partition_of(connection, number(queue), class, Lane::Main.number()).await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((queue, class), partition);
        Ok(partition)
    }
}

/// The partition of a part of a queue, made if it is new. The connection is in no transaction, or the part stays unknown
/// to others until its end.
pub(crate) async fn partition_of(connection: &Connection, queue: i32, class: u8, lane: u8) -> Tried<i32> {
    if let Some(found) = connection.row_if_any("partition_find", &[&queue, &class, &lane]).await? {
        return Ok(found.get(0));
    }
    let mut script = connection.new_script();
    script.add("still_ours", &[])?;
    script.add("partition_add", &[&queue, &class, &lane])?;
    script.add("partition_add_lock", &[&queue, &class, &lane])?;
    connection.script(script).await?;
    Ok(connection.row("partition_find", &[&queue, &class, &lane]).await?.get(0))
}

/// The places of the answers about one partition that is appended to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    /// Once this one is there, the lock is held.
    pub(crate) lock: usize,
    /// It has the offset of the first message.
    pub(crate) base: usize,
}

/// Adds what appends messages to one partition, in the order given. The lock and what is read behind it are statements
/// of their own (R1).
pub(crate) fn append_log(
    script: &mut Script<'_>,
    queue: QueueId,
    partition: i32,
    messages: &[&NewMessage],
) -> Tried<Appended> {
    let lock = script.add("log_append_lock", &[&partition])?;
    script.add("log_append_time", &[])?;
    let part = Cell::Int(partition.into());
    if messages.iter().all(|message| is_bare(message)) {
        let rows = (0_i64..).zip(messages).map(|(place, message)| {
            let checksum = i64::from(checksum(&message.body)).into();
            [part, place.into(), message.id.0.into(), checksum, message.body.as_slice().into()]
        });
        script.add_rows("log_append_bare", &[], rows)?;
    } else {
        add_rows(script, part, messages)?;
    }
    script.add("log_append_end", &[&partition, &messages.len()])?;
    add_sent(script, queue, &by_kind(messages.iter().copied()))?;
    let base = script.add("log_append_base", &[])?;
    Ok(Appended { lock, base })
}

/// Whether a message has nothing but its body.
fn is_bare(message: &NewMessage) -> bool {
    message.kind.is_none()
        && message.key.is_none()
        && message.content_type.is_none()
        && message.headers.is_empty()
        && message.attempts_max.is_none()
        && message.retry_until.is_none()
}

/// Adds rows of the log with everything that a message can have.
fn add_rows(script: &mut Script<'_>, partition: Cell<'_>, messages: &[&NewMessage]) -> Tried<()> {
    let headers: Vec<Option<String>> =
        messages.iter().map(|message| headers_text(&message.headers)).collect();
    let rows = (0_i64..).zip(messages).zip(&headers).map(|((place, message), headers)| -> [Cell<'_>; 11] {
        [
            partition,
            place.into(),
            message.id.0.into(),
            i64::from(checksum(&message.body)).into(),
            message.body.as_slice().into(),
            message.kind.as_deref().into(),
            message.key.as_deref().into(),
            message.content_type.as_deref().into(),
            headers.as_deref().into(),
            message.attempts_max.map(i64::from).into(),
            due(message.retry_until),
        ]
    });
    script.add_rows("log_append", &[], rows).map(drop)
}

/// Adds to the counters of what was sent.
fn add_sent(script: &mut Script<'_>, queue: QueueId, counts: &BTreeMap<&str, i64>) -> Tried<()> {
    let rows = counts
        .iter()
        .map(|(kind, count)| [i64::from(number(queue)).into(), Cell::Text(kind), Cell::Int(*count)]);
    script.add_rows("stat_sent", &[], rows).map(drop)
}

/// Asks which messages wait in the outbox already; a send that is repeated is one message.
pub(crate) async fn known_in_outbox(
    connection: &Connection,
    messages: &[&NewMessage],
) -> Tried<HashSet<MessageId>> {
    let ids = List(messages.iter().map(|message| message.id.0).collect());
    let rows = connection.rows("outbox_known", &[&ids]).await?;
    Ok(rows.iter().map(|row| MessageId(row.get(0))).collect())
}

/// Adds what writes messages to the outbox that are not known there.
pub(crate) fn put_outbox(script: &mut Script<'_>, queue: QueueId, messages: &[&NewMessage]) -> Tried<()> {
    let reason = |message: &NewMessage| match message.due {
        Some(_) => OutboxReason::Delay.as_str(),
        None => OutboxReason::Tx.as_str(),
    };
    let headers: Vec<Option<String>> =
        messages.iter().map(|message| headers_text(&message.headers)).collect();
    let rows = messages.iter().zip(&headers).map(|(message, headers)| -> [Cell<'_>; 13] {
        [
            message.id.0.into(),
            i64::from(number(queue)).into(),
            i64::from(message.priority).into(),
            reason(message).into(),
            due(message.due.or(Some(Due::In(Duration::ZERO)))),
            i64::from(checksum(&message.body)).into(),
            message.body.as_slice().into(),
            message.kind.as_deref().into(),
            message.key.as_deref().into(),
            message.content_type.as_deref().into(),
            headers.as_deref().into(),
            message.attempts_max.map(i64::from).into(),
            due(message.retry_until),
        ]
    });
    script.add("outbox_put_time", &[])?;
    script.add_rows("outbox_put", &[], rows)?;
    add_sent(script, queue, &by_kind(messages.iter().copied()))
}

/// Stores a call that names dedup keys, or that belongs to a handler's transaction, within an open transaction. Dedup
/// keys are held before the append lock is taken (R16). `main` are the partitions of the classes that go to the log.
pub(crate) async fn append_within(
    connection: &Connection,
    queue: QueueId,
    messages: &[NewMessage],
    path: Path,
    main: &BTreeMap<u8, i32>,
) -> Tried<Vec<Stored>> {
    let mut stored = hold(connection, queue, messages).await?;
    let waits = |message: &NewMessage| path == Path::Outbox || message.due.is_some();
    let chosen = |stored: &[Stored], wait: bool| -> Vec<&NewMessage> {
        let new = messages.iter().zip(stored).filter(|(_, stored)| **stored == Stored::New);
        new.map(|(message, _)| message).filter(|message| waits(message) == wait).collect()
    };
    let waiting = chosen(&stored, true);
    let mut script = connection.new_script();
    if !waiting.is_empty() {
        let mut known = known_in_outbox(connection, &waiting).await?;
        let new: Vec<&NewMessage> = waiting.into_iter().filter(|message| known.insert(message.id)).collect();
        for (message, stored) in messages.iter().zip(&mut stored) {
            let is_new = new.iter().any(|new| std::ptr::eq(*new, message));
            if *stored == Stored::New && waits(message) && !is_new {
                *stored = Stored::Duplicate { of: message.id };
            }
        }
        put_outbox(&mut script, queue, &new)?;
    }
    let at_once = chosen(&stored, false);
    for (class, partition) in main {
        let of_class: Vec<&NewMessage> =
            at_once.iter().copied().filter(|message| message.priority == *class).collect();
        if !of_class.is_empty() {
            append_log(&mut script, queue, *partition, &of_class)?;
        }
    }
    connection.script(script).await?;
    Ok(stored)
}

/// Holds the dedup keys of a call, or names the messages that hold them.
async fn hold(connection: &Connection, queue: QueueId, messages: &[NewMessage]) -> Tried<Vec<Stored>> {
    let mut stored = vec![Stored::New; messages.len()];
    let keyed = messages
        .iter()
        .enumerate()
        .filter_map(|(index, message)| Some((index, message, message.dedup.as_ref()?)));
    let mut keyed: Vec<_> = keyed.collect();
    if keyed.is_empty() {
        return Ok(stored);
    }
    // In one order in every node: two that hold keys in opposite orders would wait for each other. Sorting keeps the
    // order of equal keys, so the first of a call holds it.
    keyed.sort_by(|(_, _, one), (_, _, other)| one.key.cmp(&other.key));
    let mut script = connection.new_script();
    let rows = keyed.iter().map(|(_, message, dedup)| {
        [
            i64::from(number(queue)).into(),
            dedup.key.as_str().into(),
            message.id.0.into(),
            i64::from(checksum(&message.body)).into(),
            micros(dedup.window).min(i64::MAX / 2).into(),
        ]
    });
    script.add("dedup_hold_begin", &[])?;
    script.add_rows::<5>("dedup_hold", &[], rows)?;
    let keys = List(keyed.iter().map(|(_, _, dedup)| dedup.key.as_str()).collect());
    let place = script.add("dedup_holders", &[&number(queue), &keys])?;
    let answers = connection.script(script).await?;
    let holders: HashMap<&str, (Uuid, i32, bool)> =
        answers[place].rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect();
    let mut conflict: Option<(usize, Error)> = None;
    for (index, message, dedup) in &keyed {
        let Some((holder, held, before)) = holders.get(dedup.key.as_str()).copied() else { continue };
        // A call that is repeated under the same ids, because its answer was lost, finds itself.
        if holder == message.id.0 && !before {
            continue;
        }
        stored[*index] = Stored::Duplicate { of: MessageId(holder) };
        let is_other = holder != message.id.0 && held != checksum(&message.body);
        if is_other && conflict.as_ref().is_none_or(|(first, _)| index < first) {
            let why = format!("key `{}` is held by message {holder} with another body", dedup.key);
            let refused = Error::new(Code::DedupConflict, "send a message with a dedup key");
            conflict = Some((*index, refused.because(why).at(*index)));
        }
    }
    match conflict {
        Some((_, error)) => Err(error.into()),
        None => Ok(stored),
    }
}

/// The classes whose messages go to the log at once.
pub(crate) fn classes_at_once(messages: &[NewMessage]) -> std::collections::BTreeSet<u8> {
    messages.iter().filter(|message| message.due.is_none()).map(|message| message.priority).collect()
}

/// How many messages of each kind, for the counters.
fn by_kind<'m>(messages: impl Iterator<Item = &'m NewMessage>) -> BTreeMap<&'m str, i64> {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    for message in messages {
        *counts.entry(message.kind.as_deref().unwrap_or("")).or_default() += 1;
    }
    counts
}

/// The checksum of a body, as the database holds it.
pub(crate) fn checksum(body: &[u8]) -> i32 {
    crc32fast::hash(body).cast_signed()
}

/// A due time as a value of a row.
fn due(due: Option<Due>) -> Cell<'static> {
    match wait(due) {
        Some(wait) => Cell::Later(wait),
        None => instant(due).into(),
    }
}

/// The instant of a due time that names one.
pub(crate) fn instant(due: Option<Due>) -> Option<i64> {
    match due? {
        Due::At(instant) => Some(instant.as_micros()),
        Due::In(_) => None,
    }
}

/// The wait of a due time that names one; it is the database that adds it to its clock.
pub(crate) fn wait(due: Option<Due>) -> Option<i64> {
    match due? {
        Due::At(_) => None,
        // So far ahead that no clock reaches it, and still added without an overflow.
        Due::In(wait) => Some(micros(wait).min(i64::MAX / 2)),
    }
}

/// Headers as they are stored: a JSON object of texts, or nothing.
pub(crate) fn headers_text(headers: &Headers) -> Option<String> {
    (!headers.is_empty()).then(|| serde_json::json!(headers).to_string())
}

//! Append: all of a send or none, in the log and in the outbox.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use millpond_core::error::{Code, Error};
use millpond_core::message::{MessageId, NewMessage};
use millpond_core::pick::Lane;
use millpond_core::reason::OutboxReason;
use millpond_core::store::{QueueId, Stored};
use millpond_core::time::micros;
pub(crate) use millpond_sql::queues::number;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::columns::{Columns, checksum, column, instant, wait};
use crate::connection::{Connection, Param};
use crate::error::Tried;

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
        let lane = i16::from(Lane::Main.number());
        let params: [Param<'_>; 3] =
            [(&number(queue), Type::INT4), (&i16::from(class), Type::INT2), (&lane, Type::INT2)];
        let partition = connection.row("partition_of", &params).await?.get(0);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((queue, class), partition);
        Ok(partition)
    }
}

/// Appends messages to one partition, in the order given; answers the offset of the first.
pub(crate) async fn append_log(
    connection: &Connection,
    queue: QueueId,
    partition: i32,
    messages: &[&NewMessage],
) -> Tried<i64> {
    let columns = Columns::of(messages);
    let (kinds, counts) = by_kind(messages);
    let (now, queue) = (connection.now(), number(queue));
    let mut params: Vec<Param<'_>> = vec![(&now, Type::INT8), (&queue, Type::INT4), (&partition, Type::INT4)];
    params.extend(columns.params());
    params.extend([(&kinds as _, Type::TEXT_ARRAY), (&counts as _, Type::INT4_ARRAY)]);
    Ok(connection.row("append", &params).await?.get(0))
}

/// Writes messages to the outbox; answers the ids that were not there before.
pub(crate) async fn put_outbox(
    connection: &Connection,
    queue: QueueId,
    messages: &[&NewMessage],
) -> Tried<Vec<MessageId>> {
    let columns = Columns::of(messages);
    let each = || messages.iter().copied();
    let reason = |message: &NewMessage| match message.due {
        Some(_) => OutboxReason::Delay.as_str(),
        None => OutboxReason::Tx.as_str(),
    };
    let classes: Vec<i16> = each().map(|message| i16::from(message.priority)).collect();
    let reasons: Vec<&str> = each().map(reason).collect();
    let due_at = column(each().map(|message| instant(message.due)));
    let due_in = column(each().map(|message| wait(message.due)));
    let (now, queue) = (connection.now(), number(queue));
    let mut params: Vec<Param<'_>> = vec![(&now, Type::INT8), (&queue, Type::INT4)];
    params.extend(columns.params());
    params.extend([
        (&classes as _, Type::INT2_ARRAY),
        (&reasons as _, Type::TEXT_ARRAY),
        (&due_at as _, Type::INT8_ARRAY),
        (&due_in as _, Type::INT8_ARRAY),
    ]);
    let rows = connection.rows("outbox_put", &params).await?;
    Ok(rows.iter().map(|row| MessageId(row.get(0))).collect())
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
    if !waiting.is_empty() {
        let new = put_outbox(connection, queue, &waiting).await?;
        for (message, stored) in messages.iter().zip(&mut stored) {
            if *stored == Stored::New && waits(message) && !new.contains(&message.id) {
                *stored = Stored::Duplicate { of: message.id };
            }
        }
    }
    let at_once = chosen(&stored, false);
    for (class, partition) in main {
        let of_class: Vec<&NewMessage> =
            at_once.iter().copied().filter(|message| message.priority == *class).collect();
        if !of_class.is_empty() {
            append_log(connection, queue, *partition, &of_class).await?;
        }
    }
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
    let keys: Vec<&str> = keyed.iter().map(|(_, _, dedup)| dedup.key.as_str()).collect();
    let ids: Vec<Uuid> = keyed.iter().map(|(_, message, _)| message.id.0).collect();
    let checksums: Vec<i32> = keyed.iter().map(|(_, message, _)| checksum(&message.body)).collect();
    let windows: Vec<i64> =
        keyed.iter().map(|(_, _, dedup)| micros(dedup.window).min(i64::MAX / 2)).collect();
    let (now, number) = (connection.now(), number(queue));
    let params: [Param<'_>; 6] = [
        (&now, Type::INT8),
        (&number, Type::INT4),
        (&keys, Type::TEXT_ARRAY),
        (&ids, Type::UUID_ARRAY),
        (&checksums, Type::INT4_ARRAY),
        (&windows, Type::INT8_ARRAY),
    ];
    let holders = connection.rows("dedup_hold", &params).await?;
    let mut conflict: Option<(usize, Error)> = None;
    for (row, (index, message, dedup)) in holders.iter().zip(&keyed) {
        let (holder, held, is_new): (Uuid, i32, bool) = (row.get(0), row.get(1), row.get(2));
        if is_new {
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
fn by_kind<'m>(messages: &[&'m NewMessage]) -> (Vec<&'m str>, Vec<i32>) {
    let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
    for run in messages.chunk_by(|one, next| one.kind == next.kind) {
        *counts.entry(run[0].kind.as_deref().unwrap_or("")).or_default() +=
            i32::try_from(run.len()).unwrap_or(i32::MAX);
    }
    counts.into_iter().unzip()
}

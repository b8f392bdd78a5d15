//! Lease: the next messages after the cursor, and one claim for exactly those.
//!
//! Three round trips: where something waits; behind the claim lock, where the cursor is and what may be taken; the claim
//! itself, with its messages, and the commit.

use std::collections::BTreeMap;

use millpond_core::message::{Leased, MessageId, Offset};
use millpond_core::pick::Lane;
use millpond_core::store::{CLAIM_MESSAGES_MAX, Claim, ClaimRef, Lease, LeaseRequest};
use millpond_core::time::Timestamp;

use crate::append::number;
use crate::bits::Bits;
use crate::connection::Connection;
use crate::error::Tried;
use crate::limit::{Limited, lease_limited};
use crate::literal::Cell;
use crate::row::Row;
use crate::runs::{Outcome, Runs};
use crate::sabotage::sabotaged;

/// Marks of cancelled messages that one lease looks at.
const MARKS_MAX: usize = 10_000;

/// A part of a queue that has messages beyond its cursor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    class: u8,
    lane: u8,
    partition: i32,
    pub(crate) subscription: i32,
}

/// What a look at a part begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// A transaction, and the claim lock of the part.
    Begin,
    /// The claim lock: the transaction has begun.
    Take,
    /// Nothing: it is held.
    Held,
}

/// What a part has, seen behind the claim lock.
struct Seen {
    cursor: i64,
    /// The claim at the cursor is a marker.
    marker: bool,
    /// Cancelled messages beyond the cursor, in order.
    marks: Vec<i64>,
    /// Of the messages beyond the cursor, in order.
    ahead: Vec<Ahead>,
}

/// A message that may be leased.
#[derive(Debug)]
struct Ahead {
    offset: i64,
    bytes: usize,
    suspect: u16,
    kind: Option<String>,
}

/// What a lease does with a part.
#[derive(Debug, PartialEq, Eq)]
enum Take {
    /// Nothing is ready.
    Nothing,
    /// A suspect waits that must be alone in its worker's hands.
    EmptyHandsFirst,
    /// Everything up to this offset is cancelled: the cursor passes it.
    Pass(i64),
    /// Up to this offset, some of which may be cancelled.
    UpTo(i64),
}

/// Asks for the messages of the first part that has some.
pub(crate) async fn lease(connection: &mut Connection, request: &LeaseRequest) -> Tried<Lease> {
    let queue = number(request.queue);
    let mut script = connection.new_script();
    let gate = script.add("lease_gate", &[&queue])?;
    let parts = script.add("lease_parts", &[&queue])?;
    let answers = connection.script(script).await?;
    let holds = |column: usize| answers[gate].rows.first().is_some_and(|row| row.get(column));
    if holds(0) {
        return Ok(Lease::Paused);
    }
    let parts: Vec<Part> = answers[parts].rows.iter().filter_map(part_with_messages).collect();
    let of_turn = |(class, lane): &(u8, Lane)| {
        parts.iter().find(|part| part.class == *class && part.lane == lane.number()).copied()
    };
    let parts: Vec<Part> = request.turns.iter().filter_map(of_turn).collect();
    if holds(1) && !parts.is_empty() {
        return lease_limited(connection, request, &parts).await;
    }
    for part in parts {
        let lease = async |connection: &mut Connection| lease_part(connection, request, part, None).await;
        let leased = connection.transaction(&[], lease).await?;
        if !matches!(leased, Lease::Empty) {
            return Ok(leased);
        }
    }
    Ok(Lease::Empty)
}

/// A row of `lease_parts`.
fn part_with_messages(row: &Row) -> Option<Part> {
    let (next, cursor): (i64, i64) = (row.get(4), row.get(5));
    let part = Part { class: row.get(0), lane: row.get(1), partition: row.get(2), subscription: row.get(3) };
    (cursor + 1 < next).then_some(part)
}

/// Leases of one part. What is passed because it was cancelled is passed in the same transaction, which has begun if the
/// queue is limited.
pub(crate) async fn lease_part(
    connection: &mut Connection,
    request: &LeaseRequest,
    part: Part,
    limited: Option<&Limited>,
) -> Tried<Lease> {
    let most = request.messages_max.min(CLAIM_MESSAGES_MAX);
    let lock = if limited.is_some() { Lock::Take } else { Lock::Begin };
    let mut seen = look(connection, part, most, lock).await?;
    loop {
        let is_suspect = part.lane == Lane::Suspect.number();
        match choose(&seen, is_suspect, request) {
            Take::Nothing => return Ok(Lease::Empty),
            Take::EmptyHandsFirst => return Ok(Lease::EmptyHandsFirst),
            Take::Pass(to) => {
                pass(connection, part, &seen, to).await?;
                seen = look(connection, part, most, Lock::Held).await?;
            }
            Take::UpTo(to) => return claim(connection, part, &seen, to, request, limited).await,
        }
    }
}

/// Takes the claim lock, if that is not done yet, and looks at the part.
async fn look(connection: &Connection, part: Part, most: usize, lock: Lock) -> Tried<Seen> {
    let Part { partition, subscription, .. } = part;
    let mut script = connection.new_script();
    if lock == Lock::Begin {
        script.begin()?;
    }
    if lock != Lock::Held {
        script.add("claim_lock_part", &[&subscription, &partition])?;
    }
    let cursor = script.add("claim_cursor", &[&subscription, &partition])?;
    let marks = script.add("cancel_marks", &[&subscription, &partition, &MARKS_MAX])?;
    let ahead = script.add("log_lengths", &[&subscription, &partition, &most])?;
    let answers = connection.script(script).await?;
    let found: Option<(i64, bool)> = answers[cursor].rows.first().map(|row| (row.get(0), row.get(1)));
    let (cursor, marker) = found.unwrap_or((-1, false));
    let message = |row: &Row| Ahead {
        offset: row.get(0),
        bytes: row.get::<_, u64>(1) as usize,
        suspect: row.get::<_, Option<u16>>(2).unwrap_or(0),
        kind: row.get(3),
    };
    Ok(Seen {
        cursor,
        marker,
        marks: answers[marks].rows.iter().map(|row| row.get(0)).collect(),
        ahead: answers[ahead].rows.iter().map(message).collect(),
    })
}

/// What to take of what was seen.
fn choose(seen: &Seen, is_suspect: bool, request: &LeaseRequest) -> Take {
    // The cursor moves past the cancelled messages right behind it, by a marker claim (R7).
    let run = seen.marks.iter().zip(seen.cursor + 1..).take_while(|(mark, next)| **mark == *next).count();
    if 0 < run {
        return Take::Pass(seen.cursor + run as i64);
    }
    let Some(first) = seen.ahead.first() else { return Take::Nothing };
    let mut most = request.messages_max;
    if is_suspect {
        if first.suspect == 1 && !request.hands_empty {
            return Take::EmptyHandsFirst;
        }
        // Of the suspects, one group.
        most = most.min(usize::from(first.suspect.max(1)));
    }
    let mut bytes = 0_usize;
    let fits = |ahead: &&Ahead| {
        bytes = bytes.saturating_add(ahead.bytes);
        let same_group = !is_suspect || ahead.suspect == first.suspect;
        // Always one message, however large.
        same_group && (ahead.offset == first.offset || bytes <= request.bytes_max)
    };
    match seen.ahead.iter().take(most).take_while(fits).last() {
        Some(last) => Take::UpTo(last.offset),
        None => Take::Nothing,
    }
}

/// Moves the cursor without a lease.
async fn pass(connection: &Connection, part: Part, seen: &Seen, to: i64) -> Tried<()> {
    move_cursor(connection, (part.subscription, part.partition), (seen.cursor, seen.marker), to).await
}

/// Moves the cursor of a partition without a lease, by a marker claim (R7). What was marked as cancelled up to there has
/// left. The caller holds the claim lock.
pub(crate) async fn move_cursor(
    connection: &Connection,
    (subscription, partition): (i32, i32),
    (cursor, marker): (i64, bool),
    to: i64,
) -> Tried<()> {
    let from = cursor + 1;
    let mut script = connection.new_script();
    script.add("claim_add_marker", &[&subscription, &partition, &to, &from])?;
    if marker {
        script.add("claim_drop_marker", &[&subscription, &partition, &cursor])?;
    }
    script.add("cancel_delete_range", &[&subscription, &partition, &from, &to])?;
    connection.script(script).await.map(drop)
}

/// Writes the claim, reads its messages, and commits.
async fn claim(
    connection: &Connection,
    part: Part,
    seen: &Seen,
    to: i64,
    request: &LeaseRequest,
    limited: Option<&Limited>,
) -> Tried<Lease> {
    let Part { partition, subscription, .. } = part;
    let from = seen.cursor + 1;
    let marks: Vec<i64> = seen.marks.iter().copied().filter(|mark| *mark <= to).collect();
    let settled = (!marks.is_empty()).then(|| cancelled(from, to, &marks));
    let (done, runs) = settled.unzip();
    let token = uuid::Uuid::from_bytes(request.token.0);
    let mut script = connection.new_script();
    script
        .add("claim_add", &[&subscription, &partition, &to, &from, &token, &request.worker, &done, &runs])?;
    if seen.marker {
        script.add("claim_drop_marker", &[&subscription, &partition, &seen.cursor])?;
    }
    if !marks.is_empty() {
        script.add("cancel_delete_range", &[&subscription, &partition, &from, &to])?;
    }
    if let Some(limited) = limited {
        let messages = usize::try_from(to - from + 1).unwrap_or(0).saturating_sub(marks.len());
        limited.charge(&mut script, messages)?;
    }
    let mut kinds: BTreeMap<&str, i64> = BTreeMap::new();
    for ahead in seen.ahead.iter().filter(|ahead| ahead.offset <= to && !marks.contains(&ahead.offset)) {
        *kinds.entry(ahead.kind.as_deref().unwrap_or("")).or_default() += 1;
    }
    let queue = i64::from(number(request.queue));
    let counts =
        kinds.into_iter().map(|(kind, count)| [Cell::Int(queue), Cell::Text(kind), Cell::Int(count)]);
    script.add_rows("stat_leased", &[], counts)?;
    let leased_at = script.add("claim_leased_at", &[&subscription, &partition, &to])?;
    let read = script.add("log_read", &[&partition, &from, &to])?;
    let mut answers = connection.script_and_commit(script).await?;
    let leased_at = answers[leased_at].rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    let rows = std::mem::take(&mut answers[read]).rows;
    let mut messages = rows.into_iter().map(leased).collect::<Tried<Vec<_>>>()?;
    messages.retain(|message| !marks.contains(&message.offset.0.cast_signed()));
    let held = ClaimRef {
        subscription: subscription.into(),
        partition: partition.into(),
        to_offset: Offset(to.unsigned_abs()),
        token: request.token,
    };
    Ok(Lease::Claim(Claim { held, messages, leased_at: Timestamp::from_micros(leased_at) }))
}

/// The done set and the runs of a claim in which some messages were cancelled before it.
fn cancelled(from: i64, to: i64, marks: &[i64]) -> (Bits, Bits) {
    let length = usize::try_from(to - from + 1).unwrap_or(0);
    let (mut done, mut runs) = (Bits::clear(length), Runs::clear(length));
    for place in marks.iter().filter_map(|mark| usize::try_from(to - mark).ok()) {
        done.set(place);
        runs.record(place, Outcome::Cancelled, std::time::Duration::ZERO);
    }
    (done, runs.into_bits())
}

/// A row of `log_read` or `log_read_range`. The attempt is counted here: to be in a claim is to be leased.
pub(crate) fn leased(mut row: Row) -> Tried<Leased> {
    let body = row.take_bytes(13)?;
    let counter =
        |column: usize| Ok::<_, crate::error::Fault>(row.try_get::<_, Option<u32>>(column)?.unwrap_or(0));
    let intact = body.is_empty() || crc32fast::hash(&body).cast_signed() == row.try_get::<_, i32>(8)?;
    Ok(Leased {
        offset: Offset(row.try_get::<_, i64>(0)?.unsigned_abs()),
        id: MessageId(row.try_get(1)?),
        attempt: if sabotaged("attempt_on_failure") { counter(2)?.max(1) } else { counter(2)? + 1 },
        releases: counter(3)?,
        suspect: row.try_get::<_, Option<u16>>(4)?.unwrap_or(0),
        sent_at: Timestamp::from_micros(row.try_get(5)?),
        attempts_max: row.try_get::<_, Option<i64>>(6)?.map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
        retry_until: row.try_get::<_, Option<i64>>(7)?.map(Timestamp::from_micros),
        kind: row.try_get(9)?,
        key: row.try_get(10)?,
        content_type: row.try_get(11)?,
        headers: row.try_get(12)?,
        body,
        intact,
    })
}

//! Lease: the next messages after the cursor, and one claim for exactly those.

use millpond_core::message::{Leased, MessageId, Offset};
use millpond_core::store::{CLAIM_MESSAGES_MAX, Claim, ClaimRef, Lease, LeaseRequest};
use millpond_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::append::number;
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::limit::lease_limited;
use crate::sabotage::sabotaged;

/// Whether a queue turned out to have a limit over all nodes.
pub(crate) enum Limited {
    /// What was asked for.
    No(Lease),
    /// It has, and something is ready: nothing is leased without its claim lock.
    Yes,
}

/// Asks for the messages of the first part that has some, within the limits of the queue.
pub(crate) async fn lease(connection: &mut Connection, request: &LeaseRequest) -> Tried<Lease> {
    match try_lease(connection, request, false).await? {
        Limited::No(lease) => Ok(lease),
        Limited::Yes => lease_limited(connection, request).await,
    }
}

/// The same in one statement; `within_limits`: the caller holds the claim lock of the queue and asks for no more than
/// there is room for.
pub(crate) async fn try_lease(
    connection: &Connection,
    request: &LeaseRequest,
    within_limits: bool,
) -> Tried<Limited> {
    let (now, queue) = (connection.now(), number(request.queue));
    let classes: Vec<i16> = request.turns.iter().map(|(class, _)| i16::from(*class)).collect();
    let lanes: Vec<i16> = request.turns.iter().map(|(_, lane)| i16::from(lane.number())).collect();
    let messages_max = request.messages_max.min(CLAIM_MESSAGES_MAX) as i32;
    let bytes_max = i64::try_from(request.bytes_max).unwrap_or(i64::MAX);
    let token = Uuid::from_bytes(request.token.0);
    let params: [Param<'_>; 10] = [
        (&now, Type::INT8),
        (&queue, Type::INT4),
        (&classes, Type::INT2_ARRAY),
        (&lanes, Type::INT2_ARRAY),
        (&messages_max, Type::INT4),
        (&bytes_max, Type::INT8),
        (&request.hands_empty, Type::BOOL),
        (&token, Type::UUID),
        (&request.worker, Type::TEXT),
        (&within_limits, Type::BOOL),
    ];
    let rows = connection.rows("lease", &params).await?;
    let Some(first) = rows.first() else { return Ok(Limited::No(Lease::Empty)) };
    if first.get::<_, Option<i64>>(4).is_none() {
        let has = |column| first.get::<_, Option<i32>>(column).is_some();
        return Ok(match (has(0), has(1)) {
            (_, true) => Limited::No(Lease::EmptyHandsFirst),
            (true, false) => Limited::Yes,
            (false, false) => Limited::No(Lease::Paused),
        });
    }
    let messages = rows.iter().map(leased).collect::<Tried<Vec<_>>>()?;
    let held = ClaimRef {
        subscription: first.get::<_, i32>(0).into(),
        partition: first.get::<_, i32>(1).into(),
        to_offset: Offset(first.get::<_, i64>(3).unsigned_abs()),
        token: request.token,
    };
    let leased_at = Timestamp::from_micros(first.get(2));
    Ok(Limited::No(Lease::Claim(Claim { held, messages, leased_at })))
}

/// A row of `lease` or `log_read_range`. The attempt is counted here: to be in a claim is to be leased.
pub(crate) fn leased(row: &Row) -> Tried<Leased> {
    let counter = |column: usize| {
        Ok::<u32, tokio_postgres::Error>(row.try_get::<_, Option<i32>>(column)?.unwrap_or(0).unsigned_abs())
    };
    let body: Vec<u8> = row.try_get(17)?;
    let intact = body.is_empty() || crc32fast::hash(&body).cast_signed() == row.try_get::<_, i32>(12)?;
    Ok(Leased {
        offset: Offset(row.try_get::<_, i64>(4)?.unsigned_abs()),
        id: MessageId(row.try_get(5)?),
        attempt: if sabotaged("attempt_on_failure") { counter(6)?.max(1) } else { counter(6)? + 1 },
        releases: counter(7)?,
        suspect: row.try_get::<_, Option<i16>>(8)?.unwrap_or(0).unsigned_abs(),
        sent_at: Timestamp::from_micros(row.try_get(9)?),
        attempts_max: row.try_get::<_, Option<i64>>(10)?.map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
        retry_until: row.try_get::<_, Option<i64>>(11)?.map(Timestamp::from_micros),
        kind: row.try_get(13)?,
        key: row.try_get(14)?,
        content_type: row.try_get(15)?,
        headers: row.try_get(16)?,
        body,
        intact,
    })
}

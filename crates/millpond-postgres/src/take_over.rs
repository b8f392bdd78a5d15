//! Take over: claims whose lease is over get a new token, each by one compare-and-set.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_core::message::{Leased, MessageId, Offset, Token};
use millpond_core::store::{ClaimRef, TakeOver, TakenOver};
use millpond_core::time::micros;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::admin::now;
use crate::bits::Bits;
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::lease::leased;
use crate::log::tokens;
use crate::queues::readable_queue;
use crate::runs::place;
use crate::sabotage::sabotaged;
use crate::settle::narrow;

/// A takeover need not be durable: if a crash forgets it, the claim is taken over again.
const BEGIN: &str = "begin; set local synchronous_commit = off";

/// What a claim holds, and what of it is settled.
#[derive(Debug, Clone)]
struct Holding {
    subscription: i32,
    partition: i32,
    to_offset: i64,
    from_offset: i64,
    done: Bits,
}

/// A claim of `claim_expired`.
#[derive(Debug, Clone)]
struct Expired {
    holding: Holding,
    token: Uuid,
    worker: String,
    in_hand: Option<i32>,
}

/// Takes over what may be taken over now, each claim in a transaction of its own.
pub(crate) async fn take_over(connection: &mut Connection, request: &TakeOver) -> Tried<Vec<TakenOver>> {
    let expired = expired(connection, request).await?;
    if expired.is_empty() {
        return Ok(Vec::new());
    }
    let tokens = tokens(expired.len())?;
    if sabotaged("reclaim_without_cas") {
        // What was read is acted on later, without comparing.
        tokio::time::sleep(Duration::from_millis(u64::from(tokens[0].0[0]) * 4)).await;
    }
    let mut company = BTreeMap::new();
    for claim in expired.iter().filter(|claim| claim.in_hand.is_none()) {
        if !company.contains_key(&claim.worker) {
            let worker = claim.worker.clone();
            let count = async |connection: &mut Connection| write_in_hand(connection, &worker).await;
            let count = connection.change(BEGIN, count).await?;
            company.insert(worker, count);
        }
    }
    let mut taken = Vec::with_capacity(expired.len());
    for (claim, token) in expired.iter().zip(tokens) {
        let in_hand = claim.in_hand.or_else(|| company.get(&claim.worker).copied()).unwrap_or(1);
        let take =
            async |connection: &mut Connection| take_one(connection, request, claim, in_hand, token).await;
        taken.extend(connection.change(BEGIN, take).await?);
    }
    Ok(taken)
}

/// The claims that may be taken over now.
async fn expired(connection: &Connection, request: &TakeOver) -> Tried<Vec<Expired>> {
    let (now, since) = (connection.now(), request.in_touch_since.as_micros());
    let most = i32::try_from(request.claims_max).unwrap_or(i32::MAX);
    let params: [Param<'_>; 4] =
        [(&now, Type::INT8), (&request.worker, Type::TEXT), (&since, Type::INT8), (&most, Type::INT4)];
    let rows = connection.rows("claim_expired", &params).await?;
    rows.iter()
        .map(|row| {
            Ok(Expired {
                holding: holding(row)?,
                token: row.try_get(5)?,
                worker: row.try_get::<_, Option<String>>(6)?.unwrap_or_default(),
                in_hand: row.try_get(7)?,
            })
        })
        .collect()
}

async fn take_one(
    connection: &Connection,
    request: &TakeOver,
    claim: &Expired,
    in_hand: i32,
    token: Token,
) -> Tried<Option<TakenOver>> {
    let Holding { subscription, partition, to_offset, .. } = claim.holding;
    let key: [Param<'_>; 4] = [
        (&subscription, Type::INT4),
        (&partition, Type::INT4),
        (&to_offset, Type::INT8),
        (&claim.token, Type::UUID),
    ];
    let done = if sabotaged("reclaim_without_cas") {
        claim.holding.done.clone()
    } else {
        // The exclusive lock waits for an effect that is committing. What is settled is read behind it.
        let Some(locked) = connection.row_if_any("claim_lock", &key).await? else { return Ok(None) };
        locked.try_get::<_, Option<Bits>>(1)?.unwrap_or_default()
    };
    let until = now(connection).await?.as_micros().saturating_add(micros(request.lease));
    let new = Uuid::from_bytes(token.0);
    let swap: Vec<Param<'_>> =
        key.iter().cloned().chain([(&new as _, Type::UUID), (&until as _, Type::INT8)]).collect();
    let statement = connection.target.statements.get("claim_take_over");
    let swapped = if sabotaged("reclaim_without_cas") {
        let statement = statement.replace("and token = $4", "and $4::uuid is not null");
        connection.client.execute_typed(&statement, &swap).await?
    } else {
        connection.client.execute_typed(statement, &swap).await?
    };
    if swapped == 0 {
        return Ok(None);
    }
    // In a statement after the swap: an effect may have committed after the last settle (R9).
    let (unsettled, done) = unsettled(connection, &Holding { done, ..claim.holding.clone() }).await?;
    let Some(place) = connection.row_if_any("partition_place", &[(&partition, Type::INT4)]).await? else {
        return Ok(None);
    };
    // A queue that only a later release can read is taken over by a node of that one.
    let Some(queue) = readable_queue(connection, place.get(0)).await? else { return Ok(None) };
    Ok(Some(TakenOver {
        held: ClaimRef {
            subscription: subscription.into(),
            partition: partition.into(),
            to_offset: Offset(to_offset.unsigned_abs()),
            token,
        },
        old_token: Token(claim.token.into_bytes()),
        queue,
        worker: claim.worker.clone(),
        in_hand: in_hand.unsigned_abs(),
        unsettled,
        done,
    }))
}

/// What is unsettled in a claim that is still held: also what the inbox knows, or it would never be settled.
pub(crate) async fn unsettled_of(connection: &Connection, held: &ClaimRef) -> Tried<Vec<Leased>> {
    let (subscription, partition) = (narrow(held.subscription), narrow(held.partition));
    let (to_offset, token) = (held.to_offset.0.cast_signed(), Uuid::from_bytes(held.token.0));
    let params: [Param<'_>; 4] = [
        (&subscription, Type::INT4),
        (&partition, Type::INT4),
        (&to_offset, Type::INT8),
        (&token, Type::UUID),
    ];
    let Some(row) = connection.row_if_any("claim_get", &params).await? else { return Ok(Vec::new()) };
    let (from_offset, done) = (row.get(0), row.try_get::<_, Option<Bits>>(1)?.unwrap_or_default());
    open_of(connection, &Holding { subscription, partition, to_offset, from_offset, done }).await
}

/// Counts what a worker has in its hands and writes it into its claims, once. Another node that does it at the same
/// time waits, and then finds what was written.
async fn write_in_hand(connection: &Connection, worker: &str) -> Tried<i32> {
    connection.row_if_any("worker_lock", &[(&worker, Type::TEXT)]).await?;
    let rows = connection.rows("claim_in_hand_of_worker", &[(&worker, Type::TEXT)]).await?;
    let claims = rows.iter().map(holding).collect::<Tried<Vec<_>>>()?;
    let mut count = 0;
    for claim in &claims {
        count += i32::try_from(unsettled(connection, claim).await?.0.len()).unwrap_or(i32::MAX);
    }
    let mut written = count;
    for claim in &claims {
        let key: [Param<'_>; 3] = [
            (&claim.subscription, Type::INT4),
            (&claim.partition, Type::INT4),
            (&claim.to_offset, Type::INT8),
        ];
        let set: Vec<Param<'_>> = key.iter().cloned().chain([(&count as _, Type::INT4)]).collect();
        if connection.run("claim_set_in_hand", &set).await? == 0
            && let Some(row) = connection.row_if_any("claim_in_hand", &key).await?
        {
            written = row.get::<_, Option<i32>>(0).unwrap_or(count);
        }
    }
    Ok(written)
}

/// The messages of a claim that are neither settled nor known to the inbox, and those that the inbox knows.
async fn unsettled(connection: &Connection, claim: &Holding) -> Tried<(Vec<Leased>, Vec<Offset>)> {
    let open = open_of(connection, claim).await?;
    let ids: Vec<Uuid> = open.iter().map(|message| message.id.0).collect();
    let params: [Param<'_>; 2] = [(&claim.subscription, Type::INT4), (&ids, Type::UUID_ARRAY)];
    let rows = connection.rows("inbox_known", &params).await?;
    let mut known: Vec<MessageId> = rows.iter().map(|row| MessageId(row.get(0))).collect();
    if sabotaged("late_inbox_check") {
        known.clear();
    }
    let (done, unsettled): (Vec<Leased>, Vec<Leased>) =
        open.into_iter().partition(|message| known.contains(&message.id));
    Ok((unsettled, done.into_iter().map(|message| message.offset).collect()))
}

/// The messages of a claim whose done bit is clear.
async fn open_of(connection: &Connection, claim: &Holding) -> Tried<Vec<Leased>> {
    let params: [Param<'_>; 3] =
        [(&claim.partition, Type::INT4), (&claim.from_offset, Type::INT8), (&claim.to_offset, Type::INT8)];
    let rows = connection.rows("log_read_range", &params).await?;
    let mut messages = rows.iter().map(leased).collect::<Tried<Vec<_>>>()?;
    let to_offset = Offset(claim.to_offset.unsigned_abs());
    messages
        .retain(|message| place(to_offset, message.offset).is_some_and(|place| !claim.done.is_set(place)));
    Ok(messages)
}

/// The first columns of `claim_expired` and `claim_in_hand_of_worker`.
fn holding(row: &Row) -> Tried<Holding> {
    Ok(Holding {
        subscription: row.try_get(0)?,
        partition: row.try_get(1)?,
        to_offset: row.try_get(2)?,
        from_offset: row.try_get(3)?,
        done: row.try_get::<_, Option<Bits>>(4)?.unwrap_or_default(),
    })
}

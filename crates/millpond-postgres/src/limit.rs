//! Limits of a queue over all nodes: what is in hand of it, and the bucket of its rate, behind the one claim lock of the
//! queue.

use millpond_core::limit::{Held, Limits, Room};
use millpond_core::store::{Lease, LeaseRequest, Queue};
use millpond_core::time::Timestamp;
use tokio_postgres::types::Type;

use crate::append::number;
use crate::bits::Bits;
use crate::cell::instant;
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::lease::{Limited, try_lease};
use crate::queues::queue_of;

/// A lease need not be durable, and neither is what it charges: a crash forgets both.
const BEGIN: &str = "begin; set local synchronous_commit = off";

/// A queue that has a limit, seen behind its claim lock.
struct Seen {
    limits: Limits,
    held: Held,
    full_at: Timestamp,
    now: Timestamp,
}

/// Leases what there is room for, and charges it.
pub(crate) async fn lease_limited(connection: &mut Connection, request: &LeaseRequest) -> Tried<Lease> {
    let lease = async |connection: &mut Connection| {
        let queue = number(request.queue);
        connection.row("limit_lock", &[(&queue, Type::INT4)]).await?;
        let Seen { limits, held, full_at, now } = look(connection, queue).await?;
        let room = limits.room(held, (full_at, now), request.messages_max, request.one_by_one);
        let messages_max = match room {
            Room::None { limit, wait } => return Ok(Lease::Limited { limit, wait }),
            Room::Messages(messages_max) => messages_max,
        };
        let within = LeaseRequest { messages_max, ..request.clone() };
        let Limited::No(lease) = try_lease(connection, &within, true).await? else {
            return Ok(Lease::Empty);
        };
        if let Lease::Claim(claim) = &lease
            && let Some(full_at) = limits.charged(full_at, now, claim.messages.len())
        {
            let charge: [Param<'_>; 2] = [(&queue, Type::INT4), (&full_at.as_micros(), Type::INT8)];
            connection.run("limit_charge", &charge).await?;
        }
        Ok(lease)
    };
    connection.change(BEGIN, lease).await
}

/// In statements after the lock (R5).
async fn look(connection: &Connection, queue: i32) -> Tried<Seen> {
    let limits = queue_of(connection, queue).await?.settings.limits();
    let params: [Param<'_>; 2] = [(&connection.now(), Type::INT8), (&queue, Type::INT4)];
    let rows = connection.rows("in_hand", &params).await?;
    let (mut held, zero) = (Held::default(), Timestamp::from_micros(0));
    for row in &rows {
        let Some(messages) = row.get::<_, Option<i64>>(2) else { continue };
        let settled = row.try_get::<_, Option<Bits>>(3)?.map_or(0, |done| done.count());
        held.claims += 1;
        held.messages += usize::try_from(messages).unwrap_or(0).saturating_sub(settled);
    }
    let (full_at, now) = rows.first().map_or((zero, zero), |row| (instant(row, 0), instant(row, 1)));
    Ok(Seen { limits, held, full_at, now })
}

/// Notes whether a queue has a limit, after its settings have changed.
pub(crate) async fn note_limit(connection: &Connection, queue: &Queue) -> Tried<()> {
    let note = if queue.settings.limits().any() { "limit_add" } else { "limit_drop" };
    connection.run(note, &[(&number(queue.id), Type::INT4)]).await.map(drop)
}

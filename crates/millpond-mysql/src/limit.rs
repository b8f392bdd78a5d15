//! Limits of a queue over all nodes: what is in hand of it, and the bucket of its rate, behind the one claim lock of the
//! queue.

use millpond_core::limit::{Held, Limits, Room};
use millpond_core::store::{Lease, LeaseRequest, Queue};
use millpond_core::time::Timestamp;

use crate::append::number;
use crate::bits::Bits;
use crate::connection::Connection;
use crate::error::Tried;
use crate::lease::{Part, lease_part};
use crate::queues::queue_of;
use crate::script::Script;

/// A queue that has a limit, seen behind its claim lock.
pub(crate) struct Limited {
    queue: i32,
    limits: Limits,
    held: Held,
    full_at: Timestamp,
    now: Timestamp,
}

/// Leases of the first part that has something, as much as there is room for, and charges it. The parts are of one queue.
pub(crate) async fn lease_limited(
    connection: &mut Connection,
    request: &LeaseRequest,
    parts: &[Part],
) -> Tried<Lease> {
    let lease = async |connection: &mut Connection| {
        let limited = look(connection, number(request.queue), parts).await?;
        let messages_max = match limited.room(request) {
            Room::None { limit, wait } => return Ok(Lease::Limited { limit, wait }),
            Room::Messages(messages_max) => messages_max,
        };
        let within = LeaseRequest { messages_max, ..request.clone() };
        for part in parts {
            let leased = lease_part(connection, &within, *part, Some(&limited)).await?;
            if !matches!(leased, Lease::Empty) {
                return Ok(leased);
            }
        }
        Ok(Lease::Empty)
    };
    connection.transaction(&[], lease).await
}

/// Takes the claim lock of the queue and reads what is in hand of it, in statements after the lock (R5).
async fn look(connection: &Connection, queue: i32, parts: &[Part]) -> Tried<Limited> {
    let subscription = parts.first().map_or(0, |part| part.subscription);
    let mut script = connection.new_script();
    script.begin()?;
    let bucket = script.add("limit_lock", &[&queue])?;
    let live = script.add("claim_live", &[&subscription])?;
    let clock = script.add("clock", &[])?;
    let answers = connection.script(script).await?;
    let limits = queue_of(connection, queue).await?.settings.limits();
    let mut held = Held::default();
    for row in &answers[live].rows {
        let messages: i64 = row.try_get(0)?;
        let settled = row.try_get::<_, Option<Bits>>(1)?.map_or(0, |done| done.count() as usize);
        held.claims += 1;
        held.messages += usize::try_from(messages).unwrap_or(0).saturating_sub(settled);
    }
    let instant = |place: usize| {
        let row = answers[place].rows.first();
        Ok::<_, crate::error::Fault>(Timestamp::from_micros(row.map_or(Ok(0), |row| row.try_get(0))?))
    };
    Ok(Limited { queue, limits, held, full_at: instant(bucket)?, now: instant(clock)? })
}

impl Limited {
    fn room(&self, request: &LeaseRequest) -> Room {
        let bucket = (self.full_at, self.now);
        self.limits.room(self.held, bucket, request.messages_max, request.one_by_one)
    }

    /// Adds what as many messages cost.
    pub(crate) fn charge(&self, script: &mut Script<'_>, messages: usize) -> Tried<()> {
        let Some(full_at) = self.limits.charged(self.full_at, self.now, messages) else { return Ok(()) };
        script.add("limit_charge", &[&self.queue, &full_at.as_micros()]).map(drop)
    }
}

/// Notes whether a queue has a limit, after its settings have changed.
pub(crate) async fn note_limit(connection: &Connection, queue: &Queue) -> Tried<()> {
    let note = if queue.settings.limits().any() { "limit_add" } else { "limit_drop" };
    connection.run(note, &[&number(queue.id)]).await.map(drop)
}

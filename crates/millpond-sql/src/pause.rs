//! Pauses: what holds a queue.

use std::collections::HashMap;

use millpond_core::time::Timestamp;
use millpond_core::view::{Pause, Scope};

use crate::reader::{Reader, Tried};
use crate::row::Row;

/// Stands for every queue.
pub const EVERY_QUEUE: i32 = 0;

/// All pauses that last, by what they hold.
pub async fn pauses<R: Reader>(connection: &R, now: Timestamp) -> Tried<R, HashMap<i32, Pause>> {
    let rows = connection.rows("pause_list", &[now.as_micros().into()]).await?;
    Ok(rows.iter().map(|row| (row.get(0), pause(row))).collect())
}

/// Everything that holds a queue, what holds all queues first.
pub fn holding(pauses: &HashMap<i32, Pause>, queue: i32) -> Vec<Pause> {
    let own = (queue != EVERY_QUEUE).then_some(queue);
    [Some(EVERY_QUEUE), own].into_iter().flatten().filter_map(|held| pauses.get(&held).cloned()).collect()
}

fn pause(row: &impl Row) -> Pause {
    Pause {
        scope: row.get::<Option<String>>(1).map_or(Scope::Global, Scope::Queue),
        reason: row.get(2),
        actor: row.get(3),
        since: row.get(4),
        until: row.get(5),
    }
}

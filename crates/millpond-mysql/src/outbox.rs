//! The outbox of the store: due rows move to the log, each deleted and appended in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::MessageId;
use millpond_core::store::{Begun, BoxFuture, EffectTx, Outbox, QueueId, Relayed};
use millpond_core::time::Timestamp;

use crate::append::partition_of;
use crate::connect::MysqlStore;
use crate::connection::Connection;
use crate::error::{Lost, Tried};
use crate::literal::List;
use crate::row::Row;
use crate::sabotage::sabotaged;
use crate::unit;

/// Where a row goes: queue, class, lane.
type Home = (i32, u8, u8);

impl Outbox for MysqlStore {
    fn relay(&self, rows_max: usize) -> BoxFuture<'_, Result<Relayed>> {
        let doing = "move due messages to the log";
        self.main.call(doing, Lost::AskAgain, async move |connection: &mut Connection| {
            let mut script = connection.new_script();
            script.add("still_ours", &[])?;
            let due = script.add("outbox_due_homes", &[&rows_max])?;
            let answers = connection.script(script).await?;
            // Made before, in transactions of their own: a part that is being made is invisible to a lease.
            let homes: BTreeSet<Home> = answers[due].rows.iter().map(home).collect();
            let mut parts = BTreeMap::new();
            for (queue, class, lane) in homes {
                let part = partition_of(connection, queue, class, lane).await?;
                parts.insert((queue, class, lane), part);
            }
            let moved = if parts.is_empty() {
                Vec::new()
            } else {
                let move_due =
                    async |connection: &mut Connection| move_due(connection, rows_max, &parts).await;
                connection.transaction(&[], move_due).await?
            };
            let next_due = connection.row("outbox_next_due", &[]).await?.get(0);
            let mut queues: Vec<QueueId> = moved.iter().map(|(queue, ..)| QueueId((*queue).into())).collect();
            queues.sort_unstable();
            queues.dedup();
            let next_due = Option::<i64>::map(next_due, Timestamp::from_micros);
            Ok(Relayed { moved: moved.len(), queues, next_due })
        })
    }

    fn open(&self, limit: Duration) -> BoxFuture<'_, Result<Box<dyn EffectTx>>> {
        Box::pin(async move {
            match unit::begin(self, None, limit).await? {
                Begun::Open(tx) => Ok(tx),
                Begun::AlreadyDone => unreachable!("it belongs to no job"),
            }
        })
    }

    fn arrived(&self, ids: Vec<MessageId>) -> BoxFuture<'_, Result<Vec<MessageId>>> {
        let doing = "look for messages of a transaction";
        self.main.call(doing, Lost::AskAgain, async move |connection: &mut Connection| {
            let ids = List(ids.iter().map(|id| id.0).collect());
            let rows = connection.rows("within_arrived", &[&ids]).await?;
            Ok(rows.iter().map(|row| MessageId(row.get(0))).collect())
        })
    }
}

/// A row of `outbox_due` or `outbox_due_homes`.
fn home(row: &Row) -> Home {
    (row.get(1), row.get(2), row.get(3))
}

/// Moves due rows; answers where each went. Those of a part that is not known yet are left for the next time.
async fn move_due(connection: &Connection, rows_max: usize, parts: &BTreeMap<Home, i32>) -> Tried<Vec<Home>> {
    let mut script = connection.new_script();
    script.begin()?;
    let place = script.add("outbox_due", &[&rows_max])?;
    let answers = connection.script(script).await?;
    let rows = &answers[place].rows;
    if rows_max < rows.len() {
        let why = format!("the relay locked {} rows and asked for {rows_max}", rows.len());
        return Err(Error::new(Code::Internal, "move due messages to the log").because(why).into());
    }
    // By partition, in the order of their locks (R2).
    let (mut by_part, mut moved) = (BTreeMap::<i32, Vec<i64>>::new(), Vec::new());
    for row in rows {
        if let Some(part) = parts.get(&home(row)) {
            by_part.entry(*part).or_default().push(row.get(0));
            moved.push(home(row));
        }
    }
    let mut script = connection.new_script();
    for (part, rows) in by_part {
        let kept = if sabotaged("relay_forgets") { rows[1..].to_vec() } else { rows.clone() };
        let (count, kept, rows) = (kept.len(), List(kept), List(rows));
        if count == 0 {
            script.add("outbox_moved", &[&rows])?;
            continue;
        }
        script.add("log_append_lock", &[&part])?;
        script.add("log_append_time", &[])?;
        script.add("outbox_to_log", &[&part, &kept])?;
        script.add("outbox_to_returned", &[&part])?;
        script.add("log_append_end", &[&part, &count])?;
        script.add("outbox_moved", &[&rows])?;
    }
    connection.script_and_commit(script).await?;
    Ok(moved)
}

//! The outbox of the store: due rows move to the log, each deleted and appended in one transaction.

use std::sync::Arc;
use std::time::Instant;

use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Outbox, QueueId, Relayed};
use millpond_core::time::Timestamp;
use tokio_postgres::types::Type;

use crate::connect::PostgresStore;
use crate::connection::{Connection, Param};
use crate::error::{Lost, Tried};
use crate::floor::Floor;

impl Outbox for PostgresStore {
    fn relay(&self, rows_max: usize) -> BoxFuture<'_, Result<Relayed>> {
        Box::pin(async move {
            let doing = "move due messages to the log";
            let floor = Arc::clone(&self.floor);
            let relay = async move |connection: &mut Connection| relay(connection, &floor, rows_max).await;
            let relayed = self.main.call(doing, Lost::AskAgain, relay).await?;
            if relayed.moved != 0 {
                self.wake.tell(relayed.queues.iter().copied());
            }
            Ok(relayed)
        })
    }
}

async fn relay(connection: &Connection, floor: &Floor, rows_max: usize) -> Tried<Relayed> {
    let (now, question) = (connection.now(), floor.ask(Instant::now()));
    let most = i32::try_from(rows_max).unwrap_or(i32::MAX);
    let params: [Param<'_>; 3] = [(&now, Type::INT8), (&most, Type::INT4), (&question.low, Type::INT8)];
    let row = connection.row("relay", &params).await?;
    let moved = row.get::<_, i32>(0).unsigned_abs() as usize;
    let (queues, next_due) = (row.get::<_, Option<Vec<i32>>>(1), row.get::<_, Option<i64>>(2));
    floor.answered(question, row.get(3), next_due);
    // What it moved leaves dead rows behind, if somebody holds an old snapshot.
    if moved != 0 && floor.wants_a_look(Instant::now()) {
        let row = connection.row("outbox_writers", &[(&now, Type::INT8)]).await?;
        floor.looked(row.get(0), row.get(1));
    }
    Ok(Relayed {
        moved,
        queues: queues.unwrap_or_default().into_iter().map(|queue| QueueId(queue.into())).collect(),
        next_due: next_due.map(Timestamp::from_micros),
    })
}

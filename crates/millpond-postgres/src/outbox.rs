//! The outbox of the store: due rows move to the log, each deleted and appended in one transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::error::Result;
use millpond_core::message::MessageId;
use millpond_core::store::{Begun, BoxFuture, EffectTx, Outbox, QueueId, Relayed};
use millpond_core::time::Timestamp;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connect::PostgresStore;
use crate::connection::{Connection, Param};
use crate::error::{Lost, Tried};
use crate::floor::Floor;
use crate::unit;

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

    fn open(&self, limit: Duration) -> BoxFuture<'_, Result<Box<dyn EffectTx>>> {
        Box::pin(async move {
            match unit::begin(self, None, limit).await? {
                Begun::Open(tx) => Ok(tx),
                Begun::AlreadyDone => unreachable!("it belongs to no job"),
            }
        })
    }

    fn arrived(&self, ids: Vec<MessageId>) -> BoxFuture<'_, Result<Vec<MessageId>>> {
        self.read("look for messages of a transaction", async move |connection: &mut Connection| {
            let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
            let rows = connection.rows("within_arrived", &[(&ids, Type::UUID_ARRAY)]).await?;
            Ok(rows.iter().map(|row| MessageId(row.get(0))).collect())
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

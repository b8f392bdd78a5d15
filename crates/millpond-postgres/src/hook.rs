//! Hooks of dead letters: which are pending, and who has taken them.

use millpond_core::error::Result;
use millpond_core::hook::{HookEnd, Hooks, Pending, TakeHooks};
use millpond_core::message::MessageId;
use millpond_core::store::{BoxFuture, QueueId};
use millpond_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::admin::now;
use crate::connect::PostgresStore;
use crate::connection::{Connection, Param};
use crate::error::{Lost, Tried};
use crate::settle::narrow;

impl Hooks for PostgresStore {
    fn expect_hooks(&self, queue: QueueId) -> BoxFuture<'_, Result<()>> {
        self.write("expect hooks of a queue", Lost::AskAgain, async move |connection: &mut Connection| {
            connection.run("hook_expect", &[(&narrow(queue.0), Type::INT4)]).await.map(drop)
        })
    }

    fn take_hooks(&self, take: TakeHooks) -> BoxFuture<'_, Result<Vec<Pending>>> {
        // If the answer is lost, what was taken is taken again when the while is over.
        self.main.call("take hooks", Lost::MayHaveHappened, async move |connection: &mut Connection| {
            let now = now(connection).await?;
            let (queue, rows_max) = (narrow(take.queue.0), i64::try_from(take.rows_max).unwrap_or(i64::MAX));
            let params: [Param<'_>; 4] = [
                (&queue, Type::INT4),
                (&now.as_micros(), Type::INT8),
                (&(now + take.lease).as_micros(), Type::INT8),
                (&rows_max, Type::INT8),
            ];
            connection.rows("hook_take", &params).await?.iter().map(pending).collect()
        })
    }

    fn finish_hooks(&self, ends: Vec<(i64, HookEnd)>) -> BoxFuture<'_, Result<()>> {
        self.main.call("finish hooks", Lost::AskAgain, async move |connection: &mut Connection| {
            for (number, end) in &ends {
                let params: [Param<'_>; 2] = [(number, Type::INT8), (&end.as_str(), Type::TEXT)];
                connection.run("hook_finish", &params).await?;
            }
            Ok(())
        })
    }
}

fn pending(row: &Row) -> Tried<Pending> {
    let instant = |micros: i64| Timestamp::from_micros(micros);
    Ok(Pending {
        number: row.try_get(0)?,
        id: MessageId(row.try_get(1)?),
        reason: row.try_get(3)?,
        detail: row.try_get(4)?,
        class: row.try_get(5)?,
        sent_at: instant(row.try_get(6)?),
        died_at: instant(row.try_get(7)?),
        attempt: row.try_get::<_, i32>(8)?.unsigned_abs(),
        kind: row.try_get(9)?,
        key: row.try_get(10)?,
        content_type: row.try_get(11)?,
        headers: row.try_get(12)?,
        tries: row.try_get::<_, i32>(13)?.unsigned_abs(),
        acknowledged: row.try_get(14)?,
        body: row.try_get(15)?,
    })
}

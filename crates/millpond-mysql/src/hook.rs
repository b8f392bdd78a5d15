//! Hooks of dead letters: which are pending, and who has taken them.

use millpond_core::error::Result;
use millpond_core::hook::{HookEnd, Hooks, Pending, TakeHooks};
use millpond_core::message::MessageId;
use millpond_core::store::{BoxFuture, QueueId};
use millpond_core::time::Timestamp;

use crate::admin::now;
use crate::connect::MysqlStore;
use crate::connection::Connection;
use crate::error::{Lost, Tried};
use crate::literal::List;
use crate::row::Row;

impl Hooks for MysqlStore {
    fn expect_hooks(&self, queue: QueueId) -> BoxFuture<'_, Result<()>> {
        self.write("expect hooks of a queue", Lost::AskAgain, async move |connection: &mut Connection| {
            connection.run("hook_expect", &[&queue.0]).await.map(drop)
        })
    }

    fn take_hooks(&self, take: TakeHooks) -> BoxFuture<'_, Result<Vec<Pending>>> {
        // If the answer is lost, what was taken is taken again when the while is over.
        self.main.call("take hooks", Lost::MayHaveHappened, async move |connection: &mut Connection| {
            let now = now(connection).await?;
            let take_due = async |connection: &mut Connection| take_due(connection, &take, now).await;
            connection.change(take_due).await
        })
    }

    fn finish_hooks(&self, ends: Vec<(i64, HookEnd)>) -> BoxFuture<'_, Result<()>> {
        self.main.call("finish hooks", Lost::AskAgain, async move |connection: &mut Connection| {
            for (number, end) in &ends {
                connection.run("hook_finish", &[number, &end.as_str()]).await?;
            }
            Ok(())
        })
    }
}

async fn take_due(connection: &Connection, take: &TakeHooks, now: Timestamp) -> Tried<Vec<Pending>> {
    let due = connection.rows("hook_due", &[&take.queue.0, &now.as_micros(), &take.rows_max]).await?;
    let taken = due.iter().map(pending).collect::<Tried<Vec<_>>>()?;
    if !taken.is_empty() {
        let numbers = List(taken.iter().map(|pending| pending.number).collect());
        connection.run("hook_take", &[&numbers, &(now + take.lease).as_micros()]).await?;
    }
    Ok(taken)
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
        attempt: row.try_get(8)?,
        kind: row.try_get(9)?,
        key: row.try_get(10)?,
        content_type: row.try_get(11)?,
        headers: row.try_get(12)?,
        tries: row.try_get::<_, u32>(13)? + 1,
        acknowledged: row.try_get(14)?,
        body: row.try_get(15)?,
    })
}

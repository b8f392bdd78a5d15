//! Hooks of dead letters: which are pending, and who has taken them.

use millpond_core::error::Result;
use millpond_core::hook::{HookEnd, Hooks, Pending, TakeHooks};
use millpond_core::message::MessageId;
use millpond_core::store::{BoxFuture, QueueId};
use rusqlite::{Row, params};

use crate::connect::SqliteStore;
use crate::error::Tried;
use crate::message::instant;
use crate::sql::sql;
use crate::writer::{Durable, Tx};

impl Hooks for SqliteStore {
    fn expect_hooks(&self, queue: QueueId) -> BoxFuture<'_, Result<()>> {
        self.writer.write(Durable::Yes, "expect hooks of a queue", move |tx| {
            tx.conn.prepare_cached(sql("hook_expect"))?.execute([queue.0])?;
            Ok(())
        })
    }

    fn take_hooks(&self, take: TakeHooks) -> BoxFuture<'_, Result<Vec<Pending>>> {
        Box::pin(async move {
            // Mostly there are none: the writer is not asked for that.
            let (queue, rows_max) = (take.queue, take.rows_max);
            let any = self.read("look for hooks", move |conn, now| {
                let mut due = conn.prepare_cached(sql("hook_due"))?;
                Ok(due.exists(params![queue.0, now.as_micros(), rows_max])?)
            });
            if !any.await? {
                return Ok(Vec::new());
            }
            self.writer.write(Durable::No, "take hooks", move |tx| tx.take_hooks(&take)).await
        })
    }

    fn finish_hooks(&self, ends: Vec<(i64, HookEnd)>) -> BoxFuture<'_, Result<()>> {
        self.writer.write(Durable::No, "finish hooks", move |tx| {
            for (number, end) in &ends {
                tx.conn.prepare_cached(sql("hook_finish"))?.execute(params![number, end.as_str()])?;
            }
            Ok(())
        })
    }
}

impl Tx<'_> {
    fn take_hooks(&mut self, take: &TakeHooks) -> Tried<Vec<Pending>> {
        let mut due = self.conn.prepare_cached(sql("hook_due"))?;
        let rows = due.query_map(params![take.queue.0, self.now.as_micros(), take.rows_max], pending)?;
        let mut taken = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let until = (self.now + take.lease).as_micros();
        for pending in &mut taken {
            self.conn.prepare_cached(sql("hook_take"))?.execute(params![pending.number, until])?;
            pending.tries += 1;
        }
        Ok(taken)
    }
}

fn pending(row: &Row<'_>) -> rusqlite::Result<Pending> {
    Ok(Pending {
        number: row.get(0)?,
        id: MessageId(row.get(1)?),
        reason: row.get(3)?,
        detail: row.get(4)?,
        class: row.get(5)?,
        sent_at: instant(row.get(6)?),
        died_at: instant(row.get(7)?),
        attempt: row.get(8)?,
        kind: row.get(9)?,
        key: row.get(10)?,
        content_type: row.get(11)?,
        headers: row.get(12)?,
        tries: row.get(13)?,
        acknowledged: row.get(14)?,
        body: row.get(15)?,
    })
}

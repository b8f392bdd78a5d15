//! Declarations, retention, and the end.

use millpond_core::error::Result;
use millpond_core::queue::QueueSettings;
use millpond_core::store::{Admin, BoxFuture, Queue};
use millpond_core::time::Timestamp;

use crate::connect::SqliteStore;
use crate::queues::stored_queue;
use crate::writer::Durable;

impl Admin for SqliteStore {
    fn declare(&self, name: String, settings: QueueSettings) -> BoxFuture<'_, Result<Queue>> {
        self.writer.write(Durable::Yes, "declare a queue", move |tx| tx.declare(&name, &settings))
    }

    fn queue(&self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        self.read("look a queue up", move |conn, _| Ok(stored_queue(conn, &name)?.map(|stored| stored.queue)))
    }

    fn retain(&self, node: String, rows_max: usize) -> BoxFuture<'_, Result<u64>> {
        self.writer
            .write(Durable::No, "delete what is past its retention", move |tx| tx.retain(&node, rows_max))
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        self.read("read the clock", |_, now| Ok(now))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.stop())
    }
}

//! Declarations, redrive, retention, and the end.

use millpond_core::error::Result;
use millpond_core::queue::QueueSettings;
use millpond_core::store::{Admin, BoxFuture, Queue};
use millpond_core::time::Timestamp;

use crate::connect::MysqlStore;
use crate::connection::Connection;
use crate::error::{Lost, Tried};
use crate::queues::{declare, stored_queue};
use crate::retention::retain;

impl Admin for MysqlStore {
    fn declare(&self, name: String, settings: QueueSettings) -> BoxFuture<'_, Result<Queue>> {
        self.write("declare a queue", Lost::AskAgain, async move |connection: &mut Connection| {
            declare(connection, &name, &settings).await
        })
    }

    fn queue(&self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        self.read("look a queue up", async move |connection: &mut Connection| {
            Ok(stored_queue(connection, &name).await?.map(|stored| stored.queue))
        })
    }

    fn retain(&self, node: String, rows_max: usize) -> BoxFuture<'_, Result<u64>> {
        let doing = "delete what is past its retention";
        self.main.call(doing, Lost::AskAgain, async move |connection: &mut Connection| {
            retain(connection, &node, rows_max).await
        })
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        self.read("read the clock", async |connection: &mut Connection| now(connection).await)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.sender.lane.stop().await;
            self.main.stop().await;
            self.renewal.stop().await;
        })
    }
}

/// The time of the store.
pub(crate) async fn now(connection: &Connection) -> Tried<Timestamp> {
    let micros = match connection.now() {
        Some(given) => given,
        None => connection.row("clock", &[]).await?.get(0),
    };
    Ok(Timestamp::from_micros(micros))
}

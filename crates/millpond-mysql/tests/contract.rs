//! The contract that every store must pass.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_mysql::mysql_async::Conn;
use millpond_mysql::mysql_async::prelude::Queryable;
use millpond_mysql::{MysqlStore, Options};
use millpond_testkit::bench::{DriverTx, Item, Pond, Provider, Queue, Sent};
use millpond_testkit::servers::mariadb::{Mariadb, fresh_prefix};

const DECLARED: Capabilities =
    Capabilities { store: "mysql", survives_restart: true, many_processes: true, effects_once: true };

/// Takes every table that a worker or a sender writes to.
const OCCUPIED: [&str; 6] = ["log", "log_partition", "claim", "outbox", "worker", "stat_delta"];

/// Waits for a future on the runtime of the scenario.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

/// Tables of its own in the shared server.
struct Tables(String);

impl Tables {
    fn fresh() -> Self {
        Self(fresh_prefix())
    }

    fn url(&self) -> String {
        let through = Mariadb::shared().url();
        let and = if through.contains('?') { '&' } else { '?' };
        format!("{through}{and}prefix={}", self.0)
    }
}

impl Provider for Tables {
    fn declared(&self) -> Capabilities {
        DECLARED
    }

    fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
        let options = Options { clock: Some(clock), ..Options::default() };
        Ok(Arc::new(wait(MysqlStore::open(&self.url(), options))?))
    }

    fn occupy(&self) -> Option<Box<dyn Any + Send>> {
        let tables: Vec<String> = OCCUPIED.iter().map(|table| format!("{}{table} write", self.0)).collect();
        let conn = wait(async {
            let mut conn = Conn::from_url(Mariadb::shared().url()).await.expect("it runs");
            conn.query_drop(format!("lock tables {}", tables.join(", "))).await.expect("its turn comes");
            conn
        });
        Some(Box::new(conn))
    }

    fn transaction(&self, open: bool) -> Option<Box<dyn DriverTx>> {
        let conn = wait(async {
            let mut conn = Conn::from_url(Mariadb::shared().url()).await.expect("it runs");
            if open {
                conn.query_drop("begin").await.expect("no transaction is open");
            }
            conn
        });
        Some(Box::new(Transaction(conn)))
    }

    fn publish(
        &self,
        queue: &str,
        body: &[u8],
        options: &str,
        commit: bool,
    ) -> Option<std::result::Result<(), String>> {
        let send = format!("call {}send(?, ?, ?, @id)", self.0);
        let sent = wait(async {
            let mut conn = Conn::from_url(Mariadb::shared().url()).await.expect("it runs");
            conn.query_drop("begin").await.expect("no transaction is open");
            let sent = conn.exec_drop(send, (queue, body, options)).await;
            conn.query_drop(if commit { "commit" } else { "rollback" }).await.expect("it ends");
            sent
        });
        Some(sent.map_err(|error| error.to_string()))
    }
}

millpond_testkit::contract!(Tables::fresh());

struct Transaction(Conn);

impl DriverTx for Transaction {
    fn send<'a>(
        &'a mut self,
        pond: &'a Pond,
        queue: &'a Queue<u32>,
        items: Vec<Item<u32>>,
    ) -> BoxFuture<'a, Result<Sent>> {
        Box::pin(pond.within(&mut self.0).send(queue, items))
    }

    fn end(mut self: Box<Self>, commit: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let end = if commit { "commit" } else { "rollback" };
            self.0.query_drop(end).await.expect("it ends");
        })
    }
}

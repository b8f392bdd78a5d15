//! The contract that every store must pass.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::message::MessageId;
use millpond_core::store::{BoxFuture, Clock, EffectTx, Store};
use millpond_mysql::mysql_async::Conn;
use millpond_mysql::mysql_async::prelude::Queryable;
use millpond_mysql::{MysqlStore, MysqlTx, Options};
use millpond_testkit::bench::{DriverTx, Effects, Item, Pond, Provider, Queue, Sent, UnitOfWork};
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

    fn effects(&self) -> Option<Arc<dyn Effects>> {
        Some(Arc::new(EffectTable(format!("effect_of_{}", self.0))))
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

/// The table of a program beside the store.
struct EffectTable(String);

/// The connection of a transaction of the store, or of one that was adopted.
fn conn_of(tx: &mut dyn EffectTx) -> &mut Conn {
    let tx = tx.as_any();
    // Asked twice, because an answer that is handed on holds what it was asked of.
    if tx.is::<Conn>() {
        return tx.downcast_mut::<Conn>().expect("it was just asked");
    }
    tx.downcast_mut::<MysqlTx>().expect("it is one or the other").conn()
}

fn refused(error: millpond_mysql::mysql_async::Error) -> Error {
    Error::new(Code::StatementFailed, "write in the transaction").because(error)
}

impl Effects for EffectTable {
    fn make(&self, _store: Arc<dyn Store>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut conn = Conn::from_url(Mariadb::shared().url()).await.expect("it runs");
            let make = format!("create table {} (message char(36) not null)", self.0);
            conn.query_drop(make).await.expect("it is made");
        })
    }

    fn add<'a>(&'a self, tx: &'a mut dyn EffectTx, id: MessageId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let add = format!("insert into {} (message) values ('{id}')", self.0);
            conn_of(tx).query_drop(add).await.map_err(refused)
        })
    }

    fn fail<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let answer = conn_of(tx).query_drop("insert into nowhere values (1)").await;
            assert!(answer.is_err(), "there is no such table");
        })
    }

    fn count<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, Result<(i64, i64)>> {
        Box::pin(async move {
            let count = format!("select count(*), count(distinct message) from {}", self.0);
            let counts: Option<(i64, i64)> = conn_of(tx).query_first(count).await.map_err(refused)?;
            Ok(counts.expect("a count has a row"))
        })
    }
}

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

    fn adopt<'p>(self: Box<Self>, pond: &'p Pond) -> BoxFuture<'p, Result<UnitOfWork>> {
        Box::pin(UnitOfWork::adopt(pond, self.0))
    }
}

//! The contract that every store must pass, in a file and in memory.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::message::MessageId;
use millpond_core::store::{BoxFuture, Clock, EffectTx, Store};
use millpond_sqlite::{Options, SqliteStore, SqliteTx};
use millpond_testkit::bench::{DriverTx, Effects, Item, Pond, Provider, Queue, Sent, UnitOfWork};
use rusqlite::Connection;

const DECLARED: Capabilities =
    Capabilities { store: "sqlite", survives_restart: true, many_processes: true, effects_once: true };

fn open(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open(url, Options { clock, ..Options::default() })?))
}

/// A file in a folder of its own.
struct File(tempfile::TempDir);

impl File {
    fn fresh() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("contract.db")
    }
}

impl Provider for File {
    fn declared(&self) -> Capabilities {
        DECLARED
    }

    fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
        open(&format!("sqlite://{}", self.path().display()), clock)
    }

    fn occupy(&self) -> Option<Box<dyn Any + Send>> {
        let conn = Connection::open(self.path()).expect("the file is there");
        conn.busy_timeout(Duration::from_secs(5)).expect("it waits");
        conn.execute_batch("begin immediate").expect("its turn comes");
        Some(Box::new(conn))
    }

    fn transaction(&self, open: bool) -> Option<Box<dyn DriverTx>> {
        let conn = Connection::open(self.path()).expect("the file is there");
        conn.busy_timeout(Duration::from_secs(5)).expect("it waits");
        if open {
            conn.execute_batch("begin immediate").expect("its turn comes");
        }
        Some(Box::new(Transaction(conn)))
    }

    fn effects(&self) -> Option<Arc<dyn Effects>> {
        Some(Arc::new(EffectTable))
    }

    fn publish(
        &self,
        queue: &str,
        body: &[u8],
        options: &str,
        commit: bool,
    ) -> Option<std::result::Result<(), String>> {
        let conn = Connection::open(self.path()).expect("the file is there");
        conn.busy_timeout(Duration::from_secs(5)).expect("it waits");
        conn.execute_batch("begin").expect("no transaction is open");
        let sent = conn.execute(
            "insert into millpond_outbox_in (queue, body, options) values (?1, ?2, ?3)",
            rusqlite::params![queue, body, options],
        );
        // What is refused leaves the transaction open, as if nothing had been sent.
        conn.execute_batch(if commit { "commit" } else { "rollback" }).expect("it ends");
        Some(sent.map(drop).map_err(|error| error.to_string()))
    }
}

/// In memory: every store is another one.
struct Memory;

impl Provider for Memory {
    fn declared(&self) -> Capabilities {
        Capabilities { survives_restart: false, many_processes: false, ..DECLARED }
    }

    fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
        open("sqlite::memory:", clock)
    }

    fn effects(&self) -> Option<Arc<dyn Effects>> {
        Some(Arc::new(EffectTable))
    }
}

mod file {
    millpond_testkit::contract!(super::File::fresh());
}

mod memory {
    millpond_testkit::contract!(super::Memory);
}

/// The table of a program beside the store.
struct EffectTable;

/// Works in a transaction of the store, or in one that was adopted.
async fn run<T: Send + 'static>(
    tx: &mut dyn EffectTx,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T> {
    let tx = tx.as_any();
    if let Some(adopted) = tx.downcast_mut::<Connection>() {
        return work(adopted).map_err(|error| Error::new(Code::StatementFailed, "write").because(error));
    }
    tx.downcast_mut::<SqliteTx>().expect("it is one or the other").run(work).await
}

impl Effects for EffectTable {
    fn make(&self, store: Arc<dyn Store>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut tx = store.open(Duration::from_secs(5)).await.expect("it is begun");
            let made =
                run(&mut *tx, |db| db.execute_batch("create table effect (message text not null)")).await;
            made.expect("it is made");
            tx.commit().await.expect("it is committed");
        })
    }

    fn add<'a>(&'a self, tx: &'a mut dyn EffectTx, id: MessageId) -> BoxFuture<'a, Result<()>> {
        let add = move |db: &Connection| {
            db.execute("insert into effect (message) values (?1)", [id.to_string()]).map(drop)
        };
        Box::pin(run(tx, add))
    }

    fn fail<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let refused = run(tx, |db| db.execute_batch("insert into nowhere values (1)")).await;
            assert!(refused.is_err(), "there is no such table");
        })
    }

    fn count<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, Result<(i64, i64)>> {
        let count = |db: &Connection| {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            db.query_row("select count(*), count(distinct message) from effect", [], row)
        };
        Box::pin(run(tx, count))
    }
}

struct Transaction(Connection);

impl DriverTx for Transaction {
    fn send<'a>(
        &'a mut self,
        pond: &'a Pond,
        queue: &'a Queue<u32>,
        items: Vec<Item<u32>>,
    ) -> BoxFuture<'a, Result<Sent>> {
        Box::pin(std::future::ready(pond.within(&mut self.0).send(queue, items)))
    }

    fn end(self: Box<Self>, commit: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Without a transaction there is nothing to end.
            if !self.0.is_autocommit() {
                self.0.execute_batch(if commit { "commit" } else { "rollback" }).expect("it ends");
            }
        })
    }

    fn adopt<'p>(self: Box<Self>, pond: &'p Pond) -> BoxFuture<'p, Result<UnitOfWork>> {
        Box::pin(UnitOfWork::adopt(pond, self.0))
    }
}

//! The contract that every store must pass, in a file and in memory.

use std::any::Any;
use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_sqlite::{Options, SqliteStore};
use millpond_testkit::bench::{DriverTx, Item, Pond, Provider, Queue, Sent};
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
        conn.busy_timeout(std::time::Duration::from_secs(5)).expect("it waits");
        conn.execute_batch("begin immediate").expect("its turn comes");
        Some(Box::new(conn))
    }

    fn transaction(&self, open: bool) -> Option<Box<dyn DriverTx>> {
        let conn = Connection::open(self.path()).expect("the file is there");
        conn.busy_timeout(std::time::Duration::from_secs(5)).expect("it waits");
        if open {
            conn.execute_batch("begin immediate").expect("its turn comes");
        }
        Some(Box::new(Transaction(conn)))
    }

    fn publish(
        &self,
        queue: &str,
        body: &[u8],
        options: &str,
        commit: bool,
    ) -> Option<std::result::Result<(), String>> {
        let conn = Connection::open(self.path()).expect("the file is there");
        conn.busy_timeout(std::time::Duration::from_secs(5)).expect("it waits");
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
}

mod file {
    millpond_testkit::contract!(super::File::fresh());
}

mod memory {
    millpond_testkit::contract!(super::Memory);
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
}

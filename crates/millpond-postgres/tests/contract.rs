//! The contract that every store must pass, directly and through a proxy that shares connections.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::message::MessageId;
use millpond_core::store::{BoxFuture, Clock, EffectTx, Store};
use millpond_core::within::{Dialect, Refused, Row, Statement, UserTx};
use millpond_postgres::tokio_postgres::{Client, NoTls};
use millpond_postgres::{Driver, Options, PostgresStore, PostgresTx};
use millpond_testkit::bench::{DriverTx, Effects, Item, Pond, Provider, Queue, Sent, UnitOfWork};
use millpond_testkit::servers::pgbouncer::Pgbouncer;
use millpond_testkit::servers::postgres::{Postgres, fresh_schema};

const DECLARED: Capabilities =
    Capabilities { store: "postgres", survives_restart: true, many_processes: true, effects_once: true };

/// Takes every table that a worker or a sender writes to.
const OCCUPY: &str =
    "begin; lock table {}.log, {}.claim, {}.outbox, {}.worker, {}.stat_delta in exclusive mode";

/// Waits for a future on the runtime of the scenario.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

/// A schema of its own in the shared server.
struct Schema {
    /// How the store reaches the server.
    through: &'static str,
    name: String,
}

impl Schema {
    fn direct() -> Self {
        Self { through: Postgres::shared().url(), name: fresh_schema() }
    }

    fn through_proxy() -> Self {
        Self { through: Pgbouncer::shared().url(), name: fresh_schema() }
    }

    fn url(&self) -> String {
        let and = if self.through.contains('?') { '&' } else { '?' };
        format!("{}{and}schema={}", self.through, self.name)
    }
}

/// A connection of the scenario's own.
async fn connect() -> Client {
    let (client, connection) =
        millpond_postgres::tokio_postgres::connect(Postgres::shared().url(), NoTls).await.expect("it runs");
    tokio::spawn(connection);
    client
}

impl Provider for Schema {
    fn declared(&self) -> Capabilities {
        DECLARED
    }

    fn open(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
        let options = Options { clock: Some(clock), ..Options::default() };
        Ok(Arc::new(wait(PostgresStore::open(&self.url(), options))?))
    }

    fn occupy(&self) -> Option<Box<dyn Any + Send>> {
        let occupy = OCCUPY.replace("{}", &self.name);
        let client = wait(async {
            let client = connect().await;
            client.batch_execute(&occupy).await.expect("its turn comes");
            client
        });
        Some(Box::new(client))
    }

    fn transaction(&self, open: bool) -> Option<Box<dyn DriverTx>> {
        let client = wait(async {
            let client = connect().await;
            if open {
                client.batch_execute("begin").await.expect("no transaction is open");
            }
            client
        });
        // Once as a type of which that is known, and once as one that must be asked.
        let is_surely_open = open && self.through == Postgres::shared().url();
        Some(Box::new(Transaction { client, is_surely_open }))
    }

    fn effects(&self) -> Option<Arc<dyn Effects>> {
        Some(Arc::new(EffectTable(format!("{}.effect", self.name))))
    }

    fn publish(
        &self,
        queue: &str,
        body: &[u8],
        options: &str,
        commit: bool,
    ) -> Option<std::result::Result<(), String>> {
        let send = format!("select {}.send($1, $2::bytea, $3::text::jsonb)", self.name);
        let sent = wait(async {
            let client = connect().await;
            client.batch_execute("begin").await.expect("no transaction is open");
            let sent = client.query_one(&send, &[&queue, &body, &options]).await;
            client.batch_execute(if commit { "commit" } else { "rollback" }).await.expect("it ends");
            sent
        });
        let said = |error: millpond_postgres::tokio_postgres::Error| {
            error.as_db_error().map_or_else(|| error.to_string(), |refused| refused.message().to_owned())
        };
        Some(sent.map(drop).map_err(said))
    }
}

/// The table of a program beside the store.
struct EffectTable(String);

/// The client of a transaction of the store, or of one that was adopted.
fn client_of(tx: &mut dyn EffectTx) -> &Client {
    let tx = tx.as_any();
    // Asked twice, because an answer that is handed on holds what it was asked of.
    if tx.is::<Client>() {
        return tx.downcast_ref::<Client>().expect("it was just asked");
    }
    tx.downcast_ref::<PostgresTx>().expect("it is one or the other").client()
}

fn refused(error: millpond_postgres::tokio_postgres::Error) -> Error {
    Error::new(Code::StatementFailed, "write in the transaction").because(error)
}

impl Effects for EffectTable {
    fn make(&self, _store: Arc<dyn Store>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let make = format!("create table {} (message text not null)", self.0);
            connect().await.batch_execute(&make).await.expect("it is made");
        })
    }

    fn add<'a>(&'a self, tx: &'a mut dyn EffectTx, id: MessageId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let add = format!("insert into {} (message) values ('{id}')", self.0);
            client_of(tx).batch_execute(&add).await.map_err(refused)
        })
    }

    fn fail<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let answer = client_of(tx).batch_execute("insert into nowhere values (1)").await;
            assert!(answer.is_err(), "there is no such table");
        })
    }

    fn count<'a>(&'a self, tx: &'a mut dyn EffectTx) -> BoxFuture<'a, Result<(i64, i64)>> {
        Box::pin(async move {
            let count = format!("select count(*), count(distinct message) from {}", self.0);
            let row = client_of(tx).query_typed_one(&count, &[]).await.map_err(refused)?;
            Ok((row.get(0), row.get(1)))
        })
    }
}

struct Transaction {
    client: Client,
    is_surely_open: bool,
}

impl UserTx<Transaction> for Transaction {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn is_surely_open(&mut self) -> bool {
        self.is_surely_open
    }

    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
    ) -> BoxFuture<'a, std::result::Result<Vec<Row>, Refused>> {
        <Client as UserTx<Driver>>::run(&mut self.client, statement)
    }
}

impl DriverTx for Transaction {
    fn send<'a>(
        &'a mut self,
        pond: &'a Pond,
        queue: &'a Queue<u32>,
        items: Vec<Item<u32>>,
    ) -> BoxFuture<'a, Result<Sent>> {
        Box::pin(pond.within(self).send(queue, items))
    }

    fn end(self: Box<Self>, commit: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let end = if commit { "commit" } else { "rollback" };
            self.client.batch_execute(end).await.expect("it ends");
        })
    }

    fn adopt<'p>(self: Box<Self>, pond: &'p Pond) -> BoxFuture<'p, Result<UnitOfWork>> {
        Box::pin(UnitOfWork::adopt(pond, self.client))
    }
}

mod direct {
    millpond_testkit::contract!(super::Schema::direct());
}

mod through_proxy {
    millpond_testkit::contract!(super::Schema::through_proxy());
}

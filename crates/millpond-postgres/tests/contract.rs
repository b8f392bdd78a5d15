//! The contract that every store must pass, directly and through a proxy that shares connections.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use millpond_core::capability::Capabilities;
use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_core::within::{Dialect, Refused, Row, Statement, UserTx};
use millpond_postgres::tokio_postgres::{Client, NoTls};
use millpond_postgres::{Driver, Options, PostgresStore};
use millpond_testkit::bench::{DriverTx, Item, Pond, Provider, Queue, Sent};
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
}

mod direct {
    millpond_testkit::contract!(super::Schema::direct());
}

mod through_proxy {
    millpond_testkit::contract!(super::Schema::through_proxy());
}

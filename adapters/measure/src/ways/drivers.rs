//! The drivers that the stores use, with a connection of the program's own.

use std::time::{Duration, Instant};

use millpond::Pond;
use millpond::mysql::mysql_async::prelude::Queryable;
use millpond::mysql::mysql_async::{Conn, TxOpts};
use millpond::postgres::tokio_postgres::{Client, NoTls, connect};
use millpond::sqlite::rusqlite::{Connection, TransactionBehavior};
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::{Committed, MAIL, Outcome, TABLE, Way, path};

/// As long as the store itself waits for another writer.
const BUSY: Duration = Duration::from_secs(5);

pub(crate) struct Rusqlite(Connection);

impl Way for Rusqlite {
    const NAME: &'static str = "rusqlite";

    async fn open(url: &str) -> Outcome<Self> {
        let connection = Connection::open(path(url))?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch(TABLE)?;
        Ok(Self(connection))
    }

    async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed> {
        block_in_place(|| {
            let mut tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute("insert into orders (number) values (?1)", [order.cast_signed()])?;
            pond.within(&mut tx).send(&MAIL, [order])?;
            std::thread::sleep(work);
            let called = Instant::now();
            tx.commit()?;
            Ok(Committed::since(called))
        })
    }
}

pub(crate) struct TokioPostgres(Client);

impl Way for TokioPostgres {
    const NAME: &'static str = "tokio-postgres";

    async fn open(url: &str) -> Outcome<Self> {
        let (client, connection) = connect(url, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(TABLE).await?;
        Ok(Self(client))
    }

    async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed> {
        let mut tx = self.0.transaction().await?;
        tx.execute("insert into orders (number) values ($1)", &[&order.cast_signed()]).await?;
        pond.within(&mut tx).send(&MAIL, [order]).await?;
        sleep(work).await;
        let called = Instant::now();
        tx.commit().await?;
        Ok(Committed::since(called))
    }
}

pub(crate) struct MysqlAsync(Conn);

impl Way for MysqlAsync {
    const NAME: &'static str = "mysql_async";

    async fn open(url: &str) -> Outcome<Self> {
        let mut connection = Conn::from_url(url).await?;
        connection.query_drop(TABLE).await?;
        Ok(Self(connection))
    }

    async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed> {
        let mut tx = self.0.start_transaction(TxOpts::default()).await?;
        tx.exec_drop("insert into orders (number) values (?)", (order,)).await?;
        pond.within(&mut tx).send(&MAIL, [order]).await?;
        sleep(work).await;
        let called = Instant::now();
        tx.commit().await?;
        Ok(Committed::since(called))
    }
}

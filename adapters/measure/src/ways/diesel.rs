//! diesel and diesel-async, by their adapter.

use std::time::{Duration, Instant};

use diesel::Connection as _;
use diesel::connection::SimpleConnection as _;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, RunQueryDsl};
use millpond::Pond;
use millpond_tx_diesel as _;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::{Committed, Failure, MAIL, Outcome, TABLE, Way, path};

pub(crate) struct Sqlite(diesel::SqliteConnection);

impl Way for Sqlite {
    const NAME: &'static str = "diesel";

    async fn open(url: &str) -> Outcome<Self> {
        let mut connection = diesel::SqliteConnection::establish(path(url))?;
        // Without it diesel waits for no other writer, and the store is one.
        connection.batch_execute("pragma busy_timeout = 5000")?;
        connection.batch_execute(TABLE)?;
        Ok(Self(connection))
    }

    async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed> {
        let insert = diesel::sql_query("insert into orders (number) values (?)");
        let insert = insert.bind::<BigInt, _>(order.cast_signed());
        let called = block_in_place(|| {
            self.0.immediate_transaction(|tx| -> Outcome<Instant> {
                diesel::RunQueryDsl::execute(insert, tx)?;
                pond.within(tx).send(&MAIL, [order])?;
                std::thread::sleep(work);
                Ok(Instant::now())
            })
        })?;
        Ok(Committed::since(called))
    }
}

macro_rules! asynchronous {
    ($way:ident, $connection:ty, $insert:literal) => {
        pub(crate) struct $way($connection);

        impl Way for $way {
            const NAME: &'static str = "diesel-async";

            async fn open(url: &str) -> Outcome<Self> {
                let mut connection = <$connection>::establish(url).await?;
                diesel::sql_query(TABLE).execute(&mut connection).await?;
                Ok(Self(connection))
            }

            async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed> {
                let placed = self.0.transaction(async |tx| -> Result<Instant, Failure> {
                    let insert = diesel::sql_query($insert);
                    insert.bind::<BigInt, _>(order.cast_signed()).execute(tx).await?;
                    pond.within(tx).send(&MAIL, [order]).await?;
                    sleep(work).await;
                    Ok(Instant::now())
                });
                Ok(Committed::since(placed.await?))
            }
        }
    };
}

asynchronous!(Postgres, AsyncPgConnection, "insert into orders (number) values ($1)");
asynchronous!(Mysql, AsyncMysqlConnection, "insert into orders (number) values (?)");

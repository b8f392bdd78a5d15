//! The unit of work of Millpond itself.

use std::time::{Duration, Instant};

use millpond::Pond;
use millpond::mysql::MysqlUnit;
use millpond::mysql::mysql_async::prelude::Queryable;
use millpond::postgres::PostgresUnit;
use millpond::sqlite::SqliteUnit;
use tokio::time::sleep;

use super::drivers::{MysqlAsync, Rusqlite, TokioPostgres};
use super::{Committed, MAIL, Outcome, Way};

macro_rules! unit {
    ($way:ident, $driver:ty, |$unit:ident, $order:ident| $insert:expr) => {
        pub(crate) struct $way;

        impl Way for $way {
            const NAME: &'static str = "unit of work";

            async fn open(url: &str) -> Outcome<Self> {
                // The table is made outside: in MariaDB that commits.
                <$driver>::open(url).await?;
                Ok(Self)
            }

            async fn place_order(&mut self, pond: &Pond, $order: u64, work: Duration) -> Outcome<Committed> {
                let mut $unit = pond.begin().await?;
                $insert;
                $unit.send(&MAIL, [$order]).await?;
                sleep(work).await;
                let called = Instant::now();
                $unit.commit().await?;
                Ok(Committed::since(called))
            }
        }
    };
}

unit!(Sqlite, Rusqlite, |unit, order| {
    let number = order.cast_signed();
    unit.sqlite(move |db| db.execute("insert into orders (number) values (?1)", [number])).await?
});

unit!(Postgres, TokioPostgres, |unit, order| {
    let insert = "insert into orders (number) values ($1)";
    unit.postgres().await?.execute(insert, &[&order.cast_signed()]).await?
});

unit!(Mysql, MysqlAsync, |unit, order| {
    unit.mysql().await?.exec_drop("insert into orders (number) values (?)", (order,)).await?
});

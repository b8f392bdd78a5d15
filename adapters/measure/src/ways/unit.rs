//! The unit of work of Millpond itself.

use std::time::{Duration, Instant};

use millpond::Pond;
use millpond::mysql::MysqlUnit;
use millpond::mysql::mysql_async::prelude::Queryable;
use millpond::postgres::PostgresUnit;
use millpond::sqlite::SqliteUnit;
use tokio::time::sleep;

use super::{Committed, MAIL, Outcome, TABLE, Way};

macro_rules! unit {
    ($way:ident, |$unit:ident| $table:expr, |$order:ident| $insert:expr) => {
        pub(crate) struct $way;

        impl Way for $way {
            const NAME: &'static str = "unit of work";

            async fn open(url: &str) -> Outcome<Self> {
                let pond = Pond::open(url).await?;
                let mut $unit = pond.begin().await?;
                $table;
                $unit.commit().await?;
                pond.close().await;
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

unit!(Sqlite, |unit| unit.sqlite(|db| db.execute_batch(TABLE)).await?, |order| {
    let number = order.cast_signed();
    unit.sqlite(move |db| db.execute("insert into orders (number) values (?1)", [number])).await?
});

unit!(Postgres, |unit| unit.postgres().await?.batch_execute(TABLE).await?, |order| {
    let insert = "insert into orders (number) values ($1)";
    unit.postgres().await?.execute(insert, &[&order.cast_signed()]).await?
});

unit!(Mysql, |unit| unit.mysql().await?.query_drop(TABLE).await?, |order| {
    unit.mysql().await?.exec_drop("insert into orders (number) values (?)", (order,)).await?
});

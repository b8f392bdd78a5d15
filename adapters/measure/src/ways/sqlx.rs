//! sqlx, by its adapter.

use std::time::{Duration, Instant};

use millpond::Pond;
use millpond_tx_sqlx as _;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use tokio::time::sleep;

use super::{Committed, MAIL, Outcome, TABLE, Way};

macro_rules! way {
    ($way:ident, $connection:ty, $insert:literal) => {
        pub(crate) struct $way($connection);

        impl Way for $way {
            const NAME: &'static str = "sqlx";

            async fn open(url: &str) -> Outcome<Self> {
                let mut connection = <$connection>::connect(url).await?;
                sqlx::raw_sql(TABLE).execute(&mut connection).await?;
                Ok(Self(connection))
            }

            async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed> {
                let mut tx = self.0.begin().await?;
                sqlx::query($insert).bind(order.cast_signed()).execute(&mut *tx).await?;
                pond.within(&mut tx).send(&MAIL, [order]).await?;
                sleep(work).await;
                let called = Instant::now();
                tx.commit().await?;
                Ok(Committed::since(called))
            }
        }
    };
}

way!(Sqlite, SqliteConnection, "insert into orders (number) values (?)");
way!(Postgres, PgConnection, "insert into orders (number) values ($1)");
way!(Mysql, MySqlConnection, "insert into orders (number) values (?)");

//! SeaORM, by its adapter.

use std::time::{Duration, Instant};

use millpond::Pond;
use millpond_tx_seaorm as _;
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, TransactionTrait};
use tokio::time::sleep;

use super::{Committed, MAIL, Outcome, TABLE, Way};

pub(crate) struct SeaOrm(DatabaseConnection);

impl Way for SeaOrm {
    const NAME: &'static str = "SeaORM";

    async fn open(url: &str) -> Outcome<Self> {
        let database = Database::connect(url).await?;
        database.execute_unprepared(TABLE).await?;
        Ok(Self(database))
    }

    async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed> {
        let mut tx = self.0.begin().await?;
        tx.execute_unprepared(&format!("insert into orders (number) values ({order})")).await?;
        pond.within(&mut tx).send(&MAIL, [order]).await?;
        sleep(work).await;
        let called = Instant::now();
        tx.commit().await?;
        Ok(Committed::since(called))
    }
}

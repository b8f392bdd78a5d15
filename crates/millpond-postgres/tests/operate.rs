//! What people change, in a schema of its own for each scenario.

use std::sync::Arc;

use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_postgres::tokio_postgres::{NoTls, connect};
use millpond_postgres::{Options, PostgresStore};
use millpond_testkit::operate::{Fixture, Place, prefixed};
use millpond_testkit::servers::postgres::{Postgres, fresh_schema};

struct Schema(String);

impl Schema {
    fn fresh() -> Self {
        Self(fresh_schema())
    }
}

impl Place for Schema {
    fn open(&self, clock: Arc<dyn Clock>) -> BoxFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async move {
            let url = format!("{}?schema={}", Postgres::shared().url(), self.0);
            let store =
                PostgresStore::open(&url, Options { clock: Some(clock), ..Options::default() }).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn ask<'a>(&'a self, statement: &'a str) -> BoxFuture<'a, i64> {
        Box::pin(async move {
            let (client, connection) = connect(Postgres::shared().url(), NoTls).await.expect("it runs");
            tokio::spawn(connection);
            let statement = prefixed(statement, &format!("{}.", self.0));
            let row = client.query_opt(&statement, &[]).await.expect("it is a statement");
            row.map_or(0, |row| row.get(0))
        })
    }
}

millpond_testkit::operate!(Schema::fresh());

#[tokio::test]
async fn a_store_that_is_migrated_by_a_later_release_is_not_written_any_more() {
    let fixture = Fixture::on(Schema::fresh()).await;
    let later = "insert into <migration> values (99, '0099_later', 1, 1)";
    millpond_testkit::operate::a_store_that_is_migrated_is_not_written_any_more(&fixture, later).await;
}

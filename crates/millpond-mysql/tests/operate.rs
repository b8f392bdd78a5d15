//! What people change, in tables of its own for each scenario.

use std::sync::Arc;

use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_mysql::mysql_async::Conn;
use millpond_mysql::mysql_async::prelude::Queryable;
use millpond_mysql::{MysqlStore, Options};
use millpond_testkit::operate::{Fixture, Place, prefixed};
use millpond_testkit::servers::mariadb::{Mariadb, fresh_prefix};

struct Tables(String);

impl Tables {
    fn fresh() -> Self {
        Self(fresh_prefix())
    }
}

impl Place for Tables {
    fn open(&self, clock: Arc<dyn Clock>) -> BoxFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async move {
            let url = format!("{}?prefix={}", Mariadb::shared().url(), self.0);
            let store = MysqlStore::open(&url, Options { clock: Some(clock), ..Options::default() }).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn ask<'a>(&'a self, statement: &'a str) -> BoxFuture<'a, i64> {
        Box::pin(async move {
            let mut conn = Conn::from_url(Mariadb::shared().url()).await.expect("it runs");
            let answer = conn.query_first(prefixed(statement, &self.0)).await;
            answer.expect("it is a statement").unwrap_or(0)
        })
    }
}

millpond_testkit::operate!(Tables::fresh());

#[tokio::test]
async fn a_store_that_is_migrated_by_a_later_release_is_not_written_any_more() {
    let fixture = Fixture::on(Tables::fresh()).await;
    let later = "insert into <migration> values (99, '0099_later', 1, 1, 1)";
    millpond_testkit::operate::a_store_that_is_migrated_is_not_written_any_more(&fixture, later).await;
}

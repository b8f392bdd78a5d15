//! A store in a MySQL or MariaDB database. The database must be there; its tables are made by a command that adds
//! something.

use std::sync::Arc;

use millpond::mysql::{MysqlStore, Options, schema};
use millpond::{Code, Pond};

use super::Migration;
use crate::exit::{Exit, Failure};

/// Whether the URL names a MySQL or MariaDB database.
pub(crate) fn is_mysql(url: &str) -> bool {
    ["mysql:", "mariadb:"].iter().any(|scheme| url.starts_with(scheme))
}

/// The migrations of the store, which is not changed.
pub(super) async fn look(url: &str) -> Result<Vec<Migration>, Failure> {
    let migrations = schema(url).await.map_err(|error| Failure::from(error).redacted())?;
    let ours = |migration: millpond::mysql::Migration| Migration {
        name: migration.name,
        sql: migration.sql,
        applied_at: migration.applied_at,
    };
    Ok(migrations.into_iter().map(ours).collect())
}

/// Opens it; with `make`, its tables are made and migrated if need be.
pub(super) async fn open(url: &str, make: bool) -> Result<Pond, Failure> {
    let options = Options { migrate: make, ..Options::default() };
    let store = MysqlStore::open(url, options).await;
    Ok(Pond::with_store(Arc::new(store.map_err(|error| Failure::from(error).redacted())?)))
}

/// There is a database, and nothing of ours in it.
pub(super) fn no_schema(url: &str) -> Failure {
    let tried = format!("there are no Millpond tables in {}", millpond_core::redact::summary(url));
    let why = "the database is there, but it has no queues yet";
    let advice =
        "run `millpond queue add NAME` or `millpond migrate up`; or check --store and its `?prefix=`";
    Failure::new(Exit::Refused, Code::SchemaOlder.as_str(), tried).why(why).advice(advice)
}

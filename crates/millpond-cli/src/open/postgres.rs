//! A store in a Postgres database. The database must be there; its schema is made by a command that adds something.

use std::sync::Arc;

use millpond::postgres::{Options, PostgresStore, schema};
use millpond::{Code, Pond};

use super::Migration;
use crate::exit::{Exit, Failure};

/// Whether the URL names a Postgres database.
pub(crate) fn is_postgres(url: &str) -> bool {
    ["postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme))
}

/// The migrations of the store, which is not changed.
pub(super) async fn look(url: &str) -> Result<Vec<Migration>, Failure> {
    let migrations = schema(url).await.map_err(|error| Failure::from(error).redacted())?;
    let ours = |migration: millpond::postgres::Migration| Migration {
        name: migration.name,
        sql: migration.sql,
        applied_at: migration.applied_at,
    };
    Ok(migrations.into_iter().map(ours).collect())
}

/// Opens it; with `make`, its schema is made and migrated if need be.
pub(super) async fn open(url: &str, make: bool) -> Result<Pond, Failure> {
    let options = Options { migrate: make, ..Options::default() };
    let store = PostgresStore::open(url, options).await;
    Ok(Pond::with_store(Arc::new(store.map_err(|error| Failure::from(error).redacted())?)))
}

/// There is a database, and nothing of ours in it.
pub(super) fn no_schema(url: &str) -> Failure {
    let tried = format!("there is no Millpond schema in {}", millpond_core::redact::summary(url));
    let why = "the database is there, but it has no queues yet";
    let advice =
        "run `millpond queue add NAME` or `millpond migrate up`; or check --store and its `?schema=`";
    Failure::new(Exit::Refused, Code::SchemaOlder.as_str(), tried).why(why).advice(advice)
}

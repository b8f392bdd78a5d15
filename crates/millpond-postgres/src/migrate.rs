//! The schema: numbered migrations with a checksum, all that are missing in one transaction. Released files never
//! change.

use millpond_core::error::{Code, Error, Result};

use crate::connection::Connection;
use crate::error::{Fault, Lost, Tried, code_of, plain};
use crate::sql::in_schema;
use tokio_postgres::types::Type;

/// The migrations, in order. The first has number 1. Functions have a file each, for readers.
const MIGRATIONS: [(&str, &str); 2] = [
    ("0001_log", include_str!("../migrations/0001_log.sql")),
    (
        "0002_operations",
        concat!(
            include_str!("../migrations/0002_operations.sql"),
            "\n",
            include_str!("../migrations/0002_operations/append.sql"),
            "\n",
            include_str!("../migrations/0002_operations/lease.sql"),
            "\n",
            include_str!("../migrations/0002_operations/settle.sql"),
            "\n",
            include_str!("../migrations/0002_operations/relay.sql"),
            "\n",
            include_str!("../migrations/0002_operations/send.sql"),
        ),
    ),
];

/// The number of the last one.
pub(crate) const LAST: usize = MIGRATIONS.len();

/// The table of what was applied.
const TABLE: &str = "create table if not exists millpond.migration (
    number integer primary key, name text not null, checksum bigint not null, applied_at bigint not null
)";

/// A migration as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Number and name.
    pub name: &'static str,
    /// The SQL it runs, written for the schema `millpond`.
    pub sql: &'static str,
    /// When it was applied here, in microseconds of database time; `None`: not yet.
    pub applied_at: Option<i64>,
}

/// What is known of a schema before anything is done to it.
struct Found {
    exists: bool,
    /// There is a table of migrations.
    ours: bool,
    /// There is a table of a name that is ours.
    taken: bool,
    may_create: bool,
    may_use: bool,
}

/// Every migration of this release and whether it was applied.
///
/// # Errors
///
/// `schema-newer`, `unsupported-store` when the schema is not ours, or what reading says.
pub(crate) async fn status(connection: &Connection) -> Result<Vec<Migration>> {
    let applied = applied(connection).await?;
    let row = |(index, (name, sql)): (usize, (&'static str, &'static str))| {
        let applied_at = applied.get(index).map(|(_, _, at)| *at);
        Migration { name, sql, applied_at }
    };
    Ok(MIGRATIONS.into_iter().enumerate().map(row).collect())
}

/// Applies what is missing. Two nodes that do it at once wait for each other.
///
/// # Errors
///
/// `schema-newer`, `unsupported-store`, `store-unreachable` without the rights, or what writing says; all of it is there or
/// nothing.
pub(crate) async fn up(connection: &mut Connection) -> Result<usize> {
    let doing = "migrate the schema";
    if applied(connection).await?.len() == MIGRATIONS.len() {
        return Ok(0);
    }
    let found = found(connection).await.map_err(|fault| fault.into_error(doing, Lost::AskAgain))?;
    if !found.exists && !found.may_create {
        let location = &connection.target.location;
        let (schema, user, database) = (&location.schema, location.user(), location.database());
        let why = format!(
            "user `{user}` may not make the schema `{schema}` in `{database}`: an owner of the database runs \
             `create schema {schema} authorization {user}`, or `millpond migrate up` as itself"
        );
        return Err(Error::new(Code::StoreUnreachable, doing).because(why));
    }
    let target = std::sync::Arc::clone(&connection.target);
    let migrated = connection.transaction("begin", async |connection: &mut Connection| {
        connection.row("schema_lock", &[]).await?;
        // Another node may have migrated while this one waited for the lock.
        let done = applied(connection).await?.len();
        let schema = connection.target.location.schema.clone();
        if !found.exists {
            connection.step(&format!("create schema if not exists {schema}")).await?;
        }
        connection.step(&in_schema(TABLE, &schema)).await?;
        // Whoever writes has read it: what they do is committed before, or refused after (`still_ours`).
        connection
            .step(&in_schema("lock table millpond.migration in access exclusive mode", &schema))
            .await?;
        for (index, (name, sql)) in MIGRATIONS.iter().enumerate().skip(done) {
            connection.step(&in_schema(sql, &schema)).await?;
            let number = i32::try_from(index + 1).unwrap_or(i32::MAX);
            let params =
                [(&number as _, Type::INT4), (name as _, Type::TEXT), (&checksum(sql) as _, Type::INT8)];
            connection.run("schema_record", &params).await?;
        }
        Ok(MIGRATIONS.len() - done)
    });
    migrated.await.map_err(|fault| match fault {
        Fault::Postgres(error) if code_of(&error) == Code::StoreUnreachable => {
            let (schema, user) = (&target.location.schema, target.location.user());
            let why = format!(
                "user `{user}` may not make or change tables in the schema `{schema}`: its owner runs \
                 `grant create on schema {schema} to {user}`, or `millpond migrate up` as itself ({})",
                plain(&error)
            );
            Error::new(Code::StoreUnreachable, doing).because(why)
        }
        fault => fault.into_error(doing, Lost::AskAgain),
    })
}

/// Refuses a schema that is older than this release.
pub(crate) async fn must_be_current(connection: &Connection) -> Result<()> {
    let applied = applied(connection).await?.len();
    if applied == MIGRATIONS.len() {
        return Ok(());
    }
    let why = match applied {
        0 => format!("there is no schema `{}` of ours in this database", connection.target.location.schema),
        _ => "its schema is older than this release".to_owned(),
    };
    Err(Error::new(Code::SchemaOlder, "open the store").because(why))
}

fn checksum(sql: &str) -> i64 {
    i64::from(crc32fast::hash(sql.as_bytes()))
}

async fn found(connection: &Connection) -> Tried<Found> {
    let schema = &connection.target.location.schema;
    let row = connection.row("schema_exists", &[(schema, Type::TEXT)]).await?;
    Ok(Found {
        exists: row.get(0),
        ours: row.get(1),
        taken: row.get(2),
        may_create: row.get(3),
        may_use: row.get(4),
    })
}

/// What was applied, checked against this release.
async fn applied(connection: &Connection) -> Result<Vec<(String, i64, i64)>> {
    let doing = "read the schema";
    let lost = |fault: Fault| fault.into_error(doing, Lost::AskAgain);
    let found = found(connection).await.map_err(lost)?;
    let location = &connection.target.location;
    if !found.may_use {
        let (user, schema) = (location.user(), &location.schema);
        let why = format!(
            "user `{user}` may not use the schema `{schema}`: GRANT USAGE ON SCHEMA {schema} TO {user}"
        );
        return Err(Error::new(Code::StoreUnreachable, doing).because(why));
    }
    if !found.ours {
        if found.taken {
            let why = format!("the schema `{}` has tables that this program did not make", location.schema);
            return Err(Error::new(Code::UnsupportedStore, doing).because(why));
        }
        return Ok(Vec::new());
    }
    let rows = connection.rows("schema_applied", &[]).await.map_err(lost)?;
    let rows: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    check(&rows)?;
    Ok(rows)
}

fn check(rows: &[(String, i64, i64)]) -> Result<()> {
    let doing = "read the schema";
    if let Some((name, _, _)) = rows.get(MIGRATIONS.len()) {
        let known = MIGRATIONS.len();
        let why = format!("it has migration {name}; this release knows {known} and no later one");
        return Err(Error::new(Code::SchemaNewer, doing).because(why));
    }
    for ((name, sum, _), (known, sql)) in rows.iter().zip(MIGRATIONS) {
        if name != known || *sum != checksum(sql) {
            let why = format!("migration {name} differs from {known} of this release");
            return Err(Error::new(Code::UnsupportedStore, doing).because(why));
        }
    }
    Ok(())
}

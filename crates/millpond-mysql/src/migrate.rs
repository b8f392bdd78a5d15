//! The schema: numbered migrations with a checksum. Released files never change.
//!
//! Changes of tables commit by themselves here. So each statement of a migration is counted when it is done, and a
//! migration that was interrupted goes on with the next. One node migrates at a time, by a lock of its connection.

use millpond_core::error::{Code, Error, Result};

use crate::connection::Connection;
use crate::error::{Fault, Lost, Tried, number};
use crate::sql::with_prefix;

/// The migrations, in order. The first has number 1.
const MIGRATIONS: [(&str, &str); 2] = [
    ("0001_log", include_str!("../migrations/0001_log.sql")),
    (
        "0002_operations",
        concat!(
            include_str!("../migrations/0002_operations.sql"),
            "\n",
            include_str!("../migrations/0002_operations/send.sql"),
        ),
    ),
];

/// The number of the last one.
pub(crate) const LAST: usize = MIGRATIONS.len();

/// Waits for every transaction that has read the table, and changes nothing: what they do is committed before, or
/// refused after (`still_ours`).
const BARRIER: &str = "alter table millpond_migration comment = 'of Millpond'";

/// The table of what was applied. One without a time was begun and is not complete.
const TABLE: &str = "create table if not exists millpond_migration (
    number int not null primary key, name varbinary(100) not null, checksum bigint not null, steps int not null,
    applied_at bigint
) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin";

const READ: &str = "read the schema";
const MIGRATE: &str = "migrate the schema";

/// A migration as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Number and name.
    pub name: &'static str,
    /// The SQL it runs, written for the prefix `millpond_`.
    pub sql: &'static str,
    /// When it was applied here, in microseconds of database time; `None`: not yet, or not all of it.
    pub applied_at: Option<i64>,
}

/// A row of the table of migrations.
struct Applied {
    name: String,
    checksum: i64,
    steps: usize,
    at: Option<i64>,
}

/// Every migration of this release and whether it was applied.
///
/// # Errors
///
/// `schema-newer`, `unsupported-store` when the tables are not ours, or what reading says.
pub(crate) async fn status(connection: &Connection) -> Result<Vec<Migration>> {
    let applied = applied(connection).await?;
    let row = |(index, (name, sql)): (usize, (&'static str, &'static str))| {
        let applied_at = applied.get(index).and_then(|applied| applied.at);
        Migration { name, sql, applied_at }
    };
    Ok(MIGRATIONS.into_iter().enumerate().map(row).collect())
}

/// Applies what is missing. Two nodes that do it at once wait for each other.
///
/// # Errors
///
/// `schema-newer`, `unsupported-store`, `store-unreachable` without the rights, or what writing says. What was done
/// stays, and the next call goes on behind it.
pub(crate) async fn up(connection: &Connection) -> Result<usize> {
    if is_complete(&applied(connection).await?) {
        return Ok(0);
    }
    let lost = |fault: Fault| no_rights(connection, fault);
    let locked = connection.row("schema_lock", &[]).await.map_err(lost)?;
    if !locked.get::<_, Option<bool>>(0).unwrap_or(false) {
        let why = "another node is migrating it and does not come to an end";
        return Err(Error::new(Code::StoreUnavailable, MIGRATE).because(why));
    }
    // Another node may have migrated while this one waited for the lock.
    let done = apply(connection).await;
    let unlocked = connection.row("schema_unlock", &[]).await;
    let done = done.map_err(lost)?;
    unlocked.map_err(lost)?;
    Ok(done)
}

async fn apply(connection: &Connection) -> Tried<usize> {
    let prefix = connection.target.location.prefix.clone();
    connection.step(&with_prefix(TABLE, &prefix)).await?;
    let before = applied(connection).await?;
    let mut done = 0;
    for (index, (name, sql)) in MIGRATIONS.iter().enumerate() {
        if before.get(index).is_some_and(|applied| applied.at.is_some()) {
            continue;
        }
        let migration = i32::try_from(index + 1).unwrap_or(i32::MAX);
        connection.run("schema_begin", &[&migration, name, &checksum(sql)]).await?;
        connection.step(&with_prefix(BARRIER, &prefix)).await?;
        let first = before.get(index).map_or(0, |applied| applied.steps);
        let sql = with_prefix(sql, &prefix);
        for (step, statement) in statements(&sql).enumerate().skip(first) {
            match connection.step(statement).await {
                // It was done, and the process ended before it was counted.
                Err(fault) if step == first && is_there(&fault) => {}
                done => done?,
            }
            connection.run("schema_step", &[&migration, &(step + 1)]).await?;
        }
        connection.run("schema_end", &[&migration]).await?;
        done += 1;
    }
    Ok(done)
}

/// Refuses a schema that is older than this release.
pub(crate) async fn must_be_current(connection: &Connection) -> Result<()> {
    let applied = applied(connection).await?;
    if is_complete(&applied) {
        return Ok(());
    }
    let why = match applied.iter().find(|applied| applied.at.is_none()) {
        Some(half) => {
            format!("migration {} stopped half-way: `millpond migrate up` goes on with it", half.name)
        }
        None if applied.is_empty() => {
            let location = &connection.target.location;
            format!("there are no tables `{}…` of ours in `{}`", location.prefix, location.database())
        }
        None => "its schema is older than this release".to_owned(),
    };
    Err(Error::new(Code::SchemaOlder, "open the store").because(why))
}

/// Refuses tables in which names and keys could merge.
pub(crate) async fn must_compare_bytes(connection: &Connection) -> Result<()> {
    let lost = |fault: Fault| fault.into_error(READ, Lost::AskAgain);
    let prefix = &connection.target.location.prefix;
    let refuse = |why: String| Err(Error::new(Code::UnsupportedStore, "open the store").because(why));
    for table in connection.rows("schema_tables", &[prefix]).await.map_err(lost)? {
        let (name, collation, engine): (&str, &str, &str) = (table.get(0), table.get(1), table.get(2));
        if collation != "utf8mb4_bin" || !engine.eq_ignore_ascii_case("InnoDB") {
            return refuse(format!(
                "table `{name}` has the collation {collation} and the engine {engine}: `alter table {name} engine = \
                 InnoDB, convert to character set utf8mb4 collate utf8mb4_bin`"
            ));
        }
    }
    if let Some(column) = connection.row_if_any("schema_binary", &[prefix]).await.map_err(lost)? {
        let (table, column, is): (&str, &str, &str) = (column.get(0), column.get(1), column.get(2));
        return refuse(format!("column `{table}.{column}` is {is} and must be varbinary: keys would merge"));
    }
    Ok(())
}

fn is_complete(applied: &[Applied]) -> bool {
    applied.len() == MIGRATIONS.len() && applied.iter().all(|applied| applied.at.is_some())
}

/// The table, column, index or procedure exists.
fn is_there(fault: &Fault) -> bool {
    matches!(fault, Fault::Mysql(error) if matches!(number(error), Some(1050 | 1060 | 1061 | 1304)))
}

fn no_rights(connection: &Connection, fault: Fault) -> Error {
    let error = fault.into_error(MIGRATE, Lost::AskAgain);
    if error.code() != Code::StoreUnreachable {
        return error;
    }
    let location = &connection.target.location;
    let (user, database) = (location.user(), location.database());
    let why = format!(
        "user `{user}` may not make or change tables in `{database}`: an owner runs `grant create, alter, index, drop, create \
         routine on {database}.* to {user}`, or `millpond migrate up` as itself ({})",
        error.causes()
    );
    Error::new(Code::StoreUnreachable, MIGRATE).because(why)
}

fn checksum(sql: &str) -> i64 {
    i64::from(crc32fast::hash(sql.as_bytes()))
}

/// The statements of a file. A procedure ends where a line begins with `end;`; no other statement has a `;` at the end
/// of a line within.
fn statements(sql: &str) -> impl Iterator<Item = &str> {
    let mut rest = sql.trim();
    std::iter::from_fn(move || {
        let begins = |line: &str| !line.is_empty() && !line.starts_with("--");
        let first = rest.lines().find(|line| begins(line))?;
        let end = if first.starts_with("create procedure") { "\nend;" } else { ";\n" };
        // The `;` itself is no part of a statement.
        let length = rest.find(end).map_or(rest.len(), |at| at + end.trim_end().len());
        let (statement, after) = rest.split_at(length);
        rest = after.trim_start();
        Some(statement.trim_end_matches(';'))
    })
}

/// What was applied, checked against this release.
async fn applied(connection: &Connection) -> Result<Vec<Applied>> {
    let lost = |fault: Fault| fault.into_error(READ, Lost::AskAgain);
    let prefix = &connection.target.location.prefix;
    let tables = connection.rows("schema_tables", &[prefix]).await.map_err(lost)?;
    let has = |name: &str| tables.iter().any(|table| table.get::<_, &str>(0) == format!("{prefix}{name}"));
    if !has("migration") {
        if has("queue") {
            let why = format!("there are tables `{prefix}…` that this program did not make");
            return Err(Error::new(Code::UnsupportedStore, READ).because(why));
        }
        return Ok(Vec::new());
    }
    let rows = connection.rows("schema_applied", &[]).await.map_err(lost)?;
    let rows = rows.iter().map(|row| Applied {
        name: row.get(0),
        checksum: row.get(1),
        steps: usize::try_from(row.get::<_, u32>(2)).unwrap_or(0),
        at: row.get(3),
    });
    let rows: Vec<Applied> = rows.collect();
    check(&rows)?;
    Ok(rows)
}

fn check(rows: &[Applied]) -> Result<()> {
    if let Some(Applied { name, .. }) = rows.get(MIGRATIONS.len()) {
        let known = MIGRATIONS.len();
        let why = format!("it has migration {name}; this release knows {known} and no later one");
        return Err(Error::new(Code::SchemaNewer, READ).because(why));
    }
    for (row, (known, sql)) in rows.iter().zip(MIGRATIONS) {
        if row.name != known || row.checksum != checksum(sql) {
            let why = format!("migration {} differs from {known} of this release", row.name);
            return Err(Error::new(Code::UnsupportedStore, READ).because(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_is_one_statement() {
        let file =
            "-- a\n\ncreate table a (b int);\n-- c;\ncreate procedure c()\nbegin\n    d;\nend;\ninsert e;\n";
        let parts =
            ["-- a\n\ncreate table a (b int)", "-- c;\ncreate procedure c()\nbegin\n    d;\nend", "insert e"];
        assert_eq!(statements(file).collect::<Vec<_>>(), parts);
    }

    #[test]
    fn every_table_says_how_it_compares() {
        for (_, sql) in MIGRATIONS {
            for statement in statements(sql).filter(|statement| statement.contains("create table")) {
                assert!(statement.ends_with("row_format = dynamic"), "{statement}");
                assert!(statement.contains("collate = utf8mb4_bin"), "{statement}");
            }
        }
    }
}

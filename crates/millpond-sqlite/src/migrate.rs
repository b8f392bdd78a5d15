//! The schema: numbered migrations with a checksum, one transaction each. Released files never change.

use millpond_core::error::{Code, Error, Result};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::error::Tried;
use crate::sql::sql;

/// The migrations, in order. The first has number 1.
const MIGRATIONS: [(&str, &str); 3] = [
    ("0001_log", include_str!("../migrations/0001_log.sql")),
    ("0002_operations", include_str!("../migrations/0002_operations.sql")),
    ("0003_publishing", include_str!("../migrations/0003_publishing.sql")),
];

/// The number of the last one.
pub(crate) const LAST: usize = MIGRATIONS.len();

/// A migration as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Number and name.
    pub name: &'static str,
    /// The SQL it runs.
    pub sql: &'static str,
    /// When it was applied here, in microseconds of database time; `None`: not yet.
    pub applied_at: Option<i64>,
}

/// Every migration of this release and whether it was applied.
///
/// # Errors
///
/// `schema-newer`, `unsupported-store` when the schema is not ours, or what reading says.
pub(crate) fn status(conn: &Connection) -> Result<Vec<Migration>> {
    let applied = applied(conn)?;
    let row = |(index, (name, sql)): (usize, (&'static str, &'static str))| {
        let applied_at = applied.get(index).map(|(_, _, at)| *at);
        Migration { name, sql, applied_at }
    };
    Ok(MIGRATIONS.into_iter().enumerate().map(row).collect())
}

/// Applies what is missing. Two processes that do it at once wait for each other.
///
/// # Errors
///
/// `schema-newer`, `unsupported-store`, or what writing says; each migration is there or not.
pub(crate) fn up(conn: &Connection, now: i64) -> Result<usize> {
    let doing = "migrate the schema";
    let sqlite = |error: rusqlite::Error| Error::new(crate::error::code_of(&error), doing).because(error);
    let done = applied(conn)?.len();
    if done == MIGRATIONS.len() {
        return Ok(0);
    }
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate).map_err(sqlite)?;
    // Another process may have migrated while this one waited for the lock.
    let done = applied(&tx)?.len();
    tx.execute_batch(
        "create table if not exists millpond_migration (
             number integer primary key, name text not null, checksum integer not null, applied_at integer not null
         ) strict",
    )
    .map_err(sqlite)?;
    for (index, (name, sql)) in MIGRATIONS.iter().enumerate().skip(done) {
        tx.execute_batch(sql).map_err(sqlite)?;
        tx.execute(
            "insert into millpond_migration (number, name, checksum, applied_at) values (?1, ?2, ?3, ?4)",
            rusqlite::params![index + 1, name, checksum(sql), now],
        )
        .map_err(sqlite)?;
    }
    tx.commit().map_err(sqlite)?;
    Ok(MIGRATIONS.len() - done)
}

/// Whether every migration of this release was applied.
pub(crate) fn is_current(conn: &Connection) -> Result<bool> {
    Ok(applied(conn)?.len() == MIGRATIONS.len())
}

/// Refuses a store that a later release migrated while this process has it open: what that release has written may
/// mean what this one does not know. Asked in every transaction that writes, so that no commit comes too late.
///
/// # Errors
///
/// `schema-newer`.
pub(crate) fn still_ours(conn: &Connection) -> Tried<()> {
    let number: i64 = conn.prepare_cached(sql("migration_last"))?.query_row([], |row| row.get(0))?;
    let known = MIGRATIONS.len();
    if number <= known as i64 {
        return Ok(());
    }
    let why = format!(
        "another process brought it to migration {number}; this release knows {known} and no later one"
    );
    Err(Error::new(Code::SchemaNewer, "use the store").because(why).into())
}

fn checksum(sql: &str) -> u32 {
    crc32fast::hash(sql.as_bytes())
}

/// What was applied, checked against this release.
fn applied(conn: &Connection) -> Result<Vec<(String, u32, i64)>> {
    let doing = "read the schema";
    let sqlite = |error: rusqlite::Error| Error::new(crate::error::code_of(&error), doing).because(error);
    let table = |name: &str| {
        conn.query_row("select 1 from sqlite_schema where type = 'table' and name = ?1", [name], |_| Ok(()))
            .optional()
            .map_err(sqlite)
    };
    if table("millpond_migration")?.is_none() {
        return match table("millpond_queue")? {
            None => Ok(Vec::new()),
            Some(()) => Err(Error::new(Code::UnsupportedStore, doing)
                .because("there are tables named millpond_* that this program did not make")),
        };
    }
    let mut list = conn
        .prepare("select name, checksum, applied_at from millpond_migration order by number")
        .map_err(sqlite)?;
    let rows = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(sqlite)?;
    let rows: Vec<(String, u32, i64)> = rows.collect::<rusqlite::Result<_>>().map_err(sqlite)?;
    check(&rows)?;
    Ok(rows)
}

fn check(rows: &[(String, u32, i64)]) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn migrated() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        assert_eq!(up(&conn, 7).unwrap(), MIGRATIONS.len());
        conn
    }

    #[test]
    fn it_is_applied_once() {
        let conn = migrated();
        assert_eq!(up(&conn, 8).unwrap(), 0);
        assert_eq!(status(&conn).unwrap()[0].applied_at, Some(7));
    }

    /// What all migrations together make, for readers: one statement after the other, by name.
    fn dump(conn: &Connection) -> String {
        let mut list = conn
            .prepare(
                "select sql from sqlite_schema where name like 'millpond%' and sql is not null order by name",
            )
            .unwrap();
        let statements = list.query_map([], |row| row.get::<_, String>(0)).unwrap();
        statements.map(|statement| statement.unwrap() + ";\n\n").collect()
    }

    #[test]
    fn the_committed_schema_is_what_the_migrations_make() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
        let made = dump(&migrated());
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == made, "schema.sql is stale: run this test once with UPDATE_SCHEMA=1");
    }

    #[test]
    fn dead_letters_of_the_first_release_are_kept() {
        let conn = Connection::open_in_memory().unwrap();
        let (name, first) = MIGRATIONS[0];
        conn.execute_batch(first).unwrap();
        conn.execute_batch(
            "create table millpond_migration (
                 number integer primary key, name text not null, checksum integer not null, applied_at integer not null
             ) strict;
             insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, died_at, sent_at,
                                               attempt, releases, checksum, redriven_as, body)
             values (x'01', 1, 1, 2, 'exhausted', 5, 4, 3, 2, 9, x'02', x'cafe')",
        )
        .unwrap();
        let row = rusqlite::params![1, name, checksum(first), 1];
        conn.execute("insert into millpond_migration values (?1, ?2, ?3, ?4)", row).unwrap();
        assert_eq!(up(&conn, 8).unwrap(), MIGRATIONS.len() - 1);
        let kept = "select count(*) from millpond_dead_letter
                    where message_id = x'01' and attempt = 3 and redriven_as = x'02' and body = x'cafe'
                          and fingerprint is null";
        assert_eq!(conn.query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }

    #[test]
    fn a_newer_schema_is_refused_by_name() {
        let conn = migrated();
        conn.execute("insert into millpond_migration values (99, '0099_later', 1, 1)", []).unwrap();
        let error = up(&conn, 8).unwrap_err();
        assert_eq!(error.code(), Code::SchemaNewer);
        assert!(error.causes().contains("0099_later"), "{}", error.causes());
    }

    #[test]
    fn a_changed_migration_and_a_foreign_schema_are_refused() {
        let conn = migrated();
        conn.execute("update millpond_migration set checksum = 1", []).unwrap();
        assert_eq!(up(&conn, 8).unwrap_err().code(), Code::UnsupportedStore);
        let foreign = Connection::open_in_memory().unwrap();
        foreign.execute_batch("create table millpond_queue (x)").unwrap();
        assert_eq!(up(&foreign, 8).unwrap_err().code(), Code::UnsupportedStore);
    }
}

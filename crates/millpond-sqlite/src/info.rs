//! What the store tells about itself: facts, tables, and what is not as it should be.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use millpond_core::time::{Timestamp, micros};
use millpond_core::view::{Fact, Finding, Severity, StoreInfo};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::error::Tried;
use crate::location::{Synchronous, beside};
use crate::sql::sql;
use crate::wal::WAL_BYTES_MAX;

/// A file of which more than half is free, and more than this, is worth making smaller.
const FREE_BYTES_MAX: u64 = 100 * 1024 * 1024;

/// The file of a store.
#[derive(Debug, Clone)]
pub(crate) struct FileOf {
    pub(crate) path: PathBuf,
    /// How a send is committed.
    pub(crate) synchronous: Synchronous,
}

/// Sizes of the file and of what is beside it.
struct Sizes {
    page: u64,
    size: u64,
    free: u64,
    wal: u64,
    reserve: u64,
}

/// Everything about a store; `file`: none in memory.
pub(crate) fn info(conn: &Connection, now: Timestamp, file: Option<&FileOf>) -> Tried<StoreInfo> {
    let sizes = sizes(conn, file)?;
    Ok(StoreInfo {
        kind: "sqlite".to_owned(),
        facts: facts(conn, now, file, &sizes)?,
        tables: tables(conn)?,
        findings: findings(file, &sizes),
        grants: grants(file),
    })
}

fn sizes(conn: &Connection, file: Option<&FileOf>) -> Tried<Sizes> {
    let ask = |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get::<_, u64>(0));
    let page = ask("page_size")?;
    let beside = |ending: &str| {
        file.and_then(|file| std::fs::metadata(beside(&file.path, ending)).ok())
            .map_or(0, |found| found.len())
    };
    Ok(Sizes {
        page,
        size: ask("page_count")? * page,
        free: ask("freelist_count")? * page,
        wal: beside("-wal"),
        reserve: beside("-reserve"),
    })
}

fn facts(conn: &Connection, now: Timestamp, file: Option<&FileOf>, sizes: &Sizes) -> Tried<Vec<Fact>> {
    let fact = |name: &str, value: Value, about: &str| Fact {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    let schema: String = conn.query_row(sql("info_schema"), [], |row| row.get(0))?;
    let place = file.map_or_else(|| "memory".to_owned(), |file| file.path.display().to_string());
    let host = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros);
    let skew = now.as_micros().saturating_sub(host) / 1_000;
    let synchronous = match file.map(|file| file.synchronous) {
        None => "off",
        Some(Synchronous::Full) => "full",
        Some(Synchronous::Normal) => "normal",
    };
    Ok(vec![
        fact("version", json!(rusqlite::version()), "of SQLite"),
        fact("place", json!(place), "the file"),
        fact("schema", json!(schema), "the last migration that was applied"),
        fact("journal", json!(journal), "`wal`: readers and the writer do not wait for each other"),
        fact("synchronous", json!(synchronous), "`full`: a send is on the disk when it returns"),
        fact("page_bytes", json!(sizes.page), "of the database"),
        fact("size_bytes", json!(sizes.size), "of the database, free pages included"),
        fact(
            "free_bytes",
            json!(sizes.free),
            "in pages that nothing uses; they are used again before it grows",
        ),
        fact("wal_bytes", json!(sizes.wal), "of the write-ahead log; it is started anew beyond 64 MiB"),
        fact("reserve_bytes", json!(sizes.reserve), "held back for settling when the disk is full"),
        fact("clock_skew_ms", json!(skew), "the time of the store less that of this host"),
        fact("oldest_reader", Value::Null, "SQLite does not tell; a long write-ahead log does"),
    ])
}

/// Tables with their rows: counted up to a limit, beyond it estimated from the first and the last number.
fn tables(conn: &Connection) -> Tried<Vec<(String, u64)>> {
    let mut list = conn.prepare_cached(sql("info_tables"))?;
    let rows = list.query_map([], |row| {
        let (counted, span): (u64, Option<u64>) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, span.map_or(counted, |span| if counted <= 100_000 { counted } else { span })))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn findings(file: Option<&FileOf>, sizes: &Sizes) -> Vec<Finding> {
    let finding = |code: &str, severity, text: String, action: &str| Finding {
        code: code.to_owned(),
        severity,
        text,
        action: Some(action.to_owned()),
    };
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let mut found = Vec::new();
    if FREE_BYTES_MAX < sizes.free && sizes.size < sizes.free * 2 {
        let text = format!("{} of {} MiB of the file are free pages", mib(sizes.free), mib(sizes.size));
        let action =
            "stop everything that uses the file and run `VACUUM` on it, or leave them to be used again";
        found.push(finding("FREE_PAGES", Severity::Info, text, action));
    }
    if WAL_BYTES_MAX * 2 < sizes.wal {
        let text = format!(
            "the write-ahead log has {} MiB: a reader keeps it from being started anew",
            mib(sizes.wal)
        );
        let action = "look for a process with a long transaction on the file, such as an open `sqlite3`";
        found.push(finding("OLD_SNAPSHOT", Severity::Warn, text, action));
    }
    if file.is_some_and(|file| file.synchronous == Synchronous::Normal) {
        let text = "a power cut can lose the last sends: `synchronous` is `normal`".to_owned();
        found.push(finding(
            "SYNCHRONOUS_NORMAL",
            Severity::Info,
            text,
            "open the store with `synchronous=full`",
        ));
    }
    if file.is_none() {
        let text = "everything in this store ends with its process".to_owned();
        found.push(finding("IN_MEMORY", Severity::Info, text, "use a file for what must be kept"));
    }
    found
}

fn grants(file: Option<&FileOf>) -> Vec<String> {
    let Some(FileOf { path, .. }) = file else {
        return vec!["A store in memory belongs to its process alone.".to_owned()];
    };
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    vec![
        format!("Who sends, works or operates must read and write `{}`.", path.display()),
        format!(
            "It must make and write files in `{}`: the write-ahead log, its index and the reserve are beside the \
             database.",
            folder.display()
        ),
        "The same holds for a program that only publishes with plain SQL: it inserts into `millpond_outbox_in`, and \
         nothing keeps it from the rest."
            .to_owned(),
        "Nobody else needs any right on these files: there are no roles within a SQLite file.".to_owned(),
    ]
}

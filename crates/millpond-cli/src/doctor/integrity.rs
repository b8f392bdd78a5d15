//! Whether the file of a store is as it was written: every page and every index is read.

use millpond::sqlite::Location;
use millpond::sqlite::rusqlite::{self, Connection, OpenFlags};
use millpond::{Code, Error};
use millpond_core::hints::{Hint, Level};

use crate::exit::Failure;
use crate::open;

/// Lines of a report that are read.
const LINES_MAX: usize = 100;

/// What is broken; nothing, if nothing is, if the store is in memory, or if it is a server's to look after.
pub(super) async fn check(url: &str) -> Result<Vec<String>, Failure> {
    if !open::is_there(url)? {
        // The error is that of opening it.
        return Ok(Vec::new());
    }
    if open::is_server(url) {
        return Ok(Vec::new());
    }
    let Some(path) = Location::parse(url).map_err(Failure::from)?.path else { return Ok(Vec::new()) };
    let doing = "check the integrity of the store";
    let read = move || -> rusqlite::Result<Vec<String>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        let mut statement = conn.prepare("pragma integrity_check(100)")?;
        let lines = statement.query_map([], |row| row.get(0))?.take(LINES_MAX);
        lines.collect()
    };
    let lines = match tokio::task::spawn_blocking(read).await {
        Ok(Ok(lines)) => lines,
        // It cannot even be read.
        Ok(Err(error)) => vec![error.to_string()],
        Err(ended) => return Err(Error::new(Code::Internal, doing).because(ended.to_string()).into()),
    };
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// What is broken, as a hint.
pub(super) fn hint(broken: &[String]) -> Hint {
    let first = broken.first().map(String::as_str).unwrap_or_default();
    let message = format!(
        "the store is damaged: {first}; stop all workers, keep a copy of the file with its -wal, and restore a backup"
    );
    Hint {
        code: "INTEGRITY_BROKEN".to_owned(),
        level: Level::Critical,
        message,
        count: Some(broken.len() as u64),
        action: None,
    }
}

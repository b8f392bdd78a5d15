//! The write-ahead log of the file: SQLite copies it into the database every few thousand pages, but starts it
//! anew only when no reader looks into it. Readers that overlap for ever would let it grow for ever.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::location::beside;

/// Bytes of the WAL beyond which the writer waits shortly for readers, to start it anew.
pub(crate) const WAL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Commits between two looks at its size.
const LOOK_EVERY: u32 = 256;

/// How long the writer waits for readers.
const WAIT: Duration = Duration::from_millis(100);

/// The WAL of one database file.
#[derive(Debug)]
pub(crate) struct Wal {
    path: PathBuf,
    commits: u32,
}

impl Wal {
    pub(crate) fn of(database: &Path) -> Self {
        Self { path: beside(database, "-wal"), commits: 0 }
    }

    /// Called after each commit: now and then cuts a WAL that has grown too long.
    pub(crate) fn committed(&mut self, conn: &mut Connection) {
        self.commits = (self.commits + 1) % LOOK_EVERY;
        let size = || std::fs::metadata(&self.path).map_or(0, |file| file.len());
        if self.commits == 0 && WAL_BYTES_MAX < size() {
            self.cut(conn, size());
        }
    }

    fn cut(&self, conn: &mut Connection, bytes: u64) {
        let cut = conn
            .busy_timeout(WAIT)
            .and_then(|()| conn.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0)));
        // Also when it failed, as on a full disk: the next transaction waits longer than a checkpoint does.
        let patient = crate::connect::set_busy_handler(conn);
        match cut.and_then(|busy| patient.map(|()| busy)) {
            Ok(0) => {}
            Ok(_) => tracing::warn!(bytes, "a reader keeps the write-ahead log from being started anew"),
            Err(error) => tracing::warn!(%error, bytes, "cannot cut the write-ahead log"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_cut_once_no_reader_looks_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        conn.execute_batch("create table t (x); insert into t values (zeroblob(70000000));").unwrap();
        let mut wal = Wal::of(&path);
        let length = || std::fs::metadata(folder.path().join("a.db-wal")).unwrap().len();

        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("begin; select count(*) from t").unwrap();
        (0..LOOK_EVERY).for_each(|_| wal.committed(&mut conn));
        assert!(WAL_BYTES_MAX < length(), "the reader still needs it");

        reader.execute_batch("commit").unwrap();
        (0..LOOK_EVERY).for_each(|_| wal.committed(&mut conn));
        assert_eq!(length(), 0);
    }

    #[test]
    fn a_cut_that_fails_leaves_the_patience_of_the_connection_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.execute_batch("create table t (x); begin immediate; insert into t values (1)").unwrap();
        Wal::of(&path).cut(&mut conn, 0);
        let waits: i64 = conn.query_row("pragma busy_timeout", [], |row| row.get(0)).unwrap();
        assert_eq!(waits, 0, "it is the handler that waits");
    }
}

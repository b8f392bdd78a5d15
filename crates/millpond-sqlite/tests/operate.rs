//! What people change, in a file of its own for each scenario.

use std::path::PathBuf;
use std::sync::Arc;

use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, Clock, Store};
use millpond_sqlite::{Options, SqliteStore};
use millpond_testkit::operate::{Place, prefixed};
use rusqlite::{Connection, OptionalExtension};

struct File(tempfile::TempDir);

impl File {
    fn fresh() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("a.db")
    }
}

impl Place for File {
    fn open(&self, clock: Arc<dyn Clock>) -> BoxFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async move {
            let url = format!("sqlite://{}", self.path().display());
            let store = SqliteStore::open(&url, Options { clock, ..Options::default() })?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    }

    fn ask<'a>(&'a self, statement: &'a str) -> BoxFuture<'a, i64> {
        Box::pin(async move {
            let conn = Connection::open(self.path()).expect("the file is there");
            let statement = prefixed(statement, "millpond_");
            let answer = conn.query_row(&statement, [], |row| row.get(0)).optional();
            answer.expect("it is a statement").unwrap_or(0)
        })
    }
}

millpond_testkit::operate!(File::fresh());

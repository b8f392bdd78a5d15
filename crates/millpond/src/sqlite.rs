//! What is special to the SQLite store: its options, and writing and sending in a transaction.
//!
//! A unit of work on a connection of your own:
//!
//! ```
//! use millpond::sqlite::{SqliteUnit, rusqlite::Connection};
//! use millpond::{Pond, TxQueue, UnitOfWork};
//!
//! const REPORTS: TxQueue<i64> = TxQueue::new("reports");
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("app.db");
//! let pond = Pond::open(&format!("sqlite://{}", path.display())).await?;
//! pond.declare(&REPORTS).await?;
//!
//! let connection = Connection::open(&path)?;
//! connection.execute_batch("create table orders (id integer primary key); begin immediate")?;
//! let mut unit = UnitOfWork::adopt(&pond, connection).await?;
//! unit.sqlite(|db| db.execute("insert into orders (id) values (7)", [])).await?;
//! unit.send(&REPORTS, [7]).await?;
//! let committed = unit.commit().await?;
//!
//! let report = pond.find(committed.messages[0].id).await?;
//! assert!(report.is_some());
//! # pond.close().await;
//! # Ok(())
//! # }
//! ```

use std::future::Future;

use millpond_core::error::{Code, Error, Result};
use millpond_engine::unit::UnitOfWork;
pub use millpond_sqlite::{
    Driver, Location, Migration, Options, SqliteStore, Synchronous, SystemClock, rusqlite, schema,
};

/// Statements in a unit of work.
pub trait SqliteUnit {
    /// Runs `work` on the connection of the open transaction, the pond's or one that was adopted.
    ///
    /// The transaction holds the store's one writer: do slow work before you begin it. The closure
    /// must not begin, commit or roll back; a savepoint is fine.
    ///
    /// # Errors
    ///
    /// What SQLite says of a statement; that the transaction is over; that the store is not SQLite.
    fn sqlite<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send;
}

impl SqliteUnit for UnitOfWork {
    async fn sqlite<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let tx = self.tx().await?.as_any();
        if let Some(adopted) = tx.downcast_ref::<rusqlite::Connection>() {
            let refused =
                |error| Error::new(Code::StatementFailed, "write in the transaction").because(error);
            return work(adopted).map_err(refused);
        }
        let tx = tx.downcast_mut::<millpond_sqlite::SqliteTx>();
        let other = || Error::new(Code::UnsupportedStore, "write in the transaction").because("not SQLite");
        tx.ok_or_else(other)?.run(work).await
    }
}

//! What is special to the SQLite store: its options, and writing and sending in a transaction.

use std::future::Future;

use millpond_core::error::{Code, Error, Result};
use millpond_engine::unit::UnitOfWork;
pub use millpond_sqlite::{
    Driver, Location, Migration, Options, SqliteStore, Synchronous, SystemClock, rusqlite, schema,
};

/// Statements in a unit of work.
pub trait SqliteUnit {
    /// Runs `work` on the connection of the open transaction.
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
        let tx = self.tx().await?.as_any().downcast_mut::<millpond_sqlite::SqliteTx>();
        let other = || Error::new(Code::UnsupportedStore, "write in the transaction").because("not SQLite");
        tx.ok_or_else(other)?.run(work).await
    }
}

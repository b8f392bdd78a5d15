//! What is special to the Postgres store: its options, and writing in a job's own transaction.

use millpond_core::error::{Code, Error, Result};
use millpond_engine::unit::UnitOfWork;
pub use millpond_postgres::{Location, Migration, Options, PostgresStore, schema, tokio_postgres};

/// Statements in a job's own transaction.
pub trait PostgresUnit {
    /// The client of the open transaction.
    ///
    /// It must not begin, commit or roll back; a savepoint is fine. When the transaction's limit passes, its connection
    /// is closed and the next statement fails.
    ///
    /// # Errors
    ///
    /// That the store is not Postgres.
    fn postgres(&mut self) -> Result<&tokio_postgres::Client>;
}

impl PostgresUnit for UnitOfWork {
    fn postgres(&mut self) -> Result<&tokio_postgres::Client> {
        let tx = self.tx_mut().as_any().downcast_mut::<millpond_postgres::PostgresTx>();
        let other =
            || Error::new(Code::UnsupportedStore, "write in the job's transaction").because("not Postgres");
        Ok(tx.ok_or_else(other)?.client())
    }
}

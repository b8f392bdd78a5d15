//! What is special to the Postgres store: its options, and writing and sending in a transaction.

use std::future::Future;

use millpond_core::error::{Code, Error, Result};
use millpond_engine::unit::UnitOfWork;
pub use millpond_postgres::{Driver, Location, Migration, Options, PostgresStore, schema, tokio_postgres};

/// Statements in a unit of work.
pub trait PostgresUnit {
    /// The client of the open transaction, the pond's or one that was adopted.
    ///
    /// It must not begin, commit or roll back; a savepoint is fine. When the transaction's limit passes, its connection
    /// is closed and the next statement fails.
    ///
    /// # Errors
    ///
    /// What the store says when it rolls back a savepoint that was dropped before; that it is not Postgres.
    fn postgres(&mut self) -> impl Future<Output = Result<&tokio_postgres::Client>> + Send;
}

impl PostgresUnit for UnitOfWork {
    async fn postgres(&mut self) -> Result<&tokio_postgres::Client> {
        let tx = self.tx().await?.as_any();
        if tx.is::<tokio_postgres::Client>() {
            return Ok(tx.downcast_ref().expect("it was just asked"));
        }
        let tx = tx.downcast_ref::<millpond_postgres::PostgresTx>();
        let other = || Error::new(Code::UnsupportedStore, "write in the transaction").because("not Postgres");
        Ok(tx.ok_or_else(other)?.client())
    }
}

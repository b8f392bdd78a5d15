//! What is special to the MySQL and MariaDB store: its options, and writing and sending in a transaction.

use std::future::Future;

use millpond_core::error::{Code, Error, Result};
use millpond_engine::unit::UnitOfWork;
pub use millpond_mysql::{Driver, Location, Migration, MysqlStore, Options, mysql_async, schema};

/// Statements in a unit of work.
pub trait MysqlUnit {
    /// The driver's connection with the open transaction, the pond's or one that was adopted as a `Conn`.
    ///
    /// It must not begin, commit or roll back, and no statement may change a table's definition, which commits; a
    /// savepoint is fine. After a deadlock the server has rolled all of it back: nothing of it is committed then.
    /// When the transaction's limit passes, its connection is ended and the next statement fails.
    ///
    /// # Errors
    ///
    /// What the store says when it rolls back a savepoint that was dropped before; that it is not MySQL or MariaDB.
    fn mysql(&mut self) -> impl Future<Output = Result<&mut mysql_async::Conn>> + Send;
}

impl MysqlUnit for UnitOfWork {
    async fn mysql(&mut self) -> Result<&mut mysql_async::Conn> {
        let tx = self.tx().await?.as_any();
        if tx.is::<mysql_async::Conn>() {
            return Ok(tx.downcast_mut().expect("it was just asked"));
        }
        let tx = tx.downcast_mut::<millpond_mysql::MysqlTx>();
        let other =
            || Error::new(Code::UnsupportedStore, "write in the transaction").because("not MySQL or MariaDB");
        Ok(tx.ok_or_else(other)?.conn())
    }
}

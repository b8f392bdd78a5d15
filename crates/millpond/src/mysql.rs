//! What is special to the MySQL and MariaDB store: its options, and writing in a job's own transaction.

use millpond_core::error::{Code, Error, Result};
use millpond_engine::unit::UnitOfWork;
pub use millpond_mysql::{Location, Migration, MysqlStore, Options, mysql_async, schema};

/// Statements in a job's own transaction.
pub trait MysqlUnit {
    /// The driver's connection with the open transaction.
    ///
    /// It must not begin, commit or roll back, and no statement may change a table's definition, which commits; a
    /// savepoint is fine. After a deadlock the server has rolled all of it back: nothing of the job is committed then.
    /// When the transaction's limit passes, its connection is ended and the next statement fails.
    ///
    /// # Errors
    ///
    /// That the store is not MySQL or MariaDB.
    fn mysql(&mut self) -> Result<&mut mysql_async::Conn>;
}

impl MysqlUnit for UnitOfWork {
    fn mysql(&mut self) -> Result<&mut mysql_async::Conn> {
        let tx = self.tx_mut().as_any().downcast_mut::<millpond_mysql::MysqlTx>();
        let other = || {
            Error::new(Code::UnsupportedStore, "write in the job's transaction")
                .because("not MySQL or MariaDB")
        };
        Ok(tx.ok_or_else(other)?.conn())
    }
}

//! Sends of Millpond within a transaction of [SeaORM](sea_orm): what it commits is delivered, what it rolls back was never
//! sent.
//!
//! ```no_run
//! # async fn example(pond: millpond::Pond, database: sea_orm::DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
//! use millpond::Queue;
//! use millpond_tx_seaorm as _;
//! use sea_orm::{ConnectionTrait, TransactionTrait};
//!
//! const MAIL: Queue<String> = Queue::new("mail");
//!
//! let mut tx = database.begin().await?;
//! tx.execute_unprepared("insert into orders (customer) values ('ada')").await?;
//! pond.within(&mut tx).send(&MAIL, ["ada".to_owned()]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Code that is generic over [`ConnectionTrait`] wraps what it has in [`Open`]. The adapter begins, commits and keeps nothing.

use millpond_core::store::BoxFuture;
use millpond_core::within::{Dialect, Refused, Row, Shape, Statement, UserTx, Value};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr};

/// Says whose implementations these are.
#[derive(Debug)]
pub enum SeaOrm {}

/// A connection of any kind on which a transaction is open. Whoever makes one knows that: with a pool instead, each
/// statement would go to another connection.
#[derive(Debug)]
pub struct Open<'c, C>(pub &'c C);

impl<C: ConnectionTrait + Sync> UserTx<SeaOrm> for Open<'_, C> {
    fn dialect(&self) -> Dialect {
        dialect(self.0.get_database_backend())
    }

    fn is_surely_open(&mut self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<Vec<Row>, Refused>> {
        Box::pin(run(self.0, statement))
    }
}

impl UserTx<SeaOrm> for DatabaseTransaction {
    fn dialect(&self) -> Dialect {
        dialect(self.get_database_backend())
    }

    fn is_surely_open(&mut self) -> bool {
        true
    }

    fn run<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<Vec<Row>, Refused>> {
        Box::pin(run(self, statement))
    }
}

async fn run(tx: &impl ConnectionTrait, statement: &Statement) -> Result<Vec<Row>, Refused> {
    let whole = || {
        let values = statement.values.iter().map(|value| match value.clone() {
            Value::Int(number) => sea_orm::Value::from(number),
            Value::Text(text) => sea_orm::Value::from(text),
            Value::Bytes(bytes) => sea_orm::Value::from(bytes),
        });
        sea_orm::Statement::from_sql_and_values(tx.get_database_backend(), statement.text.as_str(), values)
    };
    let row = |row: QueryResult| Ok(Row { number: row.try_get_by_index(0)?, word: row.try_get_by_index(1)? });
    let rows = match statement.shape {
        Shape::Word => tx.execute_unprepared(&statement.text).await.map(|_| Vec::new()),
        Shape::Change => tx.execute_raw(whole()).await.map(|_| Vec::new()),
        Shape::Question => {
            tx.query_all_raw(whole()).await.and_then(|rows| rows.into_iter().map(row).collect())
        }
    };
    rows.map_err(refused)
}

fn dialect(backend: DbBackend) -> Dialect {
    match backend {
        DbBackend::Postgres => Dialect::Postgres,
        DbBackend::MySql => Dialect::Mysql,
        _ => Dialect::Sqlite,
    }
}

fn refused(error: DbErr) -> Refused {
    let state = match &error {
        DbErr::Conn(RuntimeErr::SqlxError(error))
        | DbErr::Exec(RuntimeErr::SqlxError(error))
        | DbErr::Query(RuntimeErr::SqlxError(error)) => {
            error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
        }
        _ => None,
    };
    Refused { state, cause: error.into() }
}

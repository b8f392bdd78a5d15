//! Sends of Millpond within a transaction of [sqlx](sqlx): what it commits is delivered, what it rolls back was never sent.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example(pond: millpond::Pond, database: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use millpond::Queue;
//! use millpond_tx_sqlx as _;
//!
//! const MAIL: Queue<String> = Queue::new("mail");
//!
//! let mut tx = database.begin().await?;
//! sqlx::query("insert into orders (customer) values ('ada')").execute(&mut *tx).await?;
//! pond.within(&mut tx).send(&MAIL, ["ada".to_owned()]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! `tx` is a [`Transaction`](sqlx::Transaction), or the connection within (`&mut *tx`). On SQLite it must have been begun
//! through sqlx: there is no other way to see whether one is open. The adapter begins, commits and keeps nothing.

use millpond_core::store::BoxFuture;
use millpond_core::within::{Dialect, Refused, Row, Shape, Statement, UserTx, Value};

/// Says whose implementations these are.
#[derive(Debug)]
pub enum Sqlx {}

/// The state that says that no transaction is open.
#[cfg(feature = "sqlite")]
const NO_TRANSACTION: &str = "25P01";

macro_rules! adapter {
    ($feature:literal, $database:ty, $connection:ty, $dialect:expr, $no_transaction:expr) => {
        #[cfg(feature = $feature)]
        impl UserTx<Sqlx> for $connection {
            fn dialect(&self) -> Dialect {
                $dialect
            }

            fn is_surely_open(&mut self) -> bool {
                sqlx::Connection::is_in_transaction(self)
            }

            fn run<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<Vec<Row>, Refused>> {
                use sqlx::Row as _;
                let no_transaction: fn(&Self) -> Option<Refused> = $no_transaction;
                Box::pin(async move {
                    if let Some(refused) = no_transaction(self) {
                        return Err(refused);
                    }
                    // What the store writes holds no value of anybody's: those are bound.
                    let text = sqlx::AssertSqlSafe(statement.text.as_str());
                    if statement.shape == Shape::Word {
                        return sqlx::raw_sql(text).execute(self).await.map(|_| Vec::new()).map_err(refused);
                    }
                    let mut query = sqlx::query::<$database>(text);
                    for value in &statement.values {
                        query = match value {
                            Value::Int(number) => query.bind(*number),
                            Value::Text(text) => query.bind(text.as_deref()),
                            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
                        };
                    }
                    if statement.shape == Shape::Change {
                        return query.execute(self).await.map(|_| Vec::new()).map_err(refused);
                    }
                    let rows = query.fetch_all(self).await.map_err(refused)?;
                    // Unchecked: what a database calls the type of an expression is its own matter.
                    let row = |row: &<$database as sqlx::Database>::Row| {
                        Ok(Row { number: row.try_get_unchecked(0)?, word: row.try_get_unchecked(1)? })
                    };
                    rows.iter().map(row).collect::<sqlx::Result<_>>().map_err(refused)
                })
            }
        }

        #[cfg(feature = $feature)]
        impl UserTx<Sqlx> for sqlx::Transaction<'_, $database> {
            fn dialect(&self) -> Dialect {
                $dialect
            }

            fn is_surely_open(&mut self) -> bool {
                true
            }

            fn run<'a>(&'a mut self, statement: &'a Statement) -> BoxFuture<'a, Result<Vec<Row>, Refused>> {
                <$connection as UserTx<Sqlx>>::run(self, statement)
            }
        }
    };
}

adapter!("postgres", sqlx::Postgres, sqlx::PgConnection, Dialect::Postgres, |_| None);
adapter!("mysql", sqlx::MySql, sqlx::MySqlConnection, Dialect::Mysql, |_| None);
adapter!("sqlite", sqlx::Sqlite, sqlx::SqliteConnection, Dialect::Sqlite, |connection| {
    let open = sqlx::Connection::is_in_transaction(connection);
    (!open).then(|| Refused {
        state: Some(NO_TRANSACTION.to_owned()),
        cause: "no transaction is open that sqlx has begun".into(),
    })
});

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
fn refused(error: sqlx::Error) -> Refused {
    let state = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    Refused { state, cause: error.into() }
}

//! Sends of Millpond within a transaction of [diesel](diesel) or diesel-async: what it commits is delivered, what it rolls
//! back was never sent.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")]
//! # fn example(pond: millpond::Pond, mut connection: diesel::SqliteConnection) -> Result<(), Box<dyn std::error::Error>> {
//! use diesel::{Connection, RunQueryDsl};
//! use millpond::Queue;
//! use millpond_tx_diesel as _;
//!
//! const MAIL: Queue<String> = Queue::new("mail");
//!
//! connection.transaction(|tx| -> Result<(), Box<dyn std::error::Error>> {
//!     diesel::sql_query("insert into orders (customer) values ('ada')").execute(tx)?;
//!     pond.within(tx).send(&MAIL, ["ada".to_owned()])?;
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! With diesel-async it is `pond.within(tx).send(…).await`. The adapter begins, commits and keeps nothing. A transaction
//! counts as open if diesel has begun it. On SQLite set `pragma busy_timeout`: diesel waits for no other writer by itself, and
//! the store is one.

use diesel::QueryableByName;
use diesel::connection::{TransactionManager, TransactionManagerStatus};
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use millpond_core::within::{Dialect, Refused, Row, Shape, Statement, Value};

/// Says whose implementations these are.
#[derive(Debug)]
pub enum Diesel {}

/// The state that says that no transaction is open.
const NO_TRANSACTION: &str = "25P01";

/// No state: the statement failed, and the connection was not lost.
const UNKNOWN: &str = "";

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Nullable<BigInt>)]
    number: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    word: Option<String>,
}

impl From<Answer> for Row {
    fn from(Answer { number, word }: Answer) -> Self {
        Self { number, word }
    }
}

/// The query of a statement, for one backend.
macro_rules! query {
    ($backend:ty, $statement:expr) => {{
        let mut query = diesel::sql_query($statement.text.as_str()).into_boxed::<$backend>();
        for value in &$statement.values {
            query = match value {
                Value::Int(number) => query.bind::<Nullable<BigInt>, _>(*number),
                Value::Text(text) => query.bind::<Nullable<Text>, _>(text.as_deref()),
                Value::Bytes(bytes) => query.bind::<Nullable<Binary>, _>(bytes.as_deref()),
            };
        }
        query
    }};
}

macro_rules! blocking {
    ($feature:literal, $connection:ty, $dialect:expr) => {
        #[cfg(feature = $feature)]
        impl millpond_core::within::BlockingUserTx<Diesel> for $connection {
            fn dialect(&self) -> Dialect {
                $dialect
            }

            fn is_surely_open(&mut self) -> bool {
                type Manager = <$connection as diesel::Connection>::TransactionManager;
                must_be_open(Manager::transaction_manager_status_mut(self)).is_ok()
            }

            fn run(&mut self, statement: &Statement) -> Result<Vec<Row>, Refused> {
                use diesel::RunQueryDsl;
                use diesel::connection::SimpleConnection;
                type Manager = <$connection as diesel::Connection>::TransactionManager;
                must_be_open(Manager::transaction_manager_status_mut(self))?;
                let rows = match statement.shape {
                    Shape::Word => self.batch_execute(&statement.text).map(|()| Vec::new()),
                    Shape::Change => query!(<$connection as diesel::Connection>::Backend, statement)
                        .execute(self)
                        .map(|_| Vec::new()),
                    Shape::Question => query!(<$connection as diesel::Connection>::Backend, statement)
                        .load::<Answer>(self)
                        .map(|rows| rows.into_iter().map(Row::from).collect()),
                };
                rows.map_err(refused)
            }
        }
    };
}

macro_rules! asynchronous {
    ($feature:literal, $connection:ty, $backend:ty, $dialect:expr) => {
        #[cfg(feature = $feature)]
        impl millpond_core::within::UserTx<Diesel> for $connection {
            fn dialect(&self) -> Dialect {
                $dialect
            }

            fn is_surely_open(&mut self) -> bool {
                use diesel_async::TransactionManager;
                type Manager = <$connection as diesel_async::AsyncConnection>::TransactionManager;
                must_be_open(Manager::transaction_manager_status_mut(self)).is_ok()
            }

            fn run<'a>(
                &'a mut self,
                statement: &'a Statement,
            ) -> millpond_core::store::BoxFuture<'a, Result<Vec<Row>, Refused>> {
                use diesel_async::{RunQueryDsl, SimpleAsyncConnection, TransactionManager};
                type Manager = <$connection as diesel_async::AsyncConnection>::TransactionManager;
                Box::pin(async move {
                    must_be_open(Manager::transaction_manager_status_mut(self))?;
                    let rows = match statement.shape {
                        Shape::Word => self.batch_execute(&statement.text).await.map(|()| Vec::new()),
                        Shape::Change => query!($backend, statement).execute(self).await.map(|_| Vec::new()),
                        Shape::Question => query!($backend, statement)
                            .load::<Answer>(self)
                            .await
                            .map(|rows| rows.into_iter().map(Row::from).collect()),
                    };
                    rows.map_err(refused)
                })
            }
        }
    };
}

blocking!("sqlite", diesel::SqliteConnection, Dialect::Sqlite);
blocking!("postgres", diesel::PgConnection, Dialect::Postgres);
blocking!("mysql", diesel::MysqlConnection, Dialect::Mysql);
asynchronous!("async-postgres", diesel_async::AsyncPgConnection, diesel::pg::Pg, Dialect::Postgres);
asynchronous!("async-mysql", diesel_async::AsyncMysqlConnection, diesel::mysql::Mysql, Dialect::Mysql);

fn must_be_open(status: &TransactionManagerStatus) -> Result<(), Refused> {
    match status.transaction_depth() {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Refused {
            state: Some(NO_TRANSACTION.to_owned()),
            cause: "no transaction is open that diesel has begun".into(),
        }),
        Err(error) => Err(refused(error)),
    }
}

/// diesel keeps the kinds of errors and not the states, so the state is that of the kind, or of what the database said.
fn refused(error: Error) -> Refused {
    let state = match &error {
        Error::DatabaseError(kind, said) => match kind {
            DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand => None,
            DatabaseErrorKind::SerializationFailure => Some("40001"),
            DatabaseErrorKind::ReadOnlyTransaction => Some("25006"),
            _ => Some(of_words(said.message())),
        },
        _ => Some(UNKNOWN),
    };
    Refused { state: state.map(str::to_owned), cause: error.into() }
}

/// The state of what databases say: SQLite by its result code, the others by SQLSTATE.
fn of_words(said: &str) -> &'static str {
    const WORDS: [(&str, &str); 8] = [
        ("no such table", "1"),
        ("database is locked", "5"),
        ("another process brought it to migration", "MP001"),
        ("does not exist", "42P01"),
        ("doesn't exist", "42S02"),
        ("permission denied", "42501"),
        ("command denied", "42501"),
        ("Subquery returns more than 1 row", "21000"),
    ];
    WORDS.iter().find(|(word, _)| said.contains(word)).map_or(UNKNOWN, |(_, state)| state)
}

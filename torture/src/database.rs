//! What is special to each database: opening its store, the business table, and how its tables are named.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::mysql::MysqlUnit as _;
use millpond::mysql::mysql_async::prelude::Queryable as _;
use millpond::mysql::{self, MysqlStore};
use millpond::postgres::tokio_postgres::types::Type;
use millpond::postgres::{self, PostgresStore, PostgresUnit as _};
use millpond::sqlite::{self, SqliteStore, SqliteUnit as _};
use millpond::{Store, UnitOfWork};
use millpond_core::error::{Code, Error, ErrorKind, Result};
use uuid::Uuid;

/// How long a child tries to open a store whose server is away.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
const OPEN_AGAIN: Duration = Duration::from_millis(200);

/// A database that has a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
    Mysql,
}

/// A row of the business table.
#[derive(Debug, Clone)]
pub(crate) struct EffectRow {
    pub(crate) id: Uuid,
    pub(crate) queue: String,
    pub(crate) amount: i64,
}

impl Database {
    /// The one that a URL names.
    pub(crate) fn of(url: &str) -> Self {
        match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
            "postgres" | "postgresql" => Self::Postgres,
            "mysql" | "mariadb" => Self::Mysql,
            _ => Self::Sqlite,
        }
    }

    /// As it is named in the line that starts a run.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }

    /// SQL that is written for tables that begin with `millpond_`, and with names between double quotes where they
    /// need some, for the store at `url`.
    pub(crate) fn dialect(self, statement: &str, url: &str) -> String {
        match self {
            Self::Sqlite => statement.to_owned(),
            Self::Postgres => {
                let schema = parameter(url, "schema").unwrap_or("millpond");
                of_ours(statement, &format!("{schema}.")).replace("millpond_", &format!("{schema}."))
            }
            Self::Mysql => {
                let prefix = parameter(url, "prefix").unwrap_or("millpond_");
                of_ours(statement, prefix).replace("millpond_", prefix)
            }
        }
    }

    /// The statement that makes the business table. It has no unique constraint: an effect that is committed twice is
    /// two rows.
    pub(crate) const fn effect_table(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "create table torture_effect (message_id blob not null, queue text not null, amount integer not null) strict"
            }
            Self::Postgres => {
                "create table torture_effect (message_id uuid not null, queue text not null, amount bigint not null)"
            }
            Self::Mysql => {
                "create table torture_effect (message_id binary(16) not null, queue varbinary(100) not null, amount bigint not null) engine = InnoDB default charset = utf8mb4 collate = utf8mb4_bin"
            }
        }
    }

    const fn effect_add(self) -> &'static str {
        match self {
            Self::Sqlite => "insert into torture_effect (message_id, queue, amount) values (?1, ?2, ?3)",
            Self::Postgres => "insert into torture_effect (message_id, queue, amount) values ($1, $2, $3)",
            Self::Mysql => "insert into torture_effect (message_id, queue, amount) values (?, ?, ?)",
        }
    }
}

/// The tables of the crash tests themselves.
const OURS: [&str; 3] = ["torture_effect", "torture_order", "torture_account"];

/// A statement in which those have a prefix.
fn of_ours(statement: &str, prefix: &str) -> String {
    OURS.iter().fold(statement.to_owned(), |text, table| text.replace(table, &format!("{prefix}{table}")))
}

/// The value of a parameter of a URL.
pub(crate) fn parameter<'u>(url: &'u str, name: &str) -> Option<&'u str> {
    let (_, query) = url.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Opens the store at `url`.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    Ok(match Database::of(url) {
        Database::Sqlite => Arc::new(SqliteStore::open(url, sqlite::Options::default())?),
        Database::Postgres => Arc::new(PostgresStore::open(url, postgres::Options::default()).await?),
        Database::Mysql => Arc::new(MysqlStore::open(url, mysql::Options::default()).await?),
    })
}

/// Opens it; a server that is away is waited for.
pub(crate) async fn open_patiently(url: &str) -> Result<Arc<dyn Store>> {
    let until = Instant::now() + OPEN_LIMIT;
    loop {
        match open(url).await {
            Err(error) if is_away(&error) && Instant::now() < until => tokio::time::sleep(OPEN_AGAIN).await,
            opened => return opened,
        }
    }
}

/// Whether a server that comes back would do it.
pub(crate) fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
        || error.code() == Code::StoreUnreachable
}

/// Writes an effect in the job's own transaction.
pub(crate) async fn write_effect(unit: &mut UnitOfWork, url: &str, row: EffectRow) -> Result<()> {
    let database = Database::of(url);
    let statement = database.dialect(database.effect_add(), url);
    match database {
        Database::Sqlite => {
            unit.sqlite(move |conn| conn.execute(&statement, (row.id, row.queue, row.amount)).map(drop)).await
        }
        Database::Postgres => {
            add_to_postgres(unit.postgres().await?, &statement, &row).await.map_err(unwritten)
        }
        Database::Mysql => add_to_mysql(unit.mysql().await?, &statement, &row).await.map_err(unwritten),
    }
}

/// Writes an effect in a transaction of its own: only a known bug does that.
pub(crate) async fn write_alone(url: &str, row: EffectRow) -> Result<()> {
    let database = Database::of(url);
    let statement = database.dialect(database.effect_add(), url);
    match database {
        Database::Sqlite => {
            let file = url.trim_start_matches("sqlite://").to_owned();
            let write = move || {
                let conn = sqlite::rusqlite::Connection::open(file)?;
                conn.busy_timeout(Duration::from_secs(2))?;
                conn.execute(&statement, (row.id, row.queue, row.amount))
            };
            let written = tokio::task::spawn_blocking(write).await.map_err(unwritten)?;
            written.map(drop).map_err(unwritten)
        }
        Database::Postgres => {
            let client = postgres_client(url).await.map_err(unwritten)?;
            add_to_postgres(&client, &statement, &row).await.map_err(unwritten)
        }
        Database::Mysql => {
            let mut conn = mysql_conn(url).await.map_err(unwritten)?;
            add_to_mysql(&mut conn, &statement, &row).await.map_err(unwritten)?;
            conn.disconnect().await.map_err(unwritten)
        }
    }
}

fn unwritten(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(Code::StoreUnavailable, "write an effect").because(why)
}

async fn add_to_postgres(
    client: &postgres::tokio_postgres::Client,
    statement: &str,
    EffectRow { id, queue, amount }: &EffectRow,
) -> std::result::Result<(), postgres::tokio_postgres::Error> {
    client
        .execute_typed(statement, &[(id, Type::UUID), (queue, Type::TEXT), (amount, Type::INT8)])
        .await
        .map(drop)
}

async fn add_to_mysql(
    conn: &mut mysql::mysql_async::Conn,
    statement: &str,
    EffectRow { id, queue, amount }: &EffectRow,
) -> std::result::Result<(), mysql::mysql_async::Error> {
    conn.exec_drop(statement, (id.as_bytes().to_vec(), queue.as_bytes().to_vec(), *amount)).await
}

/// A connection of our own, beside the store.
pub(crate) async fn postgres_client(
    url: &str,
) -> std::result::Result<postgres::tokio_postgres::Client, postgres::tokio_postgres::Error> {
    let place = url.split_once('?').map_or(url, |(place, _)| place);
    let (client, connection) =
        postgres::tokio_postgres::connect(place, postgres::tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A connection of our own, beside the store.
pub(crate) async fn mysql_conn(
    url: &str,
) -> std::result::Result<mysql::mysql_async::Conn, mysql::mysql_async::Error> {
    let place = url.split_once('?').map_or(url, |(place, _)| place);
    let place = place.split_once("://").map_or(place, |(_, place)| place);
    mysql::mysql_async::Conn::from_url(format!("mysql://{place}?prefer_socket=false")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_put_into_the_place_of_the_store() {
        let statement = "select * from millpond_log, torture_effect";
        let check = |url: &str, expected: &str| {
            assert_eq!(Database::of(url).dialect(statement, url), expected);
        };
        check("sqlite:///tmp/a.db", statement);
        check("postgres://h/d?schema=s1&connections=4", "select * from s1.log, s1.torture_effect");
        check("postgres://h/d?schema=torture_1", "select * from torture_1.log, torture_1.torture_effect");
        check("mysql://h/d", statement.replace("torture_", "millpond_torture_").as_str());
        check("mysql://h/d?connections=4&prefix=p_", "select * from p_log, p_torture_effect");
    }
}

//! A connection that reads what is in a store, by SQL of our own.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use millpond::mysql::mysql_async::prelude::Queryable as _;
use millpond::mysql::mysql_async::{Conn, Row as MysqlRow, Value as MysqlValue};
use millpond::postgres::tokio_postgres::{Client, SimpleQueryMessage};
use millpond::sqlite::rusqlite::types::Value as SqliteValue;
use millpond::sqlite::rusqlite::{Connection, OpenFlags};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::Outcome;
use crate::database::{Database, mysql_conn, parameter, postgres_client};

/// The connection.
pub(crate) struct Reader {
    url: String,
    line: Line,
}

enum Line {
    Sqlite(Connection),
    Postgres(Runtime, Client),
    Mysql(Runtime, RefCell<Box<Conn>>),
}

/// A value, as far as its database says what it is.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// A row of an answer.
#[derive(Debug)]
pub(crate) struct Row(Vec<Cell>);

impl Reader {
    /// Opens it. Only what makes the business table writes through it.
    pub(crate) fn open(url: &str) -> Outcome<Self> {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        let line = match Database::of(url) {
            Database::Sqlite => {
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let conn =
                    Connection::open_with_flags(Path::new(url.trim_start_matches("sqlite://")), flags)?;
                conn.busy_timeout(Duration::from_secs(10))?;
                Line::Sqlite(conn)
            }
            Database::Postgres => {
                let runtime = runtime()?;
                let client = runtime.block_on(postgres_client(url))?;
                Line::Postgres(runtime, client)
            }
            Database::Mysql => {
                let runtime = runtime()?;
                let conn = runtime.block_on(async {
                    let mut conn = mysql_conn(url).await?;
                    conn.query_drop("set session sql_mode = 'ANSI_QUOTES'").await?;
                    Ok::<_, millpond::mysql::mysql_async::Error>(conn)
                })?;
                Line::Mysql(runtime, RefCell::new(Box::new(conn)))
            }
        };
        Ok(Self { url: url.to_owned(), line })
    }

    pub(crate) fn database(&self) -> Database {
        Database::of(&self.url)
    }

    /// The value of a parameter of its URL.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        parameter(&self.url, name)
    }

    /// Runs a statement without rows.
    pub(crate) fn step(&self, statement: &str) -> Outcome<()> {
        let statement = self.database().dialect(statement, &self.url);
        match &self.line {
            Line::Sqlite(conn) => conn.execute_batch(&statement)?,
            Line::Postgres(runtime, client) => runtime.block_on(client.batch_execute(&statement))?,
            Line::Mysql(runtime, conn) => runtime.block_on(conn.borrow_mut().query_drop(statement))?,
        }
        Ok(())
    }

    /// Reads everything of `read` as it was at one moment.
    pub(crate) fn at_one_moment<T>(&self, read: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        match self.database() {
            Database::Sqlite => self.step("begin")?,
            Database::Postgres => self.step("begin isolation level repeatable read read only")?,
            Database::Mysql => {
                self.step("set transaction isolation level repeatable read")?;
                self.step("start transaction with consistent snapshot, read only")?;
            }
        }
        let answer = read();
        self.step("rollback")?;
        answer
    }

    /// Gives every row of a query to `take`.
    pub(crate) fn each(&self, query: &str, mut take: impl FnMut(&Row) -> Outcome<()>) -> Outcome<()> {
        let query = self.database().dialect(query, &self.url);
        match &self.line {
            Line::Sqlite(conn) => {
                let mut statement = conn.prepare_cached(&query)?;
                let columns = statement.column_count();
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    let cells = (0..columns).map(|column| Ok(of_sqlite(row.get(column)?)));
                    take(&Row(cells.collect::<Outcome<_>>()?))?;
                }
            }
            Line::Postgres(runtime, client) => {
                for message in runtime.block_on(client.simple_query(&query))? {
                    let SimpleQueryMessage::Row(row) = message else { continue };
                    let cell = |column| match row.get(column) {
                        Some(text) => Cell::Text(text.to_owned()),
                        None => Cell::Null,
                    };
                    take(&Row((0..row.len()).map(cell).collect()))?;
                }
            }
            Line::Mysql(runtime, conn) => {
                let rows: Vec<MysqlRow> = runtime.block_on(conn.borrow_mut().query(query))?;
                for row in rows {
                    take(&Row(row.unwrap().into_iter().map(of_mysql).collect()))?;
                }
            }
        }
        Ok(())
    }

    /// The one number that a query answers.
    pub(crate) fn number(&self, query: &str) -> Outcome<i64> {
        let mut number = 0;
        self.each(query, |row| {
            number = row.int(0)?;
            Ok(())
        })?;
        Ok(number)
    }
}

fn of_sqlite(value: SqliteValue) -> Cell {
    match value {
        SqliteValue::Null => Cell::Null,
        SqliteValue::Integer(number) => Cell::Int(number),
        SqliteValue::Real(number) => Cell::Text(number.to_string()),
        SqliteValue::Text(text) => Cell::Text(text),
        SqliteValue::Blob(bytes) => Cell::Bytes(bytes),
    }
}

fn of_mysql(value: MysqlValue) -> Cell {
    match value {
        MysqlValue::NULL => Cell::Null,
        MysqlValue::Int(number) => Cell::Int(number),
        MysqlValue::Bytes(bytes) => Cell::Bytes(bytes),
        other => Cell::Text(other.as_sql(true)),
    }
}

impl Row {
    fn cell(&self, column: usize) -> Outcome<&Cell> {
        Ok(self.0.get(column).ok_or_else(|| format!("there is no column {column}"))?)
    }

    pub(crate) fn int(&self, column: usize) -> Outcome<i64> {
        Ok(self.int_if_any(column)?.ok_or_else(|| format!("column {column} is null"))?)
    }

    pub(crate) fn int_if_any(&self, column: usize) -> Outcome<Option<i64>> {
        Ok(match self.cell(column)? {
            Cell::Null => None,
            Cell::Int(number) => Some(*number),
            Cell::Text(text) => Some(text.parse()?),
            Cell::Bytes(bytes) => Some(std::str::from_utf8(bytes)?.parse()?),
        })
    }

    /// An offset or another number that is never negative.
    pub(crate) fn count(&self, column: usize) -> Outcome<u64> {
        Ok(self.int(column)?.try_into()?)
    }

    pub(crate) fn count_if_any(&self, column: usize) -> Outcome<Option<u64>> {
        Ok(self.int_if_any(column)?.map(TryInto::try_into).transpose()?)
    }

    pub(crate) fn text(&self, column: usize) -> Outcome<String> {
        match self.cell(column)? {
            Cell::Text(text) => Ok(text.clone()),
            Cell::Bytes(bytes) => Ok(String::from_utf8(bytes.clone())?),
            other => Err(format!("column {column} is {other:?}").into()),
        }
    }

    pub(crate) fn id(&self, column: usize) -> Outcome<Uuid> {
        match self.cell(column)? {
            Cell::Text(text) => Ok(Uuid::parse_str(text)?),
            Cell::Bytes(bytes) => Ok(Uuid::from_slice(bytes)?),
            other => Err(format!("column {column} is {other:?}").into()),
        }
    }

    /// Bytes; empty for null. A bit string is its bytes, the first bit highest in the first byte.
    pub(crate) fn bytes(&self, column: usize) -> Outcome<Vec<u8>> {
        match self.cell(column)? {
            Cell::Null => Ok(Vec::new()),
            Cell::Bytes(bytes) => Ok(bytes.clone()),
            Cell::Text(bits) => Ok(of_bits(bits)),
            Cell::Int(number) => Err(format!("column {column} is {number}").into()),
        }
    }
}

fn of_bits(bits: &str) -> Vec<u8> {
    let byte = |bits: &[u8]| {
        let set = bits.iter().zip(0_u8..).filter(|(bit, _)| **bit == b'1');
        set.fold(0, |byte, (_, place)| byte | 0x80 >> place)
    };
    bits.as_bytes().chunks(8).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_whatever_its_database_makes_of_it() {
        let row = Row(vec![Cell::Int(7), Cell::Text("7".into()), Cell::Bytes(b"7".to_vec()), Cell::Null]);
        for column in 0..3 {
            assert_eq!(row.int(column).unwrap(), 7);
        }
        assert_eq!(row.int_if_any(3).unwrap(), None);
        assert!(row.int(3).is_err() && row.text(9).is_err());
    }

    #[test]
    fn a_bit_string_is_read_as_bytes() {
        assert_eq!(of_bits("000000011"), [1, 0x80]);
        assert_eq!(of_bits(""), [0; 0]);
    }
}

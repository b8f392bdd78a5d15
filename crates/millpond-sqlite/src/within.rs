//! Sending in a user's own transaction: the statements, and the transactions of `rusqlite`.

use millpond_core::error::Result;
use millpond_core::message::{Due, NewMessage};
use millpond_core::reason::OutboxReason;
use millpond_core::store::{Queue, QueueId};
use millpond_core::time::Timestamp;
use millpond_core::within::{
    BlockingUserTx, Dialect, Hold, Refused, Row, Shape, Statement, Value, Within, by_kind,
};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Savepoint, ToSql, Transaction};

use crate::append::headers_text;
use crate::connect::SqliteStore;
use crate::migrate;
use crate::queues::stored_of;
use crate::sql::sql;

impl Within for SqliteStore {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn find_queue(&self, name: &str) -> Statement {
        Statement::question(statement("within_find_queue"), vec![text(name)])
    }

    fn found_queue(&self, name: &str, rows: Vec<Row>) -> Result<Option<Queue>> {
        let (mut declared, mut changes) = (None, None);
        for Row { number, word } in rows {
            match number {
                Some(id) => declared = Some((id, word.unwrap_or_default())),
                None => changes = word,
            }
        }
        let Some((id, declared)) = declared else { return Ok(None) };
        let changes = changes.unwrap_or_else(|| "{}".to_owned());
        Ok(Some(stored_of(QueueId(id), name.to_owned(), &declared, String::new(), &changes)?.queue))
    }

    fn later_release(&self) -> Option<Statement> {
        Some(Statement::question(statement("within_later_release"), vec![int(migrate::LAST as i64)]))
    }

    fn hold(&self, queue: QueueId, hold: Hold<'_>) -> Vec<Statement> {
        let Hold { message, dedup } = hold;
        let now = self.now();
        let values = vec![
            int(queue.0),
            text(&dedup.key),
            bytes(message.id.0.as_bytes()),
            int(self.checksum(&message.body)),
            int((now + dedup.window).as_micros()),
            int(now.as_micros()),
        ];
        vec![
            Statement::change(statement("within_hold"), values),
            Statement::question(statement("within_holder"), vec![int(queue.0), text(&dedup.key)]),
        ]
    }

    fn put(&self, queue: QueueId, messages: &[&NewMessage]) -> Vec<Statement> {
        let now = self.now();
        let put = |message: &&NewMessage| {
            Statement::change(statement("outbox_put"), put_values(queue, message, now))
        };
        let mut statements: Vec<Statement> = messages.iter().map(put).collect();
        let minute = now.as_micros() / 60_000_000;
        statements.extend(by_kind(messages).into_iter().map(|(kind, sent)| {
            let mut values = vec![int(queue.0), text(kind), int(minute), int(sent)];
            values.resize(STAT_COLUMNS, int(0));
            Statement::change(statement("stat_add"), values)
        }));
        statements
    }

    fn checksum(&self, body: &[u8]) -> i64 {
        crc32fast::hash(body).into()
    }
}

/// Columns of `stat_add`: of all but the first four a send has nothing.
const STAT_COLUMNS: usize = 10;

impl SqliteStore {
    /// The time of the store. SQLite has no server, so it goes along as a value.
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.micros())
    }
}

/// A statement without its comments.
fn statement(name: &str) -> String {
    let lines = sql(name).lines().map(str::trim).filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join(" ").trim_end_matches(';').to_owned()
}

/// The values of a message, in the order of `outbox_put`.
fn put_values(queue: QueueId, message: &NewMessage, now: Timestamp) -> Vec<Value> {
    let reason = if message.due.is_some() { OutboxReason::Delay } else { OutboxReason::Tx };
    let ready_at = message.due.unwrap_or(Due::At(now)).resolve(now);
    vec![
        bytes(message.id.0.as_bytes()),
        int(queue.0),
        int(message.priority),
        text(reason.as_str()),
        int(ready_at.as_micros()),
        int(now.as_micros()),
        Value::Int(message.attempts_max.map(i64::from)),
        Value::Int(message.retry_until.map(|due| due.resolve(now).as_micros())),
        int(crc32fast::hash(&message.body)),
        Value::Text(message.kind.clone()),
        Value::Text(message.key.clone()),
        Value::Text(message.content_type.clone()),
        Value::Text(headers_text(&message.headers)),
        bytes(&message.body),
    ]
}

fn text(text: &str) -> Value {
    Value::Text(Some(text.to_owned()))
}

fn int(number: impl Into<i64>) -> Value {
    Value::Int(Some(number.into()))
}

fn bytes(bytes: &[u8]) -> Value {
    Value::Bytes(Some(bytes.to_vec()))
}

/// The implementations of this crate; see [`BlockingUserTx`].
#[derive(Debug)]
pub enum Driver {}

macro_rules! transactions {
    ($($transaction:ty),*) => {
        $(impl BlockingUserTx<Driver> for $transaction {
            fn dialect(&self) -> Dialect {
                Dialect::Sqlite
            }

            fn run(&mut self, statement: &Statement) -> std::result::Result<Vec<Row>, Refused> {
                run(self, statement)
            }
        })*
    };
}

transactions!(Transaction<'_>, Savepoint<'_>, Connection);

fn run(conn: &Connection, statement: &Statement) -> std::result::Result<Vec<Row>, Refused> {
    // A savepoint would begin a transaction here, and its end would commit it.
    if conn.is_autocommit() {
        let cause = "no transaction is open on this connection: begin one first";
        return Err(Refused { state: Some("25P01".to_owned()), cause: cause.into() });
    }
    ran(conn, statement).map_err(|error| Refused {
        state: error.sqlite_error().map(|code| code.extended_code.to_string()),
        cause: error.into(),
    })
}

fn ran(conn: &Connection, statement: &Statement) -> rusqlite::Result<Vec<Row>> {
    let values: Vec<Bound<'_>> = statement.values.iter().map(Bound).collect();
    let params = rusqlite::params_from_iter(&values);
    match statement.shape {
        Shape::Word => conn.execute_batch(&statement.text).map(|()| Vec::new()),
        Shape::Change => conn.prepare_cached(&statement.text)?.execute(params).map(|_| Vec::new()),
        Shape::Question => {
            let mut question = conn.prepare_cached(&statement.text)?;
            let rows =
                question.query_map(params, |row| Ok(Row { number: row.get(0)?, word: row.get(1)? }))?;
            rows.collect()
        }
    }
}

/// A value on its way to SQLite.
struct Bound<'v>(&'v Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Int(Some(number)) => ValueRef::Integer(*number),
            Value::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(Some(bytes)) => ValueRef::Blob(bytes),
            Value::Int(None) | Value::Text(None) | Value::Bytes(None) => ValueRef::Null,
        }))
    }
}

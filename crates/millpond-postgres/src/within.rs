//! Sending in a user's own transaction: the statements, and the transactions of `tokio-postgres`.

use millpond_core::error::Result;
use millpond_core::message::NewMessage;
use millpond_core::reason::OutboxReason;
use millpond_core::store::{BoxFuture, Queue, QueueId};
use millpond_core::time::micros;
use millpond_core::within::{Dialect, Hold, Refused, Row, Shape, Statement, UserTx, Value, Within, pages};
use millpond_sql::queues::Stored;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use crate::append::number;
use crate::columns::{checksum, headers_text, instant, wait};
use crate::connect::PostgresStore;

/// Parameters of a message in `within_put`, and of the statement before them.
const COLUMNS: usize = 14;
const HEAD: usize = 2;

impl Within for PostgresStore {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn find_queue(&self, name: &str) -> Statement {
        Statement::question(self.within("within_find_queue", 0), vec![text(name)])
    }

    fn found_queue(&self, name: &str, rows: Vec<Row>) -> Result<Option<Queue>> {
        let (mut declared, mut changes) = (None, Vec::new());
        for Row { number, word } in rows {
            let word = word.unwrap_or_default();
            match (number, word.split_once('=')) {
                (Some(id), _) => declared = Some((id, word)),
                (None, Some((setting, value))) => changes.push((setting.to_owned(), value.to_owned())),
                (None, None) => {}
            }
        }
        let Some((id, declared)) = declared else { return Ok(None) };
        let stored =
            Stored::read(QueueId(id), name.to_owned(), &declared, String::new(), changes.into_iter())?;
        Ok(Some(stored.queue))
    }

    fn later_release(&self) -> Option<Statement> {
        None
    }

    fn hold(&self, queue: QueueId, hold: Hold<'_>) -> Vec<Statement> {
        let Hold { message, dedup } = hold;
        let values = vec![
            Value::Int(self.target.clock.as_ref().map(|clock| clock.micros())),
            int(number(queue)),
            text(&dedup.key),
            text(&message.id.0.to_string()),
            int(checksum(&message.body)),
            int(micros(dedup.window).min(i64::MAX / 2)),
        ];
        vec![Statement::question(self.within("within_hold", 0), values)]
    }

    fn put(&self, queue: QueueId, messages: &[&NewMessage]) -> Vec<Statement> {
        let statement = |page: &[&NewMessage]| {
            let now = self.target.clock.as_ref().map(|clock| clock.micros());
            let mut values = vec![Value::Int(now), int(number(queue))];
            page.iter().for_each(|message| put_values(message, &mut values));
            Statement::question(self.within("within_put", page.len()), values)
        };
        pages(messages).into_iter().map(statement).collect()
    }

    fn checksum(&self, body: &[u8]) -> i64 {
        checksum(body).into()
    }
}

impl PostgresStore {
    /// A statement of the file `within.sql` for so many messages.
    fn within(&self, name: &str, rows: usize) -> String {
        for_rows(self.target.statements.get(name), rows)
    }
}

/// Writes out a statement for so many messages, without its comments.
fn for_rows(statement: &str, rows: usize) -> String {
    let lines = statement.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    let lines = lines.collect::<Vec<_>>().join(" ");
    let mut written = String::new();
    let mut rest = lines.trim_end_matches(';');
    while let Some((before, row_on)) = rest.split_once('{') {
        let (row, after) = row_on.split_once('}').expect("a row that begins ends");
        let (place, cast) = row[1..].split_once("::").expect("a parameter of a row has a cast");
        let place: usize = place.parse().expect("a parameter is a number");
        written.push_str(before);
        for number in 0..rows {
            let comma = if number == 0 { "" } else { ", " };
            written.push_str(&format!("{comma}${}::{cast}", place + number * COLUMNS));
        }
        rest = after;
    }
    written + rest
}

/// The values of a message, in the order of `outbox_put`.
fn put_values(message: &NewMessage, values: &mut Vec<Value>) {
    let reason = if message.due.is_some() { OutboxReason::Delay } else { OutboxReason::Tx };
    let own = [
        text(&message.id.0.to_string()),
        int(checksum(&message.body)),
        Value::Bytes(Some(message.body.clone())),
        Value::Text(message.kind.clone()),
        Value::Text(message.key.clone()),
        Value::Text(message.content_type.clone()),
        Value::Text(headers_text(&message.headers)),
        Value::Int(message.attempts_max.map(i64::from)),
        Value::Int(instant(message.retry_until)),
        Value::Int(wait(message.retry_until)),
        int(message.priority),
        text(reason.as_str()),
        Value::Int(instant(message.due)),
        Value::Int(wait(message.due)),
    ];
    const { assert!(HEAD + COLUMNS == 16, "as in `within_put`") };
    values.extend::<[Value; COLUMNS]>(own);
}

fn text(text: &str) -> Value {
    Value::Text(Some(text.to_owned()))
}

fn int(number: impl Into<i64>) -> Value {
    Value::Int(Some(number.into()))
}

/// The implementations of this crate; see [`UserTx`].
#[derive(Debug)]
pub enum Driver {}

impl UserTx<Driver> for Transaction<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn is_surely_open(&mut self) -> bool {
        true
    }

    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
    ) -> BoxFuture<'a, std::result::Result<Vec<Row>, Refused>> {
        Box::pin(async move {
            let ran = match statement.shape {
                Shape::Word => self.batch_execute(&statement.text).await.map(|()| Vec::new()),
                _ => self.query_typed(&statement.text, &params(&statement.values)).await,
            };
            rows_of(ran)
        })
    }
}

impl UserTx<Driver> for Client {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
    ) -> BoxFuture<'a, std::result::Result<Vec<Row>, Refused>> {
        Box::pin(async move {
            let ran = match statement.shape {
                Shape::Word => self.batch_execute(&statement.text).await.map(|()| Vec::new()),
                _ => self.query_typed(&statement.text, &params(&statement.values)).await,
            };
            rows_of(ran)
        })
    }
}

fn params(values: &[Value]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    fn param(value: &Value) -> (&(dyn ToSql + Sync), Type) {
        match value {
            Value::Int(number) => (number, Type::INT8),
            Value::Text(text) => (text, Type::TEXT),
            Value::Bytes(bytes) => (bytes, Type::BYTEA),
        }
    }
    values.iter().map(param).collect()
}

fn rows_of(
    ran: std::result::Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>,
) -> std::result::Result<Vec<Row>, Refused> {
    let refused = |error: tokio_postgres::Error| Refused {
        state: error.code().map(|state| state.code().to_owned()),
        cause: error.into(),
    };
    let row = |row: &tokio_postgres::Row| Ok(Row { number: row.try_get(0)?, word: row.try_get(1)? });
    ran.and_then(|rows| rows.iter().map(row).collect()).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_written_out_for_its_messages() {
        let template = "-- Why.\nselect f($1, array[{$3::text::uuid}], array[{$4::bigint}]);";
        let written = "select f($1, array[$3::text::uuid, $17::text::uuid], array[$4::bigint, $18::bigint])";
        assert_eq!(for_rows(template, 2), written);
    }
}

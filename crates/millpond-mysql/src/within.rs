//! Sending in a user's own transaction: the statements, and the transactions of `mysql_async`.

use millpond_core::error::Result;
use millpond_core::message::NewMessage;
use millpond_core::reason::OutboxReason;
use millpond_core::store::{BoxFuture, Queue, QueueId};
use millpond_core::time::micros;
use millpond_core::within::{
    Dialect, Hold, Refused, Row, Shape, Statement, UserTx, Value, Within, by_kind, pages,
};
use millpond_sql::queues::Stored;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Transaction};

use crate::append::{checksum, headers_text, instant, number, wait};
use crate::connect::MysqlStore;
use crate::migrate;
use crate::script::SERVER_NOW;
use crate::sql::Piece;

impl Within for MysqlStore {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn find_queue(&self, name: &str) -> Statement {
        let (text, values) = self.written("within_find_queue", &[text(name)], &[]);
        Statement::question(text, values)
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
        let (text, values) = self.written("within_later_release", &[int(migrate::LAST as i64)], &[]);
        Some(Statement::question(text, values))
    }

    fn hold(&self, queue: QueueId, hold: Hold<'_>) -> Vec<Statement> {
        let Hold { message, dedup } = hold;
        let row = [
            int(number(queue)),
            text(&dedup.key),
            bytes(message.id.0.as_bytes()),
            int(checksum(&message.body)),
            int(micros(dedup.window).min(i64::MAX / 2)),
        ];
        let (hold, values) = self.written("within_hold", &row, &[]);
        let asked = [int(number(queue)), text(&dedup.key)];
        let (holder, asked) = self.written("within_holder", &asked, &[]);
        vec![Statement::change(hold, values), Statement::question(holder, asked)]
    }

    fn put(&self, queue: QueueId, messages: &[&NewMessage]) -> Vec<Statement> {
        let put = |page: &[&NewMessage]| {
            let rows: Vec<Vec<Value>> = page.iter().map(|message| put_values(queue, message)).collect();
            let (text, values) = self.written("within_put", &[], &rows);
            Statement::change(text, values)
        };
        let mut statements: Vec<Statement> = pages(messages).into_iter().map(put).collect();
        statements.extend(by_kind(messages).into_iter().map(|(kind, sent)| {
            let row = vec![int(number(queue)), text(kind), int(sent)];
            let (text, values) = self.written("stat_sent", &[], &[row]);
            Statement::change(text, values)
        }));
        statements
    }

    fn checksum(&self, body: &[u8]) -> i64 {
        checksum(body).into()
    }
}

impl MysqlStore {
    /// A statement with its values in the order of its placeholders: there the one cannot name the other.
    fn written(&self, name: &str, params: &[Value], rows: &[Vec<Value>]) -> (String, Vec<Value>) {
        let mut written = Written { text: String::new(), values: Vec::new() };
        let now = self.target.clock.as_ref().map(|clock| clock.micros());
        for piece in self.target.statements.get(name) {
            match piece {
                Piece::Rows(row) => {
                    for (place, values) in rows.iter().enumerate() {
                        if place != 0 {
                            written.text.push_str(", ");
                        }
                        row.iter().for_each(|piece| written.add(piece, values, now));
                    }
                }
                piece => written.add(piece, params, now),
            }
        }
        (written.text, written.values)
    }
}

struct Written {
    text: String,
    values: Vec<Value>,
}

impl Written {
    fn add(&mut self, piece: &Piece, values: &[Value], now: Option<i64>) {
        match (piece, now) {
            (Piece::Text(text), _) => self.text.push_str(text),
            (Piece::Param(place), _) => {
                self.text.push('?');
                self.values.push(values[*place].clone());
            }
            (Piece::Now, Some(now)) => {
                self.text.push('?');
                self.values.push(int(now));
            }
            (Piece::Now, None) => self.text.push_str(&String::from_utf8_lossy(SERVER_NOW)),
            (Piece::Rows(_), _) => panic!("rows are not nested"),
        }
    }
}

/// The values of a message, in the order of `within_put`.
fn put_values(queue: QueueId, message: &NewMessage) -> Vec<Value> {
    let reason = if message.due.is_some() { OutboxReason::Delay } else { OutboxReason::Tx };
    vec![
        bytes(message.id.0.as_bytes()),
        int(number(queue)),
        int(message.priority),
        text(reason.as_str()),
        Value::Int(instant(message.due)),
        Value::Int(wait(message.due)),
        int(checksum(&message.body)),
        bytes(&message.body),
        Value::Text(message.kind.clone()),
        Value::Text(message.key.clone()),
        Value::Text(message.content_type.clone()),
        Value::Text(headers_text(&message.headers)),
        Value::Int(message.attempts_max.map(i64::from)),
        Value::Int(instant(message.retry_until)),
        Value::Int(wait(message.retry_until)),
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

/// The implementations of this crate; see [`UserTx`].
#[derive(Debug)]
pub enum Driver {}

impl UserTx<Driver> for Transaction<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
    ) -> BoxFuture<'a, std::result::Result<Vec<Row>, Refused>> {
        Box::pin(run(self, statement))
    }
}

impl UserTx<Driver> for Conn {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn run<'a>(
        &'a mut self,
        statement: &'a Statement,
    ) -> BoxFuture<'a, std::result::Result<Vec<Row>, Refused>> {
        Box::pin(run(self, statement))
    }
}

async fn run<Q: Queryable>(conn: &mut Q, statement: &Statement) -> std::result::Result<Vec<Row>, Refused> {
    let ran = match statement.shape {
        Shape::Word => conn.query_drop(&statement.text).await.map(|()| Vec::new()),
        Shape::Change => {
            let params = params(&statement.values);
            conn.exec_drop(&statement.text, params).await.map(|()| Vec::new())
        }
        Shape::Question => {
            let row = |(number, word)| Row { number, word };
            conn.exec_map(&statement.text, params(&statement.values), row).await
        }
    };
    ran.map_err(|error| Refused {
        state: match &error {
            mysql_async::Error::Server(said) => Some(said.state.clone()),
            _ => None,
        },
        cause: error.into(),
    })
}

fn params(values: &[Value]) -> Params {
    let value = |value: &Value| match value {
        Value::Int(number) => mysql_async::Value::from(*number),
        Value::Text(text) => mysql_async::Value::from(text.as_deref()),
        Value::Bytes(bytes) => mysql_async::Value::from(bytes.as_deref()),
    };
    Params::Positional(values.iter().map(value).collect())
}

//! The connection to whoever asks.

use std::ops::Range;

use millpond_core::store::Queue;
use millpond_core::time::Timestamp;
use millpond_sql::{Cell, Param, Reader};
use tokio_postgres::types::{FromSql, Type};

use crate::admin::now;
use crate::bits::Bytes;
use crate::connection::{self, Connection};
use crate::error::{Fault, Tried};
use crate::queues::stored_queues;

/// A row of an answer.
pub(crate) struct Row(tokio_postgres::Row);

impl Row {
    fn value<'r, T: FromSql<'r>>(&'r self, column: usize, cell: impl FnOnce(T) -> Cell<'r>) -> Cell<'r> {
        self.0.get::<_, Option<T>>(column).map_or(Cell::Null, cell)
    }
}

impl millpond_sql::Row for Row {
    fn cell(&self, column: usize) -> Cell<'_> {
        match *self.0.columns()[column].type_() {
            Type::INT2 => self.value(column, |number: i16| Cell::Int(number.into())),
            Type::INT4 => self.value(column, |number: i32| Cell::Int(number.into())),
            Type::INT8 => self.value(column, Cell::Int),
            Type::BOOL => self.value(column, Cell::Flag),
            Type::UUID => self.value(column, Cell::Id),
            Type::BYTEA => self.value(column, Cell::Bytes),
            Type::VARBIT => self.value(column, |Bytes(bytes)| Cell::Bytes(bytes)),
            _ => self.value(column, Cell::Text),
        }
    }
}

/// A parameter, with the type that the server is told.
fn typed<'p>(param: &'p Param<'_>) -> connection::Param<'p> {
    match param {
        Param::Number(number) => (number, Type::INT4),
        Param::Int(number) => (number, Type::INT8),
        Param::Flag(flag) => (flag, Type::BOOL),
        Param::Text(text) => (text, Type::TEXT),
        Param::Id(id) => (id, Type::UUID),
        Param::Numbers(numbers) => (numbers, Type::INT4_ARRAY),
    }
}

impl Reader for Connection {
    type Row = Row;
    type Fault = Fault;

    async fn rows(&self, name: &str, params: &[Param<'_>]) -> Tried<Vec<Row>> {
        let params: Vec<connection::Param<'_>> = params.iter().map(typed).collect();
        Ok(Connection::rows(self, name, &params).await?.into_iter().map(Row).collect())
    }

    async fn time(&self) -> Tried<Timestamp> {
        now(self).await
    }

    async fn queues(&self) -> Tried<Vec<Queue>> {
        stored_queues(self).await
    }

    /// In one round trip.
    async fn published_after(&self, partition: i32, range: Range<i64>, instant: Timestamp) -> Tried<i64> {
        let instant = instant.as_micros();
        let params: [connection::Param<'_>; 4] = [
            (&partition, Type::INT4),
            (&range.start, Type::INT8),
            (&range.end, Type::INT8),
            (&instant, Type::INT8),
        ];
        Ok(self.row("log_published_after", &params).await?.get(0))
    }
}

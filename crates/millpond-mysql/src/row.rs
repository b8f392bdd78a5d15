//! Rows of an answer. The server writes every value as text, or as the bytes that it is.

use millpond_sql::{Cell, FromCell};
use mysql_async::Value;

use crate::error::{Fault, Tried};

/// A row.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) mysql_async::Row);

/// The number of a column.
pub(crate) trait Column {
    /// As a number.
    fn number(self) -> usize;
}

impl Column for usize {
    fn number(self) -> usize {
        self
    }
}

impl Row {
    /// The value of a column.
    ///
    /// # Panics
    ///
    /// When it is of another type: a mistake in this crate.
    pub(crate) fn get<'r, C: Column, T: FromCell<'r>>(&'r self, column: C) -> T {
        millpond_sql::Row::get(self, column.number())
    }

    /// The value of a column, which may be of another type if somebody else wrote it.
    pub(crate) fn try_get<'r, C: Column, T: FromCell<'r>>(&'r self, column: C) -> Tried<T> {
        Ok(millpond_sql::Row::try_get(self, column.number())?)
    }

    /// Takes the bytes of a column out of the row.
    pub(crate) fn take_bytes(&mut self, column: usize) -> Tried<Vec<u8>> {
        match self.0.take::<Value, _>(column) {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(Fault::Column(column)),
        }
    }
}

impl millpond_sql::Row for Row {
    fn cell(&self, column: usize) -> Cell<'_> {
        match self.0.as_ref(column) {
            Some(Value::NULL) => Cell::Null,
            Some(Value::Bytes(bytes)) => Cell::Bytes(bytes),
            other => panic!("column {column} holds {other:?}"),
        }
    }
}

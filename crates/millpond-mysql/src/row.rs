//! Rows of an answer. The server writes every value as text, or as the bytes that it is.

use mysql_async::Value;
use uuid::Uuid;

use crate::bits::Bits;
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

/// A type that a value of a row can be read as.
pub(crate) trait FromValue<'r>: Sized {
    /// `None`: it is none.
    fn from_value(value: &'r Value) -> Option<Self>;
}

impl Row {
    /// The value of a column.
    ///
    /// # Panics
    ///
    /// When it is of another type: a mistake in this crate.
    pub(crate) fn get<'r, C: Column, T: FromValue<'r>>(&'r self, column: C) -> T {
        let column = column.number();
        let value = self.0.as_ref(column).unwrap_or_else(|| panic!("there is no column {column}"));
        T::from_value(value).unwrap_or_else(|| panic!("column {column} is not what it should be"))
    }

    /// The value of a column, which may be of another type if somebody else wrote it.
    pub(crate) fn try_get<'r, C: Column, T: FromValue<'r>>(&'r self, column: C) -> Tried<T> {
        let column = column.number();
        self.0.as_ref(column).and_then(T::from_value).ok_or(Fault::Column(column))
    }

    /// Takes the bytes of a column out of the row.
    pub(crate) fn take_bytes(&mut self, column: usize) -> Tried<Vec<u8>> {
        match self.0.take::<Value, _>(column) {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(Fault::Column(column)),
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl FromValue<'_> for $number {
            fn from_value(value: &Value) -> Option<Self> {
                text(value)?.parse().ok()
            }
        })*
    };
}

numbers!(u8, u16, u32, u64, i16, i32, i64);

impl FromValue<'_> for bool {
    fn from_value(value: &Value) -> Option<Self> {
        Some(text(value)? != "0")
    }
}

impl<'r> FromValue<'r> for &'r str {
    fn from_value(value: &'r Value) -> Option<Self> {
        text(value)
    }
}

impl FromValue<'_> for String {
    fn from_value(value: &Value) -> Option<Self> {
        text(value).map(str::to_owned)
    }
}

impl FromValue<'_> for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }
}

impl FromValue<'_> for Uuid {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bytes(bytes) => Uuid::from_slice(bytes).ok(),
            _ => None,
        }
    }
}

impl FromValue<'_> for Bits {
    fn from_value(value: &Value) -> Option<Self> {
        Vec::from_value(value).map(Bits::of_bytes)
    }
}

impl<'r, T: FromValue<'r>> FromValue<'r> for Option<T> {
    fn from_value(value: &'r Value) -> Option<Self> {
        match value {
            Value::NULL => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

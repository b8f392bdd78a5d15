//! What a statement answers: rows of cells, and the types that they are read as.

use std::time::Duration;

use millpond_core::error::{Code, Error};
use millpond_core::message::MessageId;
use millpond_core::time::Timestamp;
use uuid::Uuid;

use crate::bits::Bits;

/// A value of a row, as near to what the server said as it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'r> {
    /// None.
    Null,
    /// A number; a server without truths says 0 and 1.
    Int(i64),
    /// Yes or no.
    Flag(bool),
    /// A text.
    Text(&'r str),
    /// Bytes; of a server that writes every value as text, anything.
    Bytes(&'r [u8]),
    /// An id.
    Id(Uuid),
}

/// A row of an answer.
pub trait Row {
    /// The cell of a column.
    ///
    /// # Panics
    ///
    /// When there is no such column: a mistake in the store.
    fn cell(&self, column: usize) -> Cell<'_>;

    /// The value of a column.
    ///
    /// # Panics
    ///
    /// When it is of another type: a mistake in the store.
    fn get<'r, T: FromCell<'r>>(&'r self, column: usize) -> T {
        let cell = self.cell(column);
        T::from_cell(cell).unwrap_or_else(|| panic!("column {column} is not what it should be: {cell:?}"))
    }

    /// The value of a column, which may be of another type if somebody else wrote it.
    ///
    /// # Errors
    ///
    /// `internal` when it is.
    fn try_get<'r, T: FromCell<'r>>(&'r self, column: usize) -> Result<T, Error> {
        let other = || {
            let why = format!("column {column} is not what it should be");
            Error::new(Code::Internal, "read a row").because(why)
        };
        T::from_cell(self.cell(column)).ok_or_else(other)
    }
}

/// A type that a cell can be read as.
pub trait FromCell<'r>: Sized {
    /// `None`: it cannot.
    fn from_cell(cell: Cell<'r>) -> Option<Self>;
}

impl FromCell<'_> for i64 {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Int(number) => Some(number),
            Cell::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
            _ => None,
        }
    }
}

impl FromCell<'_> for i32 {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        i64::from_cell(cell)?.try_into().ok()
    }
}

/// A count.
impl FromCell<'_> for u64 {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        i64::from_cell(cell).map(i64::unsigned_abs)
    }
}

/// A small count, such as an attempt; the largest stands for more.
impl FromCell<'_> for u32 {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        u64::from_cell(cell).map(|count| count.try_into().unwrap_or(Self::MAX))
    }
}

impl FromCell<'_> for u16 {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        u64::from_cell(cell)?.try_into().ok()
    }
}

/// A class or lane.
impl FromCell<'_> for u8 {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        u64::from_cell(cell)?.try_into().ok()
    }
}

impl FromCell<'_> for bool {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Flag(flag) => Some(flag),
            cell => i64::from_cell(cell).map(|number| number != 0),
        }
    }
}

/// A stored time.
impl FromCell<'_> for Timestamp {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        i64::from_cell(cell).map(Timestamp::from_micros)
    }
}

/// A stored run time.
impl FromCell<'_> for Duration {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        u64::from_cell(cell).map(Duration::from_micros)
    }
}

impl<'r> FromCell<'r> for &'r str {
    fn from_cell(cell: Cell<'r>) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(text),
            Cell::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

impl<'r> FromCell<'r> for String {
    fn from_cell(cell: Cell<'r>) -> Option<Self> {
        <&str>::from_cell(cell).map(str::to_owned)
    }
}

impl FromCell<'_> for Vec<u8> {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Bytes(bytes) => Some(bytes.to_vec()),
            _ => None,
        }
    }
}

impl FromCell<'_> for Bits {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        Vec::from_cell(cell).map(Bits::of_bytes)
    }
}

impl FromCell<'_> for Uuid {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        match cell {
            Cell::Id(id) => Some(id),
            Cell::Bytes(bytes) => Uuid::from_slice(bytes).ok(),
            _ => None,
        }
    }
}

impl FromCell<'_> for MessageId {
    fn from_cell(cell: Cell<'_>) -> Option<Self> {
        Uuid::from_cell(cell).map(MessageId)
    }
}

impl<'r, T: FromCell<'r>> FromCell<'r> for Option<T> {
    fn from_cell(cell: Cell<'r>) -> Option<Self> {
        match cell {
            Cell::Null => Some(None),
            cell => T::from_cell(cell).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(Cell<'static>);

    impl Row for One {
        fn cell(&self, _: usize) -> Cell<'_> {
            self.0
        }
    }

    #[test]
    fn cells_are_read_as_what_they_can_be() {
        assert_eq!(One(Cell::Int(-7)).get::<u32>(0), 7);
        assert_eq!(One(Cell::Int(i64::MAX)).get::<u32>(0), u32::MAX);
        assert!(One(Cell::Int(1)).get::<bool>(0) && One(Cell::Flag(true)).get::<bool>(0));
        assert_eq!(One(Cell::Bytes(b"-7")).get::<i32>(0), -7);
        assert_eq!(One(Cell::Bytes(b"text")).get::<&str>(0), "text");
        assert_eq!(One(Cell::Bytes(&[0; 16])).get::<MessageId>(0), MessageId(Uuid::nil()));
        assert_eq!(One(Cell::Null).get::<Option<i64>>(0), None);
        let refused = One(Cell::Text("text")).try_get::<Bits>(0).unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
    }
}

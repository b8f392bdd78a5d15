//! What a statement is given.

use millpond_core::message::MessageId;
use uuid::Uuid;

/// A parameter of a statement. What may be missing still has its type, which a server wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param<'p> {
    /// The number of a queue, subscription or part, in 32 bits.
    Number(Option<i32>),
    /// Any other number, in 64.
    Int(Option<i64>),
    /// Yes or no.
    Flag(bool),
    /// A text.
    Text(Option<&'p str>),
    /// The id of a message.
    Id(Uuid),
    /// Numbers that a column may have.
    Numbers(&'p [i32]),
}

impl From<i32> for Param<'_> {
    fn from(number: i32) -> Self {
        Param::Number(Some(number))
    }
}

impl From<Option<i32>> for Param<'_> {
    fn from(number: Option<i32>) -> Self {
        Param::Number(number)
    }
}

impl From<i64> for Param<'_> {
    fn from(number: i64) -> Self {
        Param::Int(Some(number))
    }
}

impl From<bool> for Param<'_> {
    fn from(flag: bool) -> Self {
        Param::Flag(flag)
    }
}

impl<'p> From<Option<&'p str>> for Param<'p> {
    fn from(text: Option<&'p str>) -> Self {
        Param::Text(text)
    }
}

impl<'p> From<&'p str> for Param<'p> {
    fn from(text: &'p str) -> Self {
        Param::Text(Some(text))
    }
}

impl From<MessageId> for Param<'_> {
    fn from(id: MessageId) -> Self {
        Param::Id(id.0)
    }
}

impl<'p> From<&'p [i32]> for Param<'p> {
    fn from(numbers: &'p [i32]) -> Self {
        Param::Numbers(numbers)
    }
}

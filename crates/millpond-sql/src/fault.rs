//! What may go wrong between a store and its server, and what a caller is told.

use std::time::Duration;

use millpond_core::error::{Code, Error};

/// What a caller is to think when the connection is lost before the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// It can be asked again: it only read, or a repetition changes nothing.
    AskAgain,
    /// It may have been committed.
    MayHaveHappened,
}

impl Lost {
    /// What it is called.
    pub fn code(self) -> Code {
        match self {
            Lost::AskAgain => Code::StoreUnavailable,
            Lost::MayHaveHappened => Code::UnknownOutcome,
        }
    }
}

/// The server's word, silence, or a decision of ours that is an error already.
pub trait Fault: From<Error> + 'static {
    /// No answer within this time.
    fn silence(waited: Duration) -> Self;

    /// The server did not say what became of the statement.
    fn is_ambiguous(&self) -> bool;

    /// Another transaction and this one waited for each other: nothing was done, and it may be tried again at once.
    fn is_deadlock(&self) -> bool;

    /// The decision of ours, if it is one.
    ///
    /// # Errors
    ///
    /// Itself, if not.
    fn into_ours(self) -> Result<Error, Self>;

    /// The public error, with what was being tried.
    fn into_error(self, doing: &str, lost: Lost) -> Error;
}

/// The store has been closed.
pub fn closed(doing: &str) -> Error {
    Error::new(Code::ShuttingDown, doing).because("the store was closed")
}

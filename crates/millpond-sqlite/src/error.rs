//! From what SQLite says to what a caller can act on.

use millpond_core::error::{Code, Error};
use rusqlite::ErrorCode;

/// What may go wrong inside the store: SQLite's word, or a decision of ours that is an error already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Core(#[from] Error),
}

/// A result inside the store.
pub(crate) type Tried<T> = Result<T, Fault>;

impl Fault {
    /// The disk is full. SQLite may have rolled back the whole transaction.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }

    /// The public error, with what was being tried.
    pub(crate) fn into_error(self, doing: &str) -> Error {
        match self {
            Fault::Core(error) => error,
            Fault::Sqlite(error) => Error::new(code_of(&error), doing).because(error),
        }
    }
}

/// The code for an error that happened before anything was committed.
pub(crate) fn code_of(error: &rusqlite::Error) -> Code {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Code::StorageFull,
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Code::UnsupportedStore,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Code::StoreUnreachable,
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory,
        ) => Code::StoreUnavailable,
        _ => Code::Internal,
    }
}

/// The code for an error of COMMIT itself: after a failing flush nobody knows what a restart will find.
pub(crate) fn code_of_commit(error: &rusqlite::Error) -> Code {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => Code::UnknownOutcome,
        _ => code_of(error),
    }
}

/// The store has been closed.
pub(crate) fn closed(doing: &str) -> Error {
    Error::new(Code::ShuttingDown, doing).because("the store was closed")
}

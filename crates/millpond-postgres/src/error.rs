//! From what Postgres and the network say to what a caller can act on.

use std::time::Duration;

use millpond_core::error::{Code, Error};
pub(crate) use millpond_sql::{Lost, closed};
use tokio_postgres::error::SqlState;

/// What may go wrong inside the store: the server's word, silence, or a decision of ours that is an error already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    #[error("no answer within {0:?}")]
    Silence(Duration),
    #[error(transparent)]
    Core(#[from] Error),
}

/// The way out of a statement for which there are no rights.
const RIGHTS: &str = "an owner grants what `millpond store grants` lists";

/// A result inside the store.
pub(crate) type Tried<T> = Result<T, Fault>;

impl Fault {
    /// The server did not say what became of the statement.
    pub(crate) fn is_ambiguous(&self) -> bool {
        match self {
            Fault::Core(_) => false,
            Fault::Silence(_) => true,
            Fault::Postgres(error) => error.code().is_none_or(ends_the_connection),
        }
    }

    /// Another transaction and this one waited for each other, or for too long: nothing was done, and it may be
    /// tried again at once.
    pub(crate) fn is_deadlock(&self) -> bool {
        let state = match self {
            Fault::Postgres(error) => error.code(),
            _ => None,
        };
        state.is_some_and(|state| {
            *state == SqlState::T_R_DEADLOCK_DETECTED || *state == SqlState::T_R_SERIALIZATION_FAILURE
        })
    }

    /// A statement before had failed, and since then the transaction takes none.
    pub(crate) fn is_of_a_failed_transaction(&self) -> bool {
        matches!(self, Fault::Postgres(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION))
    }

    /// The public error, with what was being tried.
    pub(crate) fn into_error(self, doing: &str, lost: Lost) -> Error {
        if self.is_ambiguous() {
            return Error::new(lost.code(), doing).because(self);
        }
        match self {
            Fault::Core(error) => error,
            Fault::Postgres(error) => match code_of(&error) {
                Code::StoreUnreachable => {
                    let why = format!("{}: {}", plain(&error), RIGHTS);
                    Error::new(Code::StoreUnreachable, doing).because(why)
                }
                code => Error::new(code, doing).because(plain(&error)),
            },
            Fault::Silence(_) => Error::new(Code::StoreUnavailable, doing).because(self),
        }
    }
}

impl millpond_sql::Fault for Fault {
    fn silence(waited: Duration) -> Self {
        Fault::Silence(waited)
    }

    fn is_ambiguous(&self) -> bool {
        self.is_ambiguous()
    }

    fn is_deadlock(&self) -> bool {
        self.is_deadlock()
    }

    fn into_ours(self) -> Result<Error, Self> {
        match self {
            Fault::Core(error) => Ok(error),
            other => Err(other),
        }
    }

    fn into_error(self, doing: &str, lost: Lost) -> Error {
        self.into_error(doing, lost)
    }
}

fn ends_the_connection(state: &SqlState) -> bool {
    let code = state.code();
    code.starts_with("57P") || code.starts_with("08") || *state == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

/// The code for a statement that the server refused, and so did not do.
pub(crate) fn code_of(error: &tokio_postgres::Error) -> Code {
    let Some(state) = error.code() else { return Code::StoreUnavailable };
    match state.code() {
        "53100" => Code::StorageFull,
        // Too many connections, no memory, a time limit, a deadlock, the server's start or end.
        code if ["53", "55", "57", "40", "58"].iter().any(|class| code.starts_with(class)) => {
            Code::StoreUnavailable
        }
        // A standby, or a database that was made read-only.
        "25006" => Code::StoreUnavailable,
        // No rights; a table or function that is missing: the schema is another one.
        "42501" => Code::StoreUnreachable,
        // In a transaction in which a statement failed before.
        "25P02" => Code::StatementFailed,
        // Our own: see the function `still_ours`.
        "MP001" => Code::SchemaNewer,
        "42P01" | "42883" | "3F000" => Code::SchemaOlder,
        _ => Code::Internal,
    }
}

/// What the server said, without the driver's words before it.
pub(crate) fn plain(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => {
            let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!("{}{detail}", said.message())
        }
        None => {
            let cause = std::error::Error::source(error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        }
    }
}

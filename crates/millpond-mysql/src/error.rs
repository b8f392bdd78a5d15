//! From what the server and the network say to what a caller can act on.

use std::time::Duration;

use millpond_core::error::{Code, Error};
pub(crate) use millpond_sql::{Lost, closed};
use mysql_async::Error as ServerError;

/// A subselect has two rows: none of ours has, but the one that looks for migrations of a later release.
const LATER_RELEASE: u16 = 1242;

/// What may go wrong inside the store: the server's word, silence, or a decision of ours that is an error already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{}", plain(.0))]
    Mysql(#[from] ServerError),
    #[error("no answer within {0:?}")]
    Silence(Duration),
    #[error("column {0} is not what it should be")]
    Column(usize),
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
            Fault::Core(_) | Fault::Column(_) => false,
            Fault::Silence(_) => true,
            Fault::Mysql(error) => number(error).is_none_or(ends_the_connection),
        }
    }

    /// Another transaction and this one waited for each other: nothing was done, and it may be tried again at once.
    pub(crate) fn is_deadlock(&self) -> bool {
        match self {
            // The last is MariaDB's, since 11.6: a row changed since it was read.
            Fault::Mysql(error) => matches!(number(error), Some(1213 | 1020)),
            _ => false,
        }
    }

    /// The public error, with what was being tried.
    pub(crate) fn into_error(self, doing: &str, lost: Lost) -> Error {
        if self.is_ambiguous() {
            return Error::new(lost.code(), doing).because(self);
        }
        match self {
            Fault::Core(error) => error,
            Fault::Mysql(error) => match code_of(&error) {
                Code::StoreUnreachable => {
                    let why = format!("{}: {}", plain(&error), RIGHTS);
                    Error::new(Code::StoreUnreachable, doing).because(why)
                }
                code => Error::new(code, doing).because(plain(&error)),
            },
            Fault::Silence(_) => Error::new(Code::StoreUnavailable, doing).because(self),
            Fault::Column(_) => Error::new(Code::Internal, doing).because(self),
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

/// The number of an error that the server sent.
pub(crate) fn number(error: &ServerError) -> Option<u16> {
    match error {
        ServerError::Server(said) => Some(said.code),
        _ => None,
    }
}

/// A shutdown, a statement or connection that was ended by somebody, a packet that did not come whole.
fn ends_the_connection(number: u16) -> bool {
    matches!(number, 1053 | 1152 | 1156..=1161 | 1184 | 1317 | 1927 | 4031)
}

/// The code for a statement that the server refused, and so did not do.
pub(crate) fn code_of(error: &ServerError) -> Code {
    match number(error) {
        None => Code::StoreUnavailable,
        // The disk, or a table that may not grow.
        Some(1021 | 1114) => Code::StorageFull,
        // Too many connections, no memory, a deadlock, a lock that was not given, a time limit, read-only.
        Some(
            1037 | 1038 | 1040 | 1041 | 1203 | 1205 | 1213 | 1020 | 1226 | 1290 | 1792 | 1836 | 1969 | 3024,
        ) => Code::StoreUnavailable,
        // No rights.
        Some(1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698) => Code::StoreUnreachable,
        // A table or column that is missing: the schema is another one.
        Some(1054 | 1146) => Code::SchemaOlder,
        // Our own: see the statement `still_ours`.
        Some(LATER_RELEASE) => Code::SchemaNewer,
        Some(1153) => Code::BodyTooLarge,
        Some(_) => Code::Internal,
    }
}

/// What the server said, without the driver's words before it.
pub(crate) fn plain(error: &ServerError) -> String {
    match error {
        ServerError::Server(said) if said.code == LATER_RELEASE => {
            "another process brought it to a migration that this release does not know".to_owned()
        }
        ServerError::Server(said) => said.message.clone(),
        ServerError::Io(mysql_async::IoError::Io(cause)) => cause.to_string(),
        other => other.to_string(),
    }
}

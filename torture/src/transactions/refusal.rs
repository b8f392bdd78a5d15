//! Why a statement or a commit failed: what three drivers and the pond say, as one word.

use millpond::ErrorKind;
use millpond::mysql::mysql_async;
use millpond::postgres::tokio_postgres;
use millpond::sqlite::rusqlite;

/// The answer of a step of a business transaction.
pub(crate) type Done<T> = Result<T, Refusal>;

/// What was said.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The SQLSTATE of Postgres, the error's number of MariaDB and SQLite; empty where it is the pond that refused.
    state: String,
    /// Another transaction was the cause, so that a program would repeat its own, and nothing was done.
    pub(crate) is_conflict: bool,
    text: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text, self.state)
    }
}

/// A deadlock, a conflict of serialisation, a wait that took too long, a busy writer.
const CONFLICTS: [&str; 8] = ["40P01", "40001", "55P03", "1213", "1205", "1020", "5", "517"];

/// Those after which the server has rolled back more than a statement, or refuses all that follows.
const ENDINGS: [&str; 4] = ["40P01", "40001", "55P03", "1213"];

impl Refusal {
    fn new(state: String, text: String) -> Self {
        let is_conflict = CONFLICTS.contains(&state.as_str());
        Self { state, is_conflict, text }
    }

    /// What went wrong without a word of the database.
    pub(crate) fn of(text: &str) -> Self {
        Self::new(String::new(), text.to_owned())
    }

    pub(crate) fn ended_the_transaction(&self) -> bool {
        ENDINGS.contains(&self.state.as_str())
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        let state = error.sqlite_error().map_or(String::new(), |code| code.extended_code.to_string());
        Self::new(state, error.to_string())
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        let state = error.code().map_or(String::new(), |state| state.code().to_owned());
        Self::new(state, format!("{error}: {:?}", std::error::Error::source(&error)))
    }
}

impl From<mysql_async::Error> for Refusal {
    fn from(error: mysql_async::Error) -> Self {
        let state = match &error {
            mysql_async::Error::Server(said) => said.code.to_string(),
            _ => String::new(),
        };
        Self::new(state, error.to_string())
    }
}

impl From<millpond::Error> for Refusal {
    fn from(error: millpond::Error) -> Self {
        let is_conflict = error.kind() == ErrorKind::Unavailable;
        Self { is_conflict, ..Self::new(String::new(), format!("{error}: {}", error.causes())) }
    }
}

#[cfg(test)]
mod tests {
    use millpond::{Code, Error};

    use super::*;

    #[test]
    fn a_conflict_is_told_from_a_refusal_and_from_what_nobody_knows() {
        let sqlite = |extended| {
            Refusal::from(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(extended), None))
        };
        let pond = |code| Refusal::from(Error::new(code, "commit"));
        let cases = [
            (sqlite(5), true),
            (sqlite(517), true),
            (sqlite(1555), false),
            (pond(Code::StoreUnavailable), true),
            (pond(Code::InvalidOption), false),
            (pond(Code::UnknownOutcome), false),
        ];
        for (refusal, expected) in cases {
            assert_eq!(refusal.is_conflict, expected, "{refusal}");
            assert!(!refusal.ended_the_transaction());
        }
    }
}

//! Why a statement or a commit failed: what three drivers and the pond say, as one word.

use millpond::mysql::mysql_async;
use millpond::postgres::tokio_postgres;
use millpond::sqlite::rusqlite;

/// The answer of a step of a business transaction.
pub(crate) type Done<T> = Result<T, Refusal>;

/// What was said.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The SQLSTATE of Postgres, the error's number of MariaDB and SQLite; empty where it is the pond that refused.
    pub(crate) state: String,
    text: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text, self.state)
    }
}

impl Refusal {
    /// What went wrong without a word of the database.
    pub(crate) fn of(text: &str) -> Self {
        Self { state: String::new(), text: text.to_owned() }
    }

    /// Whether another transaction was the cause, so that a program would repeat its own: a deadlock, a conflict of
    /// serialisation, a wait that took too long, a busy writer.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.state.as_str(), "40P01" | "40001" | "1213" | "1205" | "1020" | "5" | "517")
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        let state = error.sqlite_error().map_or(String::new(), |code| code.extended_code.to_string());
        Self { state, text: error.to_string() }
    }
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(error: tokio_postgres::Error) -> Self {
        let state = error.code().map_or(String::new(), |state| state.code().to_owned());
        Self { state, text: format!("{error}: {:?}", std::error::Error::source(&error)) }
    }
}

impl From<mysql_async::Error> for Refusal {
    fn from(error: mysql_async::Error) -> Self {
        let state = match &error {
            mysql_async::Error::Server(said) => said.code.to_string(),
            _ => String::new(),
        };
        Self { state, text: error.to_string() }
    }
}

impl From<millpond::Error> for Refusal {
    fn from(error: millpond::Error) -> Self {
        Self { state: state_within(&error), text: format!("{error}: {}", error.causes()) }
    }
}

/// What the database said, if it is among the causes.
fn state_within(error: &millpond::Error) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(because) = cause {
        if let Some(said) = because.downcast_ref::<tokio_postgres::Error>() {
            return said.code().map_or(String::new(), |state| state.code().to_owned());
        }
        if let Some(mysql_async::Error::Server(said)) = because.downcast_ref() {
            return said.code.to_string();
        }
        if let Some(said) = because.downcast_ref::<rusqlite::Error>() {
            return said.sqlite_error().map_or(String::new(), |code| code.extended_code.to_string());
        }
        cause = because.source();
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use millpond::{Code, Error};

    use super::*;

    fn sqlite(extended: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(extended), None)
    }

    #[test]
    fn a_conflict_is_told_from_a_refusal_also_behind_an_error_of_the_pond() {
        let cases = [(sqlite(5), true), (sqlite(517), true), (sqlite(1555), false)];
        for (error, expected) in cases {
            let text = error.to_string();
            assert_eq!(Refusal::from(error).is_conflict(), expected, "{text}");
        }
        let behind = Error::new(Code::StoreUnavailable, "commit").because(sqlite(5));
        assert!(Refusal::from(behind).is_conflict());
        assert!(!Refusal::from(Error::new(Code::InvalidOption, "commit")).is_conflict());
    }
}

//! How a command ends: its exit code, and an error in three lines at most.

use std::error::Error as _;
use std::fmt;
use std::io::{self, ErrorKind as IoKind, Write};
use std::process::ExitCode;

use millpond::{Code, Error, ErrorKind};
use serde::Serialize;

use crate::codes;
use crate::output::clean;

/// How a command ended.
pub(crate) type Done = Result<ExitCode, Failure>;

/// Why a command did not do what was asked, as its exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It failed.
    Failed = 1,
    /// Usage or configuration is wrong.
    Usage = 2,
    /// The store cannot be reached.
    Unreachable = 3,
    /// Refused for safety.
    Refused = 4,
    /// There is no such thing.
    NotFound = 5,
    /// Something changed meanwhile.
    Conflict = 6,
    /// A bulk command did a part.
    Partly = 8,
    /// By a signal.
    Interrupted = 130,
}

impl Exit {
    /// The code of the process.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// An error as a person reads it: what was tried, why it failed, what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    code: &'static str,
    tried: String,
    why: Vec<String>,
    advice: String,
    /// Whether it is several errors: what was tried is the first of them, and each reason another.
    in_parts: bool,
    /// Nobody reads our output any more: that is no error, and there is nobody to tell.
    quiet: bool,
}

/// RFC 9457, as the HTTP API answers it.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: String,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    detail: String,
    code: &'a str,
    /// `yes`, `no`, or `same-key`: it may have been done, so again with the same key.
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<&'static str>,
    /// Each of several errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    message: &'a str,
}

impl Failure {
    /// An error with its code of the closed list. `tried` is a sentence without its full stop.
    pub(crate) fn new(exit: Exit, code: &'static str, tried: impl Into<String>) -> Self {
        let (tried, why, advice) = (tried.into(), Vec::new(), String::new());
        Self { exit, code, tried, why, advice, in_parts: false, quiet: false }
    }

    /// Wrong usage.
    pub(crate) fn usage(tried: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "invalid-parameter", tried)
    }

    /// The same error with a reason.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        self.why.push(why.into());
        self
    }

    /// The same error with what to do.
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// The same error, if its reasons are errors of their own.
    pub(crate) fn in_parts(self) -> Self {
        Self { in_parts: true, ..self }
    }

    /// The same error without the secrets of its texts.
    pub(crate) fn redacted(mut self) -> Self {
        let redacted = |text: &str| millpond::redact(text, &[]);
        self.tried = redacted(&self.tried);
        self.why = self.why.iter().map(|why| redacted(why)).collect();
        self
    }

    /// The code of the closed list.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// Says it on stderr, and answers the exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        let text = if json { self.problem() } else { self.to_string() };
        // If stderr is gone too, the exit code is all that is left.
        let _ = writeln!(io::stderr().lock(), "{text}");
        self.exit.code()
    }

    fn problem(&self) -> String {
        let facts = codes::find(self.code);
        let mut detail = self.why.clone();
        detail.extend((!self.advice.is_empty()).then(|| self.advice.clone()));
        let parts = std::iter::once(&self.tried).chain(&self.why).filter(|_| self.in_parts);
        let problem = Problem {
            r#type: format!("/problems/{}", self.code),
            title: &self.tried,
            status: facts.and_then(|facts| facts.status),
            detail: detail.join("; "),
            code: self.code,
            retryable: facts.map(|facts| facts.retry.as_str()),
            errors: parts.map(|message| Part { message }).collect(),
        };
        serde_json::to_string(&problem).unwrap_or_else(|_| self.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {} ({})", clean(&self.tried), self.code)?;
        for why in &self.why {
            write!(f, "\n  why: {}", clean(why))?;
        }
        match self.advice.as_str() {
            "" => Ok(()),
            advice => write!(f, "\n  do:  {}", clean(advice)),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = exit_of(error.code());
        let failure = Self::new(exit, error.code().as_str(), format!("cannot {}", error.doing()));
        let failure = match error.source() {
            Some(_) => failure.why(error.causes()),
            None => failure,
        };
        failure.advice(error.advice())
    }
}

impl From<io::Error> for Failure {
    /// An error of our own stdout; files have sentences of their own.
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == IoKind::BrokenPipe;
        let failure = Self::new(Exit::Failed, "internal", "cannot write the output").why(error.to_string());
        Self { quiet, ..failure }
    }
}

/// The exit code of an error of the library.
pub(crate) fn exit_of(code: Code) -> Exit {
    match (code, code.kind()) {
        (Code::StoreUnreachable | Code::StoreUnavailable, _) => Exit::Unreachable,
        (_, ErrorKind::Invalid) => Exit::Usage,
        (_, ErrorKind::NotFound) => Exit::NotFound,
        (_, ErrorKind::LeaseLost | ErrorKind::Conflict) => Exit::Conflict,
        (_, ErrorKind::Unsupported) => Exit::Refused,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_three_lines_what_why_and_what_to_do() {
        let error = Error::new(Code::BodyTooLarge, "send to queue `mail`").because("20 bytes,\nlimit 10");
        let text = Failure::from(error).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "error: cannot send to queue `mail` (body-too-large)");
        assert_eq!(lines[1], "  why: 20 bytes,\\nlimit 10");
    }

    #[test]
    fn a_problem_has_the_status_of_its_code() {
        let failure = Failure::from(Error::new(Code::UnknownQueue, "look up queue `mail`"));
        let problem: serde_json::Value = serde_json::from_str(&failure.problem()).unwrap();
        assert_eq!((&problem["status"], &problem["code"]), (&404.into(), &"unknown-queue".into()));
        assert_eq!(
            (&problem["type"], &problem["retryable"]),
            (&"/problems/unknown-queue".into(), &"no".into())
        );
    }

    #[test]
    fn every_kind_of_error_has_its_exit_code() {
        for (code, exit) in [
            (Code::BodyTooLarge, Exit::Usage),
            (Code::InvalidConfig, Exit::Usage),
            (Code::StoreUnreachable, Exit::Unreachable),
            (Code::StoreUnavailable, Exit::Unreachable),
            (Code::SchemaNewer, Exit::Refused),
            (Code::UnsupportedStore, Exit::Refused),
            (Code::UnknownQueue, Exit::NotFound),
            (Code::CountChanged, Exit::Conflict),
            (Code::Internal, Exit::Failed),
            (Code::StorageFull, Exit::Failed),
        ] {
            assert_eq!(exit_of(code), exit, "{code:?}");
        }
    }
}

//! The body of a single message: from the command line, a file or stdin, with its content type.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use millpond::Raw;
use serde::de::IgnoredAny;

use crate::exit::{Exit, Failure};

/// Where a body comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The command line.
    Text(String),
    /// A file.
    File(PathBuf),
    /// Stdin.
    Stdin,
}

impl Source {
    /// `-` is stdin, for a body as for a file.
    pub(super) fn of(body: Option<String>, file: Option<PathBuf>) -> Option<Self> {
        match (body, file) {
            (Some(text), _) if text == "-" => Some(Self::Stdin),
            (Some(text), _) => Some(Self::Text(text)),
            (None, Some(path)) if path == Path::new("-") => Some(Self::Stdin),
            (None, Some(path)) => Some(Self::File(path)),
            (None, None) => None,
        }
    }

    /// The whole body. One that is longer than `limit` is not read to its end.
    pub(super) fn read(self, queue: &str, limit: u64) -> Result<Vec<u8>, Failure> {
        let (mut body, name, is_stdin) = (Vec::new(), self.name(), self == Self::Stdin);
        let reader: Box<dyn Read> = match self {
            Self::Text(text) => return Ok(text.into_bytes()),
            Self::File(path) => Box::new(open(&path)?),
            Self::Stdin => Box::new(io::stdin().lock()),
        };
        reader
            .take(limit.saturating_add(1))
            .read_to_end(&mut body)
            .map_err(|error| unreadable(&name, &error))?;
        if limit < body.len() as u64 {
            let why = format!("{name} has more than {limit} bytes, the limit of queue `{queue}`");
            let failure =
                Failure::new(Exit::Usage, "body-too-large", format!("cannot send to queue `{queue}`"));
            return Err(failure.why(why).advice(millpond::Code::BodyTooLarge.advice()));
        }
        if is_stdin && body.is_empty() {
            let tried = format!("there is no body for queue `{queue}`: stdin is empty");
            return Err(
                Failure::usage(tried).advice("check what should write it; an empty body is sent with ''")
            );
        }
        Ok(body)
    }

    /// As it is named in errors.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Text(_) => "the body".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "stdin".to_owned(),
        }
    }
}

/// A file that can be read.
pub(super) fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| unreadable(&path.display().to_string(), &error))
}

/// An input that cannot be read.
pub(super) fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {name}"))
        .why(error.to_string())
        .advice("check the path, and the rights on it")
}

/// Why a body is not JSON, if it is not.
pub(super) fn not_json(bytes: &[u8]) -> Option<serde_json::Error> {
    serde_json::from_slice::<IgnoredAny>(bytes).err()
}

/// A body with the content type that was named, or the one that it has by its looks.
pub(super) fn typed(bytes: Vec<u8>, content_type: Option<String>) -> Raw {
    match content_type {
        Some(named) => Raw::new(named, bytes),
        None if not_json(&bytes).is_none() => Raw::json(bytes),
        None if std::str::from_utf8(&bytes).is_ok() => Raw::new("text/plain; charset=utf-8", bytes),
        None => Raw::bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_the_type_that_it_looks_like() {
        let looks = |bytes: &[u8]| typed(bytes.to_vec(), None).content_type;
        assert_eq!(looks(b"{\"a\":1}"), None, "none is JSON");
        assert_eq!(looks(b"hello").as_deref(), Some("text/plain; charset=utf-8"));
        assert_eq!(looks(b"\xff").as_deref(), Some("application/octet-stream"));
        assert_eq!(typed(b"1".to_vec(), Some("text/csv".into())).content_type.as_deref(), Some("text/csv"));
    }
}

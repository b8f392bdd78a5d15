//! Every code that the program answers: those of the library, and the few that only a command line knows. Closed.
//!
//! Each has a page in `docs/errors/`; see [`crate::explain`].

use millpond::{Code, ErrorKind};

use crate::exit::{Exit, exit_of};

/// Whether the same thing may be done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Nothing was done: again, later.
    Yes,
    /// The same thing fails again, or would be done twice: look first.
    No,
    /// It may have been done: again with the same id or dedup key, which makes it one.
    SameKey,
}

impl Retry {
    /// As it is printed and sent.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Retry::Yes => "yes",
            Retry::No => "no",
            Retry::SameKey => "same-key",
        }
    }
}

/// What is known of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The code as it is printed.
    pub(crate) code: &'static str,
    /// How a command ends, if nothing else is said in its help.
    pub(crate) exit: Exit,
    /// The status that HTTP gives it; what can only happen at a start has none.
    pub(crate) status: Option<u16>,
    /// Whether the same thing may be done again.
    pub(crate) retry: Retry,
}

/// The codes that are none of the library's.
pub(crate) const OWN: &[Facts] = &[
    own("invalid-parameter", Exit::Usage, Some(400)),
    own("invalid-filter", Exit::Usage, Some(400)),
    own("not-found", Exit::NotFound, Some(404)),
    own("not-drained", Exit::Failed, None),
    own("already-retried", Exit::Conflict, Some(409)),
    own("wrong-state", Exit::Conflict, Some(409)),
    own("unknown-time-zone", Exit::Usage, Some(400)),
    own("interrupted", Exit::Interrupted, None),
];

const fn own(code: &'static str, exit: Exit, status: Option<u16>) -> Facts {
    Facts { code, exit, status, retry: Retry::No }
}

/// Every code, the library's first.
pub(crate) fn all() -> impl Iterator<Item = Facts> {
    Code::ALL.iter().copied().map(of).chain(OWN.iter().copied())
}

/// What is known of the code printed as `text`.
pub(crate) fn find(text: &str) -> Option<Facts> {
    all().find(|facts| facts.code == text)
}

fn of(code: Code) -> Facts {
    Facts { code: code.as_str(), exit: exit_of(code), status: status(code.as_str()), retry: retry(code) }
}

fn retry(code: Code) -> Retry {
    match (code, code.kind()) {
        // What was done before it is not known.
        (Code::Internal, _) => Retry::No,
        (_, ErrorKind::Unavailable) => Retry::Yes,
        (_, ErrorKind::Unknown) => Retry::SameKey,
        _ => Retry::No,
    }
}

fn status(code: &str) -> Option<u16> {
    Some(match code {
        "unknown-queue" | "message-not-found" => 404,
        "lease-lost" | "dedup-conflict" | "already-settled" | "count-changed" | "queue-conflict" => 409,
        "body-too-large" | "batch-too-large" => 413,
        "handler-missing" => 422,
        "internal" => 500,
        "store-unavailable" | "shutting-down" => 503,
        "unknown-outcome" => 504,
        "storage-full" => 507,
        "invalid-config" | "store-unreachable" | "unsupported-store" | "schema-newer" | "schema-older" => {
            return None;
        }
        _ => 400,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn codes_are_unique() {
        let codes: Vec<_> = all().map(|facts| facts.code).collect();
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len(), "{codes:?}");
    }

    #[test]
    fn a_retry_is_what_its_kind_says() {
        let retry = |code| find(code).map(|facts| facts.retry);
        assert_eq!(retry("store-unavailable"), Some(Retry::Yes));
        assert_eq!(retry("unknown-outcome"), Some(Retry::SameKey));
        assert_eq!(retry("lease-lost"), Some(Retry::No));
        assert_eq!(retry("interrupted"), Some(Retry::No));
        assert_eq!(retry("internal"), Some(Retry::No));
        assert_eq!(retry("nothing"), None);
    }

    /// The first literal of the arguments that follow each `Failure::new(`, with its place.
    fn named_in(path: &Path, text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (place, _) in text.match_indices("Failure::new(") {
            let arguments = &text[place + "Failure::new(".len()..];
            let second = arguments.split_once(',').map_or("", |(_, rest)| rest).trim_start();
            if let Some(code) = second.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                let line = 1 + text[..place].matches('\n').count();
                found.push((format!("{}:{line}", path.display()), code.to_owned()));
            }
        }
        found
    }

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| match path.is_dir() {
                true => sources(&path),
                false => vec![path],
            })
            .collect()
    }

    #[test]
    fn every_code_that_the_program_names_is_on_the_list() {
        let mut named = Vec::new();
        for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            named.extend(named_in(&path, &std::fs::read_to_string(&path).unwrap()));
        }
        assert!(5 < named.len(), "only {named:?} were seen: the guard looks at nothing");
        for (place, code) in named {
            assert!(find(&code).is_some(), "{place}: `{code}` is not on the list of {}", file!());
        }
    }

    #[test]
    fn a_code_that_is_named_is_seen() {
        let text = "x(Failure::new(Exit::Usage, \"invalid-paramter\", tried));\n\
                    Failure::new(\n    Exit::Failed,\n    \"internal\",\n    tried)\n\
                    Failure::new(exit, code, \"tried\")";
        let named = named_in(Path::new("a.rs"), text);
        let named: Vec<_> = named.iter().map(|(place, code)| (place.as_str(), code.as_str())).collect();
        assert_eq!(named, [("a.rs:1", "invalid-paramter"), ("a.rs:2", "internal")]);
    }
}

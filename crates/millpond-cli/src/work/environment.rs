//! What a program is told about its message: variables with our prefix, whose names and values cannot be taken for
//! others, and that cannot keep the program from starting.

use std::ffi::OsStr;

use millpond::{Job, Raw};

use crate::instant::rfc3339;

/// Everything that is told, together: names, values, and what the system adds to each. The system's own limit, for
/// the inherited environment and the arguments too, is 128 KiB at least.
const TOLD_BYTES_MAX: usize = 64 * 1024;

/// `=`, the end and a pointer.
const OVERHEAD: usize = 10;

const PREFIX: &str = "MILLPOND_";
const HEADER: &str = "MILLPOND_HEADER_";

/// Each is set or absent; a worker below another one must not pass on what was told to that.
const TOLD: &[&str] = &[
    "ID",
    "QUEUE",
    "KIND",
    "KEY",
    "ATTEMPT",
    "ATTEMPTS_MAX",
    "DELIVERY",
    "SENT_AT",
    "CONTENT_TYPE",
    "TRACEPARENT",
    "RUN",
];

/// Whether a variable of our own environment was told to us about a message, and is not true of another.
pub(super) fn is_told(name: &OsStr) -> bool {
    let Some(rest) = name.as_encoded_bytes().strip_prefix(PREFIX.as_bytes()) else { return false };
    rest.starts_with(b"HEADER_") || TOLD.iter().any(|told| told.as_bytes() == rest)
}

/// The variables of a message; `attempts_max` is the queue's.
pub(super) fn of(job: &Job<Raw>, attempts_max: u32) -> Result<Vec<(String, String)>, String> {
    let attempts_max = job.attempts_max.unwrap_or(attempts_max);
    let content_type = job.body.content_type.as_deref().unwrap_or("application/json");
    let mut told = Told::default();
    told.own("ID", job.id.to_string())?;
    told.own("QUEUE", job.queue.to_string())?;
    told.own("KIND", job.kind.to_string())?;
    told.own("ATTEMPT", job.attempt.to_string())?;
    told.own("ATTEMPTS_MAX", attempts_max.to_string())?;
    told.own("DELIVERY", job.delivery().to_string())?;
    told.own("SENT_AT", rfc3339(job.sent_at))?;
    told.own("CONTENT_TYPE", content_type.to_owned())?;
    if let Some(key) = &job.key {
        told.own("KEY", key.clone())?;
    }
    if let Some(parent) = job.headers().get("traceparent") {
        told.own("TRACEPARENT", parent.clone())?;
    }
    for (name, value) in job.headers() {
        told.header(name, value)?;
    }
    Ok(told.variables)
}

#[derive(Default)]
struct Told {
    variables: Vec<(String, String)>,
    bytes: usize,
}

impl Told {
    fn own(&mut self, name: &str, value: String) -> Result<(), String> {
        self.add(format!("{PREFIX}{name}"), value)
    }

    /// Headers that came through the library are known to be well-formed; a row that was written by hand is not.
    fn header(&mut self, name: &str, value: &str) -> Result<(), String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.is_empty() || !name.chars().all(fits) {
            let shown: String = name.chars().take(64).collect();
            return Err(format!("header `{}` cannot be the name of a variable", shown.escape_debug()));
        }
        let name = format!("{HEADER}{}", name.to_ascii_uppercase().replace('-', "_"));
        if self.variables.iter().any(|(other, _)| *other == name) {
            return Err(format!("two headers would be `{name}`"));
        }
        self.add(name, value.to_owned())
    }

    fn add(&mut self, name: String, value: String) -> Result<(), String> {
        if value.contains('\0') {
            return Err(format!("`{name}` has a NUL, which no variable can hold"));
        }
        self.bytes += name.len() + value.len() + OVERHEAD;
        if TOLD_BYTES_MAX < self.bytes {
            return Err(format!("what is said of it has more than {TOLD_BYTES_MAX} bytes"));
        }
        self.variables.push((name, value));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use millpond::Headers;

    use super::*;

    fn told(headers: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let headers: Headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        of(&Job::for_test(Raw::new("text/plain", "x")).with_headers(headers), 5)
    }

    #[track_caller]
    fn refused(headers: &[(&str, &str)], expected: &str) {
        assert_eq!(told(headers).unwrap_err(), expected);
    }

    #[test]
    fn a_header_is_only_ever_a_variable_of_ours() {
        let variables =
            told(&[("ld-preload", "/tmp/x.so"), ("id", "other"), ("path", "a=b\nLD_PRELOAD=c")]).unwrap();
        assert!(variables.iter().all(|(name, _)| name.starts_with(PREFIX) && !name.contains('=')));
        let value = |wanted: &str| {
            let mut found = variables.iter().filter(|(name, _)| name == wanted);
            let value = found.next().map(|(_, value)| value.as_str());
            assert!(found.next().is_none(), "{wanted} is told twice");
            value
        };
        assert_eq!(value("MILLPOND_HEADER_LD_PRELOAD"), Some("/tmp/x.so"));
        assert_eq!(value("MILLPOND_HEADER_PATH"), Some("a=b\nLD_PRELOAD=c"), "a value is a value");
        assert_eq!(value("MILLPOND_ID"), Some("00000000-0000-0000-0000-000000000000"));
        assert_eq!(value("MILLPOND_CONTENT_TYPE"), Some("text/plain"));
        assert_eq!((value("MILLPOND_ATTEMPTS_MAX"), value("MILLPOND_DELIVERY")), (Some("5"), Some("1")));
    }

    #[test]
    fn what_no_variable_can_hold_is_said() {
        refused(&[("x=1\n", "y")], "header `x=1\\n` cannot be the name of a variable");
        refused(&[("", "y")], "header `` cannot be the name of a variable");
        refused(&[("x", "a\0b")], "`MILLPOND_HEADER_X` has a NUL, which no variable can hold");
        refused(&[("a-b", "1"), ("a_b", "2")], "two headers would be `MILLPOND_HEADER_A_B`");
        refused(&[("x", &"y".repeat(70_000))], "what is said of it has more than 65536 bytes");
    }

    #[test]
    fn what_an_outer_worker_told_is_known() {
        let told = ["MILLPOND_ID", "MILLPOND_HEADER_X", "MILLPOND_RUN", "MILLPOND_SENT_AT"];
        assert!(told.iter().all(|name| is_told(OsStr::new(name))));
        let others = ["MILLPOND_STORE", "MILLPOND_WORKER__SNOOZE", "MILLPOND_LOG", "ID", "MILLPOND_"];
        assert!(!others.iter().any(|name| is_told(OsStr::new(name))));
    }
}

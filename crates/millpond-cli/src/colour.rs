//! Whether there is colour: decided here and nowhere else.
//!
//! A stream has colour if it is a terminal, `NO_COLOR` is unset or empty, and `TERM` is not `dumb`.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};

/// A stream of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// For data.
    Stdout,
    /// For everything else.
    Stderr,
}

/// Whether `stream` may have colour.
pub(crate) fn allowed(stream: Stream) -> bool {
    let is_terminal = match stream {
        Stream::Stdout => io::stdout().is_terminal(),
        Stream::Stderr => io::stderr().is_terminal(),
    };
    decide(is_terminal, env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref())
}

/// The same for what clap prints: help goes to stdout, and our own errors have none.
pub(crate) fn of_help() -> clap::ColorChoice {
    if allowed(Stream::Stdout) { clap::ColorChoice::Always } else { clap::ColorChoice::Never }
}

/// `text` in bold where there is colour.
pub(crate) fn bold(text: &str, stream: Stream) -> String {
    if allowed(stream) { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn decide(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term != Some(OsStr::new("dumb"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_terminal: bool, no_color: Option<&str>, term: Option<&str>, expected: bool) {
        assert_eq!(decide(is_terminal, no_color.map(OsStr::new), term.map(OsStr::new)), expected);
    }

    #[test]
    fn a_terminal_has_colour_unless_somebody_says_no() {
        check(true, None, None, true);
        check(true, None, Some("xterm-256color"), true);
        check(true, Some(""), Some("xterm"), true);
        check(true, Some("1"), Some("xterm"), false);
        check(true, Some("0"), None, false);
        check(true, None, Some("dumb"), false);
        check(false, None, Some("xterm"), false);
    }
}

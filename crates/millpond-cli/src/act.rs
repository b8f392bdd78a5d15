//! Who changes something: what the audit is told.

use millpond::Act;

/// Characters of a reason.
const REASON_CHARS_MAX: usize = 2_000;

/// Why something is changed.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Reason {
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", value_parser = reason, alias = "because")]
    pub(crate) reason: Option<String>,
}

/// The same where `--reason` is that of dead letters.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Because {
    /// Why, for the audit; `--reason` is a part of the filter here
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) because: Option<String>,
}

fn reason(text: &str) -> Result<String, String> {
    match text.chars().count() {
        0 => Err("it is empty; say why, or leave it out".to_owned()),
        count if REASON_CHARS_MAX < count => {
            Err(format!("it has {count} characters, at most {REASON_CHARS_MAX}"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// A line of the audit: `verb` as it is typed, and what it is done to.
pub(crate) fn act(verb: &str, object: impl Into<String>, reason: Option<String>) -> Act {
    Act { actor: actor(), verb: verb.to_owned(), object: object.into(), reason }
}

/// The user and the host as the system names them; `local` where it names none. No proof of anything: whoever can
/// write the store could write this too.
fn actor() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match (user.filter(|user| !user.is_empty()), host.trim()) {
        (Some(user), "") => user,
        (Some(user), host) => format!("{user}@{host}"),
        (None, _) => "local".to_owned(),
    }
}

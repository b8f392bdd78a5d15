//! The configuration: flag > environment > `millpond.toml` > default, each value with its origin.
//!
//! What is wrong is said all at once: unknown keys with their file, line and the nearest known key, and values
//! that cannot work.

mod file;
mod key;
mod show;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millpond::text::{nearest, parse_duration};

use crate::exit::{Exit, Failure};
use key::{KEYS, Key};
pub(crate) use show::run;

/// Where a file is looked for when none is named.
const PLACES: [&str; 2] = ["./millpond.toml", "/etc/millpond/millpond.toml"];

const PREFIX: &str = "MILLPOND_";

/// What a process was started with.
pub(crate) struct Given {
    /// `--store`.
    pub(crate) store: Option<String>,
    /// `--config`.
    pub(crate) file: Option<PathBuf>,
    /// The environment.
    pub(crate) environment: BTreeMap<String, String>,
}

impl Given {
    /// These flags, and the environment of the process.
    pub(crate) fn with(store: Option<String>, file: Option<PathBuf>) -> Self {
        // A variable that is no text is none of ours.
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Self { store, file, environment: std::env::vars_os().filter_map(text).collect() }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag.
    Flag(&'static str),
    /// A variable of the environment.
    Environment(String),
    /// A line of a file.
    File(PathBuf, usize),
    /// Nobody said anything.
    Default,
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    text: String,
    origin: Origin,
}

/// Every value, checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    values: BTreeMap<&'static str, Value>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => write!(f, "flag {flag}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl Config {
    /// Reads and checks everything that was given.
    pub(crate) fn read(given: Given) -> Result<Self, Failure> {
        let mut wrong = Vec::new();
        let mut values = BTreeMap::new();
        for key in KEYS {
            let value = Value { text: key.default.to_owned(), origin: Origin::Default };
            values.insert(key.name, value);
        }
        if let Some(path) = find_file(given.file.as_deref())? {
            values.extend(file::read(&path, &mut wrong)?);
        }
        values.extend(from_environment(&given.environment, &mut wrong));
        if let Some(text) = given.store {
            values.insert("store", Value { text, origin: Origin::Flag("--store") });
        }
        for key in KEYS {
            wrong.extend(values.get(key.name).and_then(|value| refused(key, value)));
        }
        if wrong.is_empty() { Ok(Self { values }) } else { Err(all_wrong(wrong)) }
    }

    /// The URL of the store.
    pub(crate) fn store(&self) -> &str {
        self.text("store")
    }

    /// A number.
    pub(crate) fn count(&self, key: &str) -> Option<usize> {
        self.text(key).parse().ok()
    }

    /// A duration; `None` where nobody named one.
    pub(crate) fn duration(&self, key: &str) -> Option<Duration> {
        parse_duration(self.text(key)).ok()
    }

    fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", |value| &value.text)
    }
}

fn find_file(named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    match named {
        Some(path) if path.exists() => Ok(Some(path.to_owned())),
        Some(path) => {
            let tried = format!("there is no configuration file {}", path.display());
            Err(Failure::new(Exit::Usage, "invalid-config", tried).advice("correct the path after --config"))
        }
        None => Ok(PLACES.iter().map(PathBuf::from).find(|path| path.exists())),
    }
}

fn from_environment(
    environment: &BTreeMap<String, String>,
    wrong: &mut Vec<String>,
) -> Vec<(&'static str, Value)> {
    let mut found = Vec::new();
    for key in KEYS {
        let own = format!("{PREFIX}{}", key.name.to_uppercase().replace('.', "__"));
        let others: &[&str] = if key.name == "store" { &["DATABASE_URL"] } else { &[] };
        let from_file = format!("{own}_FILE");
        for name in [own.as_str(), &from_file].into_iter().chain(others.iter().copied()) {
            let Some(text) = environment.get(name).filter(|text| !text.is_empty()) else { continue };
            let text = match name == from_file {
                false => Ok(text.clone()),
                true => std::fs::read_to_string(text).map(|text| text.trim_end().to_owned()),
            };
            match text {
                Ok(text) => {
                    found.push((key.name, Value { text, origin: Origin::Environment(name.to_owned()) }))
                }
                Err(error) => wrong.push(format!("environment {name}: cannot read the file: {error}")),
            }
            break;
        }
    }
    wrong.extend(environment.keys().filter_map(|name| unknown_variable(name)));
    found
}

/// Only what has a level is surely meant for us: other names are those that a handler is given.
fn unknown_variable(name: &str) -> Option<String> {
    let rest =
        name.strip_prefix(PREFIX).filter(|rest| rest.contains("__") && !rest.starts_with("HEADER_"))?;
    let path = rest.strip_suffix("_FILE").unwrap_or(rest).to_lowercase().replace("__", ".");
    unknown(&path).map(|text| format!("environment {name}: {text}"))
}

/// Says that there is no such key, if there is none.
fn unknown(path: &str) -> Option<String> {
    let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    if names.contains(&path) {
        return None;
    }
    let hint = nearest(path, &names).map_or_else(
        || format!("; known are {}", names.join(", ")),
        |near| format!("; did you mean `{near}`?"),
    );
    Some(format!("unknown key `{path}`{hint}"))
}

fn refused(key: &Key, value: &Value) -> Option<String> {
    let why = (key.check)(&value.text).err()?;
    Some(format!("{}: {}: {why}", value.origin, key.name))
}

/// Everything that is wrong: the first thing in the first line, where it is seen.
fn all_wrong(wrong: Vec<String>) -> Failure {
    let advice = "correct it; `millpond config` shows every value and where it comes from";
    let mut wrong = wrong.into_iter();
    let first = wrong.next().unwrap_or_default();
    let failure = Failure::new(Exit::Usage, "invalid-config", first).advice(advice);
    wrong.fold(failure, |failure, other| failure.why(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(file: &str, environment: &[(&str, &str)]) -> (tempfile::TempDir, Given) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("millpond.toml");
        std::fs::write(&path, file).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        (dir, Given { store: None, file: Some(path), environment })
    }

    #[track_caller]
    fn refused(file: &str, environment: &[(&str, &str)], expected: &[&str]) {
        let (dir, given) = given(file, environment);
        let text = Config::read(given).unwrap_err().to_string();
        let path = dir.path().join("millpond.toml").display().to_string();
        let text = text.replace(&path, "millpond.toml");
        for line in expected {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
        let file = "store = \"sqlite://file.db\"\n[worker]\nconcurrency = 3\nlease = \"10s\"\n";
        let (_dir, mut all) =
            given(file, &[("MILLPOND_STORE", "sqlite://env.db"), ("MILLPOND_WORKER__LEASE", "20s")]);
        all.store = Some("sqlite://flag.db".into());
        let config = Config::read(all).unwrap();
        assert_eq!(config.store(), "sqlite://flag.db");
        assert_eq!(config.duration("worker.lease"), Some(Duration::from_secs(20)));
        assert_eq!(config.count("worker.concurrency"), Some(3));
        assert_eq!(config.duration("worker.cancel_grace"), Some(Duration::from_secs(5)));
    }

    #[test]
    fn our_variable_wins_over_the_common_one() {
        let (_dir, both) = given("", &[("MILLPOND_STORE", "sqlite://ours.db"), ("DATABASE_URL", "x://y")]);
        assert_eq!(Config::read(both).unwrap().store(), "sqlite://ours.db");
        let (_dir, one) = given("", &[("DATABASE_URL", "sqlite://common.db")]);
        assert_eq!(Config::read(one).unwrap().store(), "sqlite://common.db");
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        refused(
            "\n[worker]\nconcurency = 3\nlease = \"1s\"\n\n[serve]\n",
            &[("MILLPOND_WORKER__SNOZE", "1s")],
            &[
                "millpond.toml:3: unknown key `worker.concurency`; did you mean `worker.concurrency`?",
                "millpond.toml:4: worker.lease: it is at least 2s",
                "millpond.toml:6: unknown key `serve`; known are store,",
                "environment MILLPOND_WORKER__SNOZE: unknown key `worker.snoze`; did you mean `worker.snooze`?",
            ],
        );
    }

    #[test]
    fn a_value_without_unit_or_of_another_kind_is_refused_with_its_line() {
        refused("worker.lease = \"30\"\n", &[], &["millpond.toml:1: worker.lease: `30` needs a unit"]);
        refused("worker.lease = 30\n", &[], &["millpond.toml:1: worker.lease: `30` needs a unit"]);
        refused("worker = 3\n", &[], &["millpond.toml:1: unknown key `worker`"]);
        refused("store = [\"a\"]\n", &[], &["millpond.toml:1: store: it is a text, not a list"]);
        refused("a = \n", &[], &["millpond.toml:1: "]);
    }

    #[test]
    fn what_a_handler_is_given_is_no_setting() {
        let (_dir, given) = given("", &[("MILLPOND_ID", "x"), ("MILLPOND_HEADER_A__B", "y")]);
        Config::read(given).unwrap();
    }
}

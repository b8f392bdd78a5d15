//! The configuration: flag > environment > `millpond.toml` > default, each value with its origin.
//!
//! What is wrong is said all at once: unknown keys with their file, line and the nearest known key, and values
//! that cannot work.

mod check;
mod file;
mod key;
mod schema;
mod show;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millpond::text::{nearest, parse_duration};

use crate::exit::{Exit, Failure};
pub(crate) use check::{Args as CheckArgs, run as check};
use key::{KEYS, Key};
pub(crate) use show::{Args, run};

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
    /// What was said of each key, the weakest first. The first one is the default.
    values: BTreeMap<&'static str, Vec<Value>>,
    /// The file that was read.
    file: Option<PathBuf>,
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
        Self::read_with(given, |_| Vec::new())
    }

    /// The same, with what else `check` finds wrong.
    fn read_with(given: Given, check: impl FnOnce(&Self) -> Vec<String>) -> Result<Self, Failure> {
        let mut wrong = Vec::new();
        let default = |key: &Key| Value { text: key.default.to_owned(), origin: Origin::Default };
        let mut values: BTreeMap<_, _> = KEYS.iter().map(|key| (key.name, vec![default(key)])).collect();
        let mut say = |said: Vec<(&'static str, Value)>| {
            said.into_iter().for_each(|(key, value)| values.entry(key).or_default().push(value));
        };
        let file = find_file(given.file.as_deref())?;
        if let Some(path) = &file {
            say(file::read(path, &mut wrong)?);
        }
        say(from_environment(&given.environment, &mut wrong));
        if let Some(text) = given.store {
            say(vec![("store", Value { text, origin: Origin::Flag("--store") })]);
        }
        let config = Self { values, file };
        for key in KEYS {
            wrong.extend(config.said(key.name).last().and_then(|value| refused(key, value)));
        }
        wrong.extend(check(&config));
        if wrong.is_empty() { Ok(config) } else { Err(all_wrong(wrong)) }
    }

    /// The URL of the store.
    pub(crate) fn store(&self) -> &str {
        self.text("store")
    }

    /// The flags by which another command meets the same store: none where it would anyway.
    pub(crate) fn same_store(&self) -> String {
        match self.said("store").last().map(|value| (&value.origin, &value.text)) {
            Some((Origin::Flag(flag), url)) => format!(" {flag} {}", quoted(url)),
            Some((Origin::File(path, _), _)) if !PLACES.iter().any(|place| Path::new(place) == path) => {
                format!(" --config {}", quoted(&path.display().to_string()))
            }
            _ => String::new(),
        }
    }

    /// A number.
    pub(crate) fn count(&self, key: &str) -> Option<usize> {
        self.text(key).parse().ok()
    }

    /// A duration; `None` where nobody named one.
    pub(crate) fn duration(&self, key: &str) -> Option<Duration> {
        parse_duration(self.text(key)).ok()
    }

    /// The secrets that are masked in texts: those that were named, and the password in the URL of the store.
    pub(crate) fn literals(&self) -> Vec<String> {
        let named = self.text("redact.literals").lines().map(str::to_owned);
        let webhook =
            Some(self.text("notify.webhook.secret")).filter(|text| !text.is_empty()).map(str::to_owned);
        named.chain(password(self.store())).chain(webhook).collect()
    }

    /// The texts of a list.
    pub(crate) fn texts(&self, key: &str) -> impl Iterator<Item = &str> {
        self.text(key).lines()
    }

    /// A text; empty where nobody said any.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.said(key).last().map_or("", |value| &value.text)
    }

    /// What was said of a key, the weakest first.
    fn said(&self, key: &str) -> &[Value] {
        self.values.get(key).map_or(&[], Vec::as_slice)
    }

    /// The variables that say something.
    fn variables(&self) -> Vec<String> {
        let all = self.values.values().flatten();
        let names = all.filter_map(|value| match &value.origin {
            Origin::Environment(name) => Some(name.clone()),
            _ => None,
        });
        names.collect()
    }
}

/// The password in a URL, as it is meant: long enough not to be found within other words.
fn password(url: &str) -> Option<String> {
    let authority = url.split_once("://")?.1.split(['/', '?']).next()?;
    let (_, password) = authority.rsplit_once('@')?.0.split_once(':')?;
    (key::LITERAL_BYTES_MIN <= password.len()).then(|| password.to_owned())
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A setting as the reference describes it.
pub(crate) struct Setting {
    /// Its path.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) about: &'static str,
    /// What its value is.
    pub(crate) shape: String,
    /// What holds when nobody says anything; empty: nothing.
    pub(crate) default: &'static str,
    /// The variable that says it.
    pub(crate) variable: String,
}

/// Every setting.
pub(crate) fn keys() -> Vec<Setting> {
    let described = |key: &Key| Setting {
        name: key.name,
        about: key.about,
        shape: key.shape.to_string(),
        default: key.default,
        variable: variable(key),
    };
    KEYS.iter().map(described).collect()
}

/// The variable of a setting.
fn variable(key: &Key) -> String {
    format!("{PREFIX}{}", key.name.to_uppercase().replace('.', "__"))
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
        let own = variable(key);
        let others: &[&str] = if key.name == "store" { &["DATABASE_URL"] } else { &[] };
        let from_file = format!("{own}_FILE");
        // The weakest first.
        for name in others.iter().copied().chain([from_file.as_str(), &own]) {
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
    wrong.fold(failure, |failure, other| failure.why(other)).in_parts()
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
    fn secrets_are_named_in_a_list_a_variable_or_the_url_and_never_said() {
        let file =
            "store = \"postgres://ada:tulip@db/app\"\n[redact]\nliterals = [\"rose garden\", \"daisy\"]\n";
        let (_dir, all) = given(file, &[]);
        assert_eq!(Config::read(all).unwrap().literals(), ["rose garden", "daisy", "tulip"]);
        let (_dir, all) = given(file, &[("MILLPOND_REDACT__LITERALS", "lily\nviolet")]);
        assert_eq!(Config::read(all).unwrap().literals(), ["lily", "violet", "tulip"]);
        refused(
            "redact.literals = [\"abc\"]\nworker.lease = [\"2s\"]\n",
            &[],
            &[
                "millpond.toml:1: redact.literals: text 1 has less than 4 bytes",
                "millpond.toml:2: worker.lease: it is a text, not a list",
            ],
        );
        refused("redact.literals = [1]\n", &[], &["millpond.toml:1: redact.literals: it is a list of texts"]);
        refused(
            "redact.literals = 'abcd'\n",
            &[],
            &["millpond.toml:1: redact.literals: it is a list of texts"],
        );
    }

    #[test]
    fn what_a_value_overrides_is_kept() {
        let (_dir, mut all) = given(
            "store = \"sqlite://file.db\"\n",
            &[("MILLPOND_STORE", "sqlite://env.db"), ("DATABASE_URL", "sqlite://common.db")],
        );
        all.store = Some("sqlite://flag.db".into());
        let config = Config::read(all).unwrap();
        let texts: Vec<_> = config.said("store").iter().map(|value| value.text.as_str()).collect();
        let expected = ["millpond.db", "file.db", "common.db", "env.db", "flag.db"];
        assert_eq!(texts, expected.map(|name| format!("sqlite://{name}")));
        assert_eq!(config.variables(), ["DATABASE_URL", "MILLPOND_STORE"]);
    }

    #[test]
    fn what_a_handler_is_given_is_no_setting() {
        let (_dir, given) = given("", &[("MILLPOND_ID", "x"), ("MILLPOND_HEADER_A__B", "y")]);
        Config::read(given).unwrap();
    }
}

//! `millpond config`: every value with its origin; `millpond config schema`: the keys, for editors.

use std::process::ExitCode;

use serde::Serialize;

use super::key::{KEYS, Key, Shape};
use super::{Config, Given, Value, schema};
use crate::exit::Done;
use crate::output::{Column, Output};

/// How much is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A flag wins over a variable, a variable over millpond.toml, and that over the default. Secrets are not shown.

Examples:
  millpond config
  millpond config --origin           also what each value overrides, and whether a running process follows it
  millpond config -o json
  millpond config schema > millpond.schema.json")]
pub(crate) struct Args {
    /// Also what each value overrides, and whether a running process follows a change
    #[arg(long)]
    origin: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Clone, Copy, clap::Subcommand)]
enum Verb {
    /// Print a JSON Schema of millpond.toml, by which an editor completes and checks it
    #[command(after_help = "Examples:\n  millpond config schema > millpond.schema.json")]
    Schema,
}

/// A value as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    key: &'static str,
    value: Option<String>,
    origin: String,
    /// What was said in weaker places, the strongest of them first.
    overrides: Vec<Overridden>,
    /// Whether a running process follows a change.
    live: bool,
}

#[derive(Debug, Serialize)]
struct Overridden {
    value: Option<String>,
    origin: String,
}

const COLUMNS: [Column<Shown>; 5] = [
    Column::new("key", |row, _| row.key.to_owned()),
    Column::new("value", |row, _| shown_value(&row.value)),
    Column::new("origin", |row, _| row.origin.clone()),
    Column::new("overrides", |row, _| {
        let overridden = row.overrides.iter();
        let texts = overridden.map(|other| format!("{} ({})", shown_value(&other.value), other.origin));
        texts.collect::<Vec<_>>().join(", ")
    }),
    Column::new("live", |row, _| if row.live { "yes" } else { "at start" }.to_owned()),
];

/// Columns without those of `--origin`.
const BRIEF: usize = 3;

/// Shows the values, or the schema, for which no value need be right.
pub(crate) fn run(args: &Args, given: Given, output: &Output) -> Done {
    if args.verb.is_some() {
        output.document(&schema::document())?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = Config::read(given)?;
    let shown: Vec<Shown> = KEYS.iter().map(|key| shown(key, &config)).collect();
    output.list(&shown, if args.origin { &COLUMNS } else { &COLUMNS[..BRIEF] }, "")?;
    Ok(ExitCode::SUCCESS)
}

fn shown(key: &Key, config: &Config) -> Shown {
    let mut values = config.said(key.name).iter().rev();
    let (value, origin) = values.next().map(|value| (masked(key, value), value.origin.to_string())).unzip();
    let overrides = values
        .map(|value| Overridden { value: masked(key, value), origin: value.origin.to_string() })
        .collect();
    let (value, origin) = (value.flatten(), origin.unwrap_or_default());
    Shown { key: key.name, value, origin, overrides, live: key.is_live }
}

/// The value, with its secrets masked.
pub(super) fn masked(key: &Key, value: &Value) -> Option<String> {
    match (value.text.as_str(), key.is_secret) {
        ("", _) => None,
        (text, true) if key.shape == Shape::Texts => Some(match text.lines().count() {
            1 => "1 text, hidden".to_owned(),
            count => format!("{count} texts, hidden"),
        }),
        (_, true) => Some("hidden".to_owned()),
        (text, false) => Some(millpond::redact(text, &[])),
    }
}

fn shown_value(value: &Option<String>) -> String {
    value.clone().unwrap_or_else(|| "(not set)".to_owned())
}

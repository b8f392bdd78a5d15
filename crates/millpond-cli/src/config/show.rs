//! `millpond config`: every value with its origin.

use std::process::ExitCode;

use serde::Serialize;

use super::Config;
use crate::exit::Done;
use crate::output::{Column, Output};

/// A value as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    key: &'static str,
    value: Option<String>,
    origin: String,
}

const COLUMNS: [Column<Shown>; 3] = [
    Column::new("key", |row, _| row.key.to_owned()),
    Column::new("value", |row, _| row.value.clone().unwrap_or_else(|| "(what the queue says)".to_owned())),
    Column::new("origin", |row, _| row.origin.clone()),
];

/// Prints every value, passwords masked.
pub(crate) fn run(config: &Config, output: &Output) -> Done {
    let shown = config.values.iter().map(|(key, value)| Shown {
        key,
        value: (!value.text.is_empty()).then(|| millpond::redact(&value.text, &[])),
        origin: value.origin.to_string(),
    });
    output.list(&shown.collect::<Vec<_>>(), &COLUMNS, "")?;
    Ok(ExitCode::SUCCESS)
}

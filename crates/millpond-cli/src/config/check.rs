//! `millpond check`: whether the configuration can work, without a database.

use std::path::PathBuf;
use std::process::ExitCode;

use millpond::sqlite::Location;
use serde::Serialize;

use super::{Config, Given, Origin};
use crate::exit::Done;
use crate::open::{is_mysql, is_postgres};
use crate::output::Output;

/// Nothing but the flags of every command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything that is wrong is said at once, each with its file and line, and the exit code is 2. No store is opened,
so it runs where there is none.

Examples:
  millpond check
  millpond check --config deploy/millpond.toml
  millpond check -o json")]
pub(crate) struct Args {}

/// What was read.
#[derive(Debug, Serialize)]
struct Checked {
    status: &'static str,
    file: Option<PathBuf>,
    /// Variables that say something.
    environment: Vec<String>,
    store: String,
}

/// Checks.
pub(crate) fn run(_: &Args, given: Given, output: &Output) -> Done {
    let config = Config::read_with(given, |config| store(config).into_iter().chain(pairs(config)).collect())?;
    let checked = Checked {
        status: "ok",
        file: config.file.clone(),
        environment: config.variables(),
        store: millpond::redact(config.store(), &[]),
    };
    output.one(&checked, checked.status, |_| {
        let file = checked.file.as_ref().map_or_else(
            || "no file: neither ./millpond.toml nor /etc/millpond/millpond.toml is there".to_owned(),
            |path| path.display().to_string(),
        );
        let variables = match checked.environment.as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let store = &checked.store;
        format!("ok\n  configuration  {file}\n  variables      {variables}\n  store          {store}")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Settings that cannot work together.
fn pairs(config: &Config) -> Option<String> {
    let to_webhook = config.text("notify.channels").lines().any(|channel| channel == "webhook");
    let origin = config.said("notify.channels").last().map(|value| &value.origin)?;
    (to_webhook && config.text("notify.webhook.url").is_empty())
        .then(|| format!("{origin}: notify.channels: it names `webhook`, and notify.webhook.url is not set"))
}

/// What is wrong with the URL of the store.
fn store(config: &Config) -> Option<String> {
    let url = config.store();
    let error = match () {
        () if is_postgres(url) => millpond::postgres::Location::parse(url).err()?,
        () if is_mysql(url) => millpond::mysql::Location::parse(url).err()?,
        () => Location::parse(url).err()?,
    };
    let origin = config.said("store").last().map_or(Origin::Default, |value| value.origin.clone());
    let text = format!("{origin}: store: {}", error.causes());
    Some(millpond::redact(&text, &[]))
}

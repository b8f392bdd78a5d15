//! `millpond doctor`: what a person should know of the store, the worst first.

mod gather;
mod integrity;

use std::process::ExitCode;

use millpond_core::hints::{Hint, Level, hints};
use serde::Serialize;

use crate::exit::{Done, Exit};
use crate::output::{Column, clean};
use crate::paste::Paste;
use crate::{Context, open};

/// How deep to look.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond doctor
  millpond doctor --deep            reads the whole store: minutes, for a large one
  millpond doctor -o json | jq '.items[] | select(.severity == \"critical\")'

It looks at the configuration, at what the store says of itself, at clocks, workers, queues, the outbox and dead
letters. Exit codes: 0 nothing but infos, 1 something critical or a warning, 3 the store cannot be reached.")]
pub(crate) struct Args {
    /// Also read every page of the store and check it
    #[arg(long)]
    deep: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    /// The severity of the worst.
    status: &'static str,
    /// What was looked at and is well.
    checks: Vec<Check>,
    items: Vec<Shown>,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    text: String,
}

/// A hint, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    code: String,
    severity: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

const COLUMNS: [Column<Shown>; 5] = [
    Column::new("code", |row, _| row.code.clone()),
    Column::new("severity", |row, _| row.severity.to_owned()),
    Column::new("count", |row, _| row.count.map(|count| count.to_string()).unwrap_or_default()),
    Column::whole("message", |row, _| row.message.clone()),
    Column::whole("action", |row, _| row.action.clone().unwrap_or_default()),
];

/// Examines.
pub(crate) async fn run(args: Args, context: &Context) -> Done {
    let url = context.config.store();
    let mut checks = vec![Check { name: "configuration", text: "it can work".to_owned() }];
    let mut found = Vec::new();
    if args.deep {
        match integrity::check(url).await? {
            broken if broken.is_empty() => {
                checks.push(Check {
                    name: "integrity",
                    text: "every page of the store is as it was written".to_owned(),
                });
            }
            broken => found.push(integrity::hint(&broken)),
        }
    }
    let pond = open::existing(url).await?;
    let facts = gather::facts(&pond).await?;
    checks.push(Check { name: "store", text: "it opens, its schema fits, it answers".to_owned() });
    if let Some(host) = facts.host_now {
        let skew = facts.now.since(host).max(host.since(facts.now));
        checks.push(Check {
            name: "clocks",
            text: format!("store and host differ by {} ms", skew.as_millis()),
        });
    }
    let text = format!("queues: {}, workers: {}", facts.queues.len(), facts.workers.len());
    checks.push(Check { name: "counts", text });
    // That all is well is said only if all is.
    let is_damaged = !found.is_empty();
    found.extend(hints(&facts).into_iter().filter(|hint| hint.level != Level::Ok || !is_damaged));
    found.sort_by_key(|hint| hint.level);
    say(checks, found, context)
}

fn say(checks: Vec<Check>, found: Vec<Hint>, context: &Context) -> Done {
    let paste = Paste::of(context);
    let worst = found.iter().map(|hint| hint.level).min().unwrap_or(Level::Ok);
    let items: Vec<Shown> = found.into_iter().map(|hint| shown(hint, &paste)).collect();
    if context.output.is_json() || context.output.is_table() {
        let report = Report { status: worst.as_str(), checks, items };
        context.output.one(&report, "", |_| report.text())?;
    } else {
        context.output.list(&items, &COLUMNS, "")?;
    }
    Ok(if worst <= Level::Warn { Exit::Failed.code() } else { ExitCode::SUCCESS })
}

fn shown(hint: Hint, paste: &Paste) -> Shown {
    let Hint { code, level, message, count, action } = hint;
    Shown { code, severity: level.as_str(), message, count, action: action.map(|words| paste.line(&words)) }
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            text.push_str(&format!(
                "{:<8}  {}\n          {}\n",
                item.severity,
                item.code,
                clean(&item.message)
            ));
            if let Some(action) = &item.action {
                text.push_str(&format!("          {}\n", clean(action)));
            }
        }
        text.push('\n');
        for check in &self.checks {
            text.push_str(&format!("{:<13}  {}\n", check.name, check.text));
        }
        text
    }
}

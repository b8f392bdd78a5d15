//! `millpond audit`: who changed what, and why.

use std::process::ExitCode;

use millpond::Timestamp;
use millpond::view::AuditLine;
use serde::Serialize;

use crate::exit::Done;
use crate::output::{Column, Page, note};
use crate::{Context, instant, open};

/// What can be done with the audit.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Changes by operators, newest first
    #[command(alias = "ls")]
    List(Args),
}

/// How many.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Lines at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
    /// Go on after an earlier answer: only lines with a lower number
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
}

const EXAMPLES: &str = "\
Each line is written with its change, and holds the hash of the line before: one that was changed or taken out is found.

Examples:
  millpond audit list
  millpond audit list -n 1000 -o csv > audit.csv";

/// A line, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    number: u64,
    #[serde(serialize_with = "instant::serialize")]
    at: Timestamp,
    actor: String,
    verb: String,
    object: String,
    count: u64,
    reason: Option<String>,
    intact: bool,
}

const COLUMNS: [Column<Shown>; 8] = [
    Column::new("number", |row, _| row.number.to_string()),
    Column::optional(Column::new("at", |row, times| times.show(row.at))),
    Column::optional(Column::text("actor", |row, _| row.actor.clone())),
    Column::new("verb", |row, _| row.verb.clone()),
    Column::text("object", |row, _| row.object.clone()),
    Column::optional(Column::new("rows", |row, _| row.count.to_string())),
    Column::text("reason", |row, _| row.reason.clone().unwrap_or_default()),
    Column::optional(Column::new("chain", |row, _| if row.intact { "intact" } else { "broken" }.to_owned())),
];

/// Runs a verb.
pub(crate) async fn run(Verb::List(args): Verb, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let rows_max = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut lines = pond.store().audit(args.after, rows_max + 1).await?;
    let more = rows_max < lines.len();
    lines.truncate(rows_max);
    let total = lines.first().map_or(0, |line| line.number);
    let next = lines.last().filter(|_| more).map(|line| line.number.to_string());
    let broken = lines.iter().filter(|line| !line.intact).count();
    let shown: Vec<Shown> = lines.into_iter().map(Shown::from).collect();
    if let Some(next) = &next {
        note(&format!("{} of {total} lines; --limit shows more, --after {next} goes on", shown.len()))?;
    }
    if 0 < broken {
        note(&format!("{broken} of these lines are not as they were written, or a line before them is not"))?;
    }
    let page = Page { total, total_is_estimate: false, next };
    context.output.page(&shown, &COLUMNS, "nobody has changed anything yet", &page)?;
    Ok(ExitCode::SUCCESS)
}

impl From<AuditLine> for Shown {
    fn from(line: AuditLine) -> Self {
        let AuditLine { number, at, actor, verb, object, count, reason, intact } = line;
        Self { number, at, actor, verb, object, count, reason, intact }
    }
}

//! `millpond migrate`: the schema of the store.

use std::process::ExitCode;

use millpond::Timestamp;
use millpond::sqlite::schema;
use serde::Serialize;

use crate::exit::{Done, Failure};
use crate::open::Migration;
use crate::output::{Column, note};
use crate::{Context, instant, open};

/// What to do with the schema.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  millpond migrate plan > review.sql\n  millpond migrate up")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Clone, Copy, clap::Subcommand)]
enum Verb {
    /// Print the SQL that is missing, and do nothing
    #[command(after_help = "Examples:\n  millpond migrate plan > review.sql")]
    Plan,
    /// Apply what is missing; makes a store that is not there
    #[command(after_help = "Examples:\n  millpond migrate up\n  millpond migrate up --store sqlite://app.db")]
    Up,
    /// Every migration and when it was applied (the default)
    #[command(after_help = "Examples:\n  millpond migrate status")]
    Status,
}

/// A migration as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    name: &'static str,
    #[serde(serialize_with = "instant::serialize_if")]
    applied_at: Option<Timestamp>,
}

/// The SQL of a migration that is missing.
#[derive(Debug, Serialize)]
struct Planned {
    name: &'static str,
    sql: &'static str,
}

#[derive(Debug, Serialize)]
struct Plan {
    migrations: Vec<Planned>,
}

#[derive(Debug, Serialize)]
struct Applied {
    applied: Vec<&'static str>,
}

const COLUMNS: [Column<Shown>; 2] = [
    Column::new("migration", |row, _| row.name.to_owned()),
    Column::new("applied", |row, times| row.applied_at.map_or("not yet".to_owned(), |at| times.show(at))),
];

/// Runs a verb.
pub(crate) async fn run(args: Args, context: &Context) -> Done {
    let url = context.config.store();
    match args.verb.unwrap_or(Verb::Status) {
        Verb::Plan => plan(&all(url).await?, context),
        Verb::Up => up(url, context).await,
        Verb::Status => status(open::look(url).await?, context),
    }
}

/// The migrations of a store; of one that is not there, as if it were empty.
async fn all(url: &str) -> Result<Vec<Migration>, Failure> {
    if open::is_there(url)? { open::look(url).await } else { Ok(schema("sqlite::memory:")?) }
}

fn plan(migrations: &[Migration], context: &Context) -> Done {
    let missing = migrations.iter().filter(|migration| migration.applied_at.is_none());
    let migrations: Vec<_> = missing.map(|Migration { name, sql, .. }| Planned { name, sql }).collect();
    let names: Vec<&str> = migrations.iter().map(|planned| planned.name).collect();
    if migrations.is_empty() {
        note("nothing to do: every migration is applied")?;
    }
    let names = names.join("\n");
    let plan = Plan { migrations };
    context.output.one(&plan, &names, |_| {
        plan.migrations.iter().map(|Planned { name, sql }| format!("-- migration {name}\n{sql}\n")).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn up(url: &str, context: &Context) -> Done {
    let missing = all(url).await?.into_iter().filter(|migration| migration.applied_at.is_none());
    let applied = Applied { applied: missing.map(|migration| migration.name).collect() };
    open::or_new(url).await?.close().await;
    context.output.one(&applied, &applied.applied.join("\n"), |_| match applied.applied.as_slice() {
        [] => "nothing to do: every migration is applied".to_owned(),
        names => format!("applied {}", names.join(", ")),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn status(migrations: Vec<Migration>, context: &Context) -> Done {
    let shown = |Migration { name, applied_at, .. }| Shown {
        name,
        applied_at: applied_at.map(Timestamp::from_micros),
    };
    let shown: Vec<Shown> = migrations.into_iter().map(shown).collect();
    context.output.list(&shown, &COLUMNS, "")?;
    Ok(ExitCode::SUCCESS)
}

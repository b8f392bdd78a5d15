//! `cargo xtask adapters --measure`: how soon a handler begins after the commit of the transaction that its message was
//! sent in, for every way to publish in one. A worker of the same process waits on an idle queue; servers flush as in
//! production.

mod delays;
#[path = "../../../bench/src/machine.rs"]
mod machine;
mod outcome;
#[path = "../../../bench/src/document/place.rs"]
mod place;
mod ways;

use std::path::Path;

use delays::Course;
use millpond_testkit::servers::mariadb::Mariadb;
use millpond_testkit::servers::postgres::{Fsync, Postgres};
use outcome::Row;
use ways::{Outcome, diesel, drivers, seaorm, sqlx, unit};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md");

const USAGE: &str = "\
cargo xtask adapters --measure [--samples N] [--only DATABASE] [--json] [--write]

  --samples N      transactions of each way; 200 unless told otherwise
  --only DATABASE  sqlite, postgres or mariadb
  --json           the last line of the output is one JSON object
  --write          writes the part in docs/benchmarks.md; only a whole run is written";

/// What is asked for.
struct Args {
    samples: u64,
    only: Option<String>,
    json: bool,
    write: bool,
}

impl Args {
    fn read(words: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut args = Self { samples: 200, only: None, json: false, write: false };
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--samples" => args.samples = words.next().ok_or(USAGE)?.parse().map_err(|_| USAGE)?,
                "--only" => args.only = Some(words.next().ok_or(USAGE)?),
                "--json" => args.json = true,
                "--write" => args.write = true,
                _ => return Err(USAGE.into()),
            }
        }
        let known = matches!(args.only.as_deref(), None | Some("sqlite" | "postgres" | "mariadb"));
        let whole = args.only.is_none() || !args.write;
        if known && whole && 0 < args.samples { Ok(args) } else { Err(USAGE.into()) }
    }

    fn wants(&self, database: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == database)
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(usage) => {
            eprintln!("{usage}");
            std::process::exit(2);
        }
    };
    let mut rows = Vec::new();
    if args.wants("sqlite") {
        let folder = tempfile::tempdir()?;
        let url = format!("sqlite://{}", folder.path().join("shop.db").display());
        in_sqlite(&url, args.samples, &mut rows).await?;
    }
    if args.wants("postgres") {
        let server = tokio::task::block_in_place(|| Postgres::start(Fsync::On, &[]));
        in_postgres(server.url(), args.samples, &mut rows).await?;
    }
    if args.wants("mariadb") {
        let server = tokio::task::block_in_place(|| Mariadb::start(Fsync::On, &[]));
        in_mariadb(server.url(), args.samples, &mut rows).await?;
    }
    if args.write {
        place::put(Path::new(DOCUMENT), outcome::PART, "adapters", &outcome::part(&rows, args.samples))?;
    }
    print!("{}", outcome::text(&rows));
    if args.json {
        println!("{}", outcome::json(&rows, args.samples));
    }
    Ok(())
}

async fn in_sqlite(url: &str, samples: u64, rows: &mut Vec<Row>) -> Outcome<()> {
    let mut course = Course::begin("SQLite", url, samples, rows).await?;
    course.way::<unit::Sqlite>().await?;
    course.way::<drivers::Rusqlite>().await?;
    course.way::<sqlx::Sqlite>().await?;
    course.way::<diesel::Sqlite>().await?;
    course.way::<seaorm::SeaOrm>().await?;
    course.end().await
}

async fn in_postgres(url: &str, samples: u64, rows: &mut Vec<Row>) -> Outcome<()> {
    let mut course = Course::begin("Postgres", url, samples, rows).await?;
    course.way::<unit::Postgres>().await?;
    course.way::<drivers::TokioPostgres>().await?;
    course.way::<sqlx::Postgres>().await?;
    course.way::<diesel::Postgres>().await?;
    course.way::<seaorm::SeaOrm>().await?;
    course.end().await
}

async fn in_mariadb(url: &str, samples: u64, rows: &mut Vec<Row>) -> Outcome<()> {
    let mut course = Course::begin("MariaDB", url, samples, rows).await?;
    course.way::<unit::Mysql>().await?;
    course.way::<drivers::MysqlAsync>().await?;
    course.way::<sqlx::Mysql>().await?;
    course.way::<diesel::Mysql>().await?;
    course.way::<seaorm::SeaOrm>().await?;
    course.end().await
}

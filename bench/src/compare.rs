//! Ours and other queues, measured alike: on one private Postgres that flushes, in one run, each as a program that
//! understands the same commands. A round makes a measurement of every store, and each round begins with another
//! store, so that what else the machine does hits all of them.

mod figures;
mod measure;
mod process;
mod programs;
mod sizes;
mod table;

use std::path::Path;

use figures::Figures;
use process::Process;
use programs::{Program, Programs};
use serde_json::{Value, json};
use sizes::Sizes;

use crate::postgres::{Bench, SETTINGS};
use crate::{DOCUMENT, document, failed, machine};

/// What is measured, and how much of it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The last line of the output is one JSON object.
    #[arg(long)]
    json: bool,
    /// Rounds of a measurement; the median counts. Of pickup, held, backlog and idle there is one.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these measurements: send, single, transactions, drain, default-drain, life, pickup, held, backlog, idle.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these stores beside ours: graphile_worker, riverqueue, awa, graphile_worker_npm, pg_boss, pgmq.
    #[arg(long, value_delimiter = ',')]
    stores: Vec<String>,
    /// In the sizes that are promised: 10,000,000 waiting, 1,000,000 scheduled. More than an hour.
    #[arg(long, conflicts_with = "tiny")]
    full: bool,
    /// In sizes that only show that everything works. The figures say nothing.
    #[arg(long)]
    tiny: bool,
    /// Writes the part of the comparison in docs/benchmarks.md. Only a whole run is written.
    #[arg(long, conflicts_with_all = ["only", "stores", "tiny"])]
    write: bool,
}

/// Everything that a run has found out.
struct Outcome {
    figures: Figures,
    /// What each program says of itself, by store.
    about: Vec<(&'static str, Value)>,
    missing: Vec<(&'static str, String)>,
    server: String,
    rounds: usize,
    sizes: Sizes,
}

impl Args {
    fn sizes(&self) -> Sizes {
        match (self.full, self.tiny) {
            (true, _) => Sizes::FULL,
            (_, true) => Sizes::TINY,
            _ => Sizes::SHORT,
        }
    }

    fn wants(&self, measurement: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == measurement)
    }

    fn check(&self) -> millpond::Result<()> {
        let known: Vec<&str> =
            measure::NAMES.into_iter().chain(measure::NAMES_ONCE).chain([measure::IDLE]).collect();
        match self.only.iter().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(unknown) => Err(failed(
                "choose the measurements",
                format!("there is no measurement `{unknown}`; known are {}", known.join(", ")),
            )),
        }
    }

    /// The command that makes this run again.
    fn command(&self) -> String {
        let full = if self.full { " --full" } else { "" };
        format!("cargo xtask bench compare --rounds {}{full} --write", self.rounds)
    }
}

/// Measures, prints, and writes if asked to.
pub(crate) async fn run(args: &Args) -> millpond::Result<()> {
    args.check()?;
    eprintln!("building the programs of the other queues; the first time takes minutes");
    let Programs { found, missing } = tokio::task::block_in_place(|| programs::build(&args.stores))?;
    let bench = Bench::start().await?;
    let (programs, about, missing) = introduced(&bench, found, missing).await;
    let mut figures = Figures::of(programs.iter().map(|program| (program.key, program.kind)));
    let sizes = args.sizes();
    for (names, count) in [(&measure::NAMES[..], args.rounds), (&measure::NAMES_ONCE[..], 1)] {
        for name in names.iter().filter(|name| args.wants(name)) {
            rounds(name, &bench, &programs, &sizes, count, &mut figures).await;
        }
    }
    if args.wants(measure::IDLE) {
        measure::idle(&bench, &programs, &sizes, &mut figures).await?;
    }
    let outcome =
        Outcome { figures, about, missing, server: version(&bench).await?, rounds: args.rounds, sizes };
    if args.write {
        let part = table::part(&outcome, &args.command());
        document::put(Path::new(DOCUMENT), "Postgres and other queues", &part)?;
    }
    println!("{}", table::text(&outcome));
    if args.json {
        println!("{}", outcome.json());
    }
    Ok(())
}

/// Asks each program what it is; one that cannot say it is missing.
async fn introduced(
    bench: &Bench,
    found: Vec<Program>,
    mut missing: Vec<(&'static str, String)>,
) -> (Vec<Program>, Vec<(&'static str, Value)>, Vec<(&'static str, String)>) {
    let (mut programs, mut about) = (Vec::new(), Vec::new());
    for program in found {
        match introduce(bench, &program).await {
            Ok(said) => {
                about.push((program.key, said));
                programs.push(program);
            }
            Err(error) => missing.push((program.key, error.causes())),
        }
    }
    (programs, about, missing)
}

async fn introduce(bench: &Bench, program: &Program) -> millpond::Result<Value> {
    let mut process = Process::start(program, bench.server.url())?;
    let about = process.ask("about").await;
    process.end().await;
    about
}

/// Every round of a measurement. What cannot be measured is noted and stops nothing else.
async fn rounds(
    name: &'static str,
    bench: &Bench,
    programs: &[Program],
    sizes: &Sizes,
    count: usize,
    figures: &mut Figures,
) {
    for round in 0..count {
        for place in 0..programs.len() {
            let program = &programs[(place + round) % programs.len()];
            if let Err(error) = measure::measure(name, bench, program, sizes, figures).await {
                let why = error.causes();
                eprintln!("{:20} {name}: not measured: {why}", program.key);
                figures.failed.push((program.key, name, why));
            }
        }
    }
}

async fn version(bench: &Bench) -> millpond::Result<String> {
    let asked = bench.client.query_one("show server_version", &[]).await;
    Ok(asked.map_err(|error| failed("ask the server for its version", error))?.get(0))
}

impl Outcome {
    /// One object: the ratios, every raw figure, and what they were made with.
    fn json(&self) -> Value {
        let mut object = self.figures.json();
        object.insert("store".to_owned(), json!("postgres"));
        object.insert("server".to_owned(), json!(self.server));
        object.insert("server_settings".to_owned(), json!(SETTINGS));
        object.insert("sizes".to_owned(), json!(self.sizes.name));
        object.insert("rounds".to_owned(), json!(self.rounds));
        object.insert("messages".to_owned(), json!(self.sizes.messages));
        object.insert("messages_of_ours".to_owned(), json!(self.sizes.messages * self.sizes.ours_times));
        let stores = self.about.iter().map(|(store, about)| ((*store).to_owned(), about.clone()));
        object.insert("stores".to_owned(), Value::Object(stores.collect()));
        let missing = self.missing.iter().map(|(store, why)| json!({ "store": store, "why": why }));
        object.insert("missing".to_owned(), missing.collect());
        let machine = machine::facts().into_iter().map(|(name, fact)| (name.to_owned(), json!(fact)));
        object.insert("machine".to_owned(), Value::Object(machine.collect()));
        Value::Object(object)
    }
}

//! The steps of `cargo xtask test`: each is a command that can be run alone, in an order in which the cheap ones
//! come first. The first that fails ends the run.
//!
//! Everything is built once, as the tests need it, and the programs that the last steps run are those: a
//! `cargo run` of one package would choose other features for the crates below it and compile them again.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::run::{LIMITS, Tally, run};
use crate::{guard, outcome, repo};

/// Messages and kills of the crash test that is part of every run. The long ones are `cargo xtask torture`.
const TORTURE: &[&str] = &["sqlite", "--messages", "5000", "--kills", "10", "--seed", "1", "--json"];

/// The same with a server, which is killed too; connections are cut and calls given up.
const TORTURE_POSTGRES: &[&str] = &[
    "postgres",
    "--messages",
    "2000",
    "--kills",
    "6",
    "--server-kills",
    "2",
    "--cuts",
    "60",
    "--drops",
    "2000",
    "--seed",
    "1",
    "--json",
];
const TORTURE_MYSQL: &[&str] = &[
    "mysql",
    "--messages",
    "2000",
    "--kills",
    "6",
    "--server-kills",
    "2",
    "--cuts",
    "60",
    "--drops",
    "2000",
    "--seed",
    "1",
    "--json",
];

/// Business transactions that are committed and rolled back under kills, on each store.
const TRANSACTIONS: &[&str] =
    &["transactions", "sqlite", "--transactions", "1500", "--kills", "8", "--seed", "1", "--json"];
const TRANSACTIONS_POSTGRES: &[&str] =
    &["transactions", "postgres", "--transactions", "1000", "--kills", "8", "--seed", "1", "--json"];
const TRANSACTIONS_MYSQL: &[&str] =
    &["transactions", "mysql", "--transactions", "1000", "--kills", "8", "--seed", "1", "--json"];

/// Messages of the demo that is part of every run.
const DEMO: &[&str] = &["demo", "--messages", "2000", "--json"];

/// Seconds that the commands of the README may take together.
const README_SECONDS_MAX: &str = "120";

/// One step.
#[derive(Debug)]
pub struct Step {
    /// Shown as its heading.
    pub name: &'static str,
    /// What a person would type to run it alone.
    pub alone: String,
    command: Command,
    /// What must hold of the last line of its output.
    holds: fn(&str) -> Result<(), String>,
}

/// The steps of `cargo xtask test`.
pub fn test() -> Vec<Step> {
    // The page of the program `millpond` would overwrite the one of the library of that name.
    let mut docs = cargo("docs", &["doc", "--workspace", "--no-deps", "--exclude", "millpond-cli"]);
    docs.command.env("RUSTDOCFLAGS", "-D warnings");
    docs.alone = format!("RUSTDOCFLAGS='-D warnings' {}", docs.alone);
    vec![
        cargo("servers", &["xtask", "services", "install"]),
        cargo("format", &["fmt", "--all", "--check"]),
        cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        docs,
        cargo("build", &["build", "--workspace", "--all-targets"]),
        cargo("tests", &["test", "--workspace"]),
        cargo("examples in SQL", &["xtask", "examples"]),
        cargo("adapters", &["xtask", "adapters"]),
        Step { holds: outcome::crash_test, ..built("crash test", "millpond-torture", TORTURE) },
        Step {
            holds: outcome::crash_test,
            ..built("crash test on Postgres", "millpond-torture", TORTURE_POSTGRES)
        },
        Step {
            holds: outcome::crash_test,
            ..built("crash test on MariaDB", "millpond-torture", TORTURE_MYSQL)
        },
        Step { holds: outcome::transactions, ..built("transactions", "millpond-torture", TRANSACTIONS) },
        Step {
            holds: outcome::transactions,
            ..built("transactions on Postgres", "millpond-torture", TRANSACTIONS_POSTGRES)
        },
        Step {
            holds: outcome::transactions,
            ..built("transactions on MariaDB", "millpond-torture", TRANSACTIONS_MYSQL)
        },
        Step { holds: outcome::demo, ..built("demo", "millpond-cli", DEMO) },
        readme(),
    ]
}

/// Runs the steps until one fails, and says in one last line how it went.
pub fn run_all(mut steps: Vec<Step>) -> ExitCode {
    let (started, mut tally) = (Instant::now(), Tally::default());
    let whole = steps.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    let count = steps.len();
    for (number, step) in steps.iter_mut().enumerate() {
        println!("\n== {} of {count}: {} · {}", number + 1, step.name, step.alone);
        let began = Instant::now();
        let ended = run(&mut step.command, LIMITS).and_then(|said| {
            tally.add(said.tally);
            (step.holds)(&said.last_line)
        });
        println!("-- {}: {:.1} s", step.name, began.elapsed().as_secs_f64());
        if let Err(why) = ended {
            println!("\nFAILED at {}: {why}. To run it alone:\n  {}", step.name, step.alone);
            return ExitCode::FAILURE;
        }
    }
    let Tally { passed, ignored } = tally;
    let seconds = started.elapsed().as_secs();
    println!("\nok: {passed} tests passed, {ignored} ignored; {whole}; {seconds} s");
    ExitCode::SUCCESS
}

fn cargo(name: &'static str, args: &[&str]) -> Step {
    let mut command = Command::new(repo::cargo());
    command.args(args);
    Step { name, alone: format!("cargo {}", args.join(" ")), command, holds: |_| Ok(()) }
}

/// The one program of a package, which the build step has made.
fn built(name: &'static str, package: &str, args: &[&str]) -> Step {
    let mut command = Command::new(programs().join(package.trim_end_matches("-cli")));
    command.args(args);
    Step { name, alone: format!("cargo run -p {package} -- {}", args.join(" ")), command, holds: |_| Ok(()) }
}

/// The folder of the programs that were built in the development profile.
fn programs() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    repo::root().join(target).join("debug")
}

/// Runs the shell blocks of the README that use the program, in an empty folder, as its reader would.
fn readme() -> Step {
    let text = std::fs::read_to_string(repo::root().join("README.md")).unwrap_or_default();
    let script = guard::text::shell_blocks(&text)
        .into_iter()
        .filter(|block| !guard::text::is_of_cargo(block))
        .collect::<Vec<_>>()
        .join("\n");
    let whole = format!(
        "set -eu\ndir=$(mktemp -d)\ntrap 'rm -rf \"$dir\"' EXIT\ncd \"$dir\"\nPATH=\"$MILLPOND_PROGRAMS:$PATH\"\nset -x\n{script}"
    );
    let mut command = Command::new("timeout");
    command.args([README_SECONDS_MAX, "bash", "-c", &whole]).env("MILLPOND_PROGRAMS", programs());
    Step {
        name: "commands of the README",
        alone: "the `sh` blocks of README.md, in an empty folder".into(),
        command,
        holds: outcome::readme,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str) -> Step {
        Step { name, alone: name.to_owned(), command: Command::new(name), holds: |_| Ok(()) }
    }

    #[test]
    fn a_step_that_fails_ends_the_run() {
        assert_eq!(run_all(vec![step("true"), step("true")]), ExitCode::SUCCESS);
        assert_eq!(run_all(vec![step("true"), step("false"), step("true")]), ExitCode::FAILURE);
    }

    #[test]
    fn a_step_whose_last_line_is_wrong_fails() {
        assert_eq!(run_all(vec![Step { holds: outcome::demo, ..step("true") }]), ExitCode::FAILURE);
    }
}

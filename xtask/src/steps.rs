//! The steps of `cargo xtask test`: each is a command that can be run alone, in an order in which the cheap ones
//! come first. The first that fails ends the run.
//!
//! Everything is built once, as the tests need it, and the programs that the last steps run are those: a
//! `cargo run` of one package would choose other features for the crates below it and compile them again.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::{guard, repo};

/// Messages and kills of the crash test that is part of every run. The long ones are `cargo xtask torture`.
const TORTURE: &[&str] = &["sqlite", "--messages", "5000", "--kills", "10", "--seed", "1", "--json"];

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
}

/// What the steps have said so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that were left out.
    pub ignored: u64,
}

impl Tally {
    /// Adds what a line of a test program's output says.
    pub fn read(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ok. ") else { return };
        for part in result.split(';') {
            let mut words = part.split_whitespace();
            let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += count,
                Some("ignored") => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// The steps of `cargo xtask test`.
pub fn test() -> Vec<Step> {
    let mut docs = cargo("docs", &["doc", "--workspace", "--no-deps"]);
    docs.command.env("RUSTDOCFLAGS", "-D warnings");
    docs.alone = format!("RUSTDOCFLAGS='-D warnings' {}", docs.alone);
    vec![
        cargo("format", &["fmt", "--all", "--check"]),
        cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        docs,
        cargo("build", &["build", "--workspace", "--all-targets"]),
        cargo("tests", &["test", "--workspace"]),
        built("crash test", "millpond-torture", "cargo run -p millpond-torture -- ", TORTURE),
        built("demo", "millpond", "cargo run -- ", DEMO),
        readme(),
    ]
}

/// Runs the steps until one fails, and says in one last line how it went.
pub fn run_all(steps: &[Step]) -> ExitCode {
    let (started, mut tally) = (Instant::now(), Tally::default());
    let whole = steps.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    for (number, step) in steps.iter().enumerate() {
        println!("\n== {} of {}: {} · {}", number + 1, steps.len(), step.name, step.alone);
        let began = Instant::now();
        let went_well = run(step, &mut tally);
        println!("-- {}: {:.1} s", step.name, began.elapsed().as_secs_f64());
        if !went_well {
            println!("\nFAILED at {}. To run it alone:\n  {}", step.name, step.alone);
            return ExitCode::FAILURE;
        }
    }
    let Tally { passed, ignored } = tally;
    let seconds = started.elapsed().as_secs();
    println!("\nok: {passed} tests passed, {ignored} ignored; {whole}; {seconds} s");
    ExitCode::SUCCESS
}

fn run(step: &Step, tally: &mut Tally) -> bool {
    let mut command = Command::new(step.command.get_program());
    command.args(step.command.get_args()).current_dir(repo::root()).stdout(Stdio::piped());
    for (name, value) in step.command.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("cannot start {}: {error}", command.get_program().display());
            return false;
        }
    };
    let output = child.stdout.take().map(BufReader::new);
    for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        println!("{line}");
        tally.read(&line);
    }
    child.wait().is_ok_and(|status| status.success())
}

fn cargo(name: &'static str, args: &[&str]) -> Step {
    let mut command = Command::new(repo::cargo());
    command.args(args);
    Step { name, alone: format!("cargo {}", args.join(" ")), command }
}

/// A program that the build step has made.
fn built(name: &'static str, program: &str, alone: &str, args: &[&str]) -> Step {
    let mut command = Command::new(programs().join(program));
    command.args(args);
    Step { name, alone: format!("{alone}{}", args.join(" ")), command }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_and_ignored_tests_are_added_up() {
        let mut tally = Tally::default();
        tally.read(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        tally.read(
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        tally.read("test queue::tests::a_line_of_another_kind ... ok");
        assert_eq!(tally, Tally { passed: 15, ignored: 1 });
    }

    #[test]
    fn a_step_that_fails_ends_the_run() {
        let steps = ["true", "false", "no-such-program-of-ours"].map(|program| Step {
            name: program,
            alone: program.to_owned(),
            command: Command::new(program),
        });
        assert_eq!(run_all(&steps[..1]), ExitCode::SUCCESS);
        assert_eq!(run_all(&steps[..2]), ExitCode::FAILURE);
        assert_eq!(run_all(&steps[2..]), ExitCode::FAILURE);
    }
}

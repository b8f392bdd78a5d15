//! `cargo xtask <task>`: everything that is done to this repository, by people and by machines alike.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use xtask::guard::text::TASKS;
use xtask::{adapters, examples, help, repo, services, sizes, steps, stores};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match task.as_str() {
        "test" | "ci" if rest.is_empty() => steps::run_all(steps::test()),
        "sizes" if rest.is_empty() => {
            print!("{}", sizes::report(&repo::root()));
            ExitCode::SUCCESS
        }
        "reference" if rest.is_empty() => {
            become_cargo(&["run", "--quiet", "-p", "millpond-cli", "--", "reference", "docs"])
        }
        "stores" if rest.is_empty() => stores::write(),
        "services" if rest == ["install"] => services::install(),
        "services" if rest.is_empty() => services::status(),
        "adapters" if rest.is_empty() => adapters::run(),
        "adapters" if rest[0] == "--measure" => adapters::measure(&rest[1..]),
        "examples" if rest.is_empty() => examples::run(),
        "torture" | "bench" => run_released(&task, &rest),
        _ => usage(&task, &rest),
    }
}

/// Becomes the release build of the torture runs or of the benchmarks.
fn run_released(task: &str, rest: &[String]) -> ExitCode {
    let package = format!("millpond-{task}");
    let rest = rest.iter().map(String::as_str);
    let line: Vec<&str> = ["run", "--release", "--package", &package, "--"].into_iter().chain(rest).collect();
    become_cargo(&line)
}

fn become_cargo(line: &[&str]) -> ExitCode {
    let failed = Command::new(repo::cargo()).args(line).current_dir(repo::root()).exec();
    eprintln!("cannot start cargo: {failed}");
    ExitCode::FAILURE
}

fn usage(task: &str, rest: &[String]) -> ExitCode {
    let is_help = |word: &str| matches!(word, "" | "help" | "--help" | "-h");
    let mut code = ExitCode::SUCCESS;
    if !is_help(task) {
        eprintln!("{}\n", help::wrong(task));
        let asked = help::is_task(task) && rest.iter().all(|word| is_help(word));
        code = if asked { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    for (name, what) in TASKS {
        eprintln!("cargo xtask {name:9} {what}");
    }
    code
}

//! `cargo xtask adapters`: formats, lints and tests the adapters for other database libraries, which are a workspace of
//! their own in `adapters/`, with a lock file of its own. `cargo xtask adapters --measure` says how soon a handler begins
//! after a commit, for every way to publish in a transaction.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::repo;

/// Everything but what needs a client library of the system.
const FEATURES: &str = "millpond-tx-sqlx/sqlite,millpond-tx-sqlx/postgres,millpond-tx-sqlx/mysql,millpond-tx-diesel/sqlite,\
    millpond-tx-diesel/async-postgres,millpond-tx-diesel/async-mysql,millpond-tx-seaorm/sqlite,millpond-tx-seaorm/postgres,\
    millpond-tx-seaorm/mysql";

/// Runs them, and ends with the first that fails.
pub fn run() -> ExitCode {
    let lines: [&[&str]; 3] = [
        &["fmt", "--all", "--check"],
        &[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--features",
            FEATURES,
            "--",
            "-D",
            "warnings",
        ],
        &["test", "--locked", "--workspace", "--features", FEATURES],
    ];
    for line in lines {
        if !cargo(line).status().is_ok_and(|ended| ended.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Measures, in a release build; `rest` are its arguments.
pub fn measure(rest: &[String]) -> ExitCode {
    let mut run = cargo(&["run", "--release", "--locked", "--package", "millpond-tx-measure", "--"]);
    let failed = run.args(rest).exec();
    eprintln!("cannot start cargo: {failed}");
    ExitCode::FAILURE
}

/// Cargo in that workspace, with a folder of its own for what it builds.
fn cargo(line: &[&str]) -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = repo::root().join(target).join("adapters");
    let mut cargo = Command::new(repo::cargo());
    cargo.args(line).current_dir(repo::root().join("adapters")).env("CARGO_TARGET_DIR", folder);
    cargo
}

//! `cargo xtask adapters`: formats, lints and tests the adapters for other database libraries, which are a workspace of
//! their own in `adapters/`, with a lock file of its own.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::repo;

/// Everything but what needs a client library of the system.
const FEATURES: &str = "millpond-tx-sqlx/sqlite,millpond-tx-sqlx/postgres,millpond-tx-sqlx/mysql,millpond-tx-diesel/sqlite,\
    millpond-tx-diesel/async-postgres,millpond-tx-diesel/async-mysql,millpond-tx-seaorm/sqlite,millpond-tx-seaorm/postgres,\
    millpond-tx-seaorm/mysql";

/// Runs them, and ends with the first that fails.
pub fn run() -> ExitCode {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = repo::root().join(target).join("adapters");
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
        let mut cargo = Command::new(repo::cargo());
        cargo.args(line).current_dir(repo::root().join("adapters")).env("CARGO_TARGET_DIR", &folder);
        if !cargo.status().is_ok_and(|ended| ended.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

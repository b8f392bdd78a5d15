//! `cargo xtask services`: the database servers that the tests start for themselves, and the languages of the examples,
//! from Debian's packages.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// A program that must be there, in one of these folders or on the path, and the package that brings it.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("postgres", "/usr/lib/postgresql", "postgresql"),
    ("pgbouncer", "/usr/sbin", "pgbouncer"),
    ("mariadbd", "/usr/sbin", "mariadb-server"),
    ("psql", "/usr/bin", "postgresql-client"),
    ("python3", "/usr/bin", "python3"),
    ("node", "/usr/bin", "nodejs"),
    ("npm", "/usr/bin", "npm"),
];

/// A part of Python that Debian has in a package of its own.
const VENV: (&str, &str) = ("import ensurepip, venv", "python3-venv");

/// What is not installed.
fn missing() -> Vec<&'static str> {
    let found = |program: &str, folder: &str| {
        let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let in_version =
            versions.map(|version| version.path().join("bin")).any(|bin| bin.join(program).is_file());
        in_version || Path::new(folder).join(program).is_file() || on_path(program)
    };
    let (import, venv) = VENV;
    let python = Command::new("python3").args(["-c", import]).stderr(Stdio::null()).status();
    let has_venv = python.is_ok_and(|ended| ended.success());
    PROGRAMS
        .iter()
        .filter(|(program, folder, _)| !found(program, folder))
        .map(|(.., package)| *package)
        .chain((!has_venv).then_some(venv))
        .collect()
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Installs what is missing, with the system's package manager. Nothing is started: the tests do that.
pub fn install() -> ExitCode {
    let packages = missing();
    if packages.is_empty() {
        println!("every program is installed");
        return ExitCode::SUCCESS;
    }
    let install = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    // A new machine has no list of packages yet.
    if ["apt-get update --quiet", &install].into_iter().all(runs) {
        return ExitCode::SUCCESS;
    }
    eprintln!("that failed; as root, run it by hand, or name a server of your own (CONTRIBUTING.md)");
    ExitCode::FAILURE
}

/// Says a line and runs it.
fn runs(line: &str) -> bool {
    println!("{line}");
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive").status().is_ok_and(|status| status.success())
}

/// Says what is installed and what is not.
pub fn status() -> ExitCode {
    match missing().as_slice() {
        [] => println!("every program is installed"),
        packages => println!("missing: {}; `cargo xtask services install` gets them", packages.join(", ")),
    }
    ExitCode::SUCCESS
}

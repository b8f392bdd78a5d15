//! `cargo xtask services`: the database servers that the tests start for themselves, and the languages of the examples,
//! from Debian's packages.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// A program that must be there, in one of these folders or on the path, and the package that brings it.
type Program = (&'static str, &'static str, &'static str);

const SERVERS: &[Program] = &[
    ("postgres", "/usr/lib/postgresql", "postgresql"),
    ("pgbouncer", "/usr/sbin", "pgbouncer"),
    ("mariadbd", "/usr/sbin", "mariadb-server"),
];

const LANGUAGES: &[Program] = &[
    ("psql", "/usr/bin", "postgresql-client"),
    ("python3", "/usr/bin", "python3"),
    ("node", "/usr/bin", "nodejs"),
    ("npm", "/usr/bin", "npm"),
];

/// A part of Python that Debian has in a package of its own.
const VENV: (&str, &str) = ("import ensurepip, venv", "python3-venv");

/// What is not installed.
fn missing() -> Vec<&'static str> {
    let (import, venv) = VENV;
    let python = Command::new("python3").args(["-c", import]).stderr(Stdio::null()).status();
    let has_venv = python.is_ok_and(|ended| ended.success());
    SERVERS
        .iter()
        .chain(LANGUAGES)
        .filter(|(program, folder, _)| find(program, folder).is_none())
        .map(|(.., package)| *package)
        .chain((!has_venv).then_some(venv))
        .collect()
}

/// The program: in a folder of its versions, the newest first, in that folder, or on the path.
fn find(program: &str, folder: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = versions.into_iter().map(|version| version.join("bin"));
    let folders = folders.chain([PathBuf::from(folder)]).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The servers that are installed, with their versions, for people.
pub fn versions() -> Vec<String> {
    let version = |(program, folder, _): &Program| {
        let said = Command::new(find(program, folder)?).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        // MariaDB's has the word of the distribution behind it.
        let number = said.split_whitespace().find(is_number)?.split('-').next()?.to_owned();
        Some(format!("{program} {number}"))
    };
    SERVERS.iter().filter_map(version).collect()
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

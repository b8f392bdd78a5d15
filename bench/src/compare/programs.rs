//! The programs that are measured: how each is built and started.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the programs are.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// What a queue is compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Millpond.
    Ours,
    /// A job queue: the best of them is the best peer.
    JobQueue,
    /// A table with a claim and a delete: a row of its own.
    BareTable,
}

/// A measured program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Its name in JSON and for `--stores`.
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    /// The program and the arguments before the URL.
    pub(crate) line: Vec<String>,
}

/// How a program is made.
enum Made {
    /// A package of the workspace in `bench/peers`.
    Cargo(&'static str),
    /// A script in `bench/peers/node`.
    Node(&'static str),
}

const ALL: [(&str, Kind, Made); 7] = [
    (OURS, Kind::Ours, Made::Cargo("peer-millpond")),
    ("graphile_worker", Kind::JobQueue, Made::Cargo("peer-graphile")),
    ("riverqueue", Kind::JobQueue, Made::Cargo("peer-river")),
    ("awa", Kind::JobQueue, Made::Cargo("peer-awa")),
    ("graphile_worker_npm", Kind::JobQueue, Made::Node("graphile-worker.mjs")),
    ("pg_boss", Kind::JobQueue, Made::Node("pg-boss.mjs")),
    ("pgmq", Kind::BareTable, Made::Cargo("peer-pgmq")),
];

/// The key of ours.
pub(crate) const OURS: &str = "millpond";

/// What can be measured here, and what cannot, with the reason.
pub(crate) struct Programs {
    pub(crate) found: Vec<Program>,
    pub(crate) missing: Vec<(&'static str, String)>,
}

/// Builds what is asked for; all, if nothing is named.
pub(crate) fn build(stores: &[String]) -> millpond::Result<Programs> {
    let keys: Vec<&str> = ALL.iter().map(|(key, ..)| *key).collect();
    if let Some(unknown) = stores.iter().find(|store| !keys.contains(&store.as_str())) {
        let why = format!("there is no store `{unknown}`; known are {}", keys.join(", "));
        return Err(crate::failed("choose the stores", why));
    }
    let wanted = |key: &str| key == OURS || stores.is_empty() || stores.iter().any(|store| store == key);
    let mut programs = Programs { found: Vec::new(), missing: Vec::new() };
    // All at once: one by one, what they share would be built again with other features.
    let all = build_cargo(&["--workspace"]);
    let needs_node = ALL.iter().any(|(key, _, made)| wanted(key) && matches!(made, Made::Node(_)));
    let node = if needs_node { install_node() } else { Ok(()) };
    for (key, kind, made) in ALL {
        if !wanted(key) {
            continue;
        }
        let line = match made {
            // One that cannot be built must not hide the others.
            Made::Cargo(package) => all
                .clone()
                .or_else(|_| build_cargo(&["--package", package]))
                .map(|folder| vec![folder.join(package).display().to_string()]),
            Made::Node(script) => node.clone().map(|()| vec!["node".to_owned(), in_node(script)]),
        };
        match line {
            Ok(line) => programs.found.push(Program { key, kind, line }),
            Err(why) => programs.missing.push((key, why)),
        }
    }
    Ok(programs)
}

fn in_node(file: &str) -> String {
    format!("{PEERS}/node/{file}")
}

/// Builds packages of the workspace in `bench/peers`; answers the folder of the programs.
fn build_cargo(which: &[&str]) -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = target();
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--release", "--locked"]).args(which);
    build.arg("--manifest-path").arg(format!("{PEERS}/Cargo.toml")).arg("--target-dir").arg(&target);
    done(&mut build)?;
    Ok(target.join("release"))
}

/// Beside our own, so that a change of ours builds none of theirs again.
fn target() -> PathBuf {
    let ours = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    ours.unwrap_or_else(|| Path::new(PEERS).join("../../target")).join("peers")
}

fn install_node() -> Result<(), String> {
    // What is installed is recorded by npm itself, in this file.
    let installed =
        std::fs::metadata(in_node("node_modules/.package-lock.json")).and_then(|file| file.modified());
    let locked = std::fs::metadata(in_node("package-lock.json")).and_then(|file| file.modified());
    if matches!((installed, locked), (Ok(installed), Ok(locked)) if locked <= installed) {
        return Ok(());
    }
    let mut install = Command::new("npm");
    done(install.args(["ci", "--no-audit", "--no-fund"]).current_dir(format!("{PEERS}/node")))
}

fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let ended = command.output().map_err(|error| format!("cannot start {name}: {error}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let why = said.lines().find(|line| line.contains("error")).or_else(|| said.lines().last());
    Err(format!("{name}: {}", why.unwrap_or("it failed").trim()))
}

//! `cargo xtask examples`: installs what the programs in `examples/sql/` need, and runs their tests. The packages come
//! from the registries of pip and npm, in the versions that are committed, into a folder beside what cargo builds; what is
//! there is not asked for again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::repo;

/// Copied into the folder, where node finds the packages beside them.
const EXAMPLES: &str = "examples/sql";

/// Which packages, in which versions.
const PINNED: [&str; 2] = ["requirements.txt", "package-lock.json"];

/// The stores that they send to.
const FEATURES: &str = "millpond/sqlite,millpond/postgres,millpond/mysql";

/// Says what is installed; written last.
const INSTALLED: &str = "installed";

/// Installs and runs.
pub fn run() -> ExitCode {
    match install() {
        Ok(folder) => test(&folder),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn test(folder: &Path) -> ExitCode {
    let mut cargo = Command::new(repo::cargo());
    // With the features of the whole workspace, as everything was built before.
    cargo.args(["test", "--workspace", "--features", FEATURES, "--test", "sql_examples", "--", "--ignored"]);
    cargo.current_dir(repo::root()).env("MILLPOND_SQL_EXAMPLES", folder);
    match cargo.status() {
        Ok(ended) if ended.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// The folder with the examples and their packages.
fn install() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let (from, folder) = (repo::root().join(EXAMPLES), repo::root().join(target).join("sql-examples"));
    copy(&from, &folder)
        .map_err(|error| format!("cannot copy {EXAMPLES} to {}: {error}", folder.display()))?;
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let wanted = PINNED.map(read).concat();
    if read(INSTALLED) == wanted {
        return Ok(folder);
    }
    done(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder.join("venv")))?;
    let mut pip = Command::new(folder.join("venv/bin/python"));
    done(
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(folder.join(PINNED[0])),
    )?;
    done(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--silent"]).current_dir(&folder))?;
    fs::write(folder.join(INSTALLED), wanted)
        .map_err(|error| format!("cannot write {INSTALLED}: {error}"))?;
    Ok(folder)
}

fn copy(from: &Path, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        fs::copy(file.path(), folder.join(file.file_name()))?;
    }
    Ok(())
}

fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let ended = command.status().map_err(|error| {
        format!("cannot start {name}: {error}; `cargo xtask services install` installs what is missing")
    })?;
    if ended.success() { Ok(()) } else { Err(format!("{name}: {ended}")) }
}

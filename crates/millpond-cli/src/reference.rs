//! `millpond reference`: the pages that are written from the program itself, so that they cannot drift from it.
//!
//! `reference/cli.md`, `reference/configuration.md` and the manual `man/millpond.1`. `cargo xtask reference` runs it.

mod command;
mod manual;
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config;
use crate::exit::{Done, Exit, Failure};
use crate::output::note;
use command::Described;

/// Where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond reference docs
  millpond reference docs --check")]
pub(crate) struct Args {
    /// The folder in which `reference/` and `man/` are
    folder: PathBuf,
    /// Write nothing, and fail if a page differs
    #[arg(long)]
    check: bool,
}

/// What begins every page that is written here.
const ORIGIN: &str =
    "Written by `cargo xtask reference` from the program itself: change the program, not this page.";

/// Writes the pages, or compares them.
pub(crate) fn run(args: &Args) -> Done {
    let commands = command::all();
    let pages = [
        ("reference/cli.md", page::commands(&commands)),
        ("reference/configuration.md", page::settings(&config::keys())),
        ("man/millpond.1", manual::all(&commands)),
    ];
    let mut differ = Vec::new();
    for (name, text) in pages {
        let path = args.folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            continue;
        }
        differ.push(path.display().to_string());
        if !args.check {
            write(&path, &text)?;
        }
    }
    match (differ.as_slice(), args.check) {
        ([], _) => {}
        (differ, false) => note(&format!("wrote {}", differ.join(", ")))?,
        (differ, true) => {
            let tried = format!("{} differs from the program", differ.join(", "));
            let failure = Failure::new(Exit::Failed, "internal", tried);
            return Err(failure.advice("run `cargo xtask reference`, and commit what it writes"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| Failure::usage(format!("cannot write {}", path.display())).why(error.to_string()))
}

/// The lines of the table of exit codes.
const EXITS: [(Exit, &str); 8] = [
    (Exit::Failed, "failed"),
    (Exit::Usage, "usage or configuration is wrong"),
    (Exit::Unreachable, "the store cannot be reached"),
    (Exit::Refused, "refused for safety"),
    (Exit::NotFound, "there is no such thing"),
    (Exit::Conflict, "something changed meanwhile"),
    (Exit::Partly, "a bulk command did a part"),
    (Exit::Interrupted, "ended by a signal"),
];

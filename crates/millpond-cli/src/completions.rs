//! `millpond completions`: what a shell needs to complete the commands.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args;
use crate::exit::Done;

/// Which shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond completions bash > ~/.local/share/bash-completion/completions/millpond
  millpond completions zsh > ~/.zfunc/_millpond        with fpath+=~/.zfunc before compinit in ~/.zshrc
  millpond completions fish > ~/.config/fish/completions/millpond.fish
  millpond completions powershell >> $PROFILE")]
pub(crate) struct Args {
    /// bash, elvish, fish, powershell or zsh
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Done {
    // The generator takes a broken pipe for a bug: it gets memory to write to.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::Args::command(), "millpond", &mut script);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}

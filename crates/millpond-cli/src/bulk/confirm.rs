//! Asking a person. A script must have said it.

use std::io::{self, IsTerminal, Write as _};

use crate::exit::{Exit, Failure};
use crate::output::clean;

/// Whether a person can be asked.
fn is_somebody_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks whether to do something, such as `redrive 3 dead letters`.
pub(crate) fn ask(what: &str, about: &str, count: u64) -> Result<(), Failure> {
    if !is_somebody_there() {
        let tried = format!("refused to {what} without a confirmation");
        let advice = format!("look with --dry-run, then say --expect {count}, or --yes");
        return Err(Failure::new(Exit::Refused, "invalid-parameter", tried).advice(advice));
    }
    let about = if about.is_empty() { String::new() } else { format!(" ({})", clean(about)) };
    match answer(&format!("{what}{about}? [y/N] "))?.as_str() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(nothing("answer y, or say --yes")),
    }
}

/// Asks for a name to be typed, where something is gone for good.
pub(crate) fn ask_for_name(what: &str, name: &str, count: u64) -> Result<(), Failure> {
    if !is_somebody_there() {
        return ask(what, "", count);
    }
    if answer(&format!("{what} for good? Type the name `{name}` to go on: "))? == name {
        return Ok(());
    }
    Err(nothing("type the name as it is, or say --yes"))
}

fn answer(question: &str) -> Result<String, Failure> {
    write!(io::stderr(), "{question}")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

fn nothing(advice: &str) -> Failure {
    Failure::new(Exit::Refused, "invalid-parameter", "nothing was done").advice(advice)
}

//! The command line: nouns with their verbs, and the flags that every command has.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use millpond::text::{parse_duration, parse_size};

use crate::exit::Failure;
use crate::output::Format;
use crate::{
    audit, colour, completions, config, dead_letter, demo, doctor, events, explain, health, message, migrate,
    outbox, queue, redact, reference, store, top, why, work, worker,
};

/// A durable queue in the database you already have.
#[derive(Debug, Parser)]
#[command(name = "millpond", version, arg_required_else_help = true, max_term_width = 110, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Flags of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Any,
}

const EXAMPLES: &str = "\
Examples:
  millpond queue add mail                          a queue, and the store if there is none yet
  millpond queue send mail '{\"user_id\":1}'          one message, durable when the command ends
  millpond work mail --exec ./send-mail            any program as the handler of a queue
  millpond why 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10
                                                   why a message does not run, and what to do

The store is a SQLite file, ./millpond.db unless --store, MILLPOND_STORE or millpond.toml name another.
Exit codes: 0 done, 1 failed, 2 usage, 3 store not reached, 4 refused for safety, 5 not found, 6 conflict,
8 partly done.";

/// Flags of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// The store, such as sqlite://app.db [env: MILLPOND_STORE, else DATABASE_URL] [default: sqlite://millpond.db]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) store: Option<String>,
    /// The configuration [default: ./millpond.toml, else /etc/millpond/millpond.toml]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// The form of the output [default: table on a terminal, ndjson when piped]
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        hide_possible_values = true,
        value_name = "table|json|ndjson|csv|id",
        help_heading = "Global options"
    )]
    pub(crate) output: Option<Format>,
    /// The same as -o json
    #[arg(long, global = true, conflicts_with = "output", help_heading = "Global options")]
    pub(crate) json: bool,
    /// Times in tables in UTC instead of local
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) utc: bool,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Any {
    /// Those that read the configuration.
    #[command(flatten)]
    OfStore(Command),
    /// Those that must run with a wrong one.
    #[command(flatten)]
    Plain(Plain),
}

/// What needs neither a store nor a right configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Plain {
    /// What an error, a reason or a cause means, and what to do
    Explain(explain::Args),
    /// Whether the configuration can work, without a database
    Check(config::CheckArgs),
    /// Every setting with where it comes from
    Config(config::Args),
    /// What a shell needs to complete the commands
    Completions(completions::Args),
    /// The pages that are written from the program itself
    #[command(hide = true)]
    Reference(reference::Args),
}

/// The nouns, and the verbs that stand alone.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Declare queues, look at them, send to them
    #[command(subcommand)]
    Queue(queue::Verb),
    /// Run a program for each message of a queue
    Work(work::Args),
    /// Ends the programs of a worker that was killed
    #[command(hide = true)]
    WorkGuard(work::GuardArgs),
    /// List messages, make them due, cancel them
    #[command(subcommand, alias = "msg")]
    Message(message::Verb),
    /// List dead letters, send them again, delete them
    #[command(subcommand, alias = "dlq")]
    DeadLetter(dead_letter::Verb),
    /// What may not be worked on yet: list it, make it due, drop it
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// Who changed what, and why
    #[command(subcommand)]
    Audit(audit::Verb),
    /// The run log, live too; counts by minute and by day
    #[command(subcommand, alias = "event")]
    Events(events::Verb),
    /// Why a message does not run, or why a queue is slow
    Why(why::Args),
    /// Queues and workers, live
    Top(top::Args),
    /// What needs a person: store, clocks, workers, queues, dead letters
    Doctor(doctor::Args),
    /// Facts, grants and export of the store
    #[command(subcommand)]
    Store(store::Verb),
    /// See who works, tell workers to drain or to restart
    #[command(subcommand)]
    Worker(worker::Verb),
    /// The schema of the store: plan, up, status
    Migrate(migrate::Args),
    /// A text as it would be stored: secrets masked, and cut
    Redact(redact::Args),
    /// Whether the store opens and answers: a probe for containers
    Health(health::Args),
    /// See a queue at work: two workers, failures, a crash, and a check that nothing is lost
    Demo(demo::Args),
    /// A worker process of a demo
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
}

impl Global {
    /// The form that was asked for.
    pub(crate) fn format(&self) -> Option<Format> {
        if self.json { Some(Format::Json) } else { self.output }
    }
}

/// A duration with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a duration cannot be negative; write one such as 5s".to_owned());
    }
    parse_duration(text).map_err(|error| error.to_string())
}

/// A whole number, at least 1.
pub(crate) fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(format!("write a whole number from 1 to {}", u32::MAX)),
    }
}

/// A size with its unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// A limit of time that may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

/// A duration with its unit, or `none`.
pub(crate) fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { duration(text).map(|limit| Limit(Some(limit))) }
}

/// Reads the command line. What cannot be understood is said on stderr, and help that was asked for on stdout.
pub(crate) fn parse() -> Result<Args, ExitCode> {
    let matches = Args::command().color(colour::of_help()).try_get_matches();
    matches.and_then(|matches| Args::from_arg_matches(&matches)).map_err(|error| {
        let asked = |pair: &[String]| pair.iter().any(|word| word == "--json") || pair == ["-o", "json"];
        let words: Vec<String> = std::env::args_os().filter_map(|word| word.into_string().ok()).collect();
        match refused(&error) {
            Some(failure) => failure.report(words.windows(2).any(asked)),
            None => {
                // Nobody reads the help: then nobody needs it.
                let _ = error.print();
                ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
            }
        }
    })
}

/// What clap says, in three lines; `None` when it is help that was asked for.
fn refused(error: &clap::Error) -> Option<Failure> {
    use clap::error::ErrorKind as Kind;
    match error.kind() {
        Kind::DisplayHelp | Kind::DisplayVersion | Kind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return None;
        }
        _ => {}
    }
    let text = error.to_string();
    let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = parts.next().unwrap_or_default();
    let tried = first.strip_prefix("error: ").unwrap_or(&first).to_owned();
    let rest: Vec<String> = parts.collect();
    let find = |prefix: &str| rest.iter().find_map(|part| part.strip_prefix(prefix).map(str::to_owned));
    let usage = find("Usage: ").filter(|usage| !usage.contains("<COMMAND>"));
    let help = format!(
        "see `{} --help`",
        command_of(std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()))
    );
    let exec_missing = error.kind() == Kind::MissingRequiredArgument && tried.contains("--exec");
    let failure = Failure::usage(tried);
    if exec_missing {
        let example = "say what to run for each message, such as --exec 'cat', which prints it";
        return Some(failure.advice(format!("{example}; {help}")));
    }
    Some(match (find("tip: "), usage) {
        (Some(tip), _) => failure.advice(format!("{tip}; {help}")),
        (None, Some(usage)) => failure.why(format!("usage is {usage}")).advice(help),
        (None, None) => failure.advice(help),
    })
}

/// The command that a line names, as far as it is one.
fn command_of(words: impl Iterator<Item = String>) -> String {
    let mut names = vec!["millpond".to_owned()];
    let mut command = Args::command();
    for word in words {
        let Some(inner) = command.find_subcommand(&word).cloned() else { continue };
        names.push(inner.get_name().to_owned());
        command = inner;
    }
    names.join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The words of a line as a shell has them, up to a pipe, a redirection or an explanation.
    pub(crate) fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        let line = line.split("   ").next().unwrap_or_default();
        for character in line.chars() {
            match (quote, character) {
                (None, '\'' | '"') => {
                    word.get_or_insert_default();
                    quote = Some(character);
                }
                (Some(open), close) if open == close => quote = None,
                (None, ' ') => words.extend(word.take()),
                (_, character) => word.get_or_insert_default().push(character),
            }
        }
        words.extend(word);
        let end = words
            .iter()
            .position(|word| matches!(word.as_str(), "|" | ">" | ">>" | "&" | "&&" | "||" | ";" | "<"));
        words.truncate(end.unwrap_or(words.len()));
        words
    }

    /// Why the program does not understand a line, every flag and every value in it.
    pub(crate) fn refused(line: &str) -> Option<String> {
        use clap::error::ErrorKind as Kind;
        let error = Args::try_parse_from(words(line)).err()?;
        let is_help = matches!(error.kind(), Kind::DisplayHelp | Kind::DisplayVersion);
        (!is_help).then(|| format!("{line}\n  {}", error.to_string().lines().next().unwrap_or_default()))
    }

    #[test]
    fn a_line_is_read_as_a_shell_reads_it() {
        let line = "millpond work mail --exec 'exit 65' --drain | head    what it does";
        assert_eq!(words(line), ["millpond", "work", "mail", "--exec", "exit 65", "--drain"]);
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn help_is_that_of_the_command_that_was_meant() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter();
        assert_eq!(command_of(words("queue add mail --lease 30")), "millpond queue add");
        assert_eq!(command_of(words("--json dlq ls")), "millpond dead-letter list");
        assert_eq!(command_of(words("nothing")), "millpond");
    }
}

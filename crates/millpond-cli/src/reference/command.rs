//! The commands as clap has them, in the order of the help, without what is hidden.

use clap::{Arg, Command, CommandFactory as _};

use crate::args::Args;

/// A command.
#[derive(Debug)]
pub(super) struct Described {
    /// All its words: `millpond queue add`.
    pub(super) name: String,
    /// In a line.
    pub(super) about: String,
    /// How it is written.
    pub(super) usage: String,
    /// Other names for its last word.
    pub(super) aliases: Vec<String>,
    /// Its arguments and flags, without those of every command.
    pub(super) arguments: Vec<Argument>,
    /// Verbs, with what each does.
    pub(super) verbs: Vec<(String, String)>,
    /// What its help says at the end.
    pub(super) notes: Vec<Block>,
}

/// An argument or a flag.
#[derive(Debug)]
pub(super) struct Argument {
    /// As it is written: `-y, --yes` or `--lease <LEASE>`.
    pub(super) form: String,
    /// What it is for, with values and default.
    pub(super) about: String,
}

/// A part of the notes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Sentences.
    Paragraph(String),
    /// Lines that stay as they are.
    Lines(String),
    /// Lines to try.
    Examples(String),
}

/// Every visible command, the program itself first.
pub(super) fn all() -> Vec<Described> {
    let mut root = Args::command();
    root.build();
    let mut found = Vec::new();
    walk(&root, "", &mut found);
    found
}

/// The flags of every command.
pub(super) fn global() -> Vec<Argument> {
    Args::command().get_arguments().filter(|arg| arg.is_global_set()).map(argument).collect()
}

fn walk(command: &Command, above: &str, found: &mut Vec<Described>) {
    let name = format!("{above} {}", command.get_name()).trim().to_owned();
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| is_shown(verb)).collect();
    let own = |arg: &&Arg| !arg.is_global_set() && !arg.is_hide_set() && !is_of_clap(arg);
    found.push(Described {
        about: about(command),
        usage: usage(command),
        aliases: command.get_all_aliases().map(str::to_owned).collect(),
        arguments: command.get_arguments().filter(own).map(argument).collect(),
        verbs: verbs.iter().map(|verb| (verb.get_name().to_owned(), about(verb))).collect(),
        notes: command.get_after_help().map(|text| blocks(&text.to_string())).unwrap_or_default(),
        name: name.clone(),
    });
    for verb in verbs {
        walk(verb, &name, found);
    }
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn is_of_clap(arg: &Arg) -> bool {
    matches!(arg.get_id().as_str(), "help" | "version")
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn usage(command: &Command) -> String {
    let text = command.clone().render_usage().to_string();
    text.trim_start_matches("Usage:").trim().to_owned()
}

fn argument(arg: &Arg) -> Argument {
    let value = arg.get_value_names().map(|names| names.join("> <")).unwrap_or_default();
    let takes = arg.is_positional() || arg.get_action().takes_values();
    let flags: Vec<String> =
        [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))]
            .into_iter()
            .flatten()
            .collect();
    let value = match (takes && !value.is_empty(), arg.is_positional(), arg.is_required_set()) {
        (false, _, _) => String::new(),
        (true, true, false) => format!("[{value}]"),
        (true, _, _) => format!("<{value}>"),
    };
    let form = format!("{} {value}", flags.join(", ")).trim().to_owned();
    let mut about = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if takes && !values.is_empty() && !arg.is_hide_possible_values_set() {
        about.push_str(&format!(" [{}]", values.join(", ")));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes && !defaults.is_empty() && !about.contains("[default") {
        about.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    Argument { form, about }
}

/// Paragraphs, and lines that are indented. What follows `Examples:` is to try.
fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut is_example) = (Vec::new(), false);
    for part in text.split("\n\n") {
        let (first, rest) = part.split_once('\n').unwrap_or((part, ""));
        let (is_heading, body) = match first.trim() {
            "Examples:" | "Example:" => (true, rest),
            _ => (false, part),
        };
        let is_indented = body.lines().all(|line| line.starts_with("  "));
        is_example = is_heading || (is_example && is_indented);
        let lines = || body.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>();
        blocks.push(match (is_example, is_indented) {
            (true, _) => Block::Examples(lines().join("\n")),
            (false, true) => Block::Lines(lines().join("\n")),
            (false, false) => Block::Paragraph(body.split_whitespace().collect::<Vec<_>>().join(" ")),
        });
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_help_is_read_in_its_parts() {
        let text =
            "One\nsentence.\n\n  exit 0   done\n\nExamples:\n  millpond a\n    b\n\n  millpond c\n\nMore.";
        let expected = [
            Block::Paragraph("One sentence.".into()),
            Block::Lines("exit 0   done".into()),
            Block::Examples("millpond a\n  b".into()),
            Block::Examples("millpond c".into()),
            Block::Paragraph("More.".into()),
        ];
        assert_eq!(blocks(text), expected);
    }

    const ABOUT_CHARS_MAX: usize = 120;

    #[test]
    fn every_command_has_a_line_and_every_verb_an_example() {
        let mut wrong = Vec::new();
        for command in all() {
            let Described { name, about, verbs, notes, .. } = &command;
            let is_line =
                !about.is_empty() && !about.contains('\n') && about.chars().count() <= ABOUT_CHARS_MAX;
            let has_example = notes.iter().any(|block| matches!(block, Block::Examples(_)));
            for (holds, must) in [
                (is_line, "its about is one line of at most 120 characters"),
                (!about.ends_with('.'), "its about has no full stop"),
                (has_example || !verbs.is_empty(), "its help needs `Examples:` in after_help"),
            ] {
                wrong.extend((!holds).then(|| format!("{name}: {must}")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_argument_says_what_it_is_for() {
        for command in all() {
            for argument in &command.arguments {
                assert!(!argument.about.is_empty(), "{}: {} says nothing", command.name, argument.form);
            }
        }
    }

    /// Each line of an example that begins with the program can be read by it.
    #[test]
    fn every_example_is_a_command_of_the_program() {
        let (mut seen, mut wrong) = (0, Vec::new());
        for command in all() {
            for block in &command.notes {
                let Block::Examples(text) = block else { continue };
                for line in text.lines().filter(|line| line.starts_with("millpond ")) {
                    wrong.extend(crate::args::tests::refused(line));
                    seen += 1;
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(20 < seen, "only {seen} examples were seen");
    }
}

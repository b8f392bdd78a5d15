//! The reference as Markdown.

use super::command::{self, Argument, Block};
use super::{Described, EXITS, ORIGIN};
use crate::config::Setting;

/// Columns of a line of text.
const COLUMNS: usize = 110;

/// Every command.
pub(super) fn commands(commands: &[Described]) -> String {
    let mut text = format!("<!-- {ORIGIN} -->\n\n# Command line\n\n");
    for command in commands {
        let Described { name, about, usage, aliases, arguments, verbs, notes } = command;
        text.push_str(&format!("## {name}\n\n{}.\n\n```text\n{usage}\n```\n\n", plain(about)));
        if !aliases.is_empty() {
            text.push_str(&format!("Also: `{}`.\n\n", aliases.join("`, `")));
        }
        for (verb, about) in verbs {
            text.push_str(&format!(
                "- [`{verb}`](#{}): {}\n",
                anchor(&format!("{name} {verb}")),
                plain(about)
            ));
        }
        if !verbs.is_empty() {
            text.push('\n');
        }
        list(&mut text, arguments);
        notes.iter().for_each(|block| note(&mut text, block));
        if name == "millpond" {
            text.push_str("### Options of every command\n\n");
            list(&mut text, &command::global());
            text.push_str(
                "### Exit codes\n\n| code | meaning |\n|---|---|\n| 0 | done, also \"nothing to do\" |\n",
            );
            for (exit, meaning) in EXITS {
                text.push_str(&format!("| {} | {meaning} |\n", exit as u8));
            }
            text.push_str(
                "\nAn error ends with its code in brackets, and `millpond explain CODE` says more.\n\n",
            );
        }
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Every setting.
pub(super) fn settings(settings: &[Setting]) -> String {
    let mut text = format!("<!-- {ORIGIN} -->\n\n# Configuration\n\n");
    text.push_str(&wrapped(
        "A flag wins over a variable, a variable over `millpond.toml`, and that over the default. The file is the one \
         after `--config`, else `./millpond.toml`, else `/etc/millpond/millpond.toml`. Durations carry a unit: `300ms`, \
         `5s`, `1h30m`. Each variable also exists with `_FILE` at its end, and then names a file with the value. \
         `millpond check` says everything that is wrong; `millpond config` shows every value and where it comes from.",
    ));
    for Setting { name, about, shape, default, variable } in settings {
        text.push_str(&format!("\n## `{name}`\n\n{}\n", wrapped(about)));
        text.push_str(&format!("- Value: {shape}\n"));
        let default = if default.is_empty() { "none".to_owned() } else { format!("`{default}`") };
        text.push_str(&format!("- Default: {default}\n- Variable: `{variable}`\n"));
    }
    text
}

fn list(text: &mut String, arguments: &[Argument]) {
    for Argument { form, about } in arguments {
        text.push_str(&format!("- `{form}`: {}\n", plain(about)));
    }
    if !arguments.is_empty() {
        text.push('\n');
    }
}

fn note(text: &mut String, block: &Block) {
    match block {
        Block::Paragraph(words) => text.push_str(&format!("{}\n", wrapped(&plain(words)))),
        Block::Lines(lines) | Block::Examples(lines) => text.push_str(&format!("```text\n{lines}\n```\n\n")),
    }
}

/// Outside of backticks, what Markdown would take for its own is escaped.
fn plain(text: &str) -> String {
    let mut is_code = false;
    let mut escaped = String::new();
    for character in text.chars() {
        is_code ^= character == '`';
        if !is_code && matches!(character, '<' | '*' | '#') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

/// In lines, with an empty one at the end.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if COLUMNS < line.chars().count() + 1 + word.chars().count() {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_markdown_would_take_for_its_own_is_escaped_outside_of_code() {
        assert_eq!(plain("K#<line>, `<b>` ***"), "K\\#\\<line>, `<b>` \\*\\*\\*");
    }

    #[test]
    fn every_command_has_its_heading_and_is_linked_from_above() {
        let text = commands(&command::all());
        for command in command::all() {
            assert!(text.contains(&format!("\n## {}\n", command.name)), "{}", command.name);
        }
        for link in text.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
            let is_heading = |line: &&str| line.strip_prefix("## ").is_some_and(|name| anchor(name) == link);
            assert!(text.lines().any(|line| is_heading(&line)), "{link}");
        }
    }
}

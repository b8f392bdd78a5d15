//! The manual, in roff: one page for the whole program.

use super::command::{self, Argument, Block};
use super::{Described, EXITS, ORIGIN};

/// Every command.
pub(super) fn all(commands: &[Described]) -> String {
    let mut text = format!(".\\\" {}\n.TH MILLPOND 1 \"\" Millpond \"User commands\"\n", escaped(ORIGIN));
    text.push_str(".nh\n.ad l\n");
    let Some((root, commands)) = commands.split_first() else { return text };
    text.push_str(&format!(".SH NAME\nmillpond \\- {}\n", escaped(&root.about)));
    text.push_str(&format!(".SH SYNOPSIS\n.B {}\n", escaped(&root.usage)));
    text.push_str(".SH DESCRIPTION\n");
    notes(&mut text, &root.notes);
    text.push_str(".SH OPTIONS OF EVERY COMMAND\n");
    list(&mut text, &command::global());
    text.push_str(".SH COMMANDS\n");
    for command in commands {
        let Described { name, about, usage, aliases, arguments, verbs, notes: block, .. } = command;
        text.push_str(&format!(".SS {}\n{}.\n.PP\n.B {}\n", escaped(name), escaped(about), escaped(usage)));
        if !aliases.is_empty() {
            text.push_str(&format!(".PP\nAlso: {}.\n", escaped(&aliases.join(", "))));
        }
        for (verb, about) in verbs {
            text.push_str(&format!(".TP\n.B {}\n{}\n", escaped(verb), escaped(about)));
        }
        list(&mut text, arguments);
        notes(&mut text, block);
    }
    text.push_str(".SH EXIT STATUS\n.TP\n.B 0\ndone, also \"nothing to do\"\n");
    for (exit, meaning) in EXITS {
        text.push_str(&format!(".TP\n.B {}\n{}\n", exit as u8, escaped(meaning)));
    }
    text.push_str(
        ".SH FILES\n.TP\n.I ./millpond.toml\nthe configuration, else /etc/millpond/millpond.toml\n",
    );
    text
}

fn list(text: &mut String, arguments: &[Argument]) {
    for Argument { form, about } in arguments {
        text.push_str(&format!(".TP\n.B {}\n{}\n", escaped(form), escaped(about)));
    }
}

fn notes(text: &mut String, blocks: &[Block]) {
    for block in blocks {
        match block {
            Block::Paragraph(words) => text.push_str(&format!(".PP\n{}\n", escaped(words))),
            Block::Lines(lines) => verbatim(text, lines),
            Block::Examples(lines) => {
                text.push_str(".PP\nExamples:\n");
                verbatim(text, lines);
            }
        }
    }
}

/// Lines that stay as they are.
fn verbatim(text: &mut String, lines: &str) {
    text.push_str(".PP\n.RS 4\n.nf\n");
    for line in lines.lines() {
        text.push_str(&escaped(line));
        text.push('\n');
    }
    text.push_str(".fi\n.RE\n");
}

/// A text in which roff sees no request, and a hyphen stays one that can be copied.
fn escaped(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "\\(ga");
    let escaped = escaped.replace('…', "\\[u2026]").replace('→', "\\[u2192]");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_taken_for_a_request() {
        assert_eq!(escaped(".fi"), "\\&.fi");
        assert_eq!(escaped("a \\ --b"), "a \\e \\-\\-b");
    }

    #[test]
    fn every_command_is_in_the_manual() {
        let text = all(&command::all());
        for command in &command::all()[1..] {
            assert!(text.contains(&format!(".SS {}\n", escaped(&command.name))), "{}", command.name);
        }
    }
}

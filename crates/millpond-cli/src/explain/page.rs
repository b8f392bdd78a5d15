//! A page, read from its Markdown. All pages have the same parts: a title, a sentence, facts, when, what to do.

/// The parts of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Its word.
    pub(super) word: String,
    /// What it means, in a sentence.
    pub(super) title: String,
    /// Name and value.
    pub(super) facts: Vec<(String, String)>,
    /// When it happens: paragraphs.
    pub(super) when: String,
    /// The message as it is printed.
    pub(super) example: Option<String>,
    /// What to do, in order.
    pub(super) steps: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    When,
    Example,
    Steps,
}

impl Page {
    /// Reads a page. What is not of the form is passed over: a test holds all pages to it.
    pub(super) fn read(text: &str) -> Self {
        let (mut page, mut part) = (Self::default(), Part::Head);
        for line in text.lines() {
            part = match (part, line) {
                (Part::Example, "```") => Part::When,
                (Part::When, fence) if fence.starts_with("```") => Part::Example,
                (Part::Head, "## When it happens") => Part::When,
                (_, "## What to do") => Part::Steps,
                (part, line) => {
                    page.add(part, line);
                    part
                }
            };
        }
        page.when = page.when.trim().to_owned();
        page
    }

    fn add(&mut self, part: Part, line: &str) {
        match part {
            Part::Head => {
                if let Some(word) = line.strip_prefix("# ") {
                    self.word = word.to_owned();
                } else if let Some((name, value)) =
                    line.strip_prefix("- ").and_then(|fact| fact.split_once(": "))
                {
                    self.facts.push((name.to_owned(), value.to_owned()));
                } else {
                    append(&mut self.title, line, " ");
                }
            }
            Part::When => append_line(&mut self.when, line),
            Part::Example => append(self.example.get_or_insert_default(), line, "\n"),
            Part::Steps => {
                let numbered = line.split_once(". ").filter(|(number, _)| number.parse::<u8>().is_ok());
                match (numbered, self.steps.last_mut()) {
                    (Some((_, step)), _) => self.steps.push(step.to_owned()),
                    (None, Some(step)) => append(step, line.trim_start(), " "),
                    (None, None) => {}
                }
            }
        }
    }

    /// When it happens, each paragraph in one line.
    pub(super) fn when_unfolded(&self) -> String {
        let paragraphs = self.when.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
        paragraphs.collect::<Vec<_>>().join("\n\n")
    }

    /// The value of a fact.
    pub(super) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// For a terminal: no marks of Markdown, and the same words.
    pub(super) fn plain(&self) -> String {
        let Self { word, title, facts, when, example, steps } = self;
        let mut text = format!("{}\n{title}\n\n", heading(word));
        for (name, value) in facts {
            text.push_str(&format!("{:13}{value}\n", format!("{name}:")));
        }
        text.push_str(&format!("\n{}\n{when}\n", heading("When it happens")));
        for (index, line) in example.iter().flat_map(|example| example.lines()).enumerate() {
            text.push_str(if index == 0 { "\n    " } else { "    " });
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&format!("\n{}\n", heading("What to do")));
        for (index, step) in steps.iter().enumerate() {
            text.push_str(&folded(&format!("{}. ", index + 1), step));
        }
        text
    }
}

/// Columns of a line of a step.
const COLUMNS: usize = 100;

/// A step in lines that a terminal holds.
fn folded(first: &str, text: &str) -> String {
    let (mut folded, mut line) = (String::new(), first.trim_end().to_owned());
    for word in text.split(' ') {
        if COLUMNS < line.chars().count() + 1 + word.chars().count() {
            folded.push_str(&line);
            folded.push('\n');
            line = " ".repeat(first.len() - 1);
        }
        line.push(' ');
        line.push_str(word);
    }
    folded + &line + "\n"
}

fn heading(text: &str) -> String {
    crate::colour::bold(text, crate::colour::Stream::Stdout)
}

fn append(text: &mut String, line: &str, between: &str) {
    if line.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push_str(between);
    }
    text.push_str(line);
}

/// Keeps paragraphs apart.
fn append_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# lease-lost\n\nThe lease\nis over.\n\n- Retry: no\n- Exit code: 6\n\n## When it happens\n\n\
                        One.\n\nTwo.\n\n```text\nerror: a\n  why: b\n```\n\n## What to do\n\n1. Look.\n2. Stop,\n   \
                        at once.\n";

    #[test]
    fn a_page_is_read_in_its_parts() {
        let page = Page::read(TEXT);
        assert_eq!((page.word.as_str(), page.title.as_str()), ("lease-lost", "The lease is over."));
        assert_eq!((page.fact("Exit code"), page.fact("x")), (Some("6"), None));
        assert_eq!(page.when, "One.\n\nTwo.");
        assert_eq!(page.example.as_deref(), Some("error: a\n  why: b"));
        assert_eq!(page.steps, ["Look.", "Stop, at once."]);
    }

    #[test]
    fn a_page_on_a_terminal_has_no_marks() {
        let text = Page::read(TEXT).plain();
        assert!(text.starts_with("lease-lost\nThe lease is over.\n\nRetry:       no\n"), "{text}");
        assert!(text.contains("Two.\n\n    error: a\n      why: b\n\nWhat to do\n1. Look.\n"), "{text}");
        assert!(!text.contains('#') && !text.contains("```"), "{text}");
    }

    #[test]
    fn a_long_step_is_folded_under_its_first_word() {
        let text = folded("1. ", &"word ".repeat(30));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].chars().count() <= COLUMNS && lines[1].starts_with("   word"), "{text}");
    }
}

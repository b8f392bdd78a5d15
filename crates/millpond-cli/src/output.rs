//! What a command prints: a table for people, JSON and CSV for programs, ids for pipes.
//!
//! Data goes to stdout and everything else to stderr. A table is for eyes: times are local, long texts are cut,
//! control characters are escaped. The other forms are for machines: everything, times in UTC.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Table, presets};
use jiff::tz::TimeZone;
use millpond::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::instant;

/// Characters of a cell of a table.
const CELL_CHARS_MAX: usize = 60;

/// The forms of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; the default on a terminal.
    Table,
    /// One document.
    Json,
    /// One document in each line; the default when piped.
    Ndjson,
    /// With a line of names.
    Csv,
    /// Ids or names only.
    Id,
}

/// Where and how to print.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    format: Format,
    zone: TimeZone,
}

/// One column of a list; the first one is the id.
pub(crate) struct Column<T> {
    name: &'static str,
    cell: fn(&T, &Times) -> String,
    /// Whether a long text stays whole in a table.
    whole: bool,
}

/// Writes instants in the zone of an output.
pub(crate) struct Times {
    zone: Option<TimeZone>,
}

impl<T> Column<T> {
    /// A column with how to fill it.
    pub(crate) const fn new(name: &'static str, cell: fn(&T, &Times) -> String) -> Self {
        Self { name, cell, whole: false }
    }

    /// A column whose texts are not cut.
    pub(crate) const fn whole(name: &'static str, cell: fn(&T, &Times) -> String) -> Self {
        Self { name, cell, whole: true }
    }
}

impl Times {
    /// An instant: in a table local with offset, else RFC 3339 in UTC.
    pub(crate) fn show(&self, at: Timestamp) -> String {
        self.zone.as_ref().map_or_else(|| instant::rfc3339(at), |zone| instant::local(at, zone))
    }

    /// The same, or nothing.
    pub(crate) fn show_if(&self, at: Option<Timestamp>) -> String {
        at.map(|at| self.show(at)).unwrap_or_default()
    }
}

impl Output {
    /// The form that was asked for, else what suits stdout.
    pub(crate) fn new(asked: Option<Format>, utc: bool) -> Self {
        let suits = if io::stdout().is_terminal() { Format::Table } else { Format::Ndjson };
        let zone = if utc { TimeZone::UTC } else { TimeZone::system() };
        Self { format: asked.unwrap_or(suits), zone }
    }

    /// Whether errors are wanted as problem documents.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether a person reads it.
    pub(crate) fn is_table(&self) -> bool {
        self.format == Format::Table
    }

    /// Times as in tables.
    pub(crate) fn times(&self) -> Times {
        Times { zone: Some(self.zone.clone()) }
    }

    /// Prints a list. `none` is said to a person when it is empty.
    pub(crate) fn list<T: Serialize>(&self, rows: &[T], columns: &[Column<T>], none: &str) -> io::Result<()> {
        #[derive(Serialize)]
        struct Items<'a, T> {
            items: &'a [T],
        }
        let mut text = String::new();
        match self.format {
            Format::Table if rows.is_empty() => return note(none),
            Format::Table => text = table(rows, columns, &self.times()),
            Format::Json => text = pretty(&Items { items: rows })?,
            Format::Ndjson => rows.iter().try_for_each(|row| line(&mut text, row))?,
            Format::Csv => {
                csv_line(&mut text, columns.iter().map(|column| column.name.to_owned()));
                for row in rows {
                    csv_line(&mut text, columns.iter().map(|column| (column.cell)(row, &UTC)));
                }
            }
            Format::Id => {
                for (row, column) in rows.iter().flat_map(|row| columns.first().map(|column| (row, column))) {
                    text.push_str(&(column.cell)(row, &UTC));
                    text.push('\n');
                }
            }
        }
        print(&text)
    }

    /// Prints one thing: `text` for a person, `id` in a pipe of ids.
    pub(crate) fn one<T: Serialize>(
        &self,
        value: &T,
        id: &str,
        text: impl FnOnce(&Times) -> String,
    ) -> io::Result<()> {
        let mut printed = String::new();
        match self.format {
            Format::Table => printed = text(&self.times()),
            Format::Json => printed = pretty(value)?,
            Format::Ndjson => line(&mut printed, value)?,
            Format::Csv => printed = fields(&serde_json::to_value(value)?),
            Format::Id => printed.push_str(id),
        }
        if !printed.is_empty() && !printed.ends_with('\n') {
            printed.push('\n');
        }
        print(&printed)
    }
}

/// The times of machines.
const UTC: Times = Times { zone: None };

/// Says something on stderr: it is no data.
pub(crate) fn note(text: &str) -> io::Result<()> {
    if text.is_empty() { Ok(()) } else { writeln!(io::stderr().lock(), "{text}") }
}

/// A text that cannot move the cursor, change colours or reorder what stands beside it.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        let turns =
            matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
        if character.is_control() || turns {
            cleaned.extend(character.escape_default());
        } else {
            cleaned.push(character);
        }
    }
    cleaned
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn pretty<T: Serialize>(value: &T) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn line<T: Serialize>(text: &mut String, value: &T) -> io::Result<()> {
    text.push_str(&serde_json::to_string(value)?);
    text.push('\n');
    Ok(())
}

/// A table without lines.
pub(crate) fn table<T>(rows: &[T], columns: &[Column<T>], times: &Times) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|column| column.name.to_uppercase()));
    for row in rows {
        table.add_row(columns.iter().map(|column| {
            let text = clean(&(column.cell)(row, times));
            if column.whole { text } else { cut(&text) }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        None => text.to_owned(),
        Some(_) => text.chars().take(CELL_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

/// RFC 4180. What a spreadsheet would take for a formula stays text: it gets a quote in front.
fn csv_line(text: &mut String, cells: impl Iterator<Item = String>) {
    for (index, cell) in cells.enumerate() {
        if 0 < index {
            text.push(',');
        }
        let cell = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{cell}") } else { cell };
        if cell.contains([',', '"', '\n', '\r']) {
            text.push_str(&format!("\"{}\"", cell.replace('"', "\"\"")));
        } else {
            text.push_str(&cell);
        }
    }
    text.push('\n');
}

/// One thing as CSV: a line for each of its fields.
fn fields(value: &Value) -> String {
    let mut text = "field,value\n".to_owned();
    for (name, value) in value.as_object().into_iter().flatten() {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        csv_line(&mut text, [name.clone(), shown].into_iter());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n\u{7f}"), "a\\u{1b}[2Jb\\r\\n\\u{7f}");
        assert_eq!(clean("Grüße 数据 😀"), "Grüße 数据 😀");
        assert_eq!(clean("x\u{202e}y"), "x\\u{202e}y");
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut text = String::new();
        csv_line(&mut text, ["a", "b,c", "d\"e", "=1+1", "f\ng"].map(str::to_owned).into_iter());
        assert_eq!(text, "a,\"b,c\",\"d\"\"e\",'=1+1,\"f\ng\"\n");
    }

    #[test]
    fn long_cells_are_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(60)).chars().count(), 60);
        assert_eq!(cut(&"é".repeat(61)), "é".repeat(59) + "…");
    }
}

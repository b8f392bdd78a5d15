//! What a command prints: a table for people, JSON and CSV for programs, ids for pipes.
//!
//! Data goes to stdout and everything else to stderr. A table is for eyes: times are local, long texts are cut,
//! control characters are escaped. The other forms are for machines: everything, times in UTC.

mod table;
mod text;

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use jiff::tz::TimeZone;
use millpond::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::instant;
pub(crate) use table::{Column, table};
pub(crate) use text::clean;
use text::{csv_line, harmless};

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

/// How a list goes on, in the words of the HTTP API.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    /// Matches in all, as far as they were counted.
    pub(crate) total: u64,
    /// There are more than `total`.
    pub(crate) total_is_estimate: bool,
    /// For `--after`.
    pub(crate) next: Option<String>,
}

/// Writes instants in the zone of an output.
pub(crate) struct Times {
    zone: Option<TimeZone>,
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

    /// Whether it has nothing but rows: CSV or ids.
    pub(crate) fn is_rows(&self) -> bool {
        matches!(self.format, Format::Csv | Format::Id)
    }

    /// The zone of its tables, and of the dates that people type.
    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
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
        self.rows(rows, columns, none, &Items { items: rows })
    }

    /// Prints a part of a list, with how it goes on.
    pub(crate) fn page<T: Serialize>(
        &self,
        rows: &[T],
        columns: &[Column<T>],
        none: &str,
        page: &Page,
    ) -> io::Result<()> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Items<'a, T> {
            items: &'a [T],
            size: usize,
            total: u64,
            total_is_estimate: bool,
            has_more: bool,
            next_cursor: Option<&'a str>,
        }
        let Page { total, total_is_estimate, next } = page;
        let (total, total_is_estimate, next_cursor) = (*total, *total_is_estimate, next.as_deref());
        let has_more = next.is_some();
        let size = rows.len();
        let document = Items { items: rows, size, total, total_is_estimate, has_more, next_cursor };
        self.rows(rows, columns, none, &document)
    }

    /// Prints one row of a list that has no end: a line, whatever the form.
    pub(crate) fn row<T: Serialize>(
        &self,
        row: &T,
        columns: &[Column<T>],
        text: impl FnOnce(&Times) -> String,
    ) -> io::Result<()> {
        let mut printed = String::new();
        match self.format {
            Format::Table => printed = clean(&text(&self.times())) + "\n",
            Format::Json | Format::Ndjson => line(&mut printed, row)?,
            Format::Csv => csv_line(&mut printed, columns.iter().map(|column| (column.cell)(row, &UTC))),
            Format::Id => {
                printed.extend(columns.first().map(|column| clean(&(column.cell)(row, &UTC)) + "\n"))
            }
        }
        print(&printed)
    }

    /// Prints the line of names that a list without an end begins with, where the form has one.
    pub(crate) fn names<T>(&self, columns: &[Column<T>]) -> io::Result<()> {
        let mut text = String::new();
        if self.format == Format::Csv {
            csv_line(&mut text, columns.iter().map(|column| column.name.to_owned()));
        }
        print(&text)
    }

    fn rows<T: Serialize>(
        &self,
        rows: &[T],
        columns: &[Column<T>],
        none: &str,
        document: &impl Serialize,
    ) -> io::Result<()> {
        let mut text = String::new();
        match self.format {
            Format::Table if rows.is_empty() => return note(none),
            Format::Table => text = table(rows, columns, &self.times()),
            Format::Json => text = pretty(document)?,
            Format::Ndjson => rows.iter().try_for_each(|row| line(&mut text, row))?,
            Format::Csv => {
                csv_line(&mut text, columns.iter().map(|column| column.name.to_owned()));
                for row in rows {
                    csv_line(&mut text, columns.iter().map(|column| (column.cell)(row, &UTC)));
                }
            }
            Format::Id => {
                for (row, column) in rows.iter().flat_map(|row| columns.first().map(|column| (row, column))) {
                    text.push_str(&clean(&(column.cell)(row, &UTC)));
                    text.push('\n');
                }
            }
        }
        print(&text)
    }

    /// Prints a document that is JSON in every form.
    pub(crate) fn document<T: Serialize>(&self, value: &T) -> io::Result<()> {
        print(&pretty(value)?)
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

/// `1 message`, `2 messages`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// Says something on stderr: it is no data.
pub(crate) fn note(text: &str) -> io::Result<()> {
    if text.is_empty() { Ok(()) } else { writeln!(io::stderr().lock(), "{text}") }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn pretty<T: Serialize>(value: &T) -> io::Result<String> {
    Ok(harmless(serde_json::to_string_pretty(value)?) + "\n")
}

fn line<T: Serialize>(text: &mut String, value: &T) -> io::Result<()> {
    text.push_str(&harmless(serde_json::to_string(value)?));
    text.push('\n');
    Ok(())
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

//! What a command prints: a table for people, JSON and CSV for programs, ids for pipes.
//!
//! Data goes to stdout and everything else to stderr. A table is for eyes: times are local, long texts are cut,
//! control characters are escaped. The other forms are for machines: everything, times in UTC.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use jiff::tz::TimeZone;
use millpond::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::instant;

/// Characters of a cell of a table.
const CELL_CHARS_MAX: usize = 60;

/// Characters of a cell that gives way, at least.
const CELL_CHARS_MIN: u16 = 8;

/// Blanks after a cell.
const CELL_GAP: u16 = 2;

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
    /// Whether it gives way where a table is wider than the terminal.
    elastic: bool,
    /// Whether a table does without it where the terminal is too narrow for all.
    optional: bool,
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

impl<T> Column<T> {
    /// A column with how to fill it.
    pub(crate) const fn new(name: &'static str, cell: fn(&T, &Times) -> String) -> Self {
        Self { name, cell, whole: false, elastic: false, optional: false }
    }

    /// A column of texts of any length, which give way first where the terminal is narrow.
    pub(crate) const fn text(name: &'static str, cell: fn(&T, &Times) -> String) -> Self {
        Self { name, cell, whole: false, elastic: true, optional: false }
    }

    /// A column whose texts are not cut.
    pub(crate) const fn whole(name: &'static str, cell: fn(&T, &Times) -> String) -> Self {
        Self { name, cell, whole: true, elastic: false, optional: false }
    }

    /// The same column, which a table does without where the terminal is too narrow: the last such one first.
    pub(crate) const fn optional(self) -> Self {
        Self { optional: true, ..self }
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

/// A text that cannot move the cursor, change colours or reorder what stands beside it.
pub(crate) fn clean(text: &str) -> String {
    clean_but_for(text, |_| false)
}

fn clean_but_for(text: &str, stays: fn(char) -> bool) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for character in text.chars() {
        match !stays(character) && (character.is_control() || turns(character)) {
            true => cleaned.extend(character.escape_default()),
            false => cleaned.push(character),
        }
    }
    cleaned
}

/// Characters that change the order in which others are shown, or begin a line.
fn turns(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// JSON whose texts cannot move a cursor either: what they hold stays the same, as escapes. Outside of texts JSON has
/// none of these characters.
fn harmless(json: String) -> String {
    let harms = |character: char| ('\u{7f}'..='\u{9f}').contains(&character) || turns(character);
    if !json.contains(harms) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match harms(character) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text
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

/// A table without lines, no wider than the terminal if it goes to one.
pub(crate) fn table<T>(rows: &[T], columns: &[Column<T>], times: &Times) -> String {
    table_within(rows, columns, times, terminal_width())
}

/// The columns of the terminal behind stdout.
fn terminal_width() -> Option<u16> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten()?;
    Some(size.ws_col).filter(|width| 0 < *width)
}

fn table_within<T>(rows: &[T], columns: &[Column<T>], times: &Times, width: Option<u16>) -> String {
    let mut shown: Vec<&Column<T>> = columns.iter().collect();
    loop {
        let mut table = filled(rows, &shown, times);
        if let Some(width) = width {
            let optional = shown.iter().rposition(|column| column.optional).filter(|place| 0 < *place);
            if let (true, Some(place)) = (width < least_width(&table, &shown), optional) {
                shown.remove(place);
                continue;
            }
            fit(&mut table, &shown, width);
        }
        return table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    }
}

fn filled<T>(rows: &[T], columns: &[&Column<T>], times: &Times) -> Table {
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
        column.set_padding((0, CELL_GAP));
    }
    table
}

/// The columns that give way; if none is made for it, the last one does.
fn gives_way<T>(columns: &[&Column<T>], index: usize) -> bool {
    match columns.iter().any(|column| column.elastic) {
        true => columns[index].elastic,
        false => 0 < index && index + 1 == columns.len(),
    }
}

fn gaps(columns: usize) -> u16 {
    CELL_GAP.saturating_mul(u16::try_from(columns.saturating_sub(1)).unwrap_or(u16::MAX))
}

/// The width of a table whose columns have given way as far as they can.
fn least_width<T>(table: &Table, columns: &[&Column<T>]) -> u16 {
    let widths = table.column_max_content_widths().into_iter().enumerate();
    let least = widths.map(|(index, width)| match gives_way(columns, index) {
        true => width.min(CELL_CHARS_MIN),
        false => width,
    });
    least.fold(gaps(columns.len()), u16::saturating_add)
}

/// Shares what a terminal has beside its other columns among those that give way. A terminal that is too narrow for
/// the others gets lines that are too long.
fn fit<T>(table: &mut Table, columns: &[&Column<T>], width: u16) {
    let widths = table.column_max_content_widths();
    let (mut elastic, rigid): (Vec<usize>, Vec<usize>) =
        (0..columns.len()).partition(|index| gives_way(columns, *index));
    let taken = rigid.iter().fold(gaps(columns.len()), |sum, index| sum.saturating_add(widths[*index]));
    let mut left = width.saturating_sub(taken);
    // The narrowest first: what it does not need is left to the wider ones.
    elastic.sort_by_key(|index| widths[*index]);
    for (done, index) in elastic.iter().enumerate() {
        let share = left / u16::try_from(elastic.len() - done).unwrap_or(1);
        let given = widths[*index].min(share.max(CELL_CHARS_MIN));
        left = left.saturating_sub(given);
        if let Some(column) = table.column_mut(*index) {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(given.saturating_add(CELL_GAP))));
        }
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // The words of a cell are not put below each other: a row is a line.
    table.set_delimiter('\0');
    for row in table.row_iter_mut() {
        row.max_height(1);
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        None => text.to_owned(),
        Some(_) => text.chars().take(CELL_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

/// RFC 4180. What a spreadsheet would take for a formula stays text: it gets a quote in front. Line breaks and tabs stay;
/// what else would move a cursor is escaped.
fn csv_line(text: &mut String, cells: impl Iterator<Item = String>) {
    for (index, cell) in cells.enumerate() {
        if 0 < index {
            text.push(',');
        }
        let cell = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{cell}") } else { cell };
        let cell = clean_but_for(&cell, |character| matches!(character, '\n' | '\t'));
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
    fn json_keeps_its_meaning_and_cannot_move_a_cursor() {
        let text = "a\u{1b}\u{9b}2J\u{202e}é";
        let json = harmless(serde_json::to_string(text).unwrap());
        assert_eq!(json, "\"a\\u001b\\u009b2J\\u202eé\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn a_table_fits_the_terminal_where_its_texts_can_give_way() {
        let columns: [Column<(&str, &str)>; 3] = [
            Column::new("id", |row, _| row.0.to_owned()),
            Column::text("error", |row, _| row.1.to_owned()),
            Column::new("n", |_, _| "1".to_owned()),
        ];
        let rows = [("0192c5d2", "connection refused by the other side 数据库"), ("0192c5d3", "short")];
        let times = Times { zone: None };
        let wide = table_within(&rows, &columns, &times, None);
        assert!(wide.contains("other side 数据库  1"), "{wide}");
        let narrow = table_within(&rows, &columns, &times, Some(40));
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(lines.len(), 3, "{narrow}");
        assert!(lines[1].starts_with("0192c5d2  connection refused"), "{narrow}");
        assert!(lines[1].ends_with("…  1") || lines[1].contains("… "), "{narrow}");
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{narrow}");
        let columns = columns.map(Column::optional);
        let narrowest = table_within(&rows, &columns, &times, Some(12));
        assert_eq!(narrowest.lines().next(), Some("ID"), "the last goes first, the id never: {narrowest}");
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

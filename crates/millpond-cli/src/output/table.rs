//! A list as a table: its columns, and how they give way where the terminal is narrow.

use std::io::{self, IsTerminal};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::Times;
use super::text::clean;

/// Characters of a cell of a table.
const CELL_CHARS_MAX: usize = 60;

/// Characters of a cell that gives way, at least.
const CELL_CHARS_MIN: u16 = 8;

/// Blanks after a cell.
const CELL_GAP: u16 = 2;

/// One column of a list; the first one is the id.
pub(crate) struct Column<T> {
    pub(super) name: &'static str,
    pub(super) cell: fn(&T, &Times) -> String,
    /// Whether a long text stays whole in a table.
    whole: bool,
    /// Whether it gives way where a table is wider than the terminal.
    elastic: bool,
    /// Whether a table does without it where the terminal is too narrow for all.
    optional: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn long_cells_are_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(60)).chars().count(), 60);
        assert_eq!(cut(&"é".repeat(61)), "é".repeat(59) + "…");
    }
}

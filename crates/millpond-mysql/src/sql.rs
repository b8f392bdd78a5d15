//! The SQL statements, by name. Each is a paragraph of a `.sql` file that begins with `-- name:`. They are written for
//! tables whose names begin with `millpond_`; another prefix is put in its place once, when a store is opened.
//!
//! `$1`, `$2` … are parameters; a list is written with commas between. `$now` is the time of the store in microseconds. Any other `$`
//! is one. `:known` is the number of the last migration of this release.
//! What is between `{` and `}` is written once for each row, and parameters there are those of the row.

use std::collections::HashMap;

use crate::migrate;
use crate::sabotage::sabotaged;

const FILES: [&str; 18] = [
    include_str!("../sql/queue.sql"),
    include_str!("../sql/log.sql"),
    include_str!("../sql/claim.sql"),
    include_str!("../sql/outbox.sql"),
    include_str!("../sql/settle.sql"),
    include_str!("../sql/dead_letter.sql"),
    include_str!("../sql/inbox.sql"),
    include_str!("../sql/worker.sql"),
    include_str!("../sql/inspect.sql"),
    include_str!("../sql/retention.sql"),
    include_str!("../sql/schema.sql"),
    include_str!("../sql/list.sql"),
    include_str!("../sql/operate.sql"),
    include_str!("../sql/spots.sql"),
    include_str!("../sql/run_log.sql"),
    include_str!("../sql/tally.sql"),
    include_str!("../sql/info.sql"),
    include_str!("../sql/within.sql"),
];

/// What the names of tables begin with if the URL says nothing; the files are written for it.
pub(crate) const PREFIX: &str = "millpond_";

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// As it is.
    Text(String),
    /// The parameter of this place.
    Param(usize),
    /// The time of the store.
    Now,
    /// Once for each row.
    Rows(Vec<Piece>),
}

/// The statements for one prefix.
#[derive(Debug)]
pub(crate) struct Statements(HashMap<&'static str, Vec<Piece>>);

impl Statements {
    /// For this prefix, which needs no quotes.
    pub(crate) fn of(prefix: &str) -> Self {
        let all = FILES.into_iter().flat_map(paragraphs);
        let known = migrate::LAST.to_string();
        let spoilt = |name, statement: &str| match name {
            "claim_settle_lock" | "claim_get" if sabotaged("no_fence") => {
                statement.replace("and token = $4", "")
            }
            "claim_take_over" if sabotaged("reclaim_without_cas") => statement.replace("and token = $4", ""),
            _ => statement.to_owned(),
        };
        let of_here = |name, statement: &str| {
            pieces(&with_prefix(&spoilt(name, statement), prefix).replace(":known", &known))
        };
        Self(all.map(|(name, statement)| (name, of_here(name, statement))).collect())
    }

    /// The statement of this name.
    ///
    /// # Panics
    ///
    /// When there is none: a mistake in this crate, which a test finds.
    pub(crate) fn get(&self, name: &str) -> &[Piece] {
        self.0.get(name).unwrap_or_else(|| panic!("there is no statement `{name}`"))
    }
}

/// SQL that is written for `millpond_`, for another prefix.
pub(crate) fn with_prefix(sql: &str, prefix: &str) -> String {
    if prefix == PREFIX { sql.to_owned() } else { sql.replace(PREFIX, prefix) }
}

fn paragraphs(file: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    file.split("-- name: ").skip(1).filter_map(|part| {
        let (name, statement) = part.split_once('\n')?;
        Some((name.trim(), statement.trim().trim_end_matches(';')))
    })
}

/// Takes a statement apart. Its comments stay at home.
fn pieces(statement: &str) -> Vec<Piece> {
    let lines = statement.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut whole = Vec::new();
    let mut rest = text.as_str();
    while let Some((before, row_on)) = rest.split_once('{') {
        let (row, after) = row_on.split_once('}').expect("a row that begins ends");
        whole.extend(plain_pieces(before));
        whole.push(Piece::Rows(plain_pieces(row)));
        rest = after;
    }
    whole.extend(plain_pieces(rest));
    whole
}

fn plain_pieces(text: &str) -> Vec<Piece> {
    let mut parts = text.split('$');
    let first = parts.next().unwrap_or_default();
    let mut pieces = vec![Piece::Text(first.to_owned())];
    for part in parts {
        let after = if let Some(after) = part.strip_prefix("now") {
            pieces.push(Piece::Now);
            after
        } else {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let Ok(place) = part[..digits].parse::<usize>() else {
                // A path in JSON.
                pieces.push(Piece::Text(format!("${part}")));
                continue;
            };
            pieces.push(Piece::Param(place - 1));
            &part[digits..]
        };
        pieces.push(Piece::Text(after.to_owned()));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = FILES.into_iter().flat_map(paragraphs).map(|(name, _)| name).collect();
        let unique: std::collections::HashSet<&&str> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn a_statement_is_taken_apart() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let row = vec![text("("), Piece::Param(0), text(", "), Piece::Now, text(")")];
        let expected = vec![text("a "), Piece::Param(1), text(" "), Piece::Rows(row), text("")];
        assert_eq!(pieces("-- why\na $2 {($1, $now)}"), expected);
    }

    #[test]
    fn another_prefix_takes_the_place() {
        let statements = format!("{:?}", Statements::of("jobs_"));
        assert!(statements.contains("from jobs_queue"));
        assert!(!statements.contains("millpond_"));
    }
}

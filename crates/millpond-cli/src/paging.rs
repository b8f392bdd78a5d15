//! A part of a list: how much of it, from where on, and how it goes on.

use std::io;

use millpond::query::Query;
use millpond::view::{Count, Find, Found};

use crate::output::{Page, note};

/// Rows of one answer.
const ROWS_MAX: u64 = 1_000;

/// How far matches are counted.
const COUNTED_MAX: u64 = 10_000;

/// Which part.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Paging {
    /// Rows at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=ROWS_MAX))]
    pub(crate) limit: u64,
    /// Go on after an earlier answer: its nextCursor
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

impl Paging {
    /// As a store takes it.
    pub(crate) fn find(self, query: Query, bodies: bool) -> Find {
        let rows_max = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Find { query, after: self.after, rows_max, bodies, count: Count::UpTo(COUNTED_MAX) }
    }
}

/// How an answer goes on.
pub(crate) fn page_of<T>(found: &Found<T>) -> Page {
    Page { total: found.matched, total_is_estimate: !found.counted_all, next: found.next.clone() }
}

/// Says what is not shown, and how it is. `things`: `messages`; `narrow`: conditions that make a search smaller.
pub(crate) fn say_what_is_missing<T>(found: &Found<T>, things: &str, narrow: &str) -> io::Result<()> {
    if found.cut_short {
        note(&format!("too broad: the search ended before it had seen all {things}; narrow it by {narrow}"))?;
    }
    let Some(next) = &found.next else { return Ok(()) };
    note(&how_it_goes_on(found, things, next))
}

/// Where the search ended early, more rows would not show more.
fn how_it_goes_on<T>(found: &Found<T>, things: &str, next: &str) -> String {
    let (shown, all) = (found.items.len(), count(found.matched, found.counted_all));
    let limit = if found.cut_short { "" } else { "--limit shows more, " };
    format!("{shown} of {all} {things}; {limit}--after {next} goes on")
}

/// A count, with a sign where it is not all: `10,000+`.
fn count(matched: u64, all: bool) -> String {
    let digits = matched.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if 0 < index && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if all { text } else { text + "+" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_not_all_says_so() {
        assert_eq!(count(10_000, false), "10,000+");
        assert_eq!(count(999, true), "999");
        assert_eq!(count(1_234_567, true), "1,234,567");
    }

    #[test]
    fn a_search_that_ended_early_goes_on_only_after_its_end() {
        let mut found =
            Found { items: vec![()], matched: 1, counted_all: false, cut_short: true, next: None };
        assert_eq!(how_it_goes_on(&found, "messages", "7"), "1 of 1+ messages; --after 7 goes on");
        found.cut_short = false;
        assert_eq!(
            how_it_goes_on(&found, "messages", "7"),
            "1 of 1+ messages; --limit shows more, --after 7 goes on"
        );
    }
}

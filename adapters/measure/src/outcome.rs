//! What was measured: a table in the terminal, one JSON object, and the part of docs/benchmarks.md.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};

use crate::machine;
use crate::ways::Committed;

/// The name of the part in docs/benchmarks.md.
pub(crate) const PART: &str = "From commit to handler";

/// What the median should be at most, in milliseconds.
const GOAL_MS: f64 = 10.0;

const HEAD: [&str; 8] = [
    "database",
    "way",
    "p50 ms",
    "p95 ms",
    "from call p50",
    "from call p95",
    "after work p50",
    "after work p95",
];

const ABOUT: &str = "\
From the return of the commit to the first line of the handler, in one process, on an idle queue; a handler that began
before the commit returned counts as 0. Each transaction inserts an order, sends one message and commits **at once**;
**from call** is measured from before the commit, and so contains its flush. In the last two columns the transaction does
up to 50 ms of other work between the send and the commit, evenly spread: a driver's commit is looked for, more rarely
the longer its transaction goes on.";

/// How long messages took, in milliseconds.
#[derive(Default)]
pub(crate) struct Delays {
    from_return: Vec<f64>,
    from_call: Vec<f64>,
}

impl Delays {
    pub(crate) fn add(&mut self, began: Instant, committed: &Committed) {
        let since = |start: Instant| began.saturating_duration_since(start).as_secs_f64() * 1_000.0;
        self.from_return.push(since(committed.returned));
        self.from_call.push(since(committed.called));
    }
}

/// A way in a database.
pub(crate) struct Row {
    pub(crate) database: &'static str,
    pub(crate) way: &'static str,
    pub(crate) at_once: Delays,
    pub(crate) after_work: Delays,
}

impl Row {
    /// In the order of the head.
    fn figures(&self) -> [f64; 6] {
        let Self { at_once, after_work, .. } = self;
        [
            percentile(&at_once.from_return, 0.5),
            percentile(&at_once.from_return, 0.95),
            percentile(&at_once.from_call, 0.5),
            percentile(&at_once.from_call, 0.95),
            percentile(&after_work.from_return, 0.5),
            percentile(&after_work.from_return, 0.95),
        ]
    }

    pub(crate) fn shown(&self) -> Vec<String> {
        let figures = self.figures().into_iter().map(|figure| format!("{figure:.2}"));
        [self.database.to_owned(), self.way.to_owned()].into_iter().chain(figures).collect()
    }

    fn misses(&self) -> bool {
        let [at_once, .., after_work, _] = self.figures();
        GOAL_MS < at_once || GOAL_MS < after_work
    }

    fn json(&self) -> Value {
        let [p50, p95, call_p50, call_p95, work_p50, work_p95] =
            self.figures().map(|figure| (figure * 1_000.0).round() / 1_000.0);
        json!({
            "database": self.database,
            "way": self.way,
            "p50_ms": p50,
            "p95_ms": p95,
            "from_call_p50_ms": call_p50,
            "from_call_p95_ms": call_p95,
            "after_work_p50_ms": work_p50,
            "after_work_p95_ms": work_p95,
            "goal_is_met": !self.misses(),
        })
    }
}

/// For the terminal.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(Row::shown));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Names to the left, figures to the right.
            let _ =
                if column < 2 { write!(text, "{cell:width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    let _ = writeln!(text, "\n{}", verdict(rows));
    text
}

/// For the document.
pub(crate) fn part(rows: &[Row], samples: u64) -> String {
    let mut text = format!(
        "## {PART}\n\nWritten by `cargo xtask adapters --measure --samples {samples} --write`.\n\n{ABOUT}\n\n| | |\n|---|---|\n"
    );
    let transactions = format!("{samples} of each way at once, {samples} after other work");
    let servers = "private, everything as it comes; each commit is flushed".to_owned();
    let facts = [("servers", servers), ("transactions", transactions)];
    for (name, fact) in machine::facts().into_iter().chain(facts) {
        let _ = writeln!(text, "| {name} | {fact} |");
    }
    let _ = writeln!(text, "\n| {} |\n|---|---|{}", HEAD.join(" | "), "---:|".repeat(HEAD.len() - 2));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.shown().join(" | "));
    }
    let _ = write!(text, "\n{}", verdict(rows));
    text
}

/// Whether the medians are as they should be.
fn verdict(rows: &[Row]) -> String {
    let missed: Vec<String> = rows
        .iter()
        .filter(|row| row.misses())
        .map(|row| format!("{} in {}", row.way, row.database))
        .collect();
    if missed.is_empty() {
        return format!("Goal: p50 ≤ {GOAL_MS} ms, at once and after work: met by all.");
    }
    format!("Goal: p50 ≤ {GOAL_MS} ms, at once and after work: missed by {}.", missed.join(", "))
}

/// Everything as one object.
pub(crate) fn json(rows: &[Row], samples: u64) -> Value {
    let facts = machine::facts().into_iter().map(|(name, fact)| (name.to_owned(), json!(fact)));
    json!({
        "ways": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "samples": samples,
        "goal_p50_ms": GOAL_MS,
        "machine": Value::Object(facts.collect()),
    })
}

/// The value below which this share of the values lies.
fn percentile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(work_ms: u64) -> Row {
        let delays = |millis: u64| {
            let returned = Instant::now();
            let mut delays = Delays::default();
            delays.add(returned + Duration::from_millis(millis), &Committed { called: returned, returned });
            delays
        };
        Row { database: "SQLite", way: "sqlx", at_once: delays(2), after_work: delays(work_ms) }
    }

    #[test]
    fn a_median_above_the_goal_is_named() {
        assert_eq!(verdict(&[row(9)]), "Goal: p50 ≤ 10 ms, at once and after work: met by all.");
        assert!(verdict(&[row(9), row(11)]).ends_with("missed by sqlx in SQLite."));
    }

    #[test]
    fn the_table_has_a_line_for_each_way() {
        let text = text(&[row(3)]);
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("SQLite    sqlx")), "{text}");
        assert_eq!(json(&[row(3)], 1)["ways"][0]["after_work_p50_ms"], 3.0);
    }
}

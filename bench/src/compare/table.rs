//! The outcome of a run as people read it: a table in the terminal, and the part of docs/benchmarks.md.

use std::fmt::Write as _;

use super::Outcome;
use crate::document::shown;
use crate::machine;
use crate::postgres::SETTINGS;

const NOT_MEASURED: &str = "–";

/// How each figure is measured.
const ABOUT: &str = "\
- **batch_send**: 2 connections, 1,000 to a call. **single_send_N**: N tasks, one durable message to a call.
- **tx_…_N**, transactional send: N connections, each with one transaction after the other that inserts an order and sends
  one message about it; the server's cost per transaction is counted until every message may be worked on. **bare**: the
  same transaction without the message. **send**: in the program's own transaction by the library (graphile_worker and
  pgmq: by their function). Ours besides: **unit**, a unit of work, and **sql**, `millpond.send`.
- **drain**: from the start of a worker until its handlers, which do nothing, have run and all is settled; or what was
  handled when the time was over. At the best settings; **default_drain** at those of one who sets nothing.
- **server_cpu_us**: user and system time of all processes of the server, per message. **wal_bytes**: of its log, per
  message, with a checkpoint before the send and none between send and drain.
- **drain_program_cpu_us**: the same of the measured program. **dead_tuples**: what the statistics of the server count
  after the drain, with autovacuum as it comes.
- **pickup**: from the return of a send in one process to the handler in another, on an idle queue, at the best settings;
  **from_call**: from before the send.
- **whole_life**: send, drain, what is kept of it, its removal by the queue's own means, and a vacuum.
- **held_snapshot**: a drain while a REPEATABLE READ transaction is open, against the same without, after many others,
  with a tenth of the messages tried twice and others scheduled; **small**: 50 handlers that take few at a time.
- **backlog**: a drain with many waiting against one with 10,000 waiting.
- **idle_queries**: statements a second of a worker at default settings that has had nothing to do for a minute.";

/// For the terminal.
pub(super) fn text(outcome: &Outcome) -> String {
    let mut rows = vec![[String::from("ratio"), "".into(), "goal".into(), "against".into()]];
    for made in outcome.figures.ratios() {
        let missed = if made.bound.is_missed(made.value) { " MISSED" } else { "" };
        rows.push([
            made.name.to_owned(),
            fine(made.value),
            format!("{}{missed}", made.bound),
            made.against.unwrap_or_default().to_owned(),
        ]);
    }
    let mut text = aligned(&rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>());
    text.push('\n');
    text.push_str(&aligned(&raw(outcome)));
    text.push('\n');
    for line in settings(outcome).into_iter().chain(gaps(outcome)) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// For the document.
pub(super) fn part(outcome: &Outcome, command: &str) -> String {
    let mut text =
        format!("## Postgres, beside other queues\n\nWritten by `{command}`.\n\n| | |\n|---|---|\n");
    let server = format!(
        "Postgres {}, private; {}; everything else as it comes",
        outcome.server,
        SETTINGS[..2].join(", ")
    );
    let sizes = &outcome.sizes;
    let messages = format!(
        "{} of the others, {} of ours; bodies of about 200 bytes of JSON",
        shown(sizes.messages as f64),
        shown((sizes.messages * sizes.ours_times) as f64)
    );
    let rounds = format!(
        "{} of each measurement, 1 of pickup, held snapshot, backlog and idle; the median counts; each round begins with \
         another store",
        outcome.rounds
    );
    let facts = [("server", server), ("messages", messages), ("rounds", rounds)];
    for (name, fact) in machine::facts().into_iter().chain(facts) {
        let _ = writeln!(text, "| {name} | {fact} |");
    }
    text.push_str("\n| ratio | | goal | against |\n|---|---:|---|---|\n");
    for made in outcome.figures.ratios() {
        let missed = if made.bound.is_missed(made.value) { ", **missed**" } else { "" };
        let against = made.against.unwrap_or_default();
        let _ =
            writeln!(text, "| `{}` | {} | {}{missed} | {against} |", made.name, fine(made.value), made.bound);
    }
    text.push('\n');
    for (number, row) in raw(outcome).into_iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if number == 0 {
            let _ = writeln!(text, "|---|{}", "---:|".repeat(row.len() - 1));
        }
    }
    let _ = writeln!(text, "\n{ABOUT}\n\nSettings:\n");
    for line in settings(outcome).into_iter().chain(gaps(outcome)) {
        let _ = writeln!(text, "- {line}");
    }
    let _ = write!(text, "\n```json\n{}\n```", outcome.json());
    text
}

/// A row for each figure, a column for each store.
fn raw(outcome: &Outcome) -> Vec<Vec<String>> {
    let figures = &outcome.figures;
    let head = [String::from("figure")].into_iter().chain(figures.stores().map(str::to_owned)).collect();
    let row = |name: &str| {
        let value = |store| figures.get(store, name).map_or_else(|| NOT_MEASURED.to_owned(), fine);
        [name.to_owned()].into_iter().chain(figures.stores().map(value)).collect()
    };
    [head].into_iter().chain(figures.names().into_iter().map(row)).collect()
}

/// Small ratios need more digits than rates.
fn fine(value: f64) -> String {
    if 0.0 < value && value < 0.1 { format!("{value:.4}") } else { shown(value) }
}

fn settings(outcome: &Outcome) -> Vec<String> {
    let word = |about: &serde_json::Value, name: &str| about[name].as_str().unwrap_or("unknown").to_owned();
    let line = |(store, about): &(&str, serde_json::Value)| {
        format!(
            "{store}: {} {}. Best: {}. Default: {}. Small: {}.",
            word(about, "name"),
            word(about, "version"),
            word(about, "best"),
            word(about, "default"),
            word(about, "small")
        )
    };
    outcome.about.iter().map(line).collect()
}

/// What is not in the tables, and why.
fn gaps(outcome: &Outcome) -> Vec<String> {
    let missing = outcome.missing.iter().map(|(store, why)| format!("{store} could not be run here: {why}"));
    let failed = outcome.figures.failed.iter();
    let mut gaps: Vec<String> = missing.collect();
    gaps.extend(failed.map(|(store, what, why)| format!("{store}, {what}: a round was not measured: {why}")));
    gaps
}

/// Columns of one width, the first to the left and the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "{:width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "12".to_owned()], vec!["bcd".to_owned(), "–".to_owned()]];
        assert_eq!(aligned(&rows), "a    12\nbcd   –\n");
    }

    #[test]
    fn a_small_ratio_is_not_rounded_to_nothing() {
        assert_eq!(
            (fine(0.0123).as_str(), fine(0.5).as_str(), fine(0.0).as_str()),
            ("0.0123", "0.50", "0.00")
        );
    }
}

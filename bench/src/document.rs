//! `docs/benchmarks.md`, written by the run that measured it: machine, versions, settings, figures.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::{Figure, Goal, Report};
use crate::{failed, machine};

/// The begin and the end of the part of one store; what is outside is written by people.
fn marks(store: &str) -> (String, String) {
    (format!("<!-- {store}: written by cargo xtask bench -->"), format!("<!-- {store}: end -->"))
}

/// What a figure is: its name in JSON, its unit, and how it was measured.
const ABOUT: [(&str, &str, &str); 21] = [
    (
        "insert_floor_per_second",
        "messages/s",
        "floor: multi-row insert of 1,000 into a table with the same columns and index, one commit each",
    ),
    ("batch_send_per_second", "messages/s", "`pond.send` of 1,000, one call after the other, each durable"),
    ("batch_send_vs_floor", "ratio", "the two above, round by round"),
    (
        "one_insert_per_commit_per_second",
        "messages/s",
        "floor: one insert per durable commit, one connection",
    ),
    (
        "single_send_64_per_second",
        "messages/s",
        "64 tasks that each send one message at a time, each durable: group commit",
    ),
    ("group_commit_gain", "ratio", "the two above, round by round"),
    (
        "claim_delete_floor_per_second",
        "messages/s",
        "floor: claim 1,000 by UPDATE, then DELETE them, one commit each",
    ),
    (
        "drain_per_second",
        "messages/s",
        "a worker at default settings empties the queue through a handler that does nothing",
    ),
    ("drain_cpu_us_per_message", "µs", "processor time of the whole process for that, per message"),
    ("drain_vs_floor", "ratio", "drain against its floor, round by round"),
    (
        "pickup_p50_ms",
        "ms",
        "from the return of `send` to the first line of the handler: idle queue, same process",
    ),
    ("pickup_p99_ms", "ms", "the same, 99 of 100"),
    ("pickup_process_p50_ms", "ms", "the same, the worker in another process"),
    ("pickup_process_p99_ms", "ms", "the same, 99 of 100"),
    ("worker_rss_mb", "MB", "peak resident memory of that worker process, after a backlog of 100,000"),
    ("idle_cpu_percent", "% of a core", "a worker that has had nothing to do for a minute"),
    (
        "backlog_send_cpu_us_10k",
        "µs",
        "processor time of a send, per message, with 10,000 ready and 10,000 scheduled",
    ),
    ("backlog_send_cpu_us_1m", "µs", "the same with 1,000,000 and 1,000,000"),
    (
        "backlog_drain_cpu_us_10k",
        "µs",
        "processor time of a drain, per message, with 10,000 ready and 10,000 scheduled",
    ),
    ("backlog_drain_cpu_us_1m", "µs", "the same with 1,000,000 and 1,000,000"),
    ("backlog_ratio", "ratio", "send and drain with 1,000,000 against 10,000, the cheapest of five each"),
];

/// Writes the part of a store, and leaves the rest of the document as it is.
pub(crate) fn write(path: &Path, store: &str, report: &Report, command: &str) -> millpond::Result<()> {
    put(path, store, &part(store, report, command)?)
}

/// Puts the part of a store in its place, and leaves the rest of the document as it is.
pub(crate) fn put(path: &Path, store: &str, part: &str) -> millpond::Result<()> {
    let doing = format!("write {}", path.display());
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => HEAD.to_owned(),
        Err(error) => return Err(failed(&doing, error)),
    };
    std::fs::write(path, replaced(&before, store, part)).map_err(|error| failed(&doing, error))
}

const HEAD: &str = "\
# Benchmarks

Ratios of one run are what counts: ours beside what plain SQL reaches through the same driver, in the same run, on the
same machine. The figures beside them move with the machine; do not compare those of two machines.
";

/// The document with the part of a store put in its place, or at the end.
fn replaced(document: &str, store: &str, part: &str) -> String {
    let (begin, end) = marks(store);
    let whole = format!("{begin}\n{part}\n{end}");
    match (document.find(&begin), document.find(&end)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{whole}{}", &document[..from], &document[to + end.len()..])
        }
        _ => format!("{}\n\n{whole}\n", document.trim_end()),
    }
}

fn part(store: &str, report: &Report, command: &str) -> millpond::Result<String> {
    let mut text = format!("## {store}\n\nWritten by `{command}`.\n\n| | |\n|---|---|\n");
    for (name, value) in machine::facts().into_iter().chain(settings(report)) {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text.push_str("\n| figure | | unit | goal | what |\n|---|---:|---|---|---|\n");
    for Figure { name, value, goal } in report.figures() {
        let (unit, what) = about(name)?;
        let _ = writeln!(
            text,
            "| `{name}` | {} | {unit} | {} | {what} |",
            shown(*value),
            goal_text(*value, *goal)
        );
    }
    let _ = write!(text, "\n```json\n{}\n```", report.json());
    Ok(text)
}

fn settings(report: &Report) -> Vec<(&'static str, String)> {
    vec![
        (
            "store",
            format!(
                "SQLite {}, bundled; WAL, `synchronous=FULL`, a file in the folder for temporary files",
                report.server()
            ),
        ),
        ("settings", "the defaults of Millpond; nothing is tuned for the benchmark".to_owned()),
        ("body", "about 200 bytes of JSON".to_owned()),
        ("rounds", format!("{}; of each comparison the median", report.rounds())),
    ]
}

/// What is measured is explained, or not reported.
fn about(name: &str) -> millpond::Result<(&'static str, &'static str)> {
    let known = ABOUT.iter().find(|(known, _, _)| *known == name);
    known.map(|(_, unit, what)| (*unit, *what)).ok_or_else(|| {
        failed("write the document", format!("the figure `{name}` has no line in bench/src/document.rs"))
    })
}

/// A number as people read it.
pub(crate) fn shown(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if 0 < place && (digits.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn goal_text(value: f64, goal: Option<Goal>) -> String {
    match goal {
        None => String::new(),
        Some(Goal::AtLeast(least)) => format!("≥ {least}{}", if value < least { ", **missed**" } else { "" }),
        Some(Goal::AtMost(most)) => format!("≤ {most}{}", if most < value { ", **missed**" } else { "" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_put_in_its_place_and_the_rest_stays() {
        let first = replaced("# Benchmarks\n", "SQLite", "one");
        assert!(first.starts_with("# Benchmarks\n\n<!-- SQLite"), "{first}");
        let both = replaced(&first, "Postgres", "two");
        let again = replaced(&both, "SQLite", "three");
        assert!(again.contains("three") && again.contains("two") && !again.contains("one"), "{again}");
        assert_eq!(replaced(&again, "SQLite", "three"), again, "the same run writes the same");
    }

    #[test]
    fn numbers_are_read_by_people() {
        for (value, expected) in
            [(0.761, "0.76"), (14.3, "14.30"), (470_001.6, "470,002"), (6_106.4, "6,106"), (123.0, "123")]
        {
            assert_eq!(shown(value), expected);
        }
    }

    #[test]
    fn a_figure_that_is_not_explained_is_not_reported() {
        let mut report = Report::new(1);
        report.add("mystery_per_second", 1.0);
        assert!(part("SQLite", &report, "x").is_err());
    }
}

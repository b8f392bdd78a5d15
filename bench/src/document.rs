//! `docs/benchmarks.md`, written by the run that measured it: machine, versions, settings, figures.

mod about;
mod place;

use std::fmt::Write as _;
use std::path::Path;

use crate::report::{Database, Figure, Goal, Report};
use crate::{failed, machine};

/// Writes the part of a store, and leaves the rest of the document as it is. `command` is the one that does it again.
pub(crate) fn write(path: &Path, report: &Report, command: &str) -> millpond::Result<()> {
    put(path, report.database().name, &part(report, command)?)
}

/// Puts the part of a store in its place, and leaves the rest of the document as it is.
pub(crate) fn put(path: &Path, store: &str, part: &str) -> millpond::Result<()> {
    place::put(path, store, "bench", part)
        .map_err(|error| failed(&format!("write {}", path.display()), error))
}

fn part(report: &Report, command: &str) -> millpond::Result<String> {
    let store = report.database().name;
    let mut text = format!("## {store}\n\nWritten by `{command}`.\n\n| | |\n|---|---|\n");
    for (name, value) in machine::facts().into_iter().chain(settings(report)) {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text.push_str("\n| figure | | unit | goal | what |\n|---|---:|---|---|---|\n");
    for Figure { name, value, goal } in report.figures() {
        let (unit, what) = about(store, name)?;
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
    let Database { name, version, settings, .. } = report.database();
    vec![
        ("store", format!("{name} {version}; {settings}")),
        ("settings", "the defaults of Millpond; nothing is tuned for the benchmark".to_owned()),
        ("body", "about 200 bytes of JSON".to_owned()),
        ("rounds", format!("{}; of each comparison the median", report.rounds())),
    ]
}

/// What is measured is explained, or not reported.
fn about(store: &str, name: &str) -> millpond::Result<(&'static str, &'static str)> {
    about::of(store, name).ok_or_else(|| {
        let why = format!("the figure `{name}` of {store} has no line in bench/src/document/about.rs");
        failed("write the document", why)
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
    let Some(goal) = goal else { return String::new() };
    let (sign, bound) = match goal {
        Goal::AtLeast(least) => ('≥', least),
        Goal::AtMost(most) => ('≤', most),
    };
    format!("{sign} {bound}, {}", if goal.is_met(value) { "met" } else { "**missed**" })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut report = Report::new(1, Database::sqlite());
        assert!(part(&report, "x").is_ok());
        report.add("mystery_per_second", 1.0);
        assert!(part(&report, "x").is_err());
    }

    #[test]
    fn a_goal_is_met_or_missed() {
        for (value, goal, expected) in [
            (0.8, Some(Goal::AtLeast(0.7)), "≥ 0.7, met"),
            (0.6, Some(Goal::AtLeast(0.7)), "≥ 0.7, **missed**"),
            (15.0, Some(Goal::AtMost(15.0)), "≤ 15, met"),
            (f64::NAN, Some(Goal::AtMost(15.0)), "≤ 15, **missed**"),
            (1.0, None, ""),
        ] {
            assert_eq!(goal_text(value, goal), expected);
        }
    }
}

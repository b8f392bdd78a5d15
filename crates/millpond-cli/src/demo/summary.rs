//! The end of a demo: the table, the self-check, where the store is and what to look at next.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use crate::demo::Place;
use crate::demo::check::{Audit, Row};
use crate::demo::drive::Driven;
use crate::demo::workload::Kind;

/// The last line of a demo with `--json`.
#[derive(Debug, Serialize, PartialEq)]
struct Result {
    sent: u64,
    done: u64,
    dead: u64,
    lost: u64,
    duplicates: u64,
    seconds: f64,
    per_second: u64,
}

/// Prints it: on standard output, or, if that is for the JSON object, on standard error.
pub(crate) fn print(audit: &Audit, driven: &Driven, place: &Place, json: bool) {
    let text = text(audit, driven, place);
    // Whoever does not read it still gets the exit status.
    let _ = if json {
        // Numbers always have a JSON form.
        let object = serde_json::to_string(&result(audit, driven)).unwrap_or_default();
        writeln!(io::stderr().lock(), "{text}").and_then(|()| writeln!(io::stdout().lock(), "{object}"))
    } else {
        writeln!(io::stdout().lock(), "{text}")
    };
}

fn text(audit: &Audit, driven: &Driven, place: &Place) -> String {
    let result = result(audit, driven);
    let mut lines = vec![String::new(), table(audit).to_string(), String::new()];
    lines.extend(audit.findings.iter().map(|finding| {
        let mark = if finding.holds { '✓' } else { '✗' };
        format!("{mark} {}", finding.sentence)
    }));
    lines.push(String::new());
    let (acknowledged, during) = driven.load;
    lines.push(format!(
        "{:.1} s in all; {acknowledged} acknowledged in {:.1} s of load, a crash included: {} per second",
        result.seconds,
        during.as_secs_f64(),
        result.per_second
    ));
    lines.extend(next(driven, place));
    lines.join("\n")
}

fn result(audit: &Audit, driven: &Driven) -> Result {
    let (acknowledged, during) = driven.load;
    let rounded = |number: f64| (number * 100.0).round() / 100.0;
    let per_second = acknowledged * 1_000 / u64::try_from(during.as_millis()).unwrap_or(u64::MAX).max(1);
    let Row { sent, done, dead, lost, duplicates, .. } = audit.total;
    let seconds = rounded(driven.took.as_secs_f64());
    Result { sent, done, dead, lost, duplicates, seconds, per_second }
}

fn table(audit: &Audit) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["queue", "its messages", "sent", "done", "dead", "deliveries", "duplicates"]);
    for (kind, row) in &audit.rows {
        table.add_row(cells(kind.queue().name(), kind.about(), row));
    }
    table.add_row(cells("all", "", &audit.total));
    table
}

fn cells(name: &str, about: &str, row: &Row) -> Vec<Cell> {
    let numbers = [row.sent, row.done, row.dead, row.deliveries, row.duplicates];
    let numbers = numbers.map(|number| Cell::new(number).set_alignment(CellAlignment::Right));
    [Cell::new(name), Cell::new(about)].into_iter().chain(numbers).collect()
}

fn next(driven: &Driven, place: &Place) -> Vec<String> {
    if !place.stays() {
        let again =
            "the store was in a temporary folder and is gone; `millpond demo --keep` leaves it to look at";
        return vec![again.to_owned()];
    }
    let url = &place.url;
    let mut lines = vec![
        format!("the store is {url}; look at it with"),
        format!("  millpond queue list --store {url}"),
        format!("  millpond dead-letter list --store {url}"),
    ];
    if let Some((id, _)) = driven.ledger.sent.iter().find(|(_, kind)| *kind == Kind::Killer) {
        let letter = driven.held.dead_letters.iter().find(|(dead, _)| dead == id);
        lines.extend(
            letter
                .map(|(_, reason)| format!("one dead letter killed its workers: {reason}; its story is in")),
        );
        lines.push(format!("  millpond why {id} --store {url}"));
    }
    lines
}

//! A frame as lines that fit a terminal.

use std::time::Duration;

use millpond::text::format_duration;
use millpond_core::hints::coarse;

use super::Args;
use super::frame::{Frame, QueueRow, Sort, WorkerRow};
use crate::instant;
use crate::output::{clean, counted};

/// Lines of workers at least, where there are so many.
const WORKERS_MIN: usize = 4;

/// Where a frame is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen<'a> {
    pub(super) store: &'a str,
    pub(super) sort: Sort,
    pub(super) every: Duration,
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) colour: bool,
    /// Why the frame is not a new one.
    pub(super) trouble: Option<&'a str>,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Plain,
    Heading,
    Problem,
}

impl Screen<'_> {
    /// A small one without colour, as the flags want it.
    pub(super) fn of(args: &Args) -> Self {
        let (sort, every) = (args.sort, args.every);
        Self { store: "", sort, every, columns: 80, rows: 24, colour: false, trouble: None }
    }

    /// At most as many lines as there are rows, none longer than there are columns.
    pub(super) fn lines(&self, frame: &Frame) -> Vec<String> {
        let (queues, workers) = (self.queues(frame), self.workers(frame));
        // Two lines above, an empty one and the sums of workers between, and one below.
        let room = self.rows.saturating_sub(5);
        let for_workers = workers.len().min(room.saturating_sub(queues.len()).max(WORKERS_MIN).min(room));
        let for_queues = room - for_workers;
        let mut lines = vec![(self.head(frame), Look::Plain), (of_queues(frame), Look::Plain)];
        lines.extend(cut(queues, for_queues));
        lines.push((String::new(), Look::Plain));
        lines.push((of_workers(frame), Look::Plain));
        lines.extend(cut(workers, for_workers));
        if self.rows < usize::MAX {
            lines.push((self.foot(frame), Look::Plain));
        }
        lines.truncate(self.rows);
        lines.into_iter().map(|(text, look)| self.painted(&text, look)).collect()
    }

    fn head(&self, frame: &Frame) -> String {
        let store = if self.store.is_empty() { String::new() } else { format!("  {}", self.store) };
        format!("millpond top{store}  {}", instant::rfc3339(frame.at))
    }

    fn foot(&self, frame: &Frame) -> String {
        let slow = if frame.slow { ": the store is slow" } else { "" };
        let read = match self.trouble {
            Some(trouble) => clean(trouble),
            None => format!("read in {} ms{slow}", frame.took_ms),
        };
        let every = format_duration(self.every);
        format!("q quit  s sort: {}  r read now  every {every}  {read}", self.sort.as_str())
    }

    fn queues(&self, frame: &Frame) -> Vec<(String, Look)> {
        const NAMES: [&str; 9] =
            ["QUEUE", "READY", "LEASED", "WAITING", "DEAD", "OLDEST", "IN/S", "OUT/S", "PROBLEMS"];
        if frame.queues.is_empty() {
            return vec![("no queues yet; `millpond queue add NAME` makes one".to_owned(), Look::Plain)];
        }
        let rows = frame.queues.iter().map(|row| (cells_of_queue(row), !row.problems.is_empty()));
        self.grid(&NAMES, rows.collect())
    }

    fn workers(&self, frame: &Frame) -> Vec<(String, Look)> {
        const NAMES: [&str; 9] =
            ["WORKER", "BUSY", "BEAT", "STUCK", "DONE", "FAILED", "STATE", "QUEUES", "ERROR"];
        if frame.workers.is_empty() {
            return Vec::new();
        }
        let needs = |row: &WorkerRow| row.state == "lost" || row.error.is_some() || 0 < row.stuck;
        self.grid(&NAMES, frame.workers.iter().map(|row| (cells_of_worker(row), needs(row))).collect())
    }

    /// The first column and the last texts are to the left, numbers to the right. What does not fit is cut.
    fn grid<const N: usize>(&self, names: &[&str; N], rows: Vec<([String; N], bool)>) -> Vec<(String, Look)> {
        let mut widths: [usize; N] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|(cells, _)| cells[column].chars().count());
            cells.max().unwrap_or(0).max(names[column].chars().count())
        });
        // Names give way down to a third of the screen, so that the numbers are seen.
        widths[0] = widths[0].min((self.columns / 3).max(8));
        let is_text =
            |column: usize| column == 0 || matches!(names[column], "PROBLEMS" | "STATE" | "QUEUES" | "ERROR");
        let line = |cells: &[String; N]| {
            let padded = cells.iter().enumerate().map(|(column, cell)| {
                let (cell, width) = (shortened(cell, widths[column]), widths[column]);
                if is_text(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let head = names.map(str::to_owned);
        let mut lines = vec![(line(&head), Look::Heading)];
        lines.extend(
            rows.iter()
                .map(|(cells, problem)| (line(cells), if *problem { Look::Problem } else { Look::Plain })),
        );
        lines
    }

    fn painted(&self, text: &str, look: Look) -> String {
        let text = shortened(text, self.columns);
        match look {
            Look::Heading if self.colour => format!("\u{1b}[7m{text}\u{1b}[0m"),
            Look::Problem if self.colour => format!("\u{1b}[33m{text}\u{1b}[0m"),
            _ => text,
        }
    }
}

/// So many lines; the last says how many more there are.
fn cut(mut lines: Vec<(String, Look)>, room: usize) -> Vec<(String, Look)> {
    if room < lines.len() {
        let more = lines.len() + 1 - room.max(1);
        lines.truncate(room.saturating_sub(1));
        if 0 < room {
            lines.push((format!("… {more} more"), Look::Plain));
        }
    }
    lines
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn of_queues(frame: &Frame) -> String {
    let totals = &frame.totals;
    format!(
        "{}: {} ready, {} leased, {} waiting, {} dead, {} in, {} out",
        counted(totals.queues as u64, "queue"),
        totals.ready,
        totals.leased,
        totals.waiting,
        totals.dead,
        rate(totals.in_per_second),
        rate(totals.out_per_second)
    )
}

fn of_workers(frame: &Frame) -> String {
    let totals = &frame.totals;
    if totals.workers == 0 {
        return "no live workers".to_owned();
    }
    let stuck = if 0 < totals.stuck { format!(", {} stuck", totals.stuck) } else { String::new() };
    format!(
        "{}: {} of {} slots busy{stuck}",
        counted(totals.workers as u64, "worker"),
        totals.busy,
        totals.slots
    )
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "–".to_owned(),
        Some(rate) if 10.0 <= rate => format!("{rate:.0}/s"),
        Some(rate) => format!("{rate:.1}/s"),
    }
}

fn cells_of_queue(row: &QueueRow) -> [String; 9] {
    let number = |count: u64| count.to_string();
    let age = row.oldest_age_ms.map(|ms| coarse(Duration::from_millis(ms))).unwrap_or_default();
    let per_second = |value: Option<f64>| rate(value).trim_end_matches("/s").to_owned();
    [
        clean(&row.name),
        number(row.ready),
        number(row.leased),
        number(row.waiting),
        number(row.dead),
        age,
        per_second(row.in_per_second),
        per_second(row.out_per_second),
        row.problems.join(" "),
    ]
}

fn cells_of_worker(row: &WorkerRow) -> [String; 9] {
    let beat = coarse(Duration::from_millis(row.beat_age_ms));
    [
        clean(&row.id),
        format!("{}/{}", row.busy, row.slots),
        beat,
        row.stuck.to_string(),
        row.processed.to_string(),
        row.failed.to_string(),
        row.state.to_owned(),
        clean(&row.queues.join(",")),
        clean(row.error.as_deref().unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use millpond::view::QueueView;

    use super::super::frame::tests::{NOW, queue, worker};
    use super::*;

    fn screen(columns: usize, rows: usize) -> Screen<'static> {
        let every = Duration::from_secs(1);
        Screen {
            store: "sqlite://app.db",
            sort: Sort::Problems,
            every,
            columns,
            rows,
            colour: false,
            trouble: None,
        }
    }

    fn frame(queues: usize, workers: usize) -> Frame {
        let queues: Vec<QueueView> =
            (0..queues).map(|number| queue(&format!("mail-{number}"), 7, 0)).collect();
        let workers = (0..workers).map(|number| worker(&format!("w{number}"), 3)).collect();
        Frame::of(NOW, queues, workers, Duration::from_millis(3), None)
    }

    #[test]
    fn a_screen_is_never_larger_than_its_terminal() {
        for (columns, rows) in [(80, 24), (20, 5), (1, 1), (200, 60), (40, 2)] {
            for (queues, workers) in [(0, 0), (1, 1), (100, 100), (3, 50)] {
                let lines = screen(columns, rows).lines(&frame(queues, workers));
                assert!(lines.len() <= rows, "{columns}x{rows}: {} lines", lines.len());
                assert!(
                    lines.iter().all(|line| line.chars().count() <= columns),
                    "{columns}x{rows}: {lines:?}"
                );
            }
        }
    }

    #[test]
    fn what_a_person_sees() {
        let lines = screen(110, 12).lines(&frame(1, 1));
        let expected = [
            "millpond top  sqlite://app.db  1970-01-01T02:46:40Z",
            "1 queue: 7 ready, 1 leased, 5 waiting, 0 dead, – in, – out",
            "QUEUE   READY  LEASED  WAITING  DEAD  OLDEST  IN/S  OUT/S  PROBLEMS",
            "mail-0      7       1        5     0     10s     –      –",
            "",
            "1 worker: 3 of 4 slots busy",
            "WORKER  BUSY  BEAT  STUCK  DONE  FAILED  STATE  QUEUES  ERROR",
            "w0       3/4    3s      0     0       0  live   mail",
            "q quit  s sort: problems  r read now  every 1s  read in 3 ms",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let lines = screen(80, 16).lines(&frame(30, 30));
        assert_eq!(lines.len(), 16);
        assert!(lines.contains(&"… 25 more".to_owned()), "{lines:#?}");
        assert!(lines.contains(&"… 28 more".to_owned()), "{lines:#?}");
    }
}

//! What one tick shows: a function of what was read and of the frame before.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use clap::ValueEnum;
use millpond::Timestamp;
use millpond::view::{QueueView, WorkerView};
use millpond_core::hints::{BACKLOG_AGE_MAX, is_live, is_stale};
use serde::Serialize;

use crate::instant;
use crate::output::Column;
use crate::span::millis;

/// A reading that takes longer is said to.
const SLOW: Duration = Duration::from_millis(250);

/// A worker that has been gone for longer is not shown.
const GONE_AFTER: Duration = Duration::from_secs(600);

/// The order of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Those with a problem first
    Problems,
    /// By name
    Name,
    /// The most ready first
    Ready,
    /// The oldest ready message first
    Oldest,
    /// The most that come in first
    In,
    /// The most that go out first
    Out,
    /// The most dead letters first
    Dead,
}

impl Sort {
    /// The word of it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Sort::Problems => "problems",
            Sort::Name => "name",
            Sort::Ready => "ready",
            Sort::Oldest => "oldest",
            Sort::In => "in",
            Sort::Out => "out",
            Sort::Dead => "dead",
        }
    }

    /// The one after it.
    pub(super) fn next(self) -> Self {
        let all = Self::value_variants();
        let place = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(place + 1) % all.len()]
    }
}

/// What is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frame {
    #[serde(serialize_with = "instant::serialize")]
    pub(super) at: Timestamp,
    /// How long the reading took.
    pub(super) took_ms: u64,
    /// It took so long that somebody should know.
    pub(super) slow: bool,
    pub(super) totals: Totals,
    pub(super) queues: Vec<QueueRow>,
    pub(super) workers: Vec<WorkerRow>,
}

/// The sums.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Totals {
    pub(super) queues: usize,
    pub(super) ready: u64,
    pub(super) leased: u64,
    pub(super) waiting: u64,
    pub(super) dead: u64,
    pub(super) in_per_second: Option<f64>,
    pub(super) out_per_second: Option<f64>,
    pub(super) workers: usize,
    pub(super) slots: u32,
    pub(super) busy: u32,
    pub(super) stuck: u32,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QueueRow {
    pub(super) name: String,
    /// Words for what is wrong, the worst first.
    pub(super) problems: Vec<&'static str>,
    pub(super) ready: u64,
    pub(super) leased: u64,
    /// Due later, after an attempt or not.
    pub(super) waiting: u64,
    pub(super) dead: u64,
    pub(super) oldest_age_ms: Option<u64>,
    pub(super) in_per_second: Option<f64>,
    pub(super) out_per_second: Option<f64>,
    pub(super) paused: bool,
    pub(super) listeners: u64,
    /// Stored and done since it was declared: what rates are made of.
    #[serde(skip)]
    sent: u64,
    #[serde(skip)]
    ended: u64,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerRow {
    pub(super) id: String,
    pub(super) host: String,
    pub(super) state: &'static str,
    pub(super) queues: Vec<String>,
    pub(super) busy: u32,
    pub(super) slots: u32,
    pub(super) stuck: u32,
    pub(super) beat_age_ms: u64,
    pub(super) processed: u64,
    pub(super) failed: u64,
    pub(super) error: Option<String>,
}

/// The queues of a frame as rows.
pub(super) const COLUMNS: [Column<QueueRow>; 10] = [
    Column::new("name", |row, _| row.name.clone()),
    Column::new("ready", |row, _| row.ready.to_string()),
    Column::new("leased", |row, _| row.leased.to_string()),
    Column::new("waiting", |row, _| row.waiting.to_string()),
    Column::new("dead", |row, _| row.dead.to_string()),
    Column::new("oldest age ms", |row, _| row.oldest_age_ms.map(|ms| ms.to_string()).unwrap_or_default()),
    Column::new("in per second", |row, _| row.in_per_second.map(|rate| rate.to_string()).unwrap_or_default()),
    Column::new("out per second", |row, _| {
        row.out_per_second.map(|rate| rate.to_string()).unwrap_or_default()
    }),
    Column::new("paused", |row, _| row.paused.to_string()),
    Column::new("problems", |row, _| row.problems.join(" ")),
];

impl Frame {
    /// What was read at `now` and took `took`.
    pub(super) fn of(
        now: Timestamp,
        queues: Vec<QueueView>,
        workers: Vec<WorkerView>,
        took: Duration,
        before: Option<&Frame>,
    ) -> Self {
        let mut queues: Vec<QueueRow> = queues.into_iter().map(|queue| queue_row(queue, now)).collect();
        if let Some(before) = before {
            add_rates(&mut queues, before, now);
        }
        let mut workers: Vec<WorkerRow> = workers
            .into_iter()
            .filter(|worker| is_shown(worker, now))
            .map(|worker| worker_row(worker, now))
            .collect();
        workers.sort_by(|one, other| (rank(one), &one.id).cmp(&(rank(other), &other.id)));
        let totals = totals(&queues, &workers);
        Self { at: now, took_ms: millis(took), slow: SLOW < took, totals, queues, workers }
    }

    /// Puts the queues in an order.
    pub(super) fn sort(&mut self, by: Sort) {
        let rate = |rate: Option<f64>| (rate.unwrap_or(0.0) * 1_000.0) as u64;
        self.queues.sort_by(|one, other| one.name.cmp(&other.name));
        match by {
            Sort::Name => {}
            Sort::Problems => {
                self.queues
                    .sort_by_key(|row| row.problems.first().map_or(PROBLEMS.len(), |word| severity(word)));
            }
            Sort::Ready => self.queues.sort_by_key(|row| Reverse(row.ready)),
            Sort::Oldest => self.queues.sort_by_key(|row| Reverse(row.oldest_age_ms)),
            Sort::In => self.queues.sort_by_key(|row| Reverse(rate(row.in_per_second))),
            Sort::Out => self.queues.sort_by_key(|row| Reverse(rate(row.out_per_second))),
            Sort::Dead => self.queues.sort_by_key(|row| Reverse(row.dead)),
        }
    }
}

/// What may be wrong with a queue, the worst first.
const PROBLEMS: [&str; 4] = ["no-listener", "backlog", "paused", "dead"];

fn severity(word: &str) -> usize {
    PROBLEMS.iter().position(|known| *known == word).unwrap_or(PROBLEMS.len())
}

fn queue_row(queue: QueueView, now: Timestamp) -> QueueRow {
    let age = queue.oldest_ready.filter(|_| 0 < queue.ready).map(|oldest| now.since(oldest));
    let paused = !queue.paused_by.is_empty();
    let holds = [
        0 < queue.ready && queue.listeners == 0 && !paused,
        age.is_some_and(|age| BACKLOG_AGE_MAX < age) && !paused,
        paused,
        0 < queue.dead,
    ];
    let problems = PROBLEMS.iter().zip(holds).filter(|(_, holds)| *holds).map(|(word, _)| *word).collect();
    QueueRow {
        name: queue.name,
        problems,
        ready: queue.ready,
        leased: queue.leased,
        waiting: queue.scheduled + queue.retrying,
        dead: queue.dead,
        oldest_age_ms: age.map(millis),
        in_per_second: None,
        out_per_second: None,
        paused,
        listeners: queue.listeners,
        sent: queue.sent,
        ended: queue.done,
    }
}

/// What was stored and what was done since the frame before.
fn add_rates(queues: &mut [QueueRow], before: &Frame, now: Timestamp) {
    let secs = now.since(before.at).as_secs_f64();
    if secs <= 0.0 {
        return;
    }
    let before: HashMap<&str, &QueueRow> = before.queues.iter().map(|row| (row.name.as_str(), row)).collect();
    let per_second =
        |now: u64, before: u64| Some((now.saturating_sub(before) as f64 / secs * 100.0).round() / 100.0);
    for row in queues {
        // A queue that was just declared had nothing before.
        let (sent, ended) = before.get(row.name.as_str()).map_or((0, 0), |row| (row.sent, row.ended));
        row.in_per_second = per_second(row.sent, sent);
        row.out_per_second = per_second(row.ended, ended);
    }
}

fn is_shown(worker: &WorkerView, now: Timestamp) -> bool {
    is_live(worker, now) || (!worker.stopped && now.since(worker.seen_at) < GONE_AFTER)
}

fn worker_row(worker: WorkerView, now: Timestamp) -> WorkerRow {
    let state = match (is_live(&worker, now), worker.facts.draining) {
        (true, true) => "draining",
        (true, false) => "live",
        (false, _) if is_stale(&worker, now) => "lost",
        (false, _) => "late",
    };
    let facts = worker.facts;
    WorkerRow {
        beat_age_ms: millis(now.since(worker.seen_at)),
        id: worker.id,
        host: worker.host,
        state,
        queues: worker.queues,
        busy: worker.busy,
        slots: worker.slots,
        stuck: facts.stuck,
        processed: facts.processed,
        failed: facts.failed,
        error: worker.error,
    }
}

/// Workers that need somebody come first.
fn rank(worker: &WorkerRow) -> u8 {
    match worker.state {
        "lost" => 0,
        "late" => 1,
        _ if 0 < worker.stuck || worker.error.is_some() => 2,
        _ => 3,
    }
}

fn totals(queues: &[QueueRow], workers: &[WorkerRow]) -> Totals {
    let sum = |count: fn(&QueueRow) -> u64| queues.iter().map(count).sum();
    let rate = |rate: fn(&QueueRow) -> Option<f64>| {
        let rates: Vec<f64> = queues.iter().filter_map(rate).collect();
        (!rates.is_empty()).then(|| rates.iter().sum())
    };
    let live = || workers.iter().filter(|worker| matches!(worker.state, "live" | "draining"));
    Totals {
        queues: queues.len(),
        ready: sum(|row| row.ready),
        leased: sum(|row| row.leased),
        waiting: sum(|row| row.waiting),
        dead: sum(|row| row.dead),
        in_per_second: rate(|row| row.in_per_second),
        out_per_second: rate(|row| row.out_per_second),
        workers: live().count(),
        slots: live().map(|worker| worker.slots).sum(),
        busy: live().map(|worker| worker.busy).sum(),
        stuck: live().map(|worker| worker.stuck).sum(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use millpond::QueueSettings;
    use millpond::view::{Pause, Scope, WorkerFacts};

    use super::*;

    pub(in super::super) const NOW: Timestamp = Timestamp::from_secs(10_000);

    pub(in super::super) fn queue(name: &str, ready: u64, dead: u64) -> QueueView {
        QueueView {
            name: name.into(),
            settings: QueueSettings::DEFAULT,
            ready,
            leased: 1,
            scheduled: 2,
            retrying: 3,
            dead,
            done: 100,
            sent: 200,
            oldest_ready: (0 < ready).then(|| NOW - Duration::from_secs(10)),
            listeners: 1,
            changes: Vec::new(),
            paused_by: Vec::new(),
            rate_until: None,
        }
    }

    pub(in super::super) fn worker(id: &str, seen: u64) -> WorkerView {
        let seen_at = NOW - Duration::from_secs(seen);
        WorkerView {
            id: id.into(),
            host: "here".into(),
            queues: vec!["mail".into()],
            slots: 4,
            busy: 3,
            started_at: seen_at,
            seen_at,
            lease_until: seen_at + Duration::from_secs(30),
            stopped: false,
            error: None,
            facts: WorkerFacts::default(),
            wish: None,
        }
    }

    fn frame(queues: Vec<QueueView>, workers: Vec<WorkerView>) -> Frame {
        Frame::of(NOW, queues, workers, Duration::from_millis(3), None)
    }

    fn names(frame: &Frame) -> Vec<&str> {
        frame.queues.iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn rates_are_what_changed_since_the_frame_before() {
        let first = frame(vec![queue("mail", 1, 0)], Vec::new());
        assert_eq!((first.queues[0].in_per_second, first.totals.in_per_second), (None, None));
        let later = QueueView { sent: 230, done: 105, ..queue("mail", 1, 0) };
        let new = QueueView { sent: 4, done: 0, ..queue("new", 1, 0) };
        let now = NOW + Duration::from_secs(2);
        let second = Frame::of(now, vec![later, new], Vec::new(), Duration::from_millis(300), Some(&first));
        assert_eq!(
            (second.queues[0].in_per_second, second.queues[0].out_per_second),
            (Some(15.0), Some(2.5))
        );
        assert_eq!((second.queues[1].in_per_second, second.totals.in_per_second), (Some(2.0), Some(17.0)));
        assert!(second.slow && !first.slow);
    }

    #[test]
    fn queues_with_a_problem_come_first() {
        let pause = Pause {
            scope: Scope::Queue("paused".into()),
            reason: None,
            actor: "ann".into(),
            since: NOW,
            until: None,
        };
        let queues = vec![
            queue("a-fine", 1, 0),
            queue("b-dead", 1, 7),
            QueueView { paused_by: vec![pause], listeners: 0, ..queue("c-paused", 1, 0) },
            QueueView { oldest_ready: Some(NOW - Duration::from_secs(61)), ..queue("d-backlog", 5, 0) },
            QueueView { listeners: 0, ..queue("e-no-listener", 1, 0) },
            QueueView { listeners: 0, ..queue("f-empty", 0, 0) },
        ];
        let mut frame = frame(queues, Vec::new());
        frame.sort(Sort::Problems);
        let expected = ["e-no-listener", "d-backlog", "c-paused", "b-dead", "a-fine", "f-empty"];
        assert_eq!(names(&frame), expected);
        assert_eq!(frame.queues[2].problems, ["paused"]);
        frame.sort(Sort::Ready);
        assert_eq!(names(&frame)[0], "d-backlog");
        frame.sort(Sort::Dead);
        assert_eq!(names(&frame)[0], "b-dead");
        frame.sort(Sort::Name);
        assert_eq!(names(&frame)[0], "a-fine");
    }

    #[test]
    fn every_order_is_reached_by_the_key() {
        let mut sort = Sort::Problems;
        for _ in 0..Sort::value_variants().len() {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Problems);
    }

    #[test]
    fn workers_that_need_somebody_come_first_and_those_long_gone_are_left_out() {
        let stopped = WorkerView { stopped: true, ..worker("stopped", 1) };
        let stuck =
            WorkerView { facts: WorkerFacts { stuck: 1, ..WorkerFacts::default() }, ..worker("stuck", 1) };
        let workers = vec![worker("a", 5), stopped, stuck, worker("lost", 60), worker("gone", 9_000)];
        let frame = frame(Vec::new(), workers);
        let found: Vec<_> = frame.workers.iter().map(|row| (row.id.as_str(), row.state)).collect();
        assert_eq!(found, [("lost", "lost"), ("stuck", "live"), ("a", "live")]);
        let totals = frame.totals;
        assert_eq!((totals.workers, totals.busy, totals.slots, totals.stuck), (2, 6, 8, 1));
    }
}

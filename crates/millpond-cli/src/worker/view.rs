//! Workers as they are shown, in the words of the HTTP API.

use clap::ValueEnum;
use millpond::Timestamp;
use millpond::view::{Wish, WorkerView};
use serde::Serialize;

use crate::instant;
use crate::output::{Column, Times, clean};

/// How a worker is, seen from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Its lease lasts.
    Live,
    /// It is silent beyond its lease: it lost its messages to others.
    Lost,
    /// It ended by itself.
    Stopped,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            State::Live => "live",
            State::Lost => "lost",
            State::Stopped => "stopped",
        }
    }
}

/// A worker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) worker_id: String,
    pub(super) state: State,
    /// What it says of itself.
    status: &'static str,
    stale: bool,
    host: String,
    pid: u32,
    version: String,
    provider: &'static str,
    pub(super) queues: Vec<String>,
    job_names: Vec<String>,
    concurrency: u32,
    in_flight: u32,
    slots_stuck: u32,
    #[serde(serialize_with = "instant::serialize")]
    started_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    last_heartbeat_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    lease_until: Timestamp,
    total_processed: u64,
    total_failed: u64,
    last_error: Option<String>,
    /// What an operator wants of it.
    wish: Option<&'static str>,
}

/// The columns of a list.
pub(super) const COLUMNS: [Column<Shown>; 10] = [
    Column::new("id", |row, _| row.worker_id.clone()),
    Column::new("state", |row, _| row.state_and_wish()),
    Column::text("queues", |row, _| row.queues.join(",")),
    Column::new("busy", |row, _| row.slots()),
    Column::optional(Column::new("done", |row, _| row.total_processed.to_string())),
    Column::optional(Column::new("failed", |row, _| row.total_failed.to_string())),
    Column::optional(Column::new("started", |row, times| times.show(row.started_at))),
    Column::optional(Column::new("seen", |row, times| times.show(row.last_heartbeat_at))),
    Column::optional(Column::text("version", |row, _| row.version.clone())),
    Column::text("error", |row, _| row.last_error.clone().unwrap_or_default()),
];

impl Shown {
    /// As a store knows it at `now`.
    pub(super) fn new(view: WorkerView, now: Timestamp, provider: &'static str) -> Self {
        let state = match (view.stopped, now < view.lease_until) {
            (true, _) => State::Stopped,
            (false, true) => State::Live,
            (false, false) => State::Lost,
        };
        let draining = view.facts.draining || view.wish == Some(Wish::Drain);
        let status = match (view.stopped, &view.error, draining) {
            (true, ..) => "STOPPED",
            (false, Some(_), _) => "ERROR",
            (false, None, true) => "DRAINING",
            (false, None, false) => "RUNNING",
        };
        Self {
            worker_id: view.id,
            state,
            status,
            stale: state == State::Lost,
            host: view.host,
            pid: view.facts.pid,
            version: view.facts.version,
            provider,
            queues: view.queues,
            job_names: view.facts.kinds,
            concurrency: view.slots,
            in_flight: view.busy,
            slots_stuck: view.facts.stuck,
            started_at: view.started_at,
            last_heartbeat_at: view.seen_at,
            lease_until: view.lease_until,
            total_processed: view.facts.processed,
            total_failed: view.facts.failed,
            last_error: view.error,
            wish: view.wish.map(Wish::as_str),
        }
    }

    fn state_and_wish(&self) -> String {
        match (self.state, self.wish, self.status) {
            (State::Live, Some(wish), _) => format!("live, to {wish}"),
            (State::Live, None, "DRAINING") => "live, draining".to_owned(),
            (state, ..) => state.as_str().to_owned(),
        }
    }

    fn slots(&self) -> String {
        let stuck =
            if self.slots_stuck == 0 { String::new() } else { format!(", {} stuck", self.slots_stuck) };
        format!("{}/{}{stuck}", self.in_flight, self.concurrency)
    }

    /// Line by line.
    pub(super) fn text(&self, times: &Times) -> String {
        let kinds = if self.job_names.is_empty() { "any".to_owned() } else { self.job_names.join(", ") };
        let lines = [
            ("id", self.worker_id.clone()),
            ("state", self.state_and_wish()),
            ("status", self.status.to_owned()),
            ("host", self.host.clone()),
            ("pid", if self.pid == 0 { String::new() } else { self.pid.to_string() }),
            ("version", self.version.clone()),
            ("queues", self.queues.join(", ")),
            ("kinds", kinds),
            ("busy", self.slots()),
            ("done", self.total_processed.to_string()),
            ("failed", self.total_failed.to_string()),
            ("started", times.show(self.started_at)),
            ("seen", times.show(self.last_heartbeat_at)),
            ("lease until", times.show(self.lease_until)),
            ("error", self.last_error.clone().unwrap_or_default()),
        ];
        let known = lines.iter().filter(|(_, value)| !value.is_empty());
        known.map(|(name, value)| format!("{name:<12} {}\n", clean(value))).collect()
    }
}

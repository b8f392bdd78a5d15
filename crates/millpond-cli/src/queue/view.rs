//! Queues as they are shown.

use std::time::Duration;

use millpond::text::{format_duration, format_size};
use millpond::view::QueueView;
use millpond::{HistoryLevel, QueueSettings, Timestamp};
use serde::Serialize;

use super::backoff;
use crate::instant;
use crate::output::Column;

/// A queue with its counts and settings, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) name: String,
    ready: u64,
    leased: u64,
    scheduled: u64,
    retrying: u64,
    dead: u64,
    done: u64,
    sent: u64,
    listeners: u64,
    #[serde(serialize_with = "instant::serialize_if")]
    oldest_ready: Option<Timestamp>,
    pub(super) settings: Settings,
}

/// Settings of a queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settings {
    attempts_max: u32,
    backoff: String,
    lease_ms: u64,
    timeout_ms: Option<u64>,
    message_limit_bytes: u64,
    retention_ms: u64,
    dedup_window_ms: u64,
    releases_max: u32,
    concurrency_per_node: Option<u32>,
    events: &'static str,
    #[serde(skip)]
    stored: QueueSettings,
}

impl From<QueueView> for Shown {
    fn from(view: QueueView) -> Self {
        Self {
            name: view.name,
            ready: view.ready,
            leased: view.leased,
            scheduled: view.scheduled,
            retrying: view.retrying,
            dead: view.dead,
            done: view.done,
            sent: view.sent,
            listeners: view.listeners,
            oldest_ready: view.oldest_ready,
            settings: view.settings.into(),
        }
    }
}

impl From<QueueSettings> for Settings {
    fn from(stored: QueueSettings) -> Self {
        Self {
            attempts_max: stored.attempts_max,
            backoff: backoff::show(&stored.backoff),
            lease_ms: millis(stored.lease),
            timeout_ms: stored.timeout.map(millis),
            message_limit_bytes: stored.message_limit(),
            retention_ms: millis(stored.retention),
            dedup_window_ms: millis(stored.dedup_window),
            releases_max: stored.releases_max,
            concurrency_per_node: stored.concurrency_per_node,
            events: match stored.events {
                HistoryLevel::All => "all",
                HistoryLevel::Failures => "failures",
            },
            stored,
        }
    }
}

/// The columns of a list.
pub(super) const COLUMNS: [Column<Shown>; 9] = [
    Column::new("name", |row, _| row.name.clone()),
    Column::new("ready", |row, _| row.ready.to_string()),
    Column::new("leased", |row, _| row.leased.to_string()),
    Column::new("scheduled", |row, _| row.scheduled.to_string()),
    Column::new("retrying", |row, _| row.retrying.to_string()),
    Column::new("dead", |row, _| row.dead.to_string()),
    Column::new("done", |row, _| row.done.to_string()),
    Column::new("listeners", |row, _| row.listeners.to_string()),
    Column::new("oldest ready", |row, times| times.show_if(row.oldest_ready)),
];

impl Settings {
    /// A line for each, as flags of `queue add` take them.
    pub(super) fn text(&self) -> String {
        let stored = &self.stored;
        let none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        [
            ("attempts-max", stored.attempts_max.to_string()),
            ("backoff", self.backoff.clone()),
            ("lease", format_duration(stored.lease)),
            ("timeout", none(stored.timeout.map(format_duration))),
            ("message-limit", format_size(stored.message_limit())),
            ("retention", format_duration(stored.retention)),
            ("dedup-window", format_duration(stored.dedup_window)),
            ("concurrency-per-node", none(stored.concurrency_per_node.map(|count| count.to_string()))),
            ("events", self.events.to_owned()),
        ]
        .iter()
        .map(|(name, value)| format!("  {name:<20}  {value}\n"))
        .collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

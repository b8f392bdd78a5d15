//! Queues as they are shown.

use std::time::Duration;

use millpond::view::{Pause, QueueView, Scope, SettingChange};
use millpond::{HistoryLevel, QueueSettings, Timestamp, Transactional};
use serde::Serialize;

use super::{backoff, rate, setting};
use crate::output::{Column, Times, clean};
use crate::{instant, span};

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
    oldest_ready_age_seconds: Option<u64>,
    paused_by: Vec<Held>,
    /// What an operator changed at run time; `settings` has it already.
    changes: Vec<Change>,
    pub(super) settings: Settings,
}

/// A pause.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Held {
    scope: &'static str,
    queue: Option<String>,
    reason: Option<String>,
    actor: String,
    #[serde(serialize_with = "instant::serialize")]
    since: Timestamp,
    #[serde(serialize_with = "instant::serialize_if")]
    pub(super) until: Option<Timestamp>,
}

/// A setting that an operator changed at run time.
#[derive(Debug, Serialize)]
struct Change {
    setting: String,
    value: String,
    actor: String,
    #[serde(serialize_with = "instant::serialize")]
    at: Timestamp,
}

impl From<Pause> for Held {
    fn from(pause: Pause) -> Self {
        let Pause { scope, reason, actor, since, until } = pause;
        let (scope, queue) = match scope {
            Scope::Global => ("global", None),
            Scope::Queue(name) => ("queue", Some(name)),
        };
        Self { scope, queue, reason, actor, since, until }
    }
}

impl Held {
    /// Whether it holds all queues.
    pub(super) fn is_global(&self) -> bool {
        self.queue.is_none()
    }

    /// Who, since when, until when, and why.
    pub(super) fn text(&self, times: &Times) -> String {
        let what = if self.is_global() { "a pause of all queues" } else { "a pause of its own" };
        let until = self.until.map(|until| format!(", until {}", times.show(until))).unwrap_or_default();
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        clean(&format!("{what}, by {} since {}{until}{reason}", self.actor, times.show(self.since)))
    }
}

impl Change {
    fn new(change: SettingChange, settings: &QueueSettings) -> Self {
        let SettingChange { setting, actor, at, .. } = change;
        Self { value: setting::text(settings, &setting), setting, actor, at }
    }
}

/// Settings of a queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settings {
    transactional: &'static str,
    attempts_max: u32,
    backoff: String,
    lease_ms: u64,
    timeout_ms: Option<u64>,
    message_limit_bytes: u64,
    retention_ms: u64,
    dedup_window_ms: u64,
    releases_max: u32,
    concurrency_per_node: Option<u32>,
    exclusive: bool,
    concurrency: Option<u32>,
    rate: Option<String>,
    events: &'static str,
    #[serde(skip)]
    stored: QueueSettings,
}

impl Shown {
    /// As a store knows it at `now`.
    pub(super) fn new(view: QueueView, now: Timestamp) -> Self {
        let settings = view.settings;
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
            oldest_ready_age_seconds: view.oldest_ready.map(|oldest| now.since(oldest).as_secs()),
            paused_by: view.paused_by.into_iter().map(Held::from).collect(),
            changes: view.changes.into_iter().map(|change| Change::new(change, &settings)).collect(),
            settings: settings.into(),
        }
    }

    fn paused(&self) -> String {
        match (self.paused_by.iter().any(Held::is_global), self.paused_by.is_empty()) {
            (_, true) => String::new(),
            (true, _) => "all".to_owned(),
            (false, _) => "yes".to_owned(),
        }
    }

    fn age(&self) -> String {
        span::short_if(self.oldest_ready_age_seconds.map(Duration::from_secs))
    }

    /// What holds it, and its settings, with what was changed at run time.
    pub(super) fn text(&self, times: &Times) -> String {
        let mut text = String::new();
        for held in &self.paused_by {
            text.push_str(&format!("held by {}\n", held.text(times)));
        }
        text.push_str("settings\n");
        text.push_str(&self.settings.mode());
        for name in setting::NAMES {
            let line = self.settings.line(name);
            let change = self.changes.iter().find(|change| change.setting == name);
            let by = change.map(|change| format!("changed by {} at {}", change.actor, times.show(change.at)));
            let by = by.map(|by| format!("   {}", clean(&by))).unwrap_or_default();
            text.push_str(&format!("  {line}{by}\n"));
        }
        text
    }
}

impl From<QueueSettings> for Settings {
    fn from(stored: QueueSettings) -> Self {
        Self {
            transactional: stored.transactional.as_str(),
            attempts_max: stored.attempts_max,
            backoff: backoff::show(&stored.backoff),
            lease_ms: span::millis(stored.lease),
            timeout_ms: stored.timeout.map(span::millis),
            message_limit_bytes: stored.message_limit(),
            retention_ms: span::millis(stored.retention),
            dedup_window_ms: span::millis(stored.dedup_window),
            releases_max: stored.releases_max,
            concurrency_per_node: stored.concurrency_per_node,
            exclusive: stored.exclusive,
            concurrency: stored.concurrency,
            rate: stored.rate.map(rate::show),
            events: match stored.events {
                HistoryLevel::All => "all",
                HistoryLevel::Failures => "failures",
            },
            stored,
        }
    }
}

/// The columns of a list.
pub(super) const COLUMNS: [Column<Shown>; 10] = [
    Column::new("name", |row, _| row.name.clone()),
    Column::new("ready", |row, _| row.ready.to_string()),
    Column::new("leased", |row, _| row.leased.to_string()),
    Column::new("scheduled", |row, _| row.scheduled.to_string()),
    Column::new("retrying", |row, _| row.retrying.to_string()),
    Column::new("dead", |row, _| row.dead.to_string()),
    Column::optional(Column::new("done", |row, _| row.done.to_string())),
    Column::optional(Column::new("listeners", |row, _| row.listeners.to_string())),
    Column::new("oldest", |row, _| row.age()),
    Column::new("paused", |row, _| row.paused()),
];

impl Settings {
    /// A setting in the form that `queue set` takes, with its name.
    fn line(&self, name: &str) -> String {
        format!("{name:<20}  {}", setting::text(&self.stored, name))
    }

    /// How a send stands to the sender's transaction, unless it is as always.
    fn mode(&self) -> String {
        match self.stored.transactional {
            Transactional::Try => String::new(),
            mode => format!("  {:<20}  {}\n", "transactional", mode.as_str()),
        }
    }

    /// A line for each.
    pub(super) fn text(&self) -> String {
        let lines: String = setting::NAMES.iter().map(|name| format!("  {}\n", self.line(name))).collect();
        self.mode() + &lines
    }
}

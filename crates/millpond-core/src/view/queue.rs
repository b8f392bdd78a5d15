//! Queues, with their counts and what holds them.

use serde_json::Value;

use crate::queue::QueueSettings;
use crate::time::Timestamp;

/// A queue with its counts.
#[derive(Debug, Clone)]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Its stored settings.
    pub settings: QueueSettings,
    /// In the log, beyond the cursor. Exact.
    pub ready: u64,
    /// With a worker.
    pub leased: u64,
    /// In the outbox, due later.
    pub scheduled: u64,
    /// In the outbox after an attempt.
    pub retrying: u64,
    /// Dead letters, cancelled ones among them.
    pub dead: u64,
    /// Acknowledged since the queue was declared.
    pub done: u64,
    /// Stored since the queue was declared, redriven ones among them.
    pub sent: u64,
    /// When the oldest ready message was published.
    pub oldest_ready: Option<Timestamp>,
    /// Live workers that listen to it.
    pub listeners: u64,
    /// What an operator changed at run time; `settings` has it already.
    pub changes: Vec<SettingChange>,
    /// Everything that holds it.
    pub paused_by: Vec<Pause>,
    /// Until when its rate has no room; `None`: it has, or there is no rate.
    pub rate_until: Option<Timestamp>,
}

/// A setting that an operator changed at run time. It wins over the declaration.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingChange {
    /// The name of the setting, as in [`QueueSettings`].
    pub setting: String,
    /// Its value, as it is stored.
    pub value: Value,
    /// Who changed it.
    pub actor: String,
    /// When.
    pub at: Timestamp,
}

/// What a pause holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every queue of the store.
    Global,
    /// One queue, by its name.
    Queue(String),
}

/// A pause. While one lasts nothing is leased; sending goes on and what runs goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What it holds.
    pub scope: Scope,
    /// Why, if the one who paused said so.
    pub reason: Option<String>,
    /// Who paused it.
    pub actor: String,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

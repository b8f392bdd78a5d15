//! What people see of a store.

mod dead_letter;
mod history;
mod info;
mod list;
mod message;
mod queue;
mod worker;

pub use dead_letter::{DeadLetterView, FailureGroup, GroupBy, dead_letter_status};
pub use history::{AuditLine, Tallies, Tally};
pub use info::{Fact, Finding, Severity, StoreInfo};
pub use list::{Count, Find, Found};
pub use message::{EventView, MessageRow, MessageView, OutboxRow, OutboxSummary};
pub use queue::{Pause, QueueView, Scope, SettingChange};
pub use worker::{Wish, WorkerFacts, WorkerView};

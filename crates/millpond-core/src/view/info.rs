//! The store, as it tells about itself.

use serde_json::Value;

/// What a store tells about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreInfo {
    /// The kind of store: `sqlite`, `postgres` or `mysql`.
    pub kind: String,
    /// Named facts, in the order in which they are shown: version, place, durability, sizes, snapshots.
    pub facts: Vec<Fact>,
    /// Tables with their rows, estimated where counting would be slow.
    pub tables: Vec<(String, u64)>,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
    /// What the runtime may do and no more: SQL, or sentences where there are no roles.
    pub grants: Vec<String>,
}

/// A named fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its name, such as `size_bytes`.
    pub name: String,
    /// Its value.
    pub value: Value,
    /// What it means, in a few words.
    pub about: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Work does not get done, or may be lost.
    Critical,
    /// Somebody should look.
    Warn,
    /// Worth knowing.
    Info,
}

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A word that does not change.
    pub code: String,
    /// How bad it is.
    pub severity: Severity,
    /// What is the case.
    pub text: String,
    /// What to do.
    pub action: Option<String>,
}

//! The words, the pure decisions and the ports of Millpond.
//!
//! Core reads no clock, opens no file, draws no random number and starts no task. What it decides is a
//! function of its arguments, tested as a table of cases; what it needs from a database is a trait in
//! [`store`], which every store implements and `millpond-testkit` holds to its contract.

pub mod audit;
pub mod backoff;
pub mod batch;
pub mod buffer;
pub mod capability;
pub mod check;
pub mod dedup;
pub mod error;
pub mod fingerprint;
pub mod hints;
pub mod hook;
pub mod limit;
pub mod message;
pub mod name;
pub mod pick;
pub mod poll;
pub mod query;
pub mod queue;
pub mod reason;
pub mod redact;
pub mod settle;
pub mod shard;
pub mod state;
pub mod store;
pub mod store_url;
pub mod text;
pub mod time;
pub mod view;
pub mod within;

pub use backoff::{Backoff, Jitter};
pub use error::{Code, Error, ErrorKind, Result};
pub use message::{Due, Headers, Leased, MessageId, NewMessage, Offset, Token};
pub use queue::QueueSettings;
pub use settle::{Settlement, Verdict};
pub use time::Timestamp;

//! The SQLite store of Millpond: the log, the outbox and everything else in one file, or in memory.
//!
//! One thread writes ([`writer`](self)): whatever waits when it is free becomes one transaction. Sends are
//! flushed to the disk before they are acknowledged; leases and settlements are not, because losing one only
//! means another delivery. Several processes may share a file on one host.

mod admin;
mod append;
mod audit;
mod cancel;
mod capabilities;
mod change;
mod clock;
mod connect;
mod dead_letters;
mod deliveries;
mod draft;
mod entry;
mod error;
mod history;
mod hook;
mod info;
mod inspect;
mod lane;
mod lease;
mod limit;
mod location;
mod log;
mod merge;
mod message;
mod messages;
mod migrate;
mod operate;
mod outbox;
mod parts;
mod pause;
#[cfg(test)]
mod plans;
mod purge;
mod queues;
mod record;
mod redrive;
mod reserve;
mod retention;
mod run_log;
mod sabotage;
mod settle;
mod spots;
mod sql;
mod steer;
mod take_over;
mod tallies;
mod turn;
mod unit;
mod waiting;
mod wal;
mod walk;
mod within;
mod writer;

pub use clock::SystemClock;
pub use connect::{Options, SqliteStore, schema};
pub use location::{Location, Synchronous};
pub use migrate::Migration;
pub use rusqlite;
pub use unit::SqliteTx;
pub use within::Driver;

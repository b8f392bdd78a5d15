//! The Postgres store of Millpond: the log, the outbox and everything else in one schema of a database.
//!
//! Every verb that runs for a message is a function of the schema, so it takes one round trip and keeps its plans, also
//! behind a proxy that gives each transaction another connection. Sends are durable before they are acknowledged;
//! leases and settlements are not flushed, because losing one only means another delivery. Time is the server's.
//!
//! The store has threads of its own: what a program's own runtime does, or what blocks it, holds up neither a commit
//! nor the renewal of a lease.

mod admin;
mod append;
mod audit;
mod bits;
mod cancel;
mod capabilities;
mod cell;
mod change;
mod columns;
mod connect;
mod connection;
mod error;
mod event;
mod floor;
mod history;
mod hook;
mod info;
mod inspect;
mod lane;
mod lease;
mod limit;
mod location;
mod log;
mod migrate;
mod operate;
mod outbox;
mod pause;
mod pool;
mod purge;
mod queues;
mod reader;
mod redrive;
mod refusal;
mod retention;
mod sabotage;
mod sender;
mod settle;
mod sql;
mod steer;
mod take_over;
mod tls;
mod unit;
mod wake;
mod within;

use millpond_sql::runs;

pub use connect::{Options, PostgresStore, schema};
pub use location::Location;
pub use migrate::Migration;
pub use tokio_postgres;
pub use unit::PostgresTx;
pub use within::Driver;

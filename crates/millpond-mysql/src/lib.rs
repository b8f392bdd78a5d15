//! The MySQL and MariaDB store of Millpond: the log, the outbox and everything else in tables of one prefix.
//!
//! MariaDB 10.6 and later is what is run in its tests; it is written for MySQL 8 too. What runs for a message is sent as
//! a script of several statements, so that it takes as few round trips as it can, and nothing is kept in a session. Every
//! transaction is READ COMMITTED, and one that was chosen as the victim of a deadlock is repeated, with a bound. Offsets
//! come from the row of their partition, under its lock. Time is the server's.
//!
//! There is no commit here that waits for no flush: a lease and a settlement cost one each, as a send does.
//!
//! The store has threads of its own: what a program's own runtime does, or what blocks it, holds up neither a commit
//! nor the renewal of a lease.

mod admin;
mod append;
mod audit;
mod cancel;
mod capabilities;
mod change;
mod connect;
mod connection;
mod error;
mod event;
mod history;
mod hook;
mod info;
mod inspect;
mod lane;
mod lease;
mod limit;
mod literal;
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
mod row;
mod sabotage;
mod script;
mod sender;
mod settle;
mod sql;
mod steer;
mod take_over;
mod unit;
mod within;

use millpond_sql::{bits, runs};

pub use connect::{MysqlStore, Options, schema};
pub use location::Location;
pub use migrate::Migration;
pub use mysql_async;
pub use unit::MysqlTx;
pub use within::Driver;

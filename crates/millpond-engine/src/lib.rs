//! What runs: the sender, the worker and what keeps a store in order.
//!
//! The engine holds no SQL and decides nothing about a message's fate: it moves what core decides to a store
//! and back. A process has one [`pond::Pond`] for each store; senders, workers and upkeep share it.

pub mod adopt;
pub mod batch;
pub mod body;
mod buffers;
pub mod counters;
mod dedup;
pub mod handler;
pub mod hook;
pub mod ids;
pub mod item;
pub mod job;
mod lost;
pub mod notify;
mod patience;
pub mod pond;
mod publish;
mod pulse;
pub mod queue;
pub mod reclaim;
mod renewal;
pub mod send;
mod supervise;
pub mod test_root;
pub mod unit;
mod upkeep;
mod wake;
mod watch;
pub mod worker;

#[cfg(test)]
mod fake;

//! What runs: the sender, the worker and what keeps a store in order.
//!
//! The engine holds no SQL and decides nothing about a message's fate: it moves what core decides to a store
//! and back. A process has one [`pond::Pond`] for each store; senders, workers and upkeep share it.
#![allow(dead_code, reason = "some of it is for the worker, which follows")]

pub mod body;
pub mod handler;
pub mod ids;
pub mod item;
pub mod job;
pub mod pond;
pub mod queue;
pub mod unit;
mod wake;

#[cfg(test)]
mod fake;

//! Tasks of the repository, and the guards that hold it to its own rules.

pub mod adapters;
pub mod examples;
pub mod guard;
pub mod help;
pub mod outcome;
pub mod repo;
pub mod run;
pub mod services;
pub mod sizes;
pub mod steps;
pub mod stores;

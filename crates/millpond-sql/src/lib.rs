//! What the stores on a database server have in common: how questions are answered from rows.
//!
//! A store has its tables, its statements and its connection; what a message, a list or the run log is made of is the
//! same for all of them. Here it is read through one small trait, [`Reader`]: rows of a statement that has a name.

pub mod audit;
pub mod bits;
pub mod dead_letters;
pub mod find;
mod list;
pub mod messages;
mod param;
pub mod pause;
pub mod queues;
mod reader;
mod record;
mod row;
pub mod run_log;
pub mod runs;
mod spots;
pub mod tallies;
pub mod views;
pub mod waiting;

pub use param::Param;
pub use reader::{Reader, Tried};
pub use row::{Cell, FromCell, Row};

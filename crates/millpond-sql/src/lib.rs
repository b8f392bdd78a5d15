//! What the stores have in common.
//!
//! Of all of them: the pages of a list, what a query can ask of a row, settings as they are stored.
//!
//! Of those on a server: how questions are answered. A store has its tables, its statements and its connection; what a
//! message or the run log is made of is the same. It is read through one small trait, [`Reader`]: rows of a statement that
//! has a name. And a store has threads of its own ([`Lane`]) with connections that are lent to one call at a time
//! ([`Pool`]).

pub mod audit;
pub mod bits;
pub mod dead_letters;
mod fault;
pub mod find;
mod lane;
pub mod list;
pub mod messages;
mod param;
pub mod pause;
mod pool;
pub mod queues;
mod quiet;
mod reader;
pub mod record;
mod row;
pub mod run_log;
pub mod runs;
mod spots;
pub mod tallies;
pub mod views;
pub mod waiting;

pub use fault::{Fault, Lost, closed};
pub use lane::{CALL_WAIT, DEADLOCK_TRIES, Lane};
pub use param::Param;
pub use pool::{Lent, Pool, Pooled};
pub use quiet::Quiet;
pub use reader::{Reader, Tried};
pub use row::{Cell, FromCell, Row};

//! What a measured queue is asked, and how it answers.
//!
//! Each queue is a program: `program <url of an empty database>`. It reads one command a line and answers each with
//! one JSON object in a line, so that one harness measures all of them alike, and the clock, the processor time and
//! the write-ahead log of the server are read by the harness and not by the measured.
//!
//! | command | answer |
//! |---|---|
//! | `about` | `name`, `version`, and in words the settings `best`, `default` and `small` |
//! | `prepare` | `{}`: the tables are there |
//! | `send COUNT BATCH TASKS SECONDS` | `sent`, `seconds`; so many tasks, one call after the other each, until all are sent or the time is over; a batch of 1 is the call for one message |
//! | `schedule COUNT` | `{}`: as many that are due in an hour |
//! | `transact WAY COUNT TASKS SECONDS` | `done`, `seconds`; so many tasks, each on a connection of its own, one transaction after the other: an order, and a message about it sent in this way |
//! | `ready` | `{}`: all that was committed may be worked on |
//! | `send_one ID` | `at_us`: when the call returned |
//! | `start SETTINGS RETRIES` | `{}`: a worker runs; of each hundred messages so many fail the first time |
//! | `handled COUNT SECONDS` | `handled`, `seconds` since the start, when so many ended well or the time is over |
//! | `settled SECONDS` | `left`: messages that are still to be done when none are left or the time is over; `seconds` since the start |
//! | `picked ID` | `at_us`: when the handler of this message began |
//! | `stop` | `{}`: no worker runs |
//! | `prune` | `{}`: what is done is removed as the queue itself does it once it is past its retention |
//!
//! What cannot be done is answered by `error`, with the reason.

mod handled;
mod mail;
mod serve;

use std::future::Future;

pub use handled::Handled;
pub use mail::{Mail, PICKUP_FIRST, mail, mails};
pub use serve::{main, serve};

/// What went wrong, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The answer of a queue.
pub type Outcome<T> = Result<T, Failure>;

/// What a queue is, and how it is set in each of the measurements, in words.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct About {
    /// Its name, as its users know it.
    pub name: &'static str,
    /// The version that is measured.
    pub version: &'static str,
    /// The best settings that were found: workers, batch size, connections.
    pub best: &'static str,
    /// What its users get who set nothing.
    pub default: &'static str,
    /// Fifty handlers that take few messages at a time.
    pub small: &'static str,
    /// The ways to send in a transaction of the program's own, which `transact` takes.
    pub transactions: &'static [Way],
}

/// How a message is sent in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Not at all: what the transaction costs by itself.
    Bare,
    /// By the library, in a transaction that the program began with its own driver.
    Send,
    /// In a transaction that the library begins and commits.
    Unit,
    /// By a function of the database, in a transaction of the program's own.
    Sql,
}

/// What every transaction writes besides; its values are the address and the number of the mail. The harness makes the
/// table.
pub const ORDER: &str = "insert into orders (customer, total) values ($1, $2)";

/// How a worker is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// The best that were found for a drain.
    Best,
    /// What users get who set nothing.
    Default,
    /// Fifty handlers that take few messages at a time.
    Small,
}

/// A measured queue.
pub trait Queue: Sized + Send + Sync + 'static {
    /// What it is.
    fn about() -> About;

    /// A connection of the program's own, with what it has prepared.
    type Session: Send + 'static;

    /// Connects to an empty database, or to one that was prepared before.
    fn open(url: &str) -> impl Future<Output = Outcome<Self>> + Send;

    /// Makes its tables.
    fn prepare(&self) -> impl Future<Output = Outcome<()>> + Send;

    /// Sends all of them in one call, durably.
    fn send(&self, mails: Vec<Mail>) -> impl Future<Output = Outcome<()>> + Send;

    /// Sends one by the call for one, durably.
    fn send_one(&self, mail: Mail) -> impl Future<Output = Outcome<()>> + Send;

    /// A new connection of the program's own.
    fn session(&self) -> impl Future<Output = Outcome<Self::Session>> + Send;

    /// Writes an [`ORDER`] and sends the mail about it, in one transaction.
    fn transact(
        &self,
        session: &mut Self::Session,
        way: Way,
        mail: Mail,
    ) -> impl Future<Output = Outcome<()>> + Send;

    /// Returns when everything that was committed may be worked on.
    fn ready(&self) -> impl Future<Output = Outcome<()>> + Send {
        async { Ok(()) }
    }

    /// Sends all of them in one call, due in an hour.
    fn schedule(&self, mails: Vec<Mail>) -> impl Future<Output = Outcome<()>> + Send;

    /// Starts a worker.
    fn start(&self, settings: Settings, handled: Handled) -> impl Future<Output = Outcome<()>> + Send;

    /// Stops it.
    fn stop(&self) -> impl Future<Output = Outcome<()>> + Send;

    /// How many messages are still to be done, without those that are scheduled.
    fn left(&self) -> impl Future<Output = Outcome<i64>> + Send;

    /// Removes what is done, in the way in which it is removed once it is past its retention.
    fn prune(&self) -> impl Future<Output = Outcome<()>> + Send;
}

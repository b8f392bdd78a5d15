//! The ways to publish in a transaction: an order, its message, some other work, and the commit.

pub(crate) mod diesel;
pub(crate) mod drivers;
pub(crate) mod seaorm;
pub(crate) mod sqlx;
pub(crate) mod unit;

use std::time::{Duration, Instant};

use millpond::{Pond, Queue};

/// What went wrong, in words.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Outcome<T> = Result<T, Failure>;

/// Where the mails go: each is the number of its order.
pub(crate) const MAIL: Queue<u64> = Queue::new("mail");

/// In every database.
const TABLE: &str = "create table if not exists orders (number bigint not null)";

/// When the commit was called, and when it returned.
pub(crate) struct Committed {
    pub(crate) called: Instant,
    pub(crate) returned: Instant,
}

impl Committed {
    /// Now, and called at this time.
    fn since(called: Instant) -> Self {
        Self { called, returned: Instant::now() }
    }
}

/// One way, with the connection that it keeps.
pub(crate) trait Way: Sized {
    /// As its users call it.
    const NAME: &'static str;

    /// Connects, and makes the table of the orders.
    async fn open(url: &str) -> Outcome<Self>;

    /// An order and its message, so much other work, and the commit.
    async fn place_order(&mut self, pond: &Pond, order: u64, work: Duration) -> Outcome<Committed>;
}

/// The file of a store in SQLite.
fn path(url: &str) -> &str {
    url.trim_start_matches("sqlite://")
}

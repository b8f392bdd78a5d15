//! The connections of one thread of the store.

use std::sync::Arc;
use std::time::Duration;

use millpond_sql::Pooled;

use crate::connection::{Connection, Target};
use crate::error::{Fault, Tried};

/// The wait after a deadlock, longer with each try.
const DEADLOCK_WAIT: Duration = Duration::from_millis(2);

/// Connections to one server.
pub(crate) type Pool = millpond_sql::Pool<Connection>;

/// A connection for one call.
pub(crate) type Lent = millpond_sql::Lent<Connection>;

impl Pooled for Connection {
    type Target = Target;
    type Fault = Fault;

    async fn open_for_use(target: &Arc<Target>) -> Tried<Self> {
        Self::open(target).await
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    /// The driver does not hear of an end before it is spoken to.
    async fn is_alive(&self) -> bool {
        self.is_alive().await
    }

    /// Not at the same moment as the other one.
    async fn after_deadlock(tries: u32) {
        tokio::time::sleep(DEADLOCK_WAIT * tries + jitter()).await;
    }
}

/// Up to as long again, by chance.
fn jitter() -> Duration {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => DEADLOCK_WAIT * u32::from(byte[0]) / u32::from(u8::MAX),
        Err(_) => Duration::ZERO,
    }
}

//! The connections of one thread of the store.

use std::sync::Arc;

use millpond_sql::Pooled;

use crate::connection::{Connection, Target};
use crate::error::{Fault, Tried};

/// Connections to one server.
pub(crate) type Pool = millpond_sql::Pool<Connection>;

/// A connection for one call.
pub(crate) type Lent = millpond_sql::Lent<Connection>;

impl Pooled for Connection {
    type Target = Target;
    type Fault = Fault;

    async fn open_for_use(target: &Arc<Target>) -> Tried<Self> {
        let connection = Self::open(target).await?;
        if !target.is_shared() {
            connection.set_limits().await?;
        }
        Ok(connection)
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }
}

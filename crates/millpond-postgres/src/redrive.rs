//! Redrive: dead letters begin a new life under a new id.

use millpond_core::message::MessageId;
use millpond_core::reason::OutboxReason;
use tokio_postgres::types::Type;

use crate::connection::{Connection, Param};
use crate::error::Tried;

/// Puts each dead letter that was not redriven before into the outbox, under the id beside its own; answers how many
/// there were.
pub(crate) async fn redrive(connection: &Connection, ids: &[(MessageId, MessageId)]) -> Tried<u64> {
    let (now, reason, mut redriven) = (connection.now(), OutboxReason::Tx.as_str(), 0);
    for (old, new) in ids {
        let params: [Param<'_>; 4] =
            [(&old.0, Type::UUID), (&new.0, Type::UUID), (&reason, Type::TEXT), (&now, Type::INT8)];
        redriven += connection.run("dead_letter_redriven", &params).await?;
    }
    Ok(redriven)
}

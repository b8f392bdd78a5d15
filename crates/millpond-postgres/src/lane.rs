//! The threads of the store.

use crate::connection::Connection;

pub(crate) use millpond_sql::CALL_WAIT;

/// A thread with connections of its own.
pub(crate) type Lane = millpond_sql::Lane<Connection>;

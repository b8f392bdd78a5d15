//! The connection to whoever asks.

use millpond_core::store::Queue;
use millpond_core::time::Timestamp;
use millpond_sql::{Param, Reader};

use crate::admin::now;
use crate::connection::{self, Connection};
use crate::error::{Fault, Tried};
use crate::queues::stored_queues;
use crate::row::Row;

impl Reader for Connection {
    type Row = Row;
    type Fault = Fault;

    async fn rows(&self, name: &str, params: &[Param<'_>]) -> Tried<Vec<Row>> {
        let params: Vec<connection::Param<'_>> = params.iter().map(|param| param as _).collect();
        Connection::rows(self, name, &params).await
    }

    async fn time(&self) -> Tried<Timestamp> {
        now(self).await
    }

    async fn queues(&self) -> Tried<Vec<Queue>> {
        stored_queues(self).await
    }
}

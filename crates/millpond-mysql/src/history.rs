//! What people ask about the past.

use std::time::Duration;

use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, History};
use millpond_core::view::{AuditLine, EventView, Find, Found, Tallies, Tally};
use millpond_sql::audit::audit_page;
use millpond_sql::run_log::events;
use millpond_sql::tallies::{run_times, tallies};

use crate::connect::MysqlStore;
use crate::connection::Connection;

impl History for MysqlStore {
    fn events(&self, find: Find) -> BoxFuture<'_, Result<Found<EventView>>> {
        self.at_one_moment("read the run log", async move |connection: &mut Connection| {
            events(connection, &find).await
        })
    }

    fn tallies(&self, which: Tallies) -> BoxFuture<'_, Result<Vec<Tally>>> {
        self.read("read counters", async move |connection: &mut Connection| tallies(connection, &which).await)
    }

    fn run_times(&self, queue: String, runs_max: usize) -> BoxFuture<'_, Result<Vec<Duration>>> {
        self.read("read run times", async move |connection: &mut Connection| {
            run_times(connection, &queue, runs_max).await
        })
    }

    fn audit(&self, before: Option<u64>, rows_max: usize) -> BoxFuture<'_, Result<Vec<AuditLine>>> {
        self.read("read the audit", async move |connection: &mut Connection| {
            audit_page(connection, before, rows_max).await
        })
    }
}

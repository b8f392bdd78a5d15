//! What people ask about the past.

use std::time::Duration;

use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, History};
use millpond_core::view::{AuditLine, EventView, Find, Found, Tallies, Tally};

use crate::audit::audit_page;
use crate::connect::SqliteStore;
use crate::run_log::events;
use crate::tallies::{run_times, tallies};

impl History for SqliteStore {
    fn events(&self, find: Find) -> BoxFuture<'_, Result<Found<EventView>>> {
        self.ask("read the run log", move |conn, now| events(conn, now, &find))
    }

    fn tallies(&self, which: Tallies) -> BoxFuture<'_, Result<Vec<Tally>>> {
        self.ask("read counters", move |conn, _| tallies(conn, &which))
    }

    fn run_times(&self, queue: String, runs_max: usize) -> BoxFuture<'_, Result<Vec<Duration>>> {
        self.ask("read run times", move |conn, _| run_times(conn, &queue, runs_max))
    }

    fn audit(&self, before: Option<u64>, rows_max: usize) -> BoxFuture<'_, Result<Vec<AuditLine>>> {
        self.read("read the audit", move |conn, _| audit_page(conn, before, rows_max))
    }
}

//! What people ask about the past.

use std::time::Duration;

use millpond_core::error::Result;
use millpond_core::store::{BoxFuture, History};
use millpond_core::view::{AuditLine, EventView, Find, Found, Tallies, Tally};

use crate::audit::audit_page;
use crate::connect::SqliteStore;
use crate::inspect::not_yet;
use crate::run_log::events;

impl History for SqliteStore {
    fn events(&self, find: Find) -> BoxFuture<'_, Result<Found<EventView>>> {
        self.ask("read the run log", move |conn, now| events(conn, now, &find))
    }

    fn tallies(&self, _: Tallies) -> BoxFuture<'_, Result<Vec<Tally>>> {
        not_yet("read counters")
    }

    fn run_times(&self, _: String, _: usize) -> BoxFuture<'_, Result<Vec<Duration>>> {
        not_yet("read run times")
    }

    fn audit(&self, before: Option<u64>, rows_max: usize) -> BoxFuture<'_, Result<Vec<AuditLine>>> {
        self.read("read the audit", move |conn, _| audit_page(conn, before, rows_max))
    }
}

//! What a server spends: processor time of its processes, and bytes of its write-ahead log.

use std::time::Duration;

use millpond::postgres::tokio_postgres::Client;
use millpond_testkit::servers::postgres::Postgres;

use crate::{failed, usage};

/// A measurement that has begun.
pub(crate) struct Meter<'b> {
    server: &'b Postgres,
    client: &'b Client,
    cpu: Duration,
    wal: i64,
}

/// What was spent since.
pub(crate) struct Spent {
    pub(crate) cpu: Duration,
    pub(crate) wal_bytes: i64,
}

impl<'b> Meter<'b> {
    /// Begins.
    pub(crate) async fn start(server: &'b Postgres, client: &'b Client) -> millpond::Result<Self> {
        Ok(Self { server, client, cpu: cpu(server), wal: wal(client).await? })
    }

    /// Ends. Backends that ended meanwhile are in what their postmaster has waited for.
    pub(crate) async fn spent(self) -> millpond::Result<Spent> {
        let cpu = cpu(self.server).saturating_sub(self.cpu);
        Ok(Spent { cpu, wal_bytes: wal(self.client).await? - self.wal })
    }
}

fn cpu(server: &Postgres) -> Duration {
    let processes = server.processes();
    let waited =
        processes.first().map(|postmaster| usage::waited_cpu(&postmaster.to_string())).unwrap_or_default();
    waited + processes.iter().map(|pid| usage::cpu(&pid.to_string())).sum::<Duration>()
}

async fn wal(client: &Client) -> millpond::Result<i64> {
    let asked = "select (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let row =
        client.query_one(asked, &[]).await.map_err(|error| failed("read the position of the log", error))?;
    Ok(row.get(0))
}

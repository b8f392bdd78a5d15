//! What the server spends: processor time of its process, and bytes of its redo log.

use std::time::Duration;

use millpond::mysql::mysql_async::Conn;
use millpond::mysql::mysql_async::prelude::Queryable;
use millpond_testkit::servers::mariadb::Mariadb;

use crate::{failed, usage};

/// A measurement that has begun.
pub(crate) struct Meter<'b> {
    server: &'b Mariadb,
    conn: Conn,
    cpu: Duration,
    log: u64,
}

/// What was spent since.
pub(crate) struct Spent {
    pub(crate) cpu: Duration,
    pub(crate) log_bytes: u64,
}

impl<'b> Meter<'b> {
    /// Begins.
    pub(crate) async fn start(server: &'b Mariadb, mut conn: Conn) -> millpond::Result<Self> {
        let log = log(&mut conn).await?;
        Ok(Self { server, conn, cpu: cpu(server), log })
    }

    /// Ends.
    pub(crate) async fn spent(mut self) -> millpond::Result<Spent> {
        let cpu = cpu(self.server).saturating_sub(self.cpu);
        Ok(Spent { cpu, log_bytes: log(&mut self.conn).await?.saturating_sub(self.log) })
    }
}

fn cpu(server: &Mariadb) -> Duration {
    server.process().map(|process| usage::cpu(&process.to_string())).unwrap_or_default()
}

async fn log(conn: &mut Conn) -> millpond::Result<u64> {
    let asked: Option<(String, u64)> = conn
        .query_first("show global status like 'Innodb_lsn_current'")
        .await
        .map_err(|error| failed("read the position of the redo log", error))?;
    Ok(asked.map_or(0, |(_, position)| position))
}

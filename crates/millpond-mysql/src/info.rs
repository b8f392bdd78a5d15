//! What the store tells about itself: facts, tables, and what is not as it should be.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond_core::time::micros;
use millpond_core::view::{Fact, Finding, Severity, StoreInfo};
use serde_json::{Value, json};

use crate::admin::now;
use crate::connection::Connection;
use crate::error::{Fault, Tried};
use crate::row::Row;

/// A transaction that is older than this keeps old versions of everybody's rows from being cleaned up.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(60);

/// The oldest open transaction.
struct Snapshot {
    thread: u64,
    state: String,
    age: Duration,
}

/// Everything about a store.
pub(crate) async fn info(connection: &Connection) -> Tried<StoreInfo> {
    let server = connection.row("info_server", &[]).await?;
    let oldest = oldest(connection).await?;
    let prefix = &connection.target.location.prefix;
    let tables = connection.rows("info_tables", &[prefix]).await?;
    let all = connection.rows("schema_tables", &[prefix]).await?;
    let skew = now(connection).await?.as_micros().saturating_sub(host_micros()) / 1_000;
    let kind = if connection.server.is_mariadb { "mariadb" } else { "mysql" };
    Ok(StoreInfo {
        kind: kind.to_owned(),
        facts: facts(&server, prefix, skew, oldest.as_ref()),
        tables: tables.iter().map(|row| (row.get(0), row.get(1))).collect(),
        findings: findings(&server, oldest.as_ref()),
        grants: grants(server.get(1), &all, prefix),
    })
}

fn host_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

/// `None` also for a user who may not see what others do.
async fn oldest(connection: &Connection) -> Tried<Option<Snapshot>> {
    let snapshot =
        |row: Row| Snapshot { thread: row.get(0), age: Duration::from_secs(row.get(1)), state: row.get(2) };
    match connection.row_if_any("info_oldest", &[]).await {
        Err(Fault::Mysql(error)) if !error.is_fatal() => Ok(None),
        found => Ok(found?.map(snapshot)),
    }
}

fn facts(server: &Row, prefix: &str, skew: i64, oldest: Option<&Snapshot>) -> Vec<Fact> {
    let fact = |name: &str, value: Value, about: &str| Fact {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    let text = |column: usize| json!(server.get::<_, &str>(column));
    let number = |column: usize| json!(server.get::<_, i64>(column));
    let oldest = oldest.map_or(Value::Null, |snapshot| json!(snapshot.age.as_secs()));
    vec![
        fact("version", text(0), "of the server"),
        fact("database", text(1), "its name"),
        fact("prefix", json!(prefix), "what the names of all tables begin with"),
        fact("user", text(2), "as whom this program is connected"),
        fact("schema", text(9), "the last migration that was applied"),
        fact("flush_log_at_commit", number(3), "1: a send is on the disk when it returns"),
        fact("binary_log", json!(server.get::<_, bool>(4)), "whether the server writes one"),
        fact("sync_binlog", number(5), "1: the binary log loses nothing in a crash of the machine"),
        fact("size_bytes", number(10), "of the whole database"),
        fact("connections_max", number(7), "that the server allows"),
        fact("packet_bytes_max", number(8), "the largest packet: a message must fit"),
        fact(
            "oldest_transaction_secs",
            oldest,
            "how long the oldest transaction keeps old versions of rows; nothing without the right PROCESS",
        ),
        fact("clock_skew_ms", json!(skew), "the time of the store less that of this host"),
    ]
}

fn findings(server: &Row, oldest: Option<&Snapshot>) -> Vec<Finding> {
    let finding = |code: &str, severity, text: String, action: &str| Finding {
        code: code.to_owned(),
        severity,
        text,
        action: Some(action.to_owned()),
    };
    let mut found = Vec::new();
    let flush: i64 = server.get(3);
    if flush != 1 {
        let text = format!(
            "a crash can lose the last sends: innodb_flush_log_at_trx_commit is {flush}, so not every commit is flushed"
        );
        found.push(finding("FLUSH_OFF", Severity::Critical, text, "set innodb_flush_log_at_trx_commit = 1"));
    }
    if server.get(4) && server.get::<_, i64>(5) != 1 {
        let text =
            "a crash of the machine can lose what replicas and backups get: sync_binlog is not 1".to_owned();
        found.push(finding("BINLOG_UNSYNCED", Severity::Warn, text, "set sync_binlog = 1"));
    }
    if matches!(server.get(6), "0" | "OFF") {
        let text = "a crash of the machine can damage pages: innodb_doublewrite is off".to_owned();
        found.push(finding(
            "DOUBLEWRITE_OFF",
            Severity::Warn,
            text,
            "switch it on, unless the file system never writes half a page",
        ));
    }
    if let Some(Snapshot { thread, state, age }) = oldest.filter(|oldest| SNAPSHOT_AGE_MAX < oldest.age) {
        let text = format!(
            "a transaction is open for {} s (thread {thread}, {state}): old versions of rows stay",
            age.as_secs()
        );
        found.push(finding("OLD_SNAPSHOT", Severity::Warn, text, &format!("end it, or `kill {thread}`")));
    }
    found
}

/// What a user needs who sends, works and operates, and may not change the schema; and one who sends with plain SQL and
/// does nothing else. A `_` in a prefix stands for any
/// character in a grant over a database, so tables are named one by one.
fn grants(database: &str, tables: &[Row], prefix: &str) -> Vec<String> {
    let mut tables: Vec<&str> = tables.iter().map(|table| table.get(0)).collect();
    tables.sort_unstable();
    let grant = |table: &str| {
        let rights =
            if table == format!("{prefix}migration") { "select" } else { "select, insert, update, delete" };
        format!("GRANT {rights} ON `{database}`.`{table}` TO millpond_runtime;")
    };
    let sender = format!("GRANT EXECUTE ON PROCEDURE `{database}`.`{prefix}send` TO millpond_sender;");
    tables.into_iter().map(grant).chain([sender]).collect()
}

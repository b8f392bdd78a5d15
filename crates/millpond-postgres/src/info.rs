//! What the store tells about itself: facts, tables, and what is not as it should be.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond_core::time::micros;
use millpond_core::view::{Fact, Finding, Severity, StoreInfo};
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::admin::now;
use crate::cell::count;
use crate::connection::Connection;
use crate::error::Tried;

/// A snapshot that is older than this keeps dead rows of everybody from being cleaned up.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(60);

/// Of the connections that the server allows, how many may be used before somebody should know: nine in ten.
const CONNECTIONS_USED_MAX: u64 = 90;

/// The oldest transaction that holds a snapshot.
struct Snapshot {
    pid: i32,
    user: String,
    program: String,
    state: String,
    age: Duration,
}

/// Everything about a store.
pub(crate) async fn info(connection: &Connection) -> Tried<StoreInfo> {
    let server = connection.row("info_server", &[]).await?;
    let oldest = connection.row_if_any("info_oldest", &[]).await?.as_ref().map(snapshot);
    let schema = &connection.target.location.schema;
    let tables = connection.rows("info_tables", &[(schema, Type::TEXT)]).await?;
    let skew = now(connection).await?.as_micros().saturating_sub(host_micros()) / 1_000;
    Ok(StoreInfo {
        kind: "postgres".to_owned(),
        facts: facts(&server, schema, skew, oldest.as_ref()),
        tables: tables.iter().map(|row| (row.get(0), count(row, 1))).collect(),
        findings: findings(&server, oldest.as_ref()),
        grants: grants(schema),
    })
}

fn host_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

fn snapshot(row: &Row) -> Snapshot {
    Snapshot {
        pid: row.get(0),
        user: row.get(1),
        program: row.get(2),
        state: row.get(3),
        age: Duration::from_millis(count(row, 4)),
    }
}

fn facts(server: &Row, schema: &str, skew: i64, oldest: Option<&Snapshot>) -> Vec<Fact> {
    let fact = |name: &str, value: Value, about: &str| Fact {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    let text = |column: usize| json!(server.get::<_, &str>(column));
    let oldest = oldest.map_or(Value::Null, |snapshot| json!(snapshot.age.as_secs()));
    vec![
        fact("version", text(0), "of the server"),
        fact("database", text(1), "its name"),
        fact("schema_name", json!(schema), "the schema that holds everything"),
        fact("user", text(2), "as whom this program is connected"),
        fact("schema", text(7), "the last migration that was applied"),
        fact("synchronous_commit", text(3), "`on`: a send is on the disk when it returns"),
        fact("fsync", text(4), "`off` loses everything in a crash of the machine"),
        fact("size_bytes", json!(server.get::<_, i64>(6)), "of the whole database"),
        fact("connections", json!(server.get::<_, i64>(9)), "to this database, of everybody"),
        fact("connections_max", json!(server.get::<_, i32>(8)), "that the server allows"),
        fact(
            "oldest_snapshot_secs",
            oldest,
            "how long the oldest transaction keeps dead rows from being cleaned up",
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
    let is_off = |column: usize| server.get::<_, &str>(column) == "off";
    if is_off(4) || is_off(5) {
        let text = "a crash of the machine can lose or damage everything: fsync or full_page_writes is off"
            .to_owned();
        found.push(finding("FSYNC_OFF", Severity::Critical, text, "switch both on in postgresql.conf"));
    }
    if is_off(3) {
        let text = "a crash of the server can lose the last sends: synchronous_commit is off".to_owned();
        found.push(finding(
            "SYNCHRONOUS_COMMIT_OFF",
            Severity::Critical,
            text,
            "switch it on for this user or database",
        ));
    }
    if let Some(Snapshot { pid, user, program, state, age }) =
        oldest.filter(|oldest| SNAPSHOT_AGE_MAX < oldest.age)
    {
        let text = format!(
            "a transaction is open for {} s (pid {pid}, user `{user}`, `{program}`, {state}): dead rows stay",
            age.as_secs()
        );
        found.push(finding(
            "OLD_SNAPSHOT",
            Severity::Warn,
            text,
            "end it, or `select pg_terminate_backend(pid)`",
        ));
    }
    if 0 < server.get::<_, i64>(10) {
        let text = format!("{} prepared transactions keep dead rows", server.get::<_, i64>(10));
        found.push(finding(
            "PREPARED_TRANSACTIONS",
            Severity::Warn,
            text,
            "commit or roll them back: see pg_prepared_xacts",
        ));
    }
    if 0 < server.get::<_, i64>(11) {
        let text = format!("{} replication slots hold a snapshot", server.get::<_, i64>(11));
        found.push(finding(
            "REPLICATION_SLOTS",
            Severity::Info,
            text,
            "drop those that nobody reads: see pg_replication_slots",
        ));
    }
    let (used, most) = (count(server, 9), u64::from(server.get::<_, i32>(8).unsigned_abs()));
    if most * CONNECTIONS_USED_MAX < used * 100 {
        let text = format!("{used} of {most} connections are used");
        found.push(finding(
            "CONNECTIONS_USED",
            Severity::Warn,
            text,
            "lower `?connections=` or raise max_connections",
        ));
    }
    found
}

/// What a role needs that sends, works and operates, and may not change the schema; and one that sends with plain SQL and
/// does nothing else.
fn grants(schema: &str) -> Vec<String> {
    vec![
        format!("GRANT USAGE ON SCHEMA {schema} TO millpond_runtime;"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO millpond_runtime;"),
        format!("REVOKE INSERT, UPDATE, DELETE ON {schema}.migration FROM millpond_runtime;"),
        format!("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO millpond_runtime;"),
        format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO millpond_runtime;"),
        format!("GRANT USAGE ON SCHEMA {schema} TO millpond_sender;"),
        format!("GRANT EXECUTE ON FUNCTION {schema}.send(text, bytea, jsonb) TO millpond_sender;"),
    ]
}

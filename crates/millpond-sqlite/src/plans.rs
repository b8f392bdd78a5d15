//! Every hot statement is served by an index, whatever the backlog: held to its plan, with and without
//! statistics.

use rusqlite::Connection;

use crate::migrate;
use crate::sql::sql;

/// The statements that run for every message, every claim, every pulse or every second.
const HOT: &[&str] = &[
    "cancel_next",
    "cancel_of_message",
    "cancel_of_worker",
    "claim_above",
    "claim_delete",
    "claim_get",
    "claim_in_hand_of_worker",
    "claim_mark",
    "claim_of_worker",
    "claim_expired",
    "claim_progress",
    "claim_set_in_hand",
    "claim_take_over",
    "claim_top",
    "dead_letter_put",
    "declarations_number",
    "dedup_find",
    "inbox_has",
    "log_append_from_outbox",
    "log_identity",
    "log_read",
    "log_read_range",
    "log_top",
    "outbox_delete",
    "outbox_due",
    "outbox_next",
    "outbox_put_back",
    "outbox_find",
    "partition_list",
    "partition_queue",
    "pause_holds",
    "pulse_heads",
    "queue_by_id",
    "queue_by_name",
    "subscription_of",
    "worker_wished",
];

/// What has a row for each worker, queue or live claim (an index over those that have a worker): walking it costs
/// the same with any backlog.
const SMALL: [&str; 5] = ["w", "c", "asked", "CONSTANT", "(subquery"];

/// The steps of a statement's plan.
fn plan(db: &Connection, name: &str) -> Vec<String> {
    let mut explain = db.prepare(&format!("explain query plan {}", sql(name))).unwrap();
    // Parameters are not bound: they are null, which changes no plan.
    let rows = explain.raw_query().mapped(|row| row.get(3));
    rows.map(|row| row.unwrap()).collect()
}

fn walks(step: &str) -> bool {
    let Some(walked) = step.strip_prefix("SCAN ") else {
        return step.starts_with("USE TEMP B-TREE");
    };
    // Taking the first entry of an index is no walk: LIMIT 1 ends it.
    !SMALL.iter().any(|small| walked.split(' ').next() == Some(small))
        && !walked.contains("USING COVERING INDEX millpond_outbox_ready")
}

fn check(db: &Connection) {
    for name in HOT {
        let plan = plan(db, name);
        let walked: Vec<&String> = plan.iter().filter(|step| walks(step)).collect();
        assert!(walked.is_empty(), "{name} walks a table or sorts: {plan:#?}");
    }
}

#[test]
fn hot_statements_search_an_index() {
    let db = Connection::open_in_memory().unwrap();
    migrate::up(&db, 0).unwrap();
    check(&db);
}

#[test]
fn hot_statements_search_an_index_with_statistics_of_a_large_store() {
    let db = Connection::open_in_memory().unwrap();
    migrate::up(&db, 0).unwrap();
    let numbers = "with recursive n(i) as (select 0 union all select i + 1 from n where i < 50000)";
    db.execute_batch(&format!(
        "insert into millpond_queue values (1, 'mail', 'dispatch', '{{}}', 0);
         {numbers} insert into millpond_subscription (queue_id, name) select i, '' from n where i < 625;
         {numbers} insert into millpond_log_partition (queue_id, class, lane) select i / 8, i % 4, i % 2 from n
             where i < 5000 and (i % 8 = 0 or i % 8 = 5);
         {numbers} insert into millpond_log
             select 1, i, randomblob(16), 0, 0, 0, i, i, i % 10 = 0, null, null, 0, null, null, null, null, x'00', null from n;
         {numbers} insert into millpond_outbox (message_id, queue_id, class, reason, ready_at, created_at, sent_at,
                 attempt, releases, suspect, checksum, body)
             select randomblob(16), 1, 2, 'delay', i, 0, 0, 0, 0, 0, 0, x'00' from n;
         {numbers} insert into millpond_inbox select 1, randomblob(16), i from n;
         {numbers} insert into millpond_claim select 1, 1, i, i, x'01', 'w' || i % 100, null, 0, null, x'', x'' from n;
         insert into millpond_worker values ('w', 'h', '[]', 1, 0, null, 0, 0, 0, 1, 0, null, null);
         {numbers} insert into millpond_cancel select 1, 1, i, 'ana', null, 0 from n;
         analyze;"
    ))
    .unwrap();
    check(&db);
}

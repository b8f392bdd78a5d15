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
    "claim_live",
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
    "lease_gate",
    "limit_charge",
    "limit_get",
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
    "pulse_heads",
    "queue_by_id",
    "queue_by_name",
    "subscription_of",
    "worker_wished",
];

/// What people ask, and upkeep: run seldom, over everything that is kept.
const ASKED: &[&str] = &[
    "dead_letter_before",
    "dead_letter_by_message",
    "dead_letter_content",
    "dead_letter_delete",
    "dead_letter_list",
    "dead_letter_list_of_queue",
    "dead_letter_spots",
    "enqueue_told",
    "event_delete",
    "event_last",
    "event_page",
    "event_page_of_queue",
    "history_by_number",
    "history_delete",
    "history_page",
    "history_since",
    "log_content",
    "log_sent_spots",
    "log_spots",
    "message_at",
    "message_claim",
    "message_events",
    "message_history",
    "message_in_dead_letters",
    "message_in_log",
    "message_in_outbox",
    "message_returns",
    "message_scan",
    "outbox_by_message",
    "outbox_content",
    "outbox_list",
    "outbox_list_of_queue",
    "outbox_spots",
    "run_messages",
    "run_times",
    "spot_cancelled",
    "spot_ended",
    "spot_left",
    "spot_live",
];

/// An index that is walked in its order until its reader has enough.
const ORDERS: [&str; 1] = ["USING INDEX millpond_history_finished"];

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
        // Rows of one instant may be sorted.
        return step.starts_with("USE TEMP B-TREE") && !step.contains("LAST TERM");
    };
    // Taking the first entry of an index is no walk: LIMIT 1 ends it.
    !SMALL.iter().any(|small| walked.split(' ').next() == Some(small))
        && !walked.contains("USING COVERING INDEX millpond_outbox_ready")
        && !ORDERS.iter().any(|order| walked.ends_with(order))
}

fn check(db: &Connection) {
    for name in HOT.iter().chain(ASKED) {
        let plan = plan(db, name);
        // The rows of one message may be sorted: there are one or two.
        let few = |step: &str| name.starts_with("message_in_") && step.starts_with("USE TEMP");
        let walked: Vec<&String> = plan.iter().filter(|step| walks(step) && !few(step)).collect();
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
        "insert into millpond_queue values (1, 'mail', 'dispatch', '{{}}', 0, 0);
         {numbers} insert into millpond_subscription (queue_id, name) select i, '' from n where i < 625;
         {numbers} insert into millpond_log_partition (queue_id, class, lane) select i / 8, i % 4, i % 2 from n
             where i < 5000 and (i % 8 = 0 or i % 8 = 5);
         {numbers} insert into millpond_log
             select 1, i, randomblob(16), 0, 0, 0, i, i, i % 10 = 0, null, null, 0, null, null, null, null, x'00', null from n;
         {numbers} insert into millpond_outbox (message_id, queue_id, class, reason, ready_at, created_at, sent_at,
                 attempt, releases, suspect, checksum, body)
             select randomblob(16), 1, 2, 'delay', i, 0, 0, 0, 0, 0, 0, x'00' from n;
         {numbers} insert into millpond_dead_letter (message_id, subscription_id, queue_id, class, reason, died_at,
                 sent_at, attempt, releases, checksum, body)
             select randomblob(16), 1, 1, 2, 'exhausted', i, i, 0, 0, 0, x'00' from n;
         {numbers} insert into millpond_event (message_id, queue_id, kind, reason, attempt, releases, at)
             select randomblob(16), 1, 'RETRY', 'error', 1, 0, i from n;
         {numbers} insert into millpond_history (queue_id, partition, from_offset, to_offset, leased_at, finished_at,
                 runs)
             select 1, 1, i, i, i, i, x'' from n;
         {numbers} insert into millpond_inbox select 1, randomblob(16), i from n;
         {numbers} insert into millpond_claim select 1, 1, i, i, x'01', 'w' || i % 100, null, 0, null, x'', x'' from n;
         insert into millpond_worker values ('w', 'h', '[]', 1, 0, null, 0, 0, 0, 1, 0, null, null);
         {numbers} insert into millpond_cancel select 1, 1, i, 'ana', null, 0 from n;
         analyze;"
    ))
    .unwrap();
    check(&db);
}

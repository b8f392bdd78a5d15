//! What each figure is: its unit, and how it was measured.

/// Name in JSON, unit, how it was measured.
type About = (&'static str, &'static str, &'static str);

/// What is meant by a figure of a store.
pub(super) fn of(store: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let lists: [&[About]; 2] = match store {
        "SQLite" => [&SQLITE, &[]],
        "Postgres" => [&SERVER, &POSTGRES],
        _ => [&SERVER, &MARIADB],
    };
    let found = lists.into_iter().flatten().find(|(known, ..)| *known == name);
    if let Some((_, unit, what)) = found {
        return Some((unit, what));
    }
    // What the server spent goes with each rate.
    let spent = |(end, unit, what): &(&str, &'static str, &'static str)| {
        let rate = format!("{}_per_second", name.strip_suffix(end)?);
        lists.into_iter().flatten().any(|(known, ..)| *known == rate).then_some((*unit, *what))
    };
    SPENT.iter().filter(|_| store != "SQLite").find_map(spent)
}

/// The end of the name, unit, what.
const SPENT: [About; 3] = [
    ("_server_cpu_us", "µs", "processor time of the server for that, per message"),
    ("_wal_bytes", "bytes", "write-ahead log of the server for that, per message"),
    ("_redo_bytes", "bytes", "redo log of the server for that, per message"),
];

const SQLITE: [About; 25] = [
    (
        "insert_floor_per_second",
        "messages/s",
        "floor: multi-row insert of 1,000 into a table with the same columns and index, one commit each",
    ),
    ("batch_send_per_second", "messages/s", "`pond.send` of 1,000, one call after the other, each durable"),
    ("batch_send_vs_floor", "ratio", "the two above, round by round"),
    (
        "one_insert_per_commit_per_second",
        "messages/s",
        "floor: one insert per durable commit, one connection",
    ),
    (
        "single_send_64_per_second",
        "messages/s",
        "64 tasks that each send one message at a time, each durable: group commit",
    ),
    ("group_commit_gain", "ratio", "the two above, round by round"),
    (
        "tx_bare_per_second",
        "transactions/s",
        "an order in a transaction of rusqlite, one connection, one transaction after the other",
    ),
    (
        "tx_send_per_second",
        "transactions/s",
        "the same with a message about it in each, by `pond.within`; the store moves it meanwhile, with writes of its own",
    ),
    ("tx_unit_per_second", "transactions/s", "an order and a message about it in a unit of work"),
    ("tx_send_vs_bare", "ratio", "with a message against without, round by round"),
    (
        "claim_delete_floor_per_second",
        "messages/s",
        "floor: claim 1,000 by UPDATE, then DELETE them, one commit each",
    ),
    (
        "drain_per_second",
        "messages/s",
        "a worker at default settings empties the queue through a handler that does nothing",
    ),
    ("drain_cpu_us_per_message", "µs", "processor time of the whole process for that, per message"),
    ("drain_vs_floor", "ratio", "drain against its floor, round by round"),
    (
        "pickup_p50_ms",
        "ms",
        "from the return of `send` to the first line of the handler: idle queue, same process",
    ),
    ("pickup_p99_ms", "ms", "the same, 99 of 100"),
    ("pickup_process_p50_ms", "ms", "the same, the worker in another process"),
    ("pickup_process_p99_ms", "ms", "the same, 99 of 100"),
    ("worker_rss_mb", "MB", "peak resident memory of that worker process, after a backlog of 100,000"),
    ("idle_cpu_percent", "% of a core", "a worker that has had nothing to do for a minute"),
    (
        "backlog_send_cpu_us_10k",
        "µs",
        "processor time of a send, per message, with 10,000 ready and 10,000 scheduled",
    ),
    ("backlog_send_cpu_us_1m", "µs", "the same with 1,000,000 and 1,000,000"),
    (
        "backlog_drain_cpu_us_10k",
        "µs",
        "processor time of a drain, per message, with 10,000 ready and 10,000 scheduled",
    ),
    ("backlog_drain_cpu_us_1m", "µs", "the same with 1,000,000 and 1,000,000"),
    ("backlog_ratio", "ratio", "send and drain with 1,000,000 against 10,000, the cheapest of five each"),
];

/// Of every server.
const SERVER: [About; 11] = [
    (
        "insert_floor_per_second",
        "messages/s",
        "floor: multi-row insert of 1,000 into a table with one index, as most queues have it; one commit each, two \
         connections",
    ),
    (
        "batch_send_per_second",
        "messages/s",
        "`pond.send` of 1,000, two tasks, one call of each after the other, each durable",
    ),
    ("batch_send_vs_insert_floor", "ratio", "the two above, round by round"),
    (
        "single_send_64_per_second",
        "messages/s",
        "64 tasks that each send one message at a time, each durable: group commit",
    ),
    ("single_send_64_vs_floor", "ratio", "the two above, round by round"),
    (
        "claim_delete_floor_per_second",
        "messages/s",
        "floor: claim 1,000 by UPDATE, then DELETE them, one commit each, two connections",
    ),
    (
        "drain_per_second",
        "messages/s",
        "a worker at default settings empties the queue through a handler that does nothing",
    ),
    ("drain_client_cpu_us", "µs", "processor time of the worker's process for that, per message"),
    ("drain_messages_per_claim", "messages", "how many messages one lease took for that"),
    ("drain_vs_floor", "ratio", "drain against its floor, round by round"),
    ("backlog_messages", "messages", "how many wait in the comparison below"),
];

const POSTGRES: [About; 1] =
    [("single_floor_8_per_second", "messages/s", "floor: one insert per durable commit, eight connections")];

const MARIADB: [About; 9] = [
    (
        "tx_bare_64_per_second",
        "transactions/s",
        "an order in a transaction of mysql_async, 64 connections, one transaction of each after the other",
    ),
    (
        "tx_send_64_per_second",
        "transactions/s",
        "the same with a message about it in each, by `pond.within`; until every message may be worked on, for what the \
         server spends",
    ),
    (
        "tx_unit_64_per_second",
        "transactions/s",
        "an order and a message about it in a unit of work, 64 at once",
    ),
    (
        "tx_send_cost_vs_bare",
        "ratio",
        "processor time of the server with a message against without, round by round",
    ),
    (
        "one_insert_per_commit_per_second",
        "messages/s",
        "floor: one insert per durable commit, one connection",
    ),
    (
        "pickup_p50_ms",
        "ms",
        "from the return of `send` to the first line of the handler: idle queue, same process",
    ),
    ("pickup_p99_ms", "ms", "the same, 99 of 100"),
    (
        "idle_queries_per_s",
        "statements/s",
        "what the server is asked by a worker that has had nothing to do for a minute; over a minute, in which \
         everything comes that it does now and then",
    ),
    (
        "backlog_ratio",
        "ratio",
        "draining 100,000 messages of so many against draining 100,000 of as many, in messages a second",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_spends_goes_with_a_rate() {
        assert_eq!(of("MariaDB", "drain_redo_bytes").unwrap().0, "bytes");
        assert_eq!(of("Postgres", "single_floor_8_wal_bytes").unwrap().0, "bytes");
        assert_eq!(of("Postgres", "mystery_wal_bytes"), None);
        assert_eq!(of("SQLite", "drain_server_cpu_us"), None, "there is no server");
        assert_eq!(of("SQLite", "pickup_p50_ms").unwrap().0, "ms");
    }
}

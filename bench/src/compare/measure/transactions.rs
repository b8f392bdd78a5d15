//! Transactional sends: an order and a message about it in one transaction, beside the same transaction without the
//! message, on 1, 8 and 64 connections. What the server spends is counted until every message may be worked on.

use super::{Place, number};
use crate::compare::figures::Figures;
use crate::compare::sizes::Sizes;

const ORDERS: &str = "
    create table orders (
        id bigint generated always as identity primary key, customer text not null, total bigint not null,
        placed_at timestamptz not null default now()
    )";

/// Connections, the way, and its figures: transactions a second, and what the server spends on each.
type Measured = (u64, &'static str, [&'static str; 3]);

macro_rules! measured {
    ($tasks:literal: $($way:literal)*) => {
        [$((
            $tasks,
            $way,
            [
                concat!("tx_", $way, "_", $tasks, "_per_second"),
                concat!("tx_", $way, "_", $tasks, "_server_cpu_us"),
                concat!("tx_", $way, "_", $tasks, "_wal_bytes"),
            ],
        )),*]
    };
}

const MEASURED: [[Measured; 4]; 3] = [
    measured!(1: "bare" "send" "unit" "sql"),
    measured!(8: "bare" "send" "unit" "sql"),
    measured!(64: "bare" "send" "unit" "sql"),
];

/// A store that sends in no transaction of somebody else says so, and is left out.
pub(super) async fn transactions(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    let about = place.process.ask("about").await?;
    let known = |way: &str| {
        about["transactions"].as_array().is_some_and(|ways| ways.iter().any(|known| known == way))
    };
    place.run(ORDERS).await?;
    for (tasks, way, names) in MEASURED.into_iter().flatten().filter(|(_, way, _)| known(way)) {
        let line = |count: u64| format!("transact {way} {count} {tasks} {}", sizes.seconds);
        // The first ones connect and prepare.
        place.process.ask(&line(tasks * 2)).await?;
        place.process.ask("ready").await?;
        place.run("checkpoint").await?;
        let meter = place.bench.meter().await?;
        let count = sizes.transactions * (tasks + 6) / 70;
        let answer = place.process.ask(&line(count)).await?;
        place.process.ask("ready").await?;
        let spent = meter.spent().await?;
        let done = number(&answer, "done")?;
        let [rate, cpu, wal] = names;
        figures.add(place.key(), rate, done / number(&answer, "seconds")?);
        figures.add(place.key(), cpu, spent.cpu.as_secs_f64() * 1e6 / done);
        figures.add(place.key(), wal, spent.wal_bytes as f64 / done);
    }
    Ok(())
}

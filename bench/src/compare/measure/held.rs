//! Draining while somebody holds an old snapshot open, so that nothing dead can be removed: with large claims, and
//! with fifty handlers that take few messages at a time.

use millpond::postgres::tokio_postgres::{NoTls, connect};

use super::{Drained, Place, Until, drain};
use crate::compare::figures::Figures;
use crate::compare::programs::{Kind, Program};
use crate::compare::sizes::Sizes;
use crate::failed;
use crate::postgres::Bench;

/// Of a hundred messages so many fail the first time.
const RETRIES_PERCENT: u64 = 10;

/// The share of the messages that is waited for: what is tried again comes when it is due, and how soon that is
/// differs from queue to queue.
const WAITED_PERCENT: u64 = 85;

const HOLD: &str =
    "begin isolation level repeatable read; select txid_current(), (select count(*) from pg_class)";

/// Settings of the worker, its figures, and by how much fewer messages are worked off.
const CASES: [(&str, &str, &str, u64); 2] = [
    ("best", "held_snapshot_ratio", "held_snapshot_cpu_ratio", 1),
    ("small", "held_snapshot_small_ratio", "held_snapshot_small_cpu_ratio", 4),
];

pub(super) async fn held(
    bench: &Bench,
    program: &Program,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    for (settings, rate, cpu, fewer) in CASES {
        let free = after(bench, program, settings, false, fewer, sizes).await?;
        let held = after(bench, program, settings, true, fewer, sizes).await?;
        figures.add(program.key, rate, held.rate() / free.rate());
        figures.add(program.key, cpu, held.cpu_us() / free.cpu_us());
    }
    Ok(())
}

/// The drain after many others, in a database of its own.
async fn after(
    bench: &Bench,
    program: &Program,
    settings: &str,
    held: bool,
    fewer: u64,
    sizes: &Sizes,
) -> millpond::Result<Drained> {
    let mut place = Place::new(bench, program).await?;
    let drained = drained(&mut place, settings, held, fewer, sizes).await;
    place.leave().await?;
    drained
}

async fn drained(
    place: &mut Place<'_>,
    settings: &str,
    held: bool,
    fewer: u64,
    sizes: &Sizes,
) -> millpond::Result<Drained> {
    let lost = |error| failed("hold a snapshot", error);
    let (holder, connection) = connect(&place.url, NoTls).await.map_err(lost)?;
    tokio::spawn(connection);
    if held {
        holder.batch_execute(HOLD).await.map_err(lost)?;
    }
    place.process.ask(&format!("schedule {}", sizes.scheduled / fewer)).await?;
    let measured = sizes.messages(place.kind()) / fewer;
    let before = (sizes.held / fewer).max(measured);
    let retries = if place.kind() == Kind::BareTable { 0 } else { RETRIES_PERCENT };
    let sent = place.fill(before).await?;
    place.analyze().await?;
    drain(place, settings, retries, (sent * WAITED_PERCENT / 100, Until::Handled), sizes.seconds * 4).await?;
    let sent = place.fill(measured).await?;
    place.analyze().await?;
    let drained =
        drain(place, settings, retries, (sent * WAITED_PERCENT / 100, Until::Handled), sizes.seconds).await;
    drop(holder);
    drained
}

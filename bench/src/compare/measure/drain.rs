//! Draining a backlog through handlers that do nothing.

use super::{Place, Until, drain};
use crate::compare::figures::Figures;
use crate::compare::programs::Kind;
use crate::compare::sizes::Sizes;

/// How long a drain at default settings is watched: some handle fifty a second.
const DEFAULT_SECONDS_MAX: u64 = 10;

/// After this a backend that has nothing to do has told the statistics what it did.
const STATISTICS: std::time::Duration = std::time::Duration::from_millis(1_500);

const DEAD: &str = "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_all_tables";

/// The messages are sent right before, without a checkpoint between: pages are not logged whole a second time.
async fn filled(place: &mut Place<'_>, sizes: &Sizes) -> millpond::Result<u64> {
    place.run("checkpoint").await?;
    let sent = place.fill(sizes.messages(place.kind())).await?;
    place.analyze().await?;
    Ok(sent)
}

pub(super) async fn best(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    let sent = filled(place, sizes).await?;
    let drained = drain(place, "best", 0, (sent, Until::Settled), sizes.seconds).await?;
    tokio::time::sleep(STATISTICS).await;
    let dead = place.number(DEAD).await?;
    figures.add(place.key(), "drain_per_second", drained.rate());
    figures.add(place.key(), "drain_server_cpu_us", drained.cpu_us());
    figures.add(place.key(), "drain_wal_bytes", drained.wal_bytes());
    figures.add(place.key(), "drain_program_cpu_us", drained.program_cpu_us);
    figures.add(place.key(), "drain_dead_tuples_per_1000", dead as f64 * 1_000.0 / drained.handled as f64);
    Ok(())
}

pub(super) async fn default(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    if place.kind() == Kind::BareTable {
        // It has no worker, and so no default of one.
        return Ok(());
    }
    let sent = filled(place, sizes).await?;
    let drained =
        drain(place, "default", 0, (sent, Until::Settled), sizes.seconds.min(DEFAULT_SECONDS_MAX)).await?;
    figures.add(place.key(), "default_drain_per_second", drained.rate());
    Ok(())
}

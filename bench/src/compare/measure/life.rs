//! The whole life of a message: it is sent, handled, kept, removed, and the tables are vacuumed.

use super::{Place, Until, drain};
use crate::compare::figures::Figures;
use crate::compare::sizes::Sizes;
use crate::failed;

pub(super) async fn whole_life(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    place.run("checkpoint").await?;
    let meter = place.bench.meter().await?;
    let sent = place.fill(sizes.messages(place.kind())).await?;
    let drained = drain(place, "best", 0, (sent, Until::Settled), sizes.seconds * 4).await?;
    if drained.handled < sent {
        return Err(failed(
            "measure a whole life",
            format!("only {} of {sent} were handled", drained.handled),
        ));
    }
    place.process.ask("prune").await?;
    place.run("vacuum").await?;
    let spent = meter.spent().await?;
    figures.add(place.key(), "whole_life_server_cpu_us", spent.cpu.as_secs_f64() * 1e6 / sent as f64);
    figures.add(place.key(), "whole_life_wal_bytes", spent.wal_bytes as f64 / sent as f64);
    Ok(())
}

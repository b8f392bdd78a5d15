//! Draining with few and with many waiting.

use super::{Place, Until, drain};
use crate::compare::figures::Figures;
use crate::compare::sizes::Sizes;

/// Messages that wait in the drain with which the other is compared.
const FEW: u64 = 10_000;

pub(super) async fn backlog(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    let measured = sizes.messages(place.kind());
    place.fill(FEW + measured).await?;
    place.analyze().await?;
    let few = drain(place, "best", 0, (measured, Until::Handled), sizes.seconds).await?;
    place.fill(sizes.waiting(place.kind())).await?;
    place.analyze().await?;
    let many = drain(place, "best", 0, (measured, Until::Handled), sizes.seconds).await?;
    figures.add(place.key(), "backlog_few_per_second", few.rate());
    figures.add(place.key(), "backlog_many_per_second", many.rate());
    figures.add(place.key(), sizes.waiting_name, many.rate() / few.rate());
    Ok(())
}

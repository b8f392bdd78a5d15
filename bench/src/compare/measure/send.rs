//! Sending: batches, and single durable sends from many tasks at once.

use super::{BATCH, Place, SENDERS, number};
use crate::compare::figures::Figures;
use crate::compare::sizes::Sizes;

pub(super) async fn batches(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    // The first calls connect and prepare.
    place.process.ask(&format!("send {} {BATCH} {SENDERS} {}", BATCH * SENDERS, sizes.seconds)).await?;
    place.run("checkpoint").await?;
    let meter = place.bench.meter().await?;
    let count = sizes.messages(place.kind());
    let answer = place.process.ask(&format!("send {count} {BATCH} {SENDERS} {}", sizes.seconds)).await?;
    let spent = meter.spent().await?;
    let sent = number(&answer, "sent")?;
    figures.add(place.key(), "batch_send_per_second", sent / number(&answer, "seconds")?);
    figures.add(place.key(), "batch_send_server_cpu_us", spent.cpu.as_secs_f64() * 1e6 / sent);
    figures.add(place.key(), "batch_send_wal_bytes", spent.wal_bytes as f64 / sent);
    Ok(())
}

pub(super) async fn singles(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    for (tasks, figure) in
        [(1, "single_send_1_per_second"), (8, "single_send_8_per_second"), (64, "single_send_64_per_second")]
    {
        place.process.ask(&format!("send {} 1 {tasks} {}", tasks * 2, sizes.seconds)).await?;
        let count = sizes.singles * (tasks + 6) / 70;
        let answer = place.process.ask(&format!("send {count} 1 {tasks} {}", sizes.seconds)).await?;
        figures.add(place.key(), figure, number(&answer, "sent")? / number(&answer, "seconds")?);
    }
    Ok(())
}

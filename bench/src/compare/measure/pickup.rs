//! Pickup between two processes: from the return of the send in one to the first line of the handler in the other. The
//! worker may be quicker than the return of the send, which then counts as nothing; so the time from before the call is
//! measured too.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Place;
use crate::compare::figures::Figures;
use crate::compare::process::Process;
use crate::compare::sizes::Sizes;
use crate::pickup::random_pause;
use crate::report::percentile;

/// A worker has listened for so long before the first message.
const SETTLE: Duration = Duration::from_secs(2);

/// The programs note the time of messages from this number on.
const PICKUP_FIRST: u64 = 1 << 40;

/// Messages whose pickup is not counted: connections are made.
const WARM_UP: u64 = 3;

pub(super) async fn pickup(
    place: &mut Place<'_>,
    sizes: &Sizes,
    figures: &mut Figures,
) -> millpond::Result<()> {
    let mut worker = Process::start(place.program, &place.url)?;
    worker.ask("start best 0").await?;
    tokio::time::sleep(SETTLE).await;
    let (mut samples, mut from_call) = (Vec::new(), Vec::new());
    for number in 0..sizes.pickups + WARM_UP {
        random_pause().await;
        let id = PICKUP_FIRST + number;
        let called = micros();
        let sent = place.process.ask_number(&format!("send_one {id}"), "at_us").await?;
        let picked = worker.ask_number(&format!("picked {id}"), "at_us").await?;
        if WARM_UP <= number {
            samples.push((picked - sent).max(0.0) / 1_000.0);
            from_call.push((picked - called).max(0.0) / 1_000.0);
        }
    }
    worker.ask("stop").await?;
    worker.end().await;
    for (figure, share) in [("pickup_p50_ms", 0.5), ("pickup_p95_ms", 0.95), ("pickup_p99_ms", 0.99)] {
        figures.add(place.key(), figure, percentile(samples.clone(), share));
    }
    for (figure, share) in [("pickup_from_call_p50_ms", 0.5), ("pickup_from_call_p99_ms", 0.99)] {
        figures.add(place.key(), figure, percentile(from_call.clone(), share));
    }
    Ok(())
}

fn micros() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64() * 1e6)
}

//! What a worker costs that has nothing to do.

use std::time::Duration;

use millpond::Worker;
use tokio::time::sleep;

use crate::drain::{Countdown, no_op};
use crate::payload::MAIL;
use crate::report::{Goal, Report};
use crate::send::fresh;
use crate::usage;

/// After this the polls have slowed down as far as they do.
const SETTLE: Duration = Duration::from_secs(61);
const MEASURE: Duration = Duration::from_secs(30);

pub(crate) async fn idle(report: &mut Report) -> millpond::Result<()> {
    let (_folder, pond) = fresh().await?;
    let worker = Worker::new(&pond).state(Countdown::from(1)).handle(&MAIL, no_op);
    let mut used = Duration::ZERO;
    let measure = async {
        sleep(SETTLE).await;
        let before = usage::cpu("self");
        sleep(MEASURE).await;
        used = usage::cpu("self").saturating_sub(before);
    };
    worker.run_until(measure).await?;
    pond.close().await;
    report.goal("idle_cpu_percent", 100.0 * used.as_secs_f64() / MEASURE.as_secs_f64(), Goal::AtMost(0.5));
    Ok(())
}

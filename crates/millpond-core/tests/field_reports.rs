//! What went wrong in other systems, as their users reported it, where a decision alone can show it. A `BR` number is
//! that of the report in `docs/field-reports.md`.

use std::time::Duration;

use millpond_core::backoff::Backoff;
use millpond_core::message::Due;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::{Counters, Ending, Policy, Settlement, Verdict, settle};
use millpond_core::time::Timestamp;

/// BR-129: the first wait was none and every other one the one before it, as failures were counted from zero.
#[test]
fn br_129_the_first_failure_waits_the_first_wait() {
    let ms = Duration::from_millis;
    let backoff = Backoff::exponential(ms(100), Duration::from_secs(60)).factor(2.0).without_jitter();
    let settings = QueueSettings { backoff, attempts_max: 6, ..QueueSettings::DEFAULT };
    let policy = Policy::of(&settings, None, None);
    let waits: Vec<Option<Due>> = (1..=6)
        .map(|attempt| {
            let counters = Counters { attempt, releases: 0, suspect: 0 };
            let failed = Ending::Returned(Verdict::Retry { after: None });
            match settle(&policy, counters, failed, Timestamp::from_secs(0), 0.5) {
                Settlement::Again { due, .. } => Some(due),
                _ => None,
            }
        })
        .collect();
    let expected = [100, 200, 400, 800, 1_600].map(|wait| Some(Due::In(ms(wait))));
    assert_eq!((&waits[..5], waits[5]), (&expected[..], None), "and the sixth is the last");
}

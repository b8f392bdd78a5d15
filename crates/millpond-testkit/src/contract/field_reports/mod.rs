//! What went wrong in other systems, as their users reported it, tested on ours. A `BR` number is that of the
//! report in `docs/field-reports.md`, which says what happened there and what we do.
//!
//! What a report needs more of than a test run can give is scaled down; `MILLPOND_FIELD_REPORTS=full` plays it in
//! full.

mod dedup;
mod delay;
mod lease;
mod order;
mod payload;
mod retry;
mod stop;

use std::time::Duration;

pub use dedup::*;
pub use delay::*;
pub use lease::*;
pub use order::*;
pub use payload::*;
pub use retry::*;
pub use stop::*;

/// How long a scenario in full size may take.
const FULL: Duration = Duration::from_secs(3_600);

/// The size of a scenario, and how long its end may be waited for.
fn scaled(size: u32, full: u32) -> (u32, Duration) {
    match std::env::var("MILLPOND_FIELD_REPORTS").as_deref() {
        Ok("full") => (full, FULL),
        _ => (size, Duration::from_secs(30)),
    }
}

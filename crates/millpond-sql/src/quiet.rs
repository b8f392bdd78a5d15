//! That no claim has expired, as a pulse saw it: an idle node asks one question for all it does (R14), and its reclaim,
//! which looks each second, asks again only when that is long ago or there was something.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a pulse looks. It comes more often than that, and a reclaim less often.
const LOOK_EVERY: Duration = Duration::from_millis(900);

/// For how long the answer is good enough: a claim that expires in between is taken over that much later.
const GOOD: Duration = Duration::from_millis(1_500);

/// What the last pulse that looked has seen.
#[derive(Debug, Default)]
pub struct Quiet(Mutex<Option<Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    nothing: bool,
}

impl Quiet {
    /// Whether the next pulse should look.
    #[must_use]
    pub fn wants_a_look(&self) -> bool {
        self.seen().is_none_or(|seen| LOOK_EVERY <= seen.at.elapsed())
    }

    /// A pulse that was asked at this instant has looked.
    pub fn looked(&self, at: Instant, nothing: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen { at, nothing });
    }

    /// This process has changed a lease itself.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether there is nothing to take over, as far as is known.
    pub fn is_quiet(&self) -> bool {
        self.seen().is_some_and(|seen| seen.nothing && seen.at.elapsed() < GOOD)
    }

    fn seen(&self) -> Option<Seen> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quiet_for_a_while_after_a_look_that_found_nothing() {
        let quiet = Quiet::default();
        assert!(quiet.wants_a_look() && !quiet.is_quiet(), "nobody has looked");
        let now = Instant::now();
        quiet.looked(now, true);
        assert!(!quiet.wants_a_look() && quiet.is_quiet());
        quiet.looked(now, false);
        assert!(!quiet.is_quiet(), "there was something");
        if let Some(before) = now.checked_sub(GOOD) {
            quiet.looked(before, true);
            assert!(quiet.wants_a_look() && !quiet.is_quiet(), "that is long ago");
        }
        quiet.looked(now, true);
        quiet.forget();
        assert!(quiet.wants_a_look() && !quiet.is_quiet(), "a lease was changed");
    }
}

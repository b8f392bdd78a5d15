//! What the handlers of a worker have done.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Mail, PICKUP_FIRST};

/// Counts the messages that ended well, and notes when those began whose pickup is measured.
#[derive(Debug, Clone, Default)]
pub struct Handled {
    counts: Arc<Counts>,
    retries_percent: u64,
}

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    picked: Mutex<HashMap<u64, i64>>,
}

impl Handled {
    pub(crate) fn with_retries(retries_percent: u64) -> Self {
        Self { counts: Arc::default(), retries_percent }
    }

    /// The whole of every handler. `attempt` begins with 1; `false`: this attempt fails.
    #[must_use]
    pub fn run(&self, mail: &Mail, attempt: u32) -> bool {
        if PICKUP_FIRST <= mail.id {
            let mut picked = self.counts.picked.lock().unwrap_or_else(PoisonError::into_inner);
            picked.entry(mail.id).or_insert_with(micros);
        }
        if attempt <= 1 && mail.id % 100 < self.retries_percent {
            return false;
        }
        self.done(1);
        true
    }

    /// Counts messages of a queue that has no handlers.
    pub fn done(&self, count: u64) {
        self.counts.done.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.done.load(Ordering::Relaxed)
    }

    pub(crate) fn picked(&self, id: u64) -> Option<i64> {
        self.counts.picked.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

/// The time of the machine, which all its processes share.
pub(crate) fn micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail;

    #[test]
    fn of_a_hundred_as_many_as_asked_fail_and_only_once() {
        let handled = Handled::with_retries(10);
        let failed = (0..1_000).filter(|id| !handled.run(&mail(*id), 1)).count();
        assert_eq!((failed, handled.count()), (100, 900));
        assert!(handled.run(&mail(0), 2));
    }

    #[test]
    fn only_a_pickup_is_timed() {
        let handled = Handled::default();
        assert!(handled.run(&mail(7), 1) && handled.run(&mail(PICKUP_FIRST + 7), 1));
        assert_eq!(handled.picked(7), None);
        assert!(handled.picked(PICKUP_FIRST + 7).is_some());
    }
}

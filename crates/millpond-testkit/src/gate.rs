//! A gate at which handlers wait until a scenario lets them through.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// How long a thread waits at a closed gate: a scenario that failed must not hold its process up.
const BLOCKED_MAX: Duration = Duration::from_secs(30);

/// Closed until it is opened, then open for ever.
#[derive(Debug, Default)]
pub struct Gate {
    open: Mutex<bool>,
    threads: Condvar,
    tasks: Notify,
    arrivals: Notify,
}

impl Gate {
    /// Lets everybody through.
    pub fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.threads.notify_all();
        self.tasks.notify_waiters();
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        let opened = self.tasks.notified();
        if !self.is_open() {
            self.arrivals.notify_one();
            opened.await;
        }
    }

    /// Waits until a task waits at it.
    pub async fn arrival(&self) {
        self.arrivals.notified().await;
    }

    /// Waits until it is open, and keeps the thread.
    pub fn pass_blocking(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.threads.wait_timeout_while(open, BLOCKED_MAX, |open| !*open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

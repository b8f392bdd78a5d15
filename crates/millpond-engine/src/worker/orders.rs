//! What an operator wants of a worker: heard with its renewals.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_core::view::Wish;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The orders of one worker.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    draining: AtomicBool,
    /// It may lease again.
    pub(crate) released: Notify,
    /// It shall stop, as on a first signal.
    pub(crate) stop: CancellationToken,
    /// There is something new to hear or to say: the worker renews at once.
    pub(crate) news: Notify,
}

impl Orders {
    /// The store has said what is wanted now.
    pub(crate) fn hear(&self, wish: Option<Wish>) {
        let drain = wish == Some(Wish::Drain);
        if self.draining.swap(drain, Ordering::AcqRel) != drain {
            tracing::info!(drain, "an operator wants this worker to lease nothing more, or to go on");
            self.released.notify_one();
            // The next heartbeat says so.
            self.news.notify_one();
        }
        if wish == Some(Wish::Restart) && !self.stop.is_cancelled() {
            tracing::info!("an operator wants this worker to stop");
            self.stop.cancel();
        }
    }

    /// Whether nothing more is leased.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

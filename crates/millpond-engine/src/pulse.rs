//! The pulse of a node: one combined question for all its queues, asked at once on a hint and otherwise more and
//! more rarely; and the relay, which moves what is due.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::error::{Code, ErrorKind, Result};
use millpond_core::poll::{self, PollSettings, PollStep};
use millpond_core::store::{Pulse, QueueId};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use crate::patience::Patience;
use crate::pond::Pond;
use crate::renewal::pause;
use crate::worker::orders::Orders;
use crate::worker::slot::Station;

/// Rows that the relay moves in one transaction.
pub(crate) const RELAY_ROWS_MAX: usize = 500;

/// When something was last found to do; polling slows down from there.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<Instant>);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    pub(crate) fn found(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// The loop behind a worker's polls.
pub(crate) struct PulseLoop {
    pub(crate) pond: Pond,
    pub(crate) stations: Vec<Arc<Station>>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) settings: PollSettings,
    pub(crate) steps: Vec<PollStep>,
    pub(crate) tell: watch::Sender<Arc<Pulse>>,
    pub(crate) stop: CancellationToken,
}

impl PulseLoop {
    pub(crate) async fn run(&self) {
        let mut patience = Patience::new();
        let mut declarations = None;
        let mut next = Instant::now();
        let mut changed = self.pond.store().changed();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep_until(next.into()) => {}
                queues = &mut changed => if !queues.is_empty() {
                    // Their logs have grown: the worker leases at once, and the question what else there is comes after
                    // it, once for many hints.
                    changed = self.pond.store().changed();
                    queues.into_iter().for_each(|queue| self.pond.wake(queue));
                    next = next.min(Instant::now() + self.settings.min);
                    continue;
                },
                () = self.pond.outbox_written() => {}
            }
            // From before it asks: a hint that comes meanwhile is kept, and the next wait ends at once.
            changed = self.pond.store().changed();
            match self.beat(&mut declarations).await {
                Ok(next_due) => {
                    patience.reset();
                    let cadence = poll::wait(&self.steps, self.settings.min, self.activity.idle());
                    next = Instant::now() + next_due.map_or(cadence, |due| due.min(cadence));
                }
                Err(_) if self.stop.is_cancelled() => return,
                Err(error) => {
                    tracing::warn!(%error, cause = error.causes(), "cannot look for work");
                    // Without an ear for hints: they come as often as others write.
                    if !pause(&self.stop, patience.wait()).await {
                        return;
                    }
                    next = Instant::now();
                }
            }
        }
    }

    /// Asks once, moves what is due, and answers how long until the next message is due.
    async fn beat(&self, declarations: &mut Option<u64>) -> Result<Option<Duration>> {
        let queues: Vec<QueueId> = self.stations.iter().map(|station| station.queue.id).collect();
        let mut pulse = self.pond.store().pulse(queues.clone()).await?;
        if *declarations != Some(pulse.declarations) {
            self.read_again().await?;
            *declarations = Some(pulse.declarations);
        }
        if pulse.next_due.is_some_and(|due| due <= pulse.now) {
            pulse.next_due = self.relay().await?;
            pulse = Pulse { heads: self.pond.store().pulse(queues).await?.heads, ..pulse };
        }
        let next = pulse.next_due.map(|due| due.since(pulse.now));
        if !pulse.heads.is_empty() {
            self.activity.found();
        }
        self.tell.send_replace(Arc::new(pulse));
        Ok(next)
    }

    /// Something was declared, changed or wished: the settings of the queues are read again, and the worker renews at
    /// once, so that it hears what is wanted of it.
    async fn read_again(&self) -> Result<()> {
        for station in &self.stations {
            match self.pond.store().queue(station.queue.name.clone()).await {
                Ok(Some(queue)) => {
                    station.tuning.set(queue.settings);
                    self.pond.refresh(queue);
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Unavailable && error.code() != Code::Internal => {
                    return Err(error);
                }
                Err(error) => {
                    let queue = &station.queue.name;
                    tracing::warn!(%queue, %error, cause = error.causes(), "settings cannot be read: the old ones stay");
                }
            }
        }
        // Also the first time: something may have come since the worker's first renewal.
        self.orders.news.notify_one();
        Ok(())
    }

    /// Moves due messages to the log, page by page; answers when the next one is due.
    async fn relay(&self) -> Result<Option<millpond_core::Timestamp>> {
        loop {
            let relayed = self.pond.store().relay(RELAY_ROWS_MAX).await?;
            for queue in &relayed.queues {
                self.pond.wake(*queue);
            }
            if relayed.moved < RELAY_ROWS_MAX || self.stop.is_cancelled() {
                return Ok(relayed.next_due);
            }
        }
    }
}

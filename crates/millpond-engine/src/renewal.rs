//! The worker's lease: renewed by an operating-system thread with a runtime of its own, so that a handler that
//! blocks every thread of the application's runtime cannot starve it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::Token;
use millpond_core::reason::Release;
use millpond_core::settle::{Counters, Ending, Policy, settle};
use millpond_core::store::{ClaimRef, Renewal, Renewed, SettleClaim, SettleItem};
use millpond_core::time::Timestamp;
use millpond_core::view::WorkerFacts;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::job::CancelCause;
use crate::patience::{LONGEST, Patience, roll};
use crate::pond::Pond;
use crate::worker::hands::Hands;
use crate::worker::orders::Orders;
use crate::worker::settler::Endings;
use crate::worker::slot::Station;

/// What is known here of the worker's lease and of the store's time.
#[derive(Debug)]
pub(crate) struct LeaseWatch {
    inner: Mutex<Inner>,
    lease: Duration,
    lost: AtomicBool,
    renewed: Notify,
}

#[derive(Debug)]
struct Inner {
    /// Until when the lease lasts at least, by this process's own clock.
    until: Instant,
    /// Database time, as it was at an instant of this process.
    database: (Timestamp, Instant),
    /// `None` from a renewal that failed to the next that does not.
    in_touch_since: Option<Timestamp>,
}

impl LeaseWatch {
    /// The first grant; `asked` is the moment before it was asked for.
    pub(crate) fn new(lease: Duration, asked: Instant, renewed: &Renewed) -> Self {
        let database = (renewed.now, Instant::now());
        let until = asked + lease - lease / 10;
        let inner = Mutex::new(Inner { until, database, in_touch_since: Some(renewed.now) });
        Self { inner, lease, lost: AtomicBool::new(false), renewed: Notify::new() }
    }

    /// How long the lease lasts that is renewed.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Database time, as far as is known here. Only for what the database itself does not decide.
    pub(crate) fn database_now(&self) -> Timestamp {
        let (time, at) = self.lock().database;
        time + at.elapsed()
    }

    /// Since when this node has been in touch with the store without a gap; `None`: its last renewal failed or is
    /// overdue, so that others may not have been able to renew either (R10).
    pub(crate) fn in_touch_since(&self) -> Option<Timestamp> {
        // A process that was suspended has not failed to renew: it has not tried yet.
        (!self.is_over()).then(|| self.lock().in_touch_since)?
    }

    /// Waits until the lease lasts, by this process's own clock. A process that was suspended must not begin what
    /// somebody else may have taken over. Given the time, answers when it went on.
    pub(crate) async fn live(&self, mut now: Instant) -> Instant {
        loop {
            let renewed = self.renewed.notified();
            if now < self.lock().until {
                return now;
            }
            renewed.await;
            now = Instant::now();
        }
    }

    fn lost_touch(&self) {
        self.lock().in_touch_since = None;
    }

    fn granted(&self, asked: Instant, renewed: &Renewed) {
        let mut inner = self.lock();
        inner.until = asked + self.lease - self.lease / 10;
        if self.lease / 2 < renewed.now.since(inner.database.0) {
            // Renewals are a third of the lease apart: it was suspended, perhaps with its whole host.
            inner.in_touch_since = None;
        }
        inner.database = (renewed.now, Instant::now());
        inner.in_touch_since.get_or_insert(renewed.now);
        drop(inner);
        self.lost.store(false, Ordering::Release);
    }

    /// Whether the lease may be over, by this process's own clock.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().until <= Instant::now()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews until it is stopped.
pub(crate) struct Renewer {
    pub(crate) pond: Pond,
    pub(crate) heartbeat: Renewal,
    pub(crate) busy: Arc<AtomicU32>,
    pub(crate) hands: Arc<Hands>,
    pub(crate) stations: Vec<Arc<Station>>,
    pub(crate) endings: Arc<Endings>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) watch: Arc<LeaseWatch>,
    pub(crate) stop: CancellationToken,
}

impl Renewer {
    /// Starts the thread.
    pub(crate) fn start(self) -> Result<()> {
        let doing = "start the thread that renews the lease";
        let failed = |error: std::io::Error| Error::new(Code::StoreUnavailable, doing).because(error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let run = move || runtime.block_on(self.run());
        std::thread::Builder::new().name("millpond-lease".into()).spawn(run).map(drop).map_err(failed)
    }

    async fn run(self) {
        let period = self.heartbeat.lease / 3;
        let mut patience = Patience::up_to(LONGEST.min(period / 2));
        let mut wait = period;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(wait) => {}
                () = self.orders.news.notified() => {}
            }
            let (asked, known) = (Instant::now(), self.hands.tokens());
            match timeout(period, self.pond.store().renew(self.renewal())).await {
                Ok(Ok(renewed)) => {
                    self.watch.granted(asked, &renewed);
                    self.pond.heard(renewed.now);
                    patience.reset();
                    self.stop_missing(&renewed.claims, &known);
                    self.orders.hear(renewed.wish);
                    if !renewed.cancels.is_empty() {
                        self.stations.iter().for_each(|station| station.cancel(&renewed.cancels));
                    }
                    // What was taken over is out of the hands by now: the rest may begin.
                    self.watch.renewed.notify_waiters();
                    // It waits for the writer, and the next renewal must not.
                    if timeout(period / 2, self.give_back_unknown(&renewed.claims)).await.is_err() {
                        tracing::warn!(
                            "the store is too busy to be given back what this worker does not know"
                        );
                    }
                    wait = period.saturating_sub(asked.elapsed());
                }
                failed => {
                    let why = failed.map_or_else(
                        |_| "no answer".to_owned(),
                        |answer| match answer {
                            Ok(_) => String::new(),
                            Err(error) => format!("{error}: {}", error.causes()),
                        },
                    );
                    tracing::warn!(why, "cannot renew the lease");
                    self.watch.lost_touch();
                    wait = patience.wait();
                }
            }
            self.tell_if_over();
        }
    }

    /// The heartbeat as it is now.
    fn renewal(&self) -> Renewal {
        let slots: usize = self.stations.iter().map(|station| station.tuning.slots()).sum();
        let stuck: usize = self.stations.iter().map(|station| station.board.counts().1).sum();
        let (processed, failed) = self.endings.tallies();
        let all_stuck = slots != 0 && slots <= stuck;
        Renewal {
            busy: self.busy.load(Ordering::Relaxed),
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
            error: all_stuck.then(|| "every slot is stuck in a handler that is past its timeout".to_owned()),
            facts: WorkerFacts {
                stuck: u32::try_from(stuck).unwrap_or(u32::MAX),
                processed,
                failed,
                draining: self.orders.is_draining(),
                ..self.heartbeat.facts.clone()
            },
            ..self.heartbeat.clone()
        }
    }

    /// The lease is over by our own clock: the handlers are told to stop. They are not dropped: as long as nobody
    /// took the claims over, their verdicts count.
    fn tell_if_over(&self) {
        if self.watch.is_over() && !self.watch.lost.swap(true, Ordering::AcqRel) {
            tracing::warn!("the lease is over: running jobs are told to stop");
            self.stations.iter().for_each(|station| station.board.cancel(None, CancelCause::LeaseLost));
        }
    }

    /// Tells the jobs to stop whose claims the store does not hold for this worker any more.
    fn stop_missing(&self, stored: &[ClaimRef], known: &[Token]) {
        for token in self.hands.missing(stored, known) {
            tracing::warn!("a claim of this worker was taken over: its jobs are told to stop");
            self.hands.lose(token);
            self.stations.iter().for_each(|station| station.lose(token));
        }
    }

    async fn give_back_unknown(&self, stored: &[ClaimRef]) {
        for claim in self.hands.unknown(stored) {
            if let Err(error) = self.give_back(claim).await {
                tracing::warn!(%error, cause = error.causes(), "cannot give back a claim that is not in hand");
            }
        }
    }

    /// Gives back a claim that this worker does not know: the answer to its lease was lost, or a verdict could not be
    /// recorded.
    async fn give_back(&self, held: ClaimRef) -> Result<()> {
        let unsettled = self.pond.store().unsettled(held).await?;
        if unsettled.is_empty() {
            // It was settled while the renewal was on its way.
            return Ok(());
        }
        // Each message keeps its own budget; the queue's settings do not matter for what never ran.
        let settings = millpond_core::QueueSettings::DEFAULT;
        let now = self.watch.database_now();
        let items = unsettled.iter().map(|message| {
            let policy = Policy::of(&settings, message.attempts_max, message.retry_until);
            let ending = Ending::Released(Release::Abandoned);
            let settlement = settle(&policy, Counters::of(message), ending, now, roll());
            let kind = message.kind.as_deref().map(Into::into);
            SettleItem {
                offset: message.offset,
                kind,
                settlement,
                error: None,
                class: None,
                run: Duration::ZERO,
            }
        });
        let claim = SettleClaim { held, items: items.collect() };
        tracing::warn!(messages = claim.items.len(), "a claim that is not in hand is given back");
        self.pond.store().settle(vec![claim]).await.map(drop)
    }
}

/// Waits for `wait`, or until `stop`; false when it was stopped.
pub(crate) async fn pause(stop: &CancellationToken, wait: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = sleep(wait) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn renewed(secs: i64) -> Renewed {
        Renewed { now: Timestamp::from_secs(secs), claims: Vec::new(), wish: None, cancels: Vec::new() }
    }

    #[test]
    fn a_node_is_out_of_touch_from_a_failed_renewal_to_the_next_one() {
        let watch = LeaseWatch::new(LEASE, Instant::now(), &renewed(1));
        watch.granted(Instant::now(), &renewed(11));
        assert_eq!(watch.in_touch_since(), Some(Timestamp::from_secs(1)));
        watch.lost_touch();
        assert_eq!(watch.in_touch_since(), None, "it must take nothing over");
        watch.granted(Instant::now(), &renewed(21));
        watch.granted(Instant::now(), &renewed(31));
        assert_eq!(watch.in_touch_since(), Some(Timestamp::from_secs(21)));
    }

    #[test]
    fn a_node_that_was_suspended_is_out_of_touch_until_it_has_renewed() {
        let long_ago = Instant::now().checked_sub(LEASE).expect("the host has been up for a lease");
        let watch = LeaseWatch::new(LEASE, long_ago, &renewed(1));
        assert_eq!(watch.in_touch_since(), None, "it has not asked yet whether others live");
        watch.granted(Instant::now(), &renewed(41));
        assert_eq!(watch.in_touch_since(), Some(Timestamp::from_secs(41)));
    }
}

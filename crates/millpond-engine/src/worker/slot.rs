//! A slot: takes one message after another, runs its handler, and says how it ended.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::message::{Leased, Offset, Token};
use millpond_core::queue::QueueSettings;
use millpond_core::reason::{Back, Failure, Release};
use millpond_core::redact;
use millpond_core::settle::{Ending, Policy, Settlement, Verdict};
use millpond_core::store::{ClaimRef, Queue};
use tokio::sync::Notify;

use crate::body::well_formed;
use crate::handler::{Bound, Delivery, Each, Outcome, Way};
use crate::job::{CancelCause, JobContext};
use crate::pond::Pond;
use crate::renewal::LeaseWatch;
use crate::supervise::{Panic, caught, panic_text};
use crate::worker::board::{Board, Envelope, OneRun, RunLimits};
use crate::worker::feed::{Feed, Waiting};
use crate::worker::hands::Hands;
use crate::worker::kinds::Kinds;
use crate::worker::plan::RunTimes;
use crate::worker::settler::Endings;

/// What the slots of one queue share.
pub(crate) struct Station {
    pub(crate) pond: Pond,
    pub(crate) queue: Arc<Queue>,
    pub(crate) name: Arc<str>,
    pub(crate) kinds: Kinds,
    pub(crate) feed: Feed,
    pub(crate) board: Board,
    pub(crate) run_times: RunTimes,
    pub(crate) endings: Arc<Endings>,
    pub(crate) hands: Arc<Hands>,
    pub(crate) lease: Arc<LeaseWatch>,
    /// What an operator may change while it runs.
    pub(crate) tuning: Tuning,
    /// How long a handler's own transaction may hold the store.
    pub(crate) unit_limit: Duration,
}

/// A message that a slot works on.
struct Taken {
    held: ClaimRef,
    message: Leased,
    told_low: bool,
    started: Instant,
    /// How long the one before it took in this slot.
    last: Duration,
}

/// A handler that takes longer may be one that blocks its thread.
const QUICK: Duration = Duration::from_millis(1);

/// Runs slot `number` until the feed is closed and empty.
pub(crate) async fn run(station: Arc<Station>, number: usize) {
    let mut last = Duration::MAX;
    while let Some(waiting) = station.next(number).await {
        let began = Instant::now();
        station.work(number, waiting, began, last).await;
        last = began.elapsed();
    }
}

/// How a handler's future ended.
pub(super) enum Ended<O> {
    Returned(O),
    Panicked(Panic),
    /// It was taken off the board, and is dropped.
    Dropped,
}

/// The settings of a queue as they are now, and what they mean for its slots here.
#[derive(Debug)]
pub(crate) struct Tuning {
    settings: Mutex<QueueSettings>,
    /// The worker's own limits: its slots for a queue, how long a run may take, and how long a stop.
    slots_max: usize,
    timeout: Option<Duration>,
    cancel_grace: Duration,
    /// Slots that may work.
    slots: AtomicUsize,
    resized: Notify,
}

impl Tuning {
    pub(crate) fn new(
        settings: QueueSettings,
        slots_max: usize,
        timeout: Option<Duration>,
        cancel_grace: Duration,
    ) -> Self {
        let slots = AtomicUsize::new(slots_of(&settings, slots_max));
        let (settings, resized) = (Mutex::new(settings), Notify::new());
        Self { settings, slots_max, timeout, cancel_grace, slots, resized }
    }

    /// The settings as they are now.
    pub(crate) fn settings(&self) -> QueueSettings {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store says something else now.
    pub(crate) fn set(&self, settings: QueueSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        self.slots.store(slots_of(&settings, self.slots_max), Ordering::Release);
        self.resized.notify_waiters();
    }

    /// Handlers that may run at once.
    pub(crate) fn slots(&self) -> usize {
        self.slots.load(Ordering::Acquire)
    }

    /// Slots that there are; those above the number that may work wait.
    pub(crate) const fn slots_max(&self) -> usize {
        self.slots_max
    }

    /// Limits of one run.
    pub(crate) fn limits(&self) -> RunLimits {
        let timeout = [self.settings().timeout, self.timeout].into_iter().flatten().min();
        RunLimits { timeout, cancel_grace: self.cancel_grace }
    }

    /// Waits until this slot may work.
    async fn may_work(&self, slot: usize) {
        while self.slots() <= slot {
            let resized = self.resized.notified();
            if self.slots() <= slot {
                resized.await;
            }
        }
    }
}

/// How many handlers of a queue run at once here.
pub(crate) fn slots_of(settings: &QueueSettings, worker: usize) -> usize {
    match settings.exclusive {
        true => worker.min(1),
        false => settings.concurrency_per_node.map_or(usize::MAX, |slots| slots as usize).min(worker),
    }
}

/// What went wrong in a run.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    pub(crate) text: Option<String>,
    pub(crate) class: Option<Arc<str>>,
}

impl From<Option<String>> for Fault {
    fn from(text: Option<String>) -> Self {
        Self { text, class: None }
    }
}

impl Station {
    /// The next message for a slot; `None` when the feed is closed and empty.
    async fn next(&self, slot: usize) -> Option<Waiting> {
        loop {
            self.tuning.may_work(slot).await;
            let waiting = self.feed.next().await?;
            if slot < self.tuning.slots() {
                return Some(waiting);
            }
            // The queue got fewer slots while this one waited.
            self.feed.put_back(waiting);
        }
    }

    /// Tells these messages to stop, and gives back those that have not begun.
    pub(crate) fn cancel(&self, asked: &[(Token, Offset)]) {
        for Waiting { held, message, .. } in self.feed.take_out(asked) {
            self.release(held, &message, Release::Limited);
        }
        for (token, offset) in asked {
            self.board.cancel_one(*token, *offset, CancelCause::Requested);
        }
    }

    /// Works on one message, taken at `began`; `last` is how long the one before it took in this slot.
    async fn work(&self, slot: usize, waiting: Waiting, began: Instant, last: Duration) {
        let Waiting { held, message, told_low, since } = waiting;
        let started = self.lease.live(began).await;
        if !self.hands.holds(held.token) {
            return;
        }
        if self.feed.is_closed() {
            return self.release(held, &message, Release::Shutdown);
        }
        let (kind, handler) = self.kinds.find(message.kind.as_deref());
        let envelope = Envelope::of(held, &message, kind.clone());
        if let Some((ending, error)) = self.not_runnable(&message, handler.is_some()) {
            self.settle(&envelope, ending, error.into(), Duration::ZERO);
            return;
        }
        match handler.map(Bound::way) {
            Some(Way::Each(handler)) => {
                let taken = Taken { held, message, told_low, started, last };
                self.work_on_one(slot, taken, envelope, kind, handler).await;
            }
            Some(Way::Batch(handler)) => {
                let first = Waiting { held, message, since, told_low };
                self.work_on_batch(slot, first, &kind, handler, started).await;
            }
            None => {}
        }
    }

    async fn work_on_one(
        &self,
        slot: usize,
        taken: Taken,
        envelope: Envelope,
        kind: Option<Arc<str>>,
        handler: &Each,
    ) {
        let Taken { held, message, told_low, started, last } = taken;
        let context = JobContext::new(self.pond.clone(), held, message.offset, self.unit_limit);
        let kind = kind.unwrap_or_else(|| Arc::clone(&self.name));
        let delivery =
            Delivery { leased: message, context: Arc::clone(&context), queue: Arc::clone(&self.name), kind };
        let guard = Aborted { station: self, slot };
        self.board.put(slot, envelope.clone(), Arc::clone(&context), started);
        // What was woken from here runs on this thread next, and nobody else takes it from there: were the handler
        // to block, the worker's loop, the settler or the next slot would wait for it.
        if told_low || QUICK <= last {
            tokio::task::yield_now().await;
            if self.board.was_given_up(slot) {
                std::mem::forget(guard);
                self.board.take(slot);
                return;
            }
        }
        // Decoding may run code of the body's type; it is bounded by the watchdog like the handler itself.
        let ended = match handler.start(delivery) {
            Ok(future) => self.watch(slot, Arc::clone(&context), future).await,
            Err(undecodable) => {
                std::mem::forget(guard);
                self.board.take(slot);
                let fault = Some(undecodable.error).into();
                self.settle(&envelope, Ending::Undecodable, fault, Duration::ZERO);
                return;
            }
        };
        std::mem::forget(guard);
        self.ended(slot, ended);
    }

    /// A claim was taken over: its handlers are told to stop, and what waits of it is not begun.
    pub(crate) fn lose(&self, token: Token) {
        self.endings.lost(token);
        self.board.cancel(Some(token), CancelCause::LeaseLost);
    }

    /// Tells the handlers whose time is up to stop, and settles those that did not within the grace.
    pub(crate) fn give_up_overdue(&self, now: Instant) {
        for (envelope, ending, fault, run) in self.board.overdue(self.tuning.limits(), now) {
            tracing::warn!(queue = %self.queue.name, id = %envelope.id, "a handler was given up");
            self.settle(&envelope, ending, fault, run);
        }
    }

    /// What speaks against running a message at all.
    pub(super) fn not_runnable(&self, message: &Leased, known: bool) -> Option<(Ending, Option<String>)> {
        if !message.intact {
            return Some((Ending::Undecodable, Some("the stored body differs from its checksum".to_owned())));
        }
        if !known {
            // Poison must not be mistaken for a missing handler.
            return Some(match well_formed(message.content_type.as_deref(), &message.body) {
                Err(error) => (Ending::Undecodable, Some(error.to_string())),
                Ok(()) => (Ending::Released(Release::NoHandler), None),
            });
        }
        message.retry_until?;
        let policy = Policy::of(&self.tuning.settings(), message.attempts_max, message.retry_until);
        policy.expired(self.lease.database_now()).then_some((Ending::Expired, None))
    }

    pub(super) async fn watch<O>(
        &self,
        slot: usize,
        context: Arc<JobContext>,
        handler: impl Future<Output = O>,
    ) -> Ended<O> {
        tokio::select! {
            biased;
            ended = caught(context.scope(handler)) => ended.map_or_else(Ended::Panicked, Ended::Returned),
            () = self.board.must_drop(slot) => Ended::Dropped,
        }
    }

    fn ended(&self, slot: usize, result: Ended<Outcome>) {
        // Nothing there: it was settled without us, and a late result is ignored.
        let Some(running) = self.board.take(slot) else { return };
        let took = running.started.elapsed();
        self.run_times.add(took);
        let run = running.run;
        let (ending, fault) = match result {
            Ended::Returned(outcome) => ended(outcome, run.context.cause()),
            Ended::Panicked(panic) => (Ending::Failed(Failure::Panic), Some(panic_text(&*panic)).into()),
            Ended::Dropped => (Ending::Failed(Failure::Timeout), Fault::default()),
        };
        self.settle_run(&run, ending, fault, took);
    }

    /// Settles a message that a handler had, unless it is done by what the handler committed.
    pub(super) fn settle_run(&self, run: &OneRun, ending: Ending, fault: Fault, took: Duration) {
        if ending != Ending::Returned(Verdict::Ack)
            && !matches!(ending, Ending::Failed(Failure::Timeout))
            && run.context.has_committed()
        {
            let (queue, id) = (&self.queue.name, run.envelope.id);
            tracing::warn!(%queue, %id, "a handler committed its effects and did not acknowledge: it is done");
            return self.settle(&run.envelope, Ending::Returned(Verdict::Ack), Fault::default(), took);
        }
        self.settle(&run.envelope, ending, fault, took);
    }

    /// Gives back a message that no handler has seen.
    pub(crate) fn release(&self, held: ClaimRef, message: &Leased, why: Release) {
        let kind = message.kind.as_deref().map(Into::into);
        self.settle(
            &Envelope::of(held, message, kind),
            Ending::Released(why),
            Fault::default(),
            Duration::ZERO,
        );
    }

    /// Decides what becomes of a message and hands it to the settler.
    pub(crate) fn settle(&self, envelope: &Envelope, ending: Ending, fault: Fault, run: Duration) {
        let class = class(&ending).map(Into::into).or(fault.class);
        let settlement = match ending {
            Ending::Returned(Verdict::Ack) => Settlement::Done,
            ending => {
                let policy = Policy::of(&self.tuning.settings(), envelope.attempts_max, envelope.retry_until);
                let now = self.lease.database_now();
                let roll = crate::patience::roll();
                millpond_core::settle::settle(&policy, envelope.counters, ending, now, roll)
            }
        };
        let settlement = redacted(settlement);
        let text = fault.text.map(|error| redact::summary(&error));
        self.tell(envelope, &settlement, text.as_deref());
        self.endings.push(envelope, settlement, Fault { text, class }, run);
    }

    /// Says what did not end well, once. The text is redacted.
    fn tell(&self, envelope: &Envelope, settlement: &Settlement, error: Option<&str>) {
        let (queue, id, attempt) = (&self.queue.name, envelope.id, envelope.counters.attempt);
        match settlement {
            Settlement::Dead { reason, detail } => {
                let error = detail.as_deref().or(error).unwrap_or("");
                tracing::warn!(%queue, %id, attempt, %reason, error, "a message is a dead letter");
            }
            Settlement::Again { back: Back::Failed(failure), .. } => {
                let error = error.unwrap_or("");
                tracing::info!(%queue, %id, attempt, %failure, error, "an attempt failed; it comes again");
            }
            Settlement::Done | Settlement::Again { .. } => {}
        }
    }
}

/// What the outcome of a handler means, given why it was told to stop.
pub(crate) fn ended(outcome: Outcome, cause: Option<CancelCause>) -> (Ending, Fault) {
    match outcome {
        Outcome { verdict: Verdict::Ack, .. } => (Ending::Returned(Verdict::Ack), Fault::default()),
        Outcome { error, failed: true, class, .. } => (failed(cause), Fault { text: error, class }),
        Outcome { verdict, error, class, .. } => (Ending::Returned(verdict), Fault { text: error, class }),
    }
}

/// What it means that a handler returned an error, given why it was told to stop.
const fn failed(cause: Option<CancelCause>) -> Ending {
    match cause {
        Some(CancelCause::Timeout) => Ending::Failed(Failure::Timeout),
        // It stopped because it was told to, for a reason that is not the message's.
        Some(CancelCause::Shutdown) => Ending::Released(Release::Shutdown),
        Some(CancelCause::LeaseLost) => Ending::Released(Release::Abandoned),
        Some(CancelCause::Requested) | None => Ending::Failed(Failure::Error),
    }
}

/// The class of a failure that is no error of the handler's own type.
const fn class(ending: &Ending) -> Option<&'static str> {
    match ending {
        Ending::Failed(Failure::Timeout) => Some("timeout"),
        Ending::Failed(Failure::Panic) => Some("panic"),
        _ => None,
    }
}

/// What a handler says of a dead letter may hold a secret, like any error.
fn redacted(settlement: Settlement) -> Settlement {
    match settlement {
        Settlement::Dead { reason, detail: Some(detail) } => {
            Settlement::Dead { reason, detail: Some(redact::summary(&detail)) }
        }
        other => other,
    }
}

/// If the slot's task is aborted while its handler runs, the message is not forgotten.
pub(super) struct Aborted<'a> {
    pub(super) station: &'a Station,
    pub(super) slot: usize,
}

impl Drop for Aborted<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.station.board.take(self.slot) {
            let (took, error) = (running.started.elapsed(), "its task was aborted".to_owned());
            let failed = || (Ending::Failed(Failure::Error), Some(error.clone()).into());
            for (run, decided) in running.into_runs() {
                let (ending, fault) = decided.map_or_else(failed, |outcome| ended(outcome, None));
                self.station.settle(&run.envelope, ending, fault, took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_core::reason::DropReason;

    use super::*;

    #[test]
    fn what_a_handler_says_of_a_dead_letter_is_redacted() {
        let dead =
            |detail: &str| Settlement::Dead { reason: DropReason::Refused, detail: Some(detail.to_owned()) };
        assert_eq!(redacted(dead("no login: password=hunter2")), dead("no login: password=***"));
    }
}

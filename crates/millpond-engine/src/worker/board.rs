//! Which handler runs in which slot. Whoever takes a run off the board settles it: the slot when its handler
//! ends, the watchdog when the time is up, the stop when patience is over. So a late result changes nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::message::{Leased, MessageId, Offset, Token};
use millpond_core::reason::{Failure, Release};
use millpond_core::settle::{Counters, Ending};
use millpond_core::store::ClaimRef;
use millpond_core::time::Timestamp;
use tokio::sync::Notify;

use crate::batch::Desk;
use crate::handler::Outcome;
use crate::job::{CancelCause, JobContext};
use crate::worker::slot::{Fault, ended};

/// What must be known of a message to settle it.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub(crate) held: ClaimRef,
    pub(crate) offset: Offset,
    pub(crate) id: MessageId,
    pub(crate) kind: Option<Arc<str>>,
    pub(crate) counters: Counters,
    pub(crate) attempts_max: Option<u32>,
    pub(crate) retry_until: Option<Timestamp>,
}

impl Envelope {
    pub(crate) fn of(held: ClaimRef, message: &Leased, kind: Option<Arc<str>>) -> Self {
        Self {
            held,
            offset: message.offset,
            id: message.id,
            kind,
            counters: Counters::of(message),
            attempts_max: message.attempts_max,
            retry_until: message.retry_until,
        }
    }
}

/// A handler that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) run: OneRun,
    /// The other messages of the same call, and what it decides about all while it runs.
    pub(crate) beside: Option<(Vec<OneRun>, Arc<Desk>)>,
    pub(crate) started: Instant,
    /// When it was told to stop because its time was up.
    told: Option<Instant>,
}

/// A message in the hands of a handler.
#[derive(Debug)]
pub(crate) struct OneRun {
    pub(crate) envelope: Envelope,
    pub(crate) context: Arc<JobContext>,
}

impl Running {
    /// Every message of the call.
    fn runs(&self) -> impl Iterator<Item = &OneRun> {
        std::iter::once(&self.run).chain(self.beside.iter().flat_map(|(runs, _)| runs))
    }

    fn cancel(&self, cause: CancelCause) {
        self.runs().for_each(|run| run.context.cancel(cause));
    }

    /// Every message of the call, with what was decided about it.
    pub(crate) fn into_runs(self) -> impl Iterator<Item = (OneRun, Option<Outcome>)> {
        let (beside, desk) = self.beside.map_or((Vec::new(), None), |(runs, desk)| (runs, Some(desk)));
        let decided = move |place| desk.as_ref().and_then(|desk| desk.take(place));
        std::iter::once(self.run).chain(beside).enumerate().map(move |(place, run)| (run, decided(place)))
    }

    /// What is to be settled of it by somebody else than its slot: what was decided stands.
    fn taken_off(self, ending: &Ending, error: Option<&str>, run: Duration) -> Vec<TakenOff> {
        let taken = |(one, decided): (OneRun, Option<Outcome>)| match decided {
            Some(outcome) => {
                let (ending, fault) = ended(outcome, None);
                (one.envelope, ending, fault, run)
            }
            None => (one.envelope, ending.clone(), error.map(str::to_owned).into(), run),
        };
        self.into_runs().map(taken).collect()
    }
}

/// The slots of one queue.
#[derive(Debug)]
pub(crate) struct Board {
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    running: Mutex<Option<Running>>,
    /// Its handler was settled without it and has not returned.
    stuck: AtomicBool,
    /// Tells the slot to drop its handler.
    drop_handler: Notify,
}

/// Limits of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLimits {
    /// `None`: for ever.
    pub(crate) timeout: Option<Duration>,
    /// From the cancel token to the end of patience.
    pub(crate) cancel_grace: Duration,
}

/// A run that somebody else than its slot must settle.
pub(crate) type TakenOff = (Envelope, Ending, Fault, Duration);

impl Board {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// A handler is about to run.
    pub(crate) fn put(&self, slot: usize, envelope: Envelope, context: Arc<JobContext>, started: Instant) {
        let run = OneRun { envelope, context };
        *self.lock(slot) = Some(Running { run, beside: None, started, told: None });
    }

    /// A batch handler is about to run with these messages.
    pub(crate) fn put_batch(&self, slot: usize, runs: Vec<OneRun>, desk: Arc<Desk>, started: Instant) {
        let mut runs = runs.into_iter();
        if let Some(run) = runs.next() {
            let beside = Some((runs.collect(), desk));
            *self.lock(slot) = Some(Running { run, beside, started, told: None });
        }
    }

    /// The slot's handler ended. `None`: it was settled without it.
    pub(crate) fn take(&self, slot: usize) -> Option<Running> {
        let running = self.lock(slot).take();
        self.slots[slot].stuck.store(false, Ordering::Release);
        running
    }

    /// Whether the slot's handler was settled without it.
    pub(crate) fn was_given_up(&self, slot: usize) -> bool {
        self.slots[slot].stuck.load(Ordering::Acquire)
    }

    /// Resolves when the slot must drop its handler.
    pub(crate) async fn must_drop(&self, slot: usize) {
        loop {
            self.slots[slot].drop_handler.notified().await;
            // A hint may be left from an earlier run that returned by itself in the last moment.
            if self.was_given_up(slot) {
                return;
            }
        }
    }

    /// Handlers that run, and slots that are stuck.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let running = (0..self.slots.len()).filter(|slot| self.lock(*slot).is_some()).count();
        let stuck = self.slots.iter().filter(|slot| slot.stuck.load(Ordering::Acquire)).count();
        (running, stuck)
    }

    /// The longest time that a handler has been running.
    pub(crate) fn longest(&self, now: Instant) -> Option<Duration> {
        let age =
            |slot| self.lock(slot).as_ref().map(|running| now.saturating_duration_since(running.started));
        (0..self.slots.len()).filter_map(age).max()
    }

    /// Tells every handler to stop, or those of one claim.
    pub(crate) fn cancel(&self, token: Option<Token>, cause: CancelCause) {
        for slot in 0..self.slots.len() {
            if let Some(running) = &*self.lock(slot)
                && token.is_none_or(|token| running.run.envelope.held.token == token)
            {
                running.cancel(cause);
            }
        }
    }

    /// Tells the handler of one message to stop, if it runs here.
    pub(crate) fn cancel_one(&self, token: Token, offset: Offset, cause: CancelCause) {
        for slot in 0..self.slots.len() {
            let place = self.lock(slot);
            let mut runs = place.iter().flat_map(Running::runs);
            let is_it = |run: &&OneRun| run.envelope.held.token == token && run.envelope.offset == offset;
            if let Some(run) = runs.find(is_it) {
                run.context.cancel(cause);
            }
        }
    }

    /// Tells the handlers whose time is up to stop, and takes off those that did not within the grace.
    pub(crate) fn overdue(&self, limits: RunLimits, now: Instant) -> Vec<TakenOff> {
        let Some(timeout) = limits.timeout else { return Vec::new() };
        (0..self.slots.len())
            .flat_map(|slot| self.overdue_slot(slot, timeout, limits.cancel_grace, now))
            .collect()
    }

    fn overdue_slot(&self, slot: usize, timeout: Duration, grace: Duration, now: Instant) -> Vec<TakenOff> {
        let mut place = self.lock(slot);
        let Some(running) = place.as_mut() else { return Vec::new() };
        let age = now.saturating_duration_since(running.started);
        match running.told {
            None if timeout <= age => {
                running.told = Some(now);
                running.cancel(CancelCause::Timeout);
                Vec::new()
            }
            Some(told) if grace <= now.saturating_duration_since(told) => {
                let Some(running) = place.take() else { return Vec::new() };
                drop(place);
                let error =
                    format!("timeout: it ran longer than {timeout:?} and did not stop within {grace:?}");
                self.give_up(slot);
                running.taken_off(&Ending::Failed(Failure::Timeout), Some(&error), age)
            }
            _ => Vec::new(),
        }
    }

    /// Takes off every handler that still runs, at the end of a stop.
    pub(crate) fn release_all(&self, now: Instant) -> Vec<TakenOff> {
        let take = |slot| {
            let Some(running) = self.lock(slot).take() else { return Vec::new() };
            self.give_up(slot);
            let run = now.saturating_duration_since(running.started);
            running.taken_off(&Ending::Released(Release::Shutdown), None, run)
        };
        (0..self.slots.len()).flat_map(take).collect()
    }

    fn give_up(&self, slot: usize) {
        self.slots[slot].stuck.store(true, Ordering::Release);
        self.slots[slot].drop_handler.notify_one();
    }

    fn lock(&self, slot: usize) -> MutexGuard<'_, Option<Running>> {
        self.slots[slot].running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! A slot: takes one message after another, runs its handler, and says how it ended.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::message::{Leased, Token};
use millpond_core::reason::{Back, Failure, Release};
use millpond_core::redact;
use millpond_core::settle::{Ending, Policy, Settlement, Verdict};
use millpond_core::store::{ClaimRef, Queue};

use crate::body::well_formed;
use crate::handler::{Delivery, Outcome};
use crate::job::{CancelCause, JobContext};
use crate::pond::Pond;
use crate::renewal::LeaseWatch;
use crate::supervise::{Panic, caught, panic_text};
use crate::worker::board::{Board, Envelope, RunLimits};
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
    /// How long a handler's own transaction may hold the store.
    pub(crate) unit_limit: Duration,
}

/// A handler that takes longer may be one that blocks its thread.
const QUICK: Duration = Duration::from_millis(1);

/// Runs slot `number` until the feed is closed and empty.
pub(crate) async fn run(station: Arc<Station>, number: usize) {
    let mut last = Duration::MAX;
    while let Some(waiting) = station.feed.next().await {
        let began = Instant::now();
        station.work(number, waiting, began, last).await;
        last = began.elapsed();
    }
}

/// How a handler's future ended.
enum Ended {
    Returned(Outcome),
    Panicked(Panic),
    /// It was taken off the board, and is dropped.
    Dropped,
}

impl Station {
    /// Works on one message, taken at `began`; `last` is how long the one before it took in this slot.
    async fn work(&self, slot: usize, waiting: Waiting, began: Instant, last: Duration) {
        let Waiting { held, message, told_low, .. } = waiting;
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
            self.settle(&envelope, ending, error, Duration::ZERO);
            return;
        }
        let Some(handler) = handler else { return };
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
                self.settle(&envelope, Ending::Undecodable, Some(undecodable.error), Duration::ZERO);
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
    pub(crate) fn give_up_overdue(&self, limits: RunLimits, now: Instant) {
        for (envelope, ending, error, run) in self.board.overdue(limits, now) {
            tracing::warn!(queue = %self.queue.name, id = %envelope.id, "a handler was given up");
            self.settle(&envelope, ending, error, run);
        }
    }

    /// What speaks against running a message at all.
    fn not_runnable(&self, message: &Leased, known: bool) -> Option<(Ending, Option<String>)> {
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
        let policy = Policy::of(&self.queue.settings, message.attempts_max, message.retry_until);
        policy.expired(self.lease.database_now()).then_some((Ending::Expired, None))
    }

    async fn watch(
        &self,
        slot: usize,
        context: Arc<JobContext>,
        handler: impl Future<Output = Outcome>,
    ) -> Ended {
        tokio::select! {
            biased;
            ended = caught(context.scope(handler)) => ended.map_or_else(Ended::Panicked, Ended::Returned),
            () = self.board.must_drop(slot) => Ended::Dropped,
        }
    }

    fn ended(&self, slot: usize, ended: Ended) {
        // Nothing there: it was settled without us, and a late result is ignored.
        let Some(running) = self.board.take(slot) else { return };
        let run = running.started.elapsed();
        self.run_times.add(run);
        let (ending, error) = match ended {
            Ended::Returned(Outcome { verdict: Verdict::Ack, .. }) => (Ending::Returned(Verdict::Ack), None),
            Ended::Returned(_) | Ended::Panicked(_) if running.context.has_committed() => {
                let (queue, id) = (&self.queue.name, running.envelope.id);
                tracing::warn!(%queue, %id, "a handler committed its effects and did not acknowledge: it is done");
                (Ending::Returned(Verdict::Ack), None)
            }
            Ended::Returned(Outcome { error, failed: true, .. }) => (failed(running.context.cause()), error),
            Ended::Returned(Outcome { verdict, error, .. }) => (Ending::Returned(verdict), error),
            Ended::Panicked(panic) => (Ending::Failed(Failure::Panic), Some(panic_text(&*panic))),
            Ended::Dropped => (Ending::Failed(Failure::Timeout), None),
        };
        self.settle(&running.envelope, ending, error, run);
    }

    /// Gives back a message that no handler has seen.
    pub(crate) fn release(&self, held: ClaimRef, message: &Leased, why: Release) {
        let kind = message.kind.as_deref().map(Into::into);
        self.settle(&Envelope::of(held, message, kind), Ending::Released(why), None, Duration::ZERO);
    }

    /// Decides what becomes of a message and hands it to the settler.
    pub(crate) fn settle(&self, envelope: &Envelope, ending: Ending, error: Option<String>, run: Duration) {
        let settlement = match ending {
            Ending::Returned(Verdict::Ack) => Settlement::Done,
            ending => {
                let policy = Policy::of(&self.queue.settings, envelope.attempts_max, envelope.retry_until);
                let now = self.lease.database_now();
                let roll = crate::patience::roll();
                millpond_core::settle::settle(&policy, envelope.counters, ending, now, roll)
            }
        };
        let settlement = redacted(settlement);
        let error = error.map(|error| redact::summary(&error));
        self.tell(envelope, &settlement, error.as_deref());
        self.endings.push(envelope, settlement, error, run);
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
struct Aborted<'a> {
    station: &'a Station,
    slot: usize,
}

impl Drop for Aborted<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.station.board.take(self.slot) {
            let (run, error) = (running.started.elapsed(), "its task was aborted".to_owned());
            self.station.settle(&running.envelope, Ending::Failed(Failure::Error), Some(error), run);
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

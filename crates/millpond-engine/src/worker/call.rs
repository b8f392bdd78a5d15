//! A call of a batch handler: several messages of one claim in one slot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use millpond_core::batch::{CallEnd, Fate, fates};
use millpond_core::reason::{Failure, Release};
use millpond_core::settle::Ending;

use crate::batch::{Answers, BatchOf, Call, Desk};
use crate::handler::{Delivery, Outcome, Undecodable};
use crate::job::{CancelCause, JobContext};
use crate::supervise::panic_text;
use crate::worker::board::{Envelope, OneRun};
use crate::worker::feed::Waiting;
use crate::worker::slot::{Aborted, Ended, Fault, Station, ended};

/// Messages of a claim that wait for a call of their own. If the slot's task is aborted, they are given back.
struct Rest<'a> {
    station: &'a Station,
    waiting: VecDeque<Waiting>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        for Waiting { held, message, .. } in self.waiting.drain(..) {
            self.station.release(held, &message, Release::Limited);
        }
    }
}

/// How a call ended, in what is needed to settle its messages.
struct Answered {
    end: CallEnd,
    outcomes: Vec<Outcome>,
    /// What went wrong with the call as a whole.
    fault: Option<Outcome>,
}

impl Station {
    /// Hands `first`, and those like it that come next, to a batch handler in one call; if that breaks down, one by
    /// one.
    pub(super) async fn work_on_batch(
        &self,
        slot: usize,
        first: Waiting,
        kind: &Option<Arc<str>>,
        handler: &BatchOf,
        started: Instant,
    ) {
        let others = self.feed.take_like(&first, handler.messages_max().saturating_sub(1));
        let mut batch = Vec::with_capacity(1 + others.len());
        batch.push(first);
        for waiting in others {
            match self.not_runnable(&waiting.message, true) {
                Some((ending, error)) => {
                    let envelope = Envelope::of(waiting.held, &waiting.message, kind.clone());
                    self.settle(&envelope, ending, error.into(), std::time::Duration::ZERO);
                }
                None => batch.push(waiting),
            }
        }
        let waiting = self.call(slot, batch, kind, handler, started).await.into();
        let mut rest = Rest { station: self, waiting };
        while let Some(waiting) = rest.waiting.pop_front() {
            let started = self.lease.live(Instant::now()).await;
            if !self.hands.holds(waiting.held.token) {
                continue;
            }
            if self.feed.is_closed() {
                self.release(waiting.held, &waiting.message, Release::Shutdown);
                continue;
            }
            self.call(slot, vec![waiting], kind, handler, started).await;
        }
    }

    /// One call; answers what must be handed over again.
    async fn call(
        &self,
        slot: usize,
        batch: Vec<Waiting>,
        kind: &Option<Arc<str>>,
        handler: &BatchOf,
        started: Instant,
    ) -> Vec<Waiting> {
        let desk = Desk::new(batch.len());
        let (mut runs, mut deliveries) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        let name = kind.clone().unwrap_or_else(|| Arc::clone(&self.name));
        let mut first: Option<Arc<JobContext>> = None;
        for Waiting { held, message, .. } in &batch {
            let context = match &first {
                Some(first) => first.beside(message.offset),
                None => JobContext::new(self.pond.clone(), *held, message.offset, self.unit_limit),
            };
            first.get_or_insert_with(|| Arc::clone(&context));
            let envelope = Envelope::of(*held, message, kind.clone());
            runs.push(OneRun { envelope, context: Arc::clone(&context) });
            deliveries.push(Delivery {
                // It is needed once more if the call breaks down.
                leased: message.clone(),
                context,
                queue: Arc::clone(&self.name),
                kind: Arc::clone(&name),
            });
        }
        let Some(scope) = first else { return Vec::new() };
        let guard = Aborted { station: self, slot };
        self.board.put_batch(slot, runs, Arc::clone(&desk), started);
        tokio::task::yield_now().await;
        if self.board.was_given_up(slot) {
            std::mem::forget(guard);
            self.board.take(slot);
            return Vec::new();
        }
        let Call { undecodable, run } = handler.start(deliveries, &desk);
        let result = self.watch(slot, Arc::clone(&scope), run).await;
        std::mem::forget(guard);
        self.call_ended(
            slot,
            answered(result, scope.cause(), desk.jobs().len()),
            undecodable,
            desk.jobs(),
            batch,
        )
    }

    /// Settles what a call decided; answers the messages that must be handed over alone.
    fn call_ended(
        &self,
        slot: usize,
        answered: Answered,
        undecodable: Vec<(usize, Undecodable)>,
        jobs: Vec<usize>,
        batch: Vec<Waiting>,
    ) -> Vec<Waiting> {
        // Nothing there: it was settled without us, and a late result is ignored.
        let Some(running) = self.board.take(slot) else { return Vec::new() };
        let took = running.started.elapsed();
        self.run_times.add(took);
        let each = took / u32::try_from(batch.len()).unwrap_or(u32::MAX).max(1);
        let mut runs: Vec<Option<(OneRun, Option<Outcome>, Waiting)>> = running
            .into_runs()
            .zip(batch)
            .map(|((run, decided), waiting)| Some((run, decided, waiting)))
            .collect();
        for (place, why) in undecodable {
            if let Some((run, ..)) = runs.get_mut(place).and_then(Option::take) {
                self.settle(&run.envelope, Ending::Undecodable, Some(why.error).into(), each);
            }
        }
        let runs: Vec<_> = jobs.into_iter().filter_map(|place| runs.get_mut(place)?.take()).collect();
        let decided: Vec<bool> = runs.iter().map(|(_, decided, _)| decided.is_some()).collect();
        let mut alone = Vec::new();
        for ((run, decided, waiting), fate) in runs.into_iter().zip(fates(&decided, answered.end)) {
            let cause = run.context.cause();
            let outcome = match fate {
                Fate::AsDecided => decided,
                Fate::AsAnswered(place) => answered.outcomes.get(place).cloned(),
                Fate::Alone if run.context.has_committed() => None,
                Fate::Alone => {
                    alone.push(waiting);
                    continue;
                }
                Fate::Failed(failure) => {
                    let (ending, fault) = answered.failed(failure, cause);
                    self.settle_run(&run, ending, fault, each);
                    continue;
                }
            };
            let noted = run.context.take_noted();
            let (ending, mut fault) = match outcome {
                Some(outcome) => ended(outcome, cause),
                None => (Ending::Failed(Failure::Error), Fault::default()),
            };
            fault.text = fault.text.or(noted);
            self.settle_run(&run, ending, fault, each);
        }
        if !alone.is_empty() {
            let (queue, messages) = (&self.queue.name, alone.len());
            let error = answered.fault.and_then(|fault| fault.error).unwrap_or_default();
            tracing::warn!(%queue, messages, %error, "a call of a batch handler failed; its messages come one by one");
        }
        alone
    }
}

impl Answered {
    /// How a message has failed with its call.
    fn failed(&self, failure: Failure, cause: Option<CancelCause>) -> (Ending, Fault) {
        match (failure, &self.fault) {
            (Failure::Error, Some(outcome)) => ended(outcome.clone(), cause),
            (_, fault) => {
                let text = fault.as_ref().and_then(|fault| fault.error.clone());
                (Ending::Failed(failure), text.into())
            }
        }
    }
}

/// What the end of a call means, given why it was told to stop.
fn answered(result: Ended<Answers>, cause: Option<CancelCause>, jobs: usize) -> Answered {
    // A call that was told that its time is up fails as a whole, however it ends: there is no time for one by one.
    let late = cause == Some(CancelCause::Timeout);
    let broken = |end, error: Option<String>| {
        let verdict = millpond_core::settle::Verdict::Retry { after: None };
        let fault = error.map(|error| Outcome { verdict, error: Some(error), failed: true, class: None });
        Answered { end, outcomes: Vec::new(), fault }
    };
    match result {
        Ended::Returned(Answers::One(outcome)) => {
            Answered { end: CallEnd::One, outcomes: vec![outcome], fault: None }
        }
        Ended::Returned(Answers::Each(outcomes)) => {
            let why = format!("the batch handler answered {} verdicts, not one for each job", outcomes.len());
            if late && outcomes.len() != jobs {
                return broken(CallEnd::Timeout, Some(why));
            }
            let fault = broken(CallEnd::Error, Some(why)).fault;
            Answered { end: CallEnd::Each(outcomes.len()), outcomes, fault }
        }
        Ended::Returned(Answers::Failed(outcome)) => {
            let end = if late { CallEnd::Timeout } else { CallEnd::Error };
            Answered { end, outcomes: Vec::new(), fault: Some(outcome) }
        }
        Ended::Panicked(panic) => {
            let end = if late { CallEnd::Timeout } else { CallEnd::Panic };
            broken(end, Some(panic_text(&*panic)))
        }
        Ended::Dropped => broken(CallEnd::Timeout, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_whose_time_was_up_has_failed_unless_it_answered_for_each_job() {
        let verdict =
            Outcome { verdict: millpond_core::settle::Verdict::Ack, error: None, failed: false, class: None };
        let each = |count: usize| Ended::Returned(Answers::Each(vec![verdict.clone(); count]));
        let (late, asked) = (Some(CancelCause::Timeout), None);
        let cases = [
            (each(3), late, CallEnd::Each(3)),
            (each(1), late, CallEnd::Timeout),
            (each(1), asked, CallEnd::Each(1)),
            (Ended::Panicked(Box::new("poison")), late, CallEnd::Timeout),
            (Ended::Panicked(Box::new("poison")), asked, CallEnd::Panic),
            (Ended::Dropped, late, CallEnd::Timeout),
        ];
        for (result, cause, expected) in cases {
            assert_eq!(answered(result, cause, 3).end, expected, "{cause:?}");
        }
    }
}

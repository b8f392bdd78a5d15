//! Batch handlers: several messages of a queue in one call, each with its own verdict.

use std::any::type_name;
use std::fmt;
use std::fmt::Display;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::error::Result;
use millpond_core::settle::Verdict;
use millpond_core::store::BoxFuture;

use crate::body::Body;
use crate::handler::{Bound, Delivery, IntoOutcome, JobError, Outcome, States, Undecodable};
use crate::job::Job;

/// Most messages of one call of a batch handler, if nobody says otherwise.
pub const BATCH_DEFAULT: usize = 100;

/// A plain async function whose first argument is a list of jobs; up to four others are shared state, by type.
///
/// It is called with what is there, from one message up to `batch_max`, all of one lease: no call waits for company,
/// and no number may be relied on. It answers one verdict for all, or a list with one for each, in order.
///
/// ```
/// use millpond_core::Verdict;
/// use millpond_engine::batch::{BatchHandler, Jobs};
///
/// async fn import(rows: Jobs<String>) -> Vec<Verdict> {
///     let verdict = |row: &str| match row {
///         "" => Verdict::DeadLetter { reason: "an empty row".to_owned() },
///         _ => Verdict::Ack,
///     };
///     rows.iter().map(|job| verdict(&job.body)).collect()
/// }
///
/// fn takes<B, A>(_: impl BatchHandler<B, A>) {}
/// takes(import);
/// takes(|_: Jobs<u64>| async { Ok::<(), String>(()) });
/// ```
///
/// **One message is the unit of failure.** If the call fails as a whole, by an error, a panic or a wrong number of
/// verdicts, its messages are handed over again one by one under the same lease, so that the culprit is found and it
/// alone uses up its attempt. If its time is up, the attempt of every message has failed. What was decided before
/// with [`Jobs::decide`] stands in both cases.
pub trait BatchHandler<B, Args>: Send + Sync + Sized + 'static {
    /// Finds the state that it needs, once, at start.
    ///
    /// # Errors
    ///
    /// `invalid-config`, with the name of a type of which no state was given.
    fn bind(self, states: &States) -> Result<Bound>;
}

/// The jobs of one call of a batch handler, in the order of the queue.
pub struct Jobs<B> {
    jobs: Vec<Job<B>>,
    desk: Arc<Desk>,
}

impl<B> Jobs<B> {
    /// Jobs for the test of a handler; see [`Job::for_test`].
    pub fn for_test(bodies: impl IntoIterator<Item = B>) -> Self {
        let jobs: Vec<Job<B>> = bodies.into_iter().map(Job::for_test).collect();
        let desk = Desk::new(jobs.len());
        Self { jobs, desk }
    }

    /// Decides about the job at `place`, counted from 0, while the call goes on. It stands whatever comes after: a
    /// panic, a timeout, or another verdict. It is recorded when the call ends. The first decision counts.
    pub fn decide(&self, place: usize, outcome: impl IntoOutcome) {
        self.desk.decide(place, outcome.into_outcome());
    }
}

impl<B> Deref for Jobs<B> {
    type Target = [Job<B>];

    fn deref(&self) -> &[Job<B>] {
        &self.jobs
    }
}

impl<B> IntoIterator for Jobs<B> {
    type Item = Job<B>;
    type IntoIter = std::vec::IntoIter<Job<B>>;

    fn into_iter(self) -> Self::IntoIter {
        self.jobs.into_iter()
    }
}

impl<'a, B> IntoIterator for &'a Jobs<B> {
    type Item = &'a Job<B>;
    type IntoIter = std::slice::Iter<'a, Job<B>>;

    fn into_iter(self) -> Self::IntoIter {
        self.jobs.iter()
    }
}

impl<B: fmt::Debug> fmt::Debug for Jobs<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.jobs).finish()
    }
}

/// What was decided about the messages of a call while it ran. Shared with the slot, which goes by the places of the
/// deliveries; those that cannot be decoded are no jobs.
#[derive(Debug)]
pub(crate) struct Desk(Mutex<Decisions>);

#[derive(Debug)]
struct Decisions {
    /// By delivery.
    outcomes: Vec<Option<Outcome>>,
    /// The delivery of each job.
    jobs: Vec<usize>,
}

impl Desk {
    /// Every delivery is a job, as far as is known.
    pub(crate) fn new(deliveries: usize) -> Arc<Self> {
        let outcomes = vec![None; deliveries];
        Arc::new(Self(Mutex::new(Decisions { outcomes, jobs: (0..deliveries).collect() })))
    }

    fn jobs_are(&self, jobs: Vec<usize>) {
        self.lock().jobs = jobs;
    }

    fn decide(&self, job: usize, outcome: Outcome) {
        let mut decisions = self.lock();
        let Some(delivery) = decisions.jobs.get(job).copied() else { return };
        if let Some(open @ None) = decisions.outcomes.get_mut(delivery) {
            *open = Some(outcome);
        }
    }

    /// What was decided about a delivery.
    pub(crate) fn take(&self, delivery: usize) -> Option<Outcome> {
        self.lock().outcomes.get_mut(delivery).and_then(Option::take)
    }

    /// The deliveries that are jobs, in order.
    pub(crate) fn jobs(&self) -> Vec<usize> {
        self.lock().jobs.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Decisions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call of a batch handler answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answers {
    /// One outcome for all jobs.
    One(Outcome),
    /// One for each job, in order.
    Each(Vec<Outcome>),
    /// It failed as a whole; what that means for a job that was alone.
    Failed(Outcome),
}

/// What a batch handler may return.
pub trait IntoAnswers {
    /// The outcomes, or that it failed as a whole.
    fn into_answers(self) -> Answers;
}

impl IntoAnswers for Answers {
    fn into_answers(self) -> Answers {
        self
    }
}

impl IntoAnswers for Verdict {
    fn into_answers(self) -> Answers {
        Answers::One(self.into_outcome())
    }
}

impl<O: IntoOutcome> IntoAnswers for Vec<O> {
    fn into_answers(self) -> Answers {
        Answers::Each(self.into_iter().map(IntoOutcome::into_outcome).collect())
    }
}

impl<E: Display> IntoAnswers for Result<(), E> {
    fn into_answers(self) -> Answers {
        match self {
            Ok(()) => Verdict::Ack.into_answers(),
            failed @ Err(_) => Answers::Failed(failed.into_outcome()),
        }
    }
}

impl<O: IntoOutcome, E: Display> IntoAnswers for Result<Vec<O>, E> {
    fn into_answers(self) -> Answers {
        match self {
            Ok(each) => each.into_answers(),
            Err(error) => Err::<(), E>(error).into_answers(),
        }
    }
}

impl IntoAnswers for Result<(), JobError> {
    fn into_answers(self) -> Answers {
        match self {
            Ok(()) => Verdict::Ack.into_answers(),
            failed @ Err(_) => Answers::Failed(failed.into_outcome()),
        }
    }
}

/// What a call of a batch handler is made of.
pub(crate) struct Call {
    /// The deliveries that cannot be decoded, by their place.
    pub(crate) undecodable: Vec<(usize, Undecodable)>,
    /// The run, over the others in their order.
    pub(crate) run: BoxFuture<'static, Answers>,
}

type StartCall = dyn Fn(Vec<Delivery>, &Arc<Desk>) -> Call + Send + Sync;

/// A batch handler with its state.
#[derive(Clone)]
pub(crate) struct BatchOf {
    start: Arc<StartCall>,
    messages_max: usize,
}

impl BatchOf {
    /// Decodes what was delivered, and makes the future of the run.
    pub(crate) fn start(&self, deliveries: Vec<Delivery>, desk: &Arc<Desk>) -> Call {
        (self.start)(deliveries, desk)
    }

    pub(crate) const fn messages_max(&self) -> usize {
        self.messages_max
    }

    pub(crate) fn with_messages_max(self, messages_max: usize) -> Self {
        Self { messages_max, ..self }
    }
}

/// The jobs of a call, and what cannot be decoded.
fn decode<B: Body>(deliveries: Vec<Delivery>, desk: &Arc<Desk>) -> (Jobs<B>, Vec<(usize, Undecodable)>) {
    let (mut jobs, mut places, mut undecodable) =
        (Vec::with_capacity(deliveries.len()), Vec::new(), Vec::new());
    for (place, delivery) in deliveries.into_iter().enumerate() {
        match Job::<B>::decode(delivery) {
            Ok(job) => {
                jobs.push(job);
                places.push(place);
            }
            Err(why) => undecodable.push((place, why)),
        }
    }
    desk.jobs_are(places);
    (Jobs { jobs, desk: Arc::clone(desk) }, undecodable)
}

/// Implements [`BatchHandler`] for functions with so many states.
macro_rules! batch_handlers {
    ($($state:ident)*) => {
        impl<B, Run, Running, $($state,)*> BatchHandler<B, ($($state,)*)> for Run
        where
            B: Body,
            Run: Fn(Jobs<B>, $($state,)*) -> Running + Send + Sync + 'static,
            Running: Future<Output: IntoAnswers> + Send + 'static,
            $($state: Clone + Send + Sync + 'static,)*
        {
            #[allow(non_snake_case, unused_variables, reason = "a state is named as its type, or there is none")]
            fn bind(self, states: &States) -> Result<Bound> {
                $(let $state = states.find::<$state>(type_name::<Run>())?;)*
                let handler = Arc::new(self);
                let start = move |deliveries: Vec<Delivery>, desk: &Arc<Desk>| {
                    let (jobs, undecodable) = decode::<B>(deliveries, desk);
                    let handler = Arc::clone(&handler);
                    $(let $state = $state.clone();)*
                    let run = Box::pin(async move {
                        if jobs.is_empty() {
                            return Answers::Each(Vec::new());
                        }
                        handler(jobs, $($state,)*).await.into_answers()
                    });
                    Call { undecodable, run }
                };
                Ok(Bound::batch(BatchOf { start: Arc::new(start), messages_max: BATCH_DEFAULT }))
            }
        }
    };
}

batch_handlers!();
batch_handlers!(S1);
batch_handlers!(S1 S2);
batch_handlers!(S1 S2 S3);
batch_handlers!(S1 S2 S3 S4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_counts_and_one_about_nothing_is_none() {
        let jobs = Jobs::for_test([1, 2]);
        jobs.decide(0, Err::<(), _>("broken"));
        jobs.decide(0, Verdict::Ack);
        jobs.decide(7, Verdict::Ack);
        assert_eq!(jobs.desk.take(1), None);
        assert_eq!(jobs.desk.take(0).and_then(|outcome| outcome.error).as_deref(), Some("broken"));
    }

    #[test]
    fn what_a_batch_handler_may_return() {
        let ack = || Verdict::Ack.into_outcome();
        assert_eq!(Verdict::Ack.into_answers(), Answers::One(ack()));
        assert_eq!(Ok::<(), String>(()).into_answers(), Answers::One(ack()));
        assert_eq!(vec![Verdict::Ack, Verdict::Ack].into_answers(), Answers::Each(vec![ack(), ack()]));
        let mixed = Ok::<_, String>(vec![Ok(()), Err("broken")]).into_answers();
        assert_eq!(mixed, Answers::Each(vec![ack(), Err::<(), _>("broken").into_outcome()]));
        let failed = Err::<Vec<Verdict>, _>("broken").into_answers();
        assert_eq!(failed, Answers::Failed(Err::<(), _>("broken").into_outcome()));
    }
}

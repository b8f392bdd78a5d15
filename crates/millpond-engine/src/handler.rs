//! Handlers: plain async functions of a job and of shared state.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::fmt::Display;
use std::sync::Arc;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::Leased;
use millpond_core::settle::Verdict;
use millpond_core::store::BoxFuture;

use crate::batch::BatchOf;
use crate::body::Body;
use crate::job::{Job, JobContext};

/// A plain async function whose first argument is the job; up to four others are shared state, by type.
///
/// It must be safe to run twice for one message, one after the other and at the same time.
///
/// ```
/// use std::sync::Arc;
/// use millpond_core::Verdict;
/// use millpond_engine::handler::Handler;
/// use millpond_engine::job::Job;
///
/// struct Mailer;
///
/// async fn welcome(job: Job<String>, mailer: Arc<Mailer>) -> Verdict {
///     Verdict::Ack
/// }
///
/// fn takes<B, A>(_: impl Handler<B, A>) {}
/// takes(welcome);
/// takes(|job: Job<u64>| async move { if job.body == 0 { Err("zero") } else { Ok(()) } });
/// ```
pub trait Handler<B, Args>: Send + Sync + Sized + 'static {
    /// Finds the state that it needs, once, at start.
    ///
    /// # Errors
    ///
    /// `invalid-config`, with the name of a type of which no state was given.
    fn bind(self, states: &States) -> Result<Bound>;
}

/// What a handler may return.
pub trait IntoOutcome {
    /// The verdict, with the error that is recorded beside it.
    fn into_outcome(self) -> Outcome;
}

/// How a handler ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What it says.
    pub verdict: Verdict,
    /// The text of its error, not redacted.
    pub error: Option<String>,
    /// It returned an error: the run failed, and was not just asked to be repeated.
    pub failed: bool,
    /// The class of its error: the name of its type, or how a program ended. Like failures are grouped by it.
    pub class: Option<Arc<str>>,
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for Verdict {
    fn into_outcome(self) -> Outcome {
        Outcome { verdict: self, error: None, failed: false, class: None }
    }
}

/// An error is a retry. `{:#}` shows the causes of errors that can show them.
impl<E: Display> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Outcome {
        self.map(|()| Verdict::Ack).into_outcome()
    }
}

impl<E: Display> IntoOutcome for Result<Verdict, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(verdict) => verdict.into_outcome(),
            Err(error) => retry(format!("{error:#}"), class_of::<E>()),
        }
    }
}

impl<E: Display> IntoOutcome for Result<(), Permanent<E>> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(()) => Verdict::Ack.into_outcome(),
            Err(Permanent(error)) => refuse(format!("{error:#}"), class_of::<E>()),
        }
    }
}

impl IntoOutcome for Result<(), JobError> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(()) => Verdict::Ack.into_outcome(),
            Err(JobError { text, permanent: true, class }) => refuse(text, class),
            Err(JobError { text, permanent: false, class }) => retry(text, class),
        }
    }
}

fn retry(text: String, class: &str) -> Outcome {
    let class = Some(class.into());
    Outcome { verdict: Verdict::Retry { after: None }, error: Some(text), failed: true, class }
}

fn refuse(text: String, class: &str) -> Outcome {
    let class = Some(class.into());
    Outcome { verdict: Verdict::DeadLetter { reason: text.clone() }, error: Some(text), failed: false, class }
}

/// The class of an error: the last part of its type's name, without what the type is of.
fn class_of<E: ?Sized>() -> &'static str {
    let name = type_name::<E>().trim_start_matches('&').trim_start_matches("mut ");
    let outer = name.split('<').next().unwrap_or(name);
    outer.rsplit("::").next().unwrap_or(outer)
}

/// An error that no further attempt can mend: the message becomes a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permanent<E>(
    /// What went wrong.
    pub E,
);

/// The error of a handler in which some errors are worth another attempt and some are not. Any error becomes
/// one that is, by `?`; one in [`Permanent`] becomes one that is not.
///
/// ```
/// use millpond_core::Verdict;
/// use millpond_engine::handler::{IntoOutcome, JobError, Permanent};
///
/// fn user(text: &str) -> Result<u64, JobError> {
///     Ok(text.parse::<u64>().map_err(Permanent)?)
/// }
///
/// let outcome = user("Ada").map(|_| ()).into_outcome();
/// assert_eq!(outcome.verdict, Verdict::DeadLetter { reason: "invalid digit found in string".to_owned() });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobError {
    text: String,
    permanent: bool,
    class: &'static str,
}

impl JobError {
    /// Worth another attempt.
    pub fn retry<E: Display>(error: E) -> Self {
        Self { text: format!("{error:#}"), permanent: false, class: class_of::<E>() }
    }

    /// Not worth another attempt.
    pub fn permanent<E: Display>(error: E) -> Self {
        Self { text: format!("{error:#}"), permanent: true, class: class_of::<E>() }
    }
}

impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        Self { text, permanent: false, class: class_of::<E>() }
    }
}

impl<E: Display> From<Permanent<E>> for JobError {
    fn from(error: Permanent<E>) -> Self {
        Self::permanent(error.0)
    }
}

/// Shared state of handlers, one value of each type.
#[derive(Default)]
pub struct States {
    values: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl States {
    /// Adds a value; the last one of a type counts.
    pub fn insert<S: Clone + Send + Sync + 'static>(&mut self, value: S) {
        self.values.insert(TypeId::of::<S>(), Box::new(value));
    }

    pub(crate) fn find<S: Clone + Send + Sync + 'static>(&self, handler: &str) -> Result<S> {
        let found = self.values.get(&TypeId::of::<S>()).and_then(|value| value.downcast_ref::<S>());
        found.cloned().ok_or_else(|| {
            let why = format!("no state of type `{}` was given: add `.state(…)`", type_name::<S>());
            Error::new(Code::InvalidConfig, format!("set up handler `{handler}`")).because(why)
        })
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "States({})", self.values.len())
    }
}

/// A handler with its state, ready to run.
#[derive(Clone)]
pub struct Bound(Way);

/// How a handler takes its messages.
#[derive(Clone)]
pub(crate) enum Way {
    Each(Each),
    Batch(BatchOf),
}

/// One message a call.
#[derive(Clone)]
pub(crate) struct Each {
    run: Arc<dyn Fn(Delivery) -> Result<BoxFuture<'static, Outcome>, Undecodable> + Send + Sync>,
}

impl Each {
    /// Decodes what was delivered, and makes the future of the run. An error noted by the job is in the
    /// outcome; the code of the handler runs in the future alone.
    pub(crate) fn start(&self, delivery: Delivery) -> Result<BoxFuture<'static, Outcome>, Undecodable> {
        (self.run)(delivery)
    }
}

impl Bound {
    pub(crate) const fn batch(of: BatchOf) -> Self {
        Self(Way::Batch(of))
    }

    pub(crate) const fn way(&self) -> &Way {
        &self.0
    }

    /// Most messages of one call.
    pub(crate) fn messages_max(&self) -> usize {
        match &self.0 {
            Way::Each(_) => 1,
            Way::Batch(of) => of.messages_max(),
        }
    }

    /// The same, with at most this many messages a call.
    pub(crate) fn with_messages_max(self, messages: usize) -> Self {
        match self.0 {
            Way::Batch(of) => Self(Way::Batch(of.with_messages_max(messages))),
            each @ Way::Each(_) => Self(each),
        }
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bound")
    }
}

/// What a handler is started with.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The message.
    pub leased: Leased,
    /// Shared with the slot.
    pub context: Arc<JobContext>,
    /// The name of the queue.
    pub queue: Arc<str>,
    /// The name of the work.
    pub kind: Arc<str>,
}

/// Envelope or body cannot be decoded.
#[derive(Debug)]
pub(crate) struct Undecodable {
    /// Where and why, not redacted.
    pub error: String,
}

/// Implements [`Handler`] for functions with so many states.
macro_rules! handlers {
    ($($state:ident)*) => {
        impl<B, Run, Running, $($state,)*> Handler<B, ($($state,)*)> for Run
        where
            B: Body,
            Run: Fn(Job<B>, $($state,)*) -> Running + Send + Sync + 'static,
            Running: Future<Output: IntoOutcome> + Send + 'static,
            $($state: Clone + Send + Sync + 'static,)*
        {
            #[allow(non_snake_case, unused_variables, reason = "a state is named as its type, or there is none")]
            fn bind(self, states: &States) -> Result<Bound> {
                $(let $state = states.find::<$state>(type_name::<Run>())?;)*
                let handler = Arc::new(self);
                let run = move |delivery: Delivery| -> Result<BoxFuture<'static, Outcome>, Undecodable> {
                    let context = Arc::clone(&delivery.context);
                    let job = Job::<B>::decode(delivery)?;
                    let handler = Arc::clone(&handler);
                    $(let $state = $state.clone();)*
                    Ok(Box::pin(async move {
                        let mut outcome = handler(job, $($state,)*).await.into_outcome();
                        outcome.error = outcome.error.or_else(|| context.take_noted());
                        outcome
                    }))
                };
                Ok(Bound(Way::Each(Each { run: Arc::new(run) })))
            }
        }
    };
}

handlers!();
handlers!(S1);
handlers!(S1 S2);
handlers!(S1 S2 S3);
handlers!(S1 S2 S3 S4);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond_core::message::Offset;

    use super::*;
    use crate::fake::{self, FakeStore};
    use crate::pond::Pond;

    fn delivery(body: &[u8]) -> Delivery {
        let name: Arc<str> = "mail".into();
        let pond = Pond::new(Arc::new(FakeStore::default()));
        let context = JobContext::new(pond, fake::held(), Offset(0), Duration::from_secs(1));
        Delivery { leased: fake::leased(body), context, queue: Arc::clone(&name), kind: name }
    }

    async fn ran<B, A>(handler: impl Handler<B, A>, states: &States) -> Outcome {
        let bound = handler.bind(states).unwrap();
        let Way::Each(each) = bound.way() else { panic!("it takes one message a call") };
        each.start(delivery(b"7")).unwrap_or_else(|why| panic!("{}", why.error)).await
    }

    fn outcome(verdict: Verdict, error: Option<&str>, failed: bool) -> Outcome {
        Outcome { verdict, error: error.map(str::to_owned), failed, class: None }
    }

    /// The same of an error that is a text.
    fn text(verdict: Verdict, error: &str, failed: bool) -> Outcome {
        Outcome { class: Some("str".into()), ..outcome(verdict, Some(error), failed) }
    }

    #[test]
    fn the_class_of_an_error_is_the_name_of_its_type() {
        assert_eq!(class_of::<std::num::ParseIntError>(), "ParseIntError");
        assert_eq!(class_of::<&'static str>(), "str");
        assert_eq!(class_of::<Box<dyn std::error::Error>>(), "Box");
        let parsed = || -> Result<(), JobError> { Err("x".parse::<u8>().map(|_| ()).unwrap_err().into()) };
        assert_eq!(parsed().into_outcome().class.as_deref(), Some("ParseIntError"));
    }

    #[tokio::test]
    async fn a_handler_gets_its_job_and_its_states_by_type() {
        let mut states = States::default();
        states.insert("s");
        states.insert(5_u64);
        states.insert(Arc::new(6_i8));
        states.insert(8_u8);
        async fn handler(job: Job<u32>, a: u64, b: &'static str, c: Arc<i8>, d: u8) -> Verdict {
            assert_eq!((job.body, a, b, *c, d), (7, 5, "s", 6, 8));
            Verdict::Ack
        }
        assert_eq!(ran(handler, &states).await, outcome(Verdict::Ack, None, false));
    }

    #[test]
    fn a_missing_state_is_an_error_at_start_that_names_its_type() {
        async fn handler(_: Job<u32>, _: Arc<i8>) -> Verdict {
            Verdict::Ack
        }
        let error = handler.bind(&States::default()).unwrap_err();
        assert_eq!(error.code(), Code::InvalidConfig);
        assert_eq!(error.causes(), "no state of type `alloc::sync::Arc<i8>` was given: add `.state(…)`");
        assert!(error.doing().ends_with("::handler`"), "{}", error.doing());
    }

    #[tokio::test]
    async fn results_become_outcomes() {
        let none = States::default();
        let again = Verdict::Retry { after: None };
        let dead = || Verdict::DeadLetter { reason: "gone".to_owned() };

        let failing = |_: Job<u32>| async { Err::<(), _>("busy") };
        assert_eq!(ran(failing, &none).await, text(again.clone(), "busy", true));
        let fine = |_: Job<u32>| async { Ok::<(), String>(()) };
        assert_eq!(ran(fine, &none).await, outcome(Verdict::Ack, None, false));
        let permanent = |_: Job<u32>| async { Err::<(), _>(Permanent("gone")) };
        assert_eq!(ran(permanent, &none).await, text(dead(), "gone", false));
        let mixed = |_: Job<u32>| async { Err::<(), JobError>(Permanent("gone").into()) };
        assert_eq!(ran(mixed, &none).await, text(dead(), "gone", false));
        let verdict = |_: Job<u32>| async { Err::<Verdict, _>("busy") };
        assert_eq!(ran(verdict, &none).await, text(again, "busy", true));
    }

    #[test]
    fn an_error_keeps_its_causes() {
        let error = Error::new(Code::StoreUnavailable, "send to queue `mail`").because("locked");
        assert_eq!(JobError::from(error).text, "send to queue `mail` (store-unavailable): locked");
    }

    #[tokio::test]
    async fn a_noted_error_stands_beside_the_verdict_and_behind_a_returned_one() {
        let none = States::default();
        let noting = |job: Job<u32>| async move {
            job.note_error("slow");
            Verdict::Ack
        };
        assert_eq!(ran(noting, &none).await, outcome(Verdict::Ack, Some("slow"), false));
        let both = |job: Job<u32>| async move {
            job.note_error("slow");
            Err::<(), _>("busy")
        };
        assert_eq!(ran(both, &none).await.error.as_deref(), Some("busy"));
    }

    #[test]
    fn an_undecodable_body_never_reaches_the_handler() {
        async fn handler(_: Job<u32>) -> Verdict {
            unreachable!("it was not decoded")
        }
        let bound = handler.bind(&States::default()).unwrap();
        let Way::Each(each) = bound.way() else { panic!("it takes one message a call") };
        let undecodable = each.start(delivery(b"{}")).err().unwrap();
        assert_eq!(undecodable.error, "body: invalid type: map, expected u32 at line 1 column 0");
    }
}

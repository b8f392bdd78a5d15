//! What a handler gets: the job, and through it the context of its run.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{Headers, Leased, MessageId, Offset, Token};
use millpond_core::store;
use millpond_core::store::ClaimRef;
use millpond_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::handler::{Delivery, Undecodable};
use crate::pond::Pond;
use crate::unit::{Begun, Open, UnitOfWork};

tokio::task_local! {
    /// The run that this task is in.
    static CURRENT: Arc<JobContext>;
}

/// Why a job should stop. The first cause counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelCause {
    /// Its time is up. An error that it returns now is recorded as a timeout.
    Timeout,
    /// Its worker's lease is over, or somebody else has the message already: a result may not count any more.
    LeaseLost,
    /// Its worker stops. An error that it returns now is no fault of the message: the attempt is given back.
    Shutdown,
    /// Somebody asked for it.
    Requested,
}

/// One delivery of one message, as its handler sees it.
///
/// A handler is a plain function of its job, so its test needs no queue:
///
/// ```
/// use millpond_core::Verdict;
/// use millpond_engine::job::Job;
///
/// async fn welcome(job: Job<String>) -> Verdict {
///     if job.body.is_empty() {
///         return Verdict::DeadLetter { reason: "nobody to welcome".to_owned() };
///     }
///     Verdict::Ack
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(welcome(Job::for_test("Ada".to_owned())).await, Verdict::Ack);
/// # }
/// ```
#[non_exhaustive]
pub struct Job<B> {
    /// Unchanged since the message was sent.
    pub id: MessageId,
    /// What was sent.
    pub body: B,
    /// This attempt, counted from 1.
    pub attempt: u32,
    /// Deliveries that were given back before.
    pub releases: u32,
    /// The name of the work.
    pub kind: Arc<str>,
    /// The queue it came from.
    pub queue: Arc<str>,
    /// As sent.
    pub key: Option<String>,
    /// Deliveries in all, if the message has its own number.
    pub attempts_max: Option<u32>,
    /// The message's own deadline: no attempt is made after it.
    pub retry_until: Option<Timestamp>,
    /// When it was sent, by the store's clock.
    pub sent_at: Timestamp,
    headers: Headers,
    context: Arc<JobContext>,
}

impl<B> Job<B> {
    /// A job for the test of a handler: the first attempt of a message of the queue `test`. Its public fields
    /// may be set. It has no store, so that [`Job::begin`] answers an error.
    pub fn for_test(body: B) -> Self {
        let name: Arc<str> = "test".into();
        Self {
            id: MessageId(uuid::Uuid::nil()),
            body,
            attempt: 1,
            releases: 0,
            kind: Arc::clone(&name),
            queue: name,
            key: None,
            attempts_max: None,
            retry_until: None,
            sent_at: Timestamp::from_micros(0),
            headers: Headers::new(),
            context: JobContext::detached(),
        }
    }

    /// The same job with these headers, for the test of a handler.
    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// The headers that were sent, by name.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Resolves when the job should stop; [`Job::cancel_cause`] says why. Never before, so it belongs into a
    /// `select!`.
    ///
    /// ```no_run
    /// # // Nothing cancels a job outside a worker.
    /// # use millpond_core::Verdict;
    /// # use millpond_engine::job::Job;
    /// # async fn long_work() {}
    /// async fn welcome(job: Job<String>) -> Verdict {
    ///     tokio::select! {
    ///         () = long_work() => Verdict::Ack,
    ///         () = job.cancelled() => Verdict::Retry { after: None },
    ///     }
    /// }
    /// ```
    ///
    /// A handler that has nothing to say of the message may return an error instead: at a stop of the worker the
    /// attempt is then given back, at a timeout it has failed.
    pub async fn cancelled(&self) {
        self.context.cancelled().await;
    }

    /// Whether the job should stop.
    pub fn is_cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    /// Why the job should stop; `None` while it should go on.
    pub fn cancel_cause(&self) -> Option<CancelCause> {
        self.context.cause()
    }

    /// The number of this delivery, counted from 1: unlike the attempt, it never falls.
    pub const fn delivery(&self) -> u32 {
        self.attempt.saturating_add(self.releases)
    }

    /// The error to be recorded beside the verdict; the last one counts.
    pub fn note_error(&self, error: impl fmt::Display) {
        self.context.note_error(error.to_string());
    }

    /// Opens the job's own transaction: what is written through it is committed once, together with the fact
    /// that this message is done. While it is open the pond refuses sends of this handler, since they would
    /// wait for the writer that the transaction holds; the unit sends instead.
    ///
    /// Do the slow work first and open it late.
    ///
    /// # Errors
    ///
    /// `lease-lost`: stop. `send-inside-transaction`: the job has an open unit already. What the store says.
    pub async fn begin(&self) -> Result<Begun> {
        let doing = || format!("begin the unit of work of job `{}`", self.id);
        let Some(pond) = &self.context.pond else {
            let why = "a job made by `Job::for_test` has no store: test the unit of work through a worker";
            return Err(Error::new(Code::Internal, doing()).because(why));
        };
        if pond.waits_for_itself() {
            let why = "a unit of work that this task began holds the one writer: commit or drop it first";
            return Err(Error::new(Code::SendInsideTransaction, doing()).because(why));
        }
        let Some(open) = OpenUnit::of(&self.context) else {
            let why = "this job has an open unit already: commit or drop it first";
            return Err(Error::new(Code::SendInsideTransaction, doing()).because(why));
        };
        let JobContext { held, offset, unit_limit, .. } = *self.context;
        Ok(match pond.store().begin(held, offset, unit_limit).await? {
            store::Begun::AlreadyDone => Begun::AlreadyDone,
            store::Begun::Open(tx) => Begun::Open(UnitOfWork::new(tx, Open::Job(open), pond.clone())),
        })
    }
}

impl<B: Body> Job<B> {
    /// Decodes what was delivered.
    pub(crate) fn decode(delivery: Delivery) -> Result<Self, Undecodable> {
        let Delivery { leased, context, queue, kind } = delivery;
        let Leased { id, key, headers, content_type, body, attempt, releases, .. } = leased;
        let headers = decode_headers(headers.as_deref())?;
        Ok(Self {
            id,
            body: decode_body(content_type.as_deref(), &body)?,
            attempt,
            releases,
            kind,
            queue,
            key,
            attempts_max: leased.attempts_max,
            retry_until: leased.retry_until,
            sent_at: leased.sent_at,
            headers,
            context,
        })
    }
}

impl<B: fmt::Debug> fmt::Debug for Job<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("queue", &self.queue)
            .field("kind", &self.kind)
            .field("attempt", &self.attempt)
            .field("releases", &self.releases)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

fn decode_headers(text: Option<&str>) -> Result<Headers, Undecodable> {
    let Some(text) = text else { return Ok(Headers::new()) };
    serde_json::from_str(text).map_err(|why| Undecodable { error: format!("headers: {why}") })
}

/// A panic of the body's own `Deserialize` is the message's fault and must not end the worker.
fn decode_body<B: Body>(content_type: Option<&str>, bytes: &[u8]) -> Result<B, Undecodable> {
    match catch_unwind(AssertUnwindSafe(|| B::decode(content_type, bytes))) {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(why)) => Err(Undecodable { error: why.to_string() }),
        Err(_) => Err(Undecodable { error: "body: decoding it panicked".to_owned() }),
    }
}

/// What a run shares with the slot it runs in.
pub(crate) struct JobContext {
    /// `None` in the test of a handler.
    pond: Option<Pond>,
    held: ClaimRef,
    offset: Offset,
    unit_limit: Duration,
    cause: OnceLock<CancelCause>,
    /// Made by the first handler that waits.
    cancel: OnceLock<CancellationToken>,
    noted: Mutex<Option<String>>,
    /// Shared by the jobs of one call: they are one handler.
    unit_open: Arc<AtomicBool>,
    committed: AtomicBool,
}

impl JobContext {
    /// The context of a run. A unit of work may be open for `unit_limit`.
    pub(crate) fn new(pond: Pond, held: ClaimRef, offset: Offset, unit_limit: Duration) -> Arc<Self> {
        Arc::new(Self::make(Some(pond), held, offset, unit_limit))
    }

    /// The context of another job in the same call of a batch handler.
    pub(crate) fn beside(&self, offset: Offset) -> Arc<Self> {
        let other = Self::make(self.pond.clone(), self.held, offset, self.unit_limit);
        Arc::new(Self { unit_open: Arc::clone(&self.unit_open), ..other })
    }

    fn detached() -> Arc<Self> {
        let held = ClaimRef { subscription: 0, partition: 0, to_offset: Offset(0), token: Token([0; 16]) };
        Arc::new(Self::make(None, held, Offset(0), Duration::ZERO))
    }

    fn make(pond: Option<Pond>, held: ClaimRef, offset: Offset, unit_limit: Duration) -> Self {
        Self {
            pond,
            held,
            offset,
            unit_limit,
            cause: OnceLock::new(),
            cancel: OnceLock::new(),
            noted: Mutex::new(None),
            unit_open: Arc::default(),
            committed: AtomicBool::new(false),
        }
    }

    /// Runs a handler's future so that the pond knows which run a send comes from.
    pub(crate) async fn scope<F: Future>(self: Arc<Self>, handler: F) -> F::Output {
        CURRENT.scope(self, handler).await
    }

    /// Whether this task runs a handler that has an open unit of work on `pond`.
    pub(crate) fn unit_is_open_here(pond: &Pond) -> bool {
        let open = |context: &Arc<JobContext>| {
            context.unit_open.load(Ordering::Acquire)
                && context.pond.as_ref().is_some_and(|own| own.is_same(pond))
        };
        CURRENT.try_with(open).unwrap_or(false)
    }

    /// Tells the job to stop. If it was told already, the first cause stays.
    pub(crate) fn cancel(&self, cause: CancelCause) {
        let _ = self.cause.set(cause);
        // Between the store above and the load below, and the other way round in `cancelled`: one of the two
        // sees what the other wrote.
        fence(Ordering::SeqCst);
        if let Some(token) = self.cancel.get() {
            token.cancel();
        }
    }

    /// Whether the job was told to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cause.get().is_some()
    }

    /// Why the job was told to stop.
    pub(crate) fn cause(&self) -> Option<CancelCause> {
        self.cause.get().copied()
    }

    /// Resolves when the job is told to stop.
    pub(crate) async fn cancelled(&self) {
        let token = self.cancel.get_or_init(CancellationToken::new);
        fence(Ordering::SeqCst);
        if !self.is_cancelled() {
            token.cancelled().await;
        }
    }

    fn note_error(&self, error: String) {
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Takes the error that the handler noted last.
    pub(crate) fn take_noted(&self) -> Option<String> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether a unit of work of this run was committed: whatever the verdict says, the message is done.
    pub(crate) fn has_committed(&self) -> bool {
        self.committed.load(Ordering::Acquire)
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("held", &self.held)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// Marks that a run has an open unit of work, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenUnit(Arc<JobContext>);

impl OpenUnit {
    /// `None` if there is one already.
    fn of(context: &Arc<JobContext>) -> Option<Self> {
        let was_open = context.unit_open.swap(true, Ordering::AcqRel);
        (!was_open).then(|| Self(Arc::clone(context)))
    }

    /// The unit was committed.
    pub(crate) fn committed(self) {
        self.0.committed.store(true, Ordering::Release);
    }
}

impl Drop for OpenUnit {
    fn drop(&mut self) {
        self.0.unit_open.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{self, FakeStore};
    use crate::queue::Queue;

    const MAIL: Queue<u32> = Queue::new("mail");

    fn delivery(leased: Leased) -> Delivery {
        let name: Arc<str> = "mail".into();
        Delivery { leased, context: JobContext::detached(), queue: Arc::clone(&name), kind: name }
    }

    #[track_caller]
    fn undecodable(leased: Leased, expected: &str) {
        assert_eq!(Job::<u32>::decode(delivery(leased)).unwrap_err().error, expected);
    }

    #[test]
    fn a_job_carries_what_was_leased() {
        let headers = Some(r#"{"trace":"t"}"#.to_owned());
        let job = Job::<u32>::decode(delivery(Leased { headers, ..fake::leased(b"7") })).unwrap();
        assert_eq!((job.body, job.attempt, &*job.kind), (7, 1, "mail"));
        assert_eq!(job.headers()["trace"], "t");
    }

    #[test]
    fn what_cannot_be_decoded_says_where() {
        undecodable(fake::leased(b"x"), "body: expected value at line 1 column 1");
        let headers = Some("[]".to_owned());
        undecodable(
            Leased { headers, ..fake::leased(b"7") },
            "headers: invalid type: sequence, expected a map at line 1 column 0",
        );
    }

    #[test]
    fn a_panic_while_decoding_is_the_messages_fault() {
        #[derive(serde::Serialize)]
        struct Bomb;
        impl<'de> serde::Deserialize<'de> for Bomb {
            fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                panic!("boom")
            }
        }
        assert!(Job::<Bomb>::decode(delivery(fake::leased(b"7"))).is_err());
    }

    #[tokio::test]
    async fn cancelled_resolves_before_and_after_the_cancel() {
        let job = Job::for_test(());
        let context = Arc::clone(&job.context);
        assert!(!job.is_cancelled());
        tokio::join!(job.cancelled(), async { context.cancel(CancelCause::Timeout) });
        job.cancelled().await;
        assert!(job.is_cancelled());
        context.cancel(CancelCause::Shutdown);
        assert_eq!(job.cancel_cause(), Some(CancelCause::Timeout), "the first cause counts");

        let late = Job::for_test(());
        late.context.cancel(CancelCause::LeaseLost);
        late.cancelled().await;
    }

    #[test]
    fn the_last_noted_error_counts() {
        let job = Job::for_test(());
        job.note_error("first");
        job.note_error("second");
        assert_eq!(job.context.take_noted().as_deref(), Some("second"));
        assert_eq!(job.context.take_noted(), None);
    }

    #[tokio::test]
    async fn a_job_for_a_test_says_that_it_has_no_store() {
        let error = Job::for_test(()).begin().await.unwrap_err();
        assert!(error.causes().contains("Job::for_test"), "{}", error.causes());
    }

    async fn job_of(pond: &Pond) -> Job<u32> {
        pond.declare(&MAIL).await.unwrap();
        let context = JobContext::new(pond.clone(), fake::held(), Offset(0), Duration::from_secs(1));
        Job::decode(Delivery { context, ..delivery(fake::leased(b"7")) }).unwrap()
    }

    #[tokio::test]
    async fn the_pond_refuses_sends_while_the_handlers_unit_is_open() {
        let pond = Pond::new(Arc::new(FakeStore::default()));
        let elsewhere = Pond::new(Arc::new(FakeStore::default()));
        let job = job_of(&pond).await;
        let context = Arc::clone(&job.context);
        let handler = async {
            let Begun::Open(unit) = job.begin().await.unwrap() else { panic!("done already") };
            let refused = pond.send(&MAIL, [1]).await.unwrap_err();
            assert_eq!(refused.code(), Code::SendInsideTransaction);
            let other = pond.declare(&Queue::<u32>::new("other")).await.unwrap_err();
            assert_eq!(other.code(), Code::SendInsideTransaction);
            assert_eq!(job.begin().await.unwrap_err().code(), Code::SendInsideTransaction);
            elsewhere.send(&MAIL, [1]).await.unwrap();
            drop(unit);
            pond.send(&MAIL, [1]).await.unwrap();
            assert!(!job.context.has_committed(), "it was dropped");
        };
        Arc::clone(&context).scope(handler).await;
    }

    #[tokio::test]
    async fn a_unit_never_asks_the_store_that_may_wait_for_it() {
        let store = Arc::new(FakeStore::default());
        let pond = Pond::new(Arc::clone(&store) as _);
        let job = job_of(&pond).await;
        let Begun::Open(mut unit) = job.begin().await.unwrap() else { panic!("done already") };
        store.hang();
        unit.send(&Queue::<u32>::new("stored"), [1]).await.unwrap();
        let unknown = unit.send(&Queue::<u32>::new("nowhere"), [1]).await.unwrap_err();
        assert_eq!(unknown.code(), Code::UnknownQueue);
    }

    #[tokio::test]
    async fn a_committed_unit_is_remembered_and_its_sends_are_stored() {
        let store = Arc::new(FakeStore::default());
        let pond = Pond::new(Arc::clone(&store) as _);
        let job = job_of(&pond).await;
        let Begun::Open(mut unit) = job.begin().await.unwrap() else { panic!("done already") };
        let sent = unit.send(&MAIL, [1, 2]).await.unwrap();
        assert!(store.bodies().is_empty());
        unit.commit().await.unwrap();
        assert_eq!(sent.messages.len(), 2);
        assert_eq!(store.bodies(), [b"1", b"2"]);
        assert!(job.context.has_committed());
    }
}

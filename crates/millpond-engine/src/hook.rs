//! Hooks: what an application wants to do when a message is dropped (`on_error`).

use std::any::type_name;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millpond_core::error::Result;
use millpond_core::hook::Pending;
use millpond_core::message::{Headers, MessageId};
use millpond_core::reason::DropReason;
use millpond_core::store::BoxFuture;
use millpond_core::time::Timestamp;

use crate::body::Body;
use crate::handler::States;

/// A message that was dropped: no attempt will be made any more.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Dropped<B> {
    /// The message.
    pub id: MessageId,
    /// The queue it came from.
    pub queue: Arc<str>,
    /// The name of the work.
    pub kind: Arc<str>,
    /// What was sent.
    pub message: Content<B>,
    /// The last error, redacted.
    pub error: Option<String>,
    /// Its class, as failures are grouped.
    pub class: Option<String>,
    /// Deliveries that counted.
    pub attempts: u32,
    /// Why it was dropped.
    pub reason: DropReason,
    /// As sent.
    pub key: Option<String>,
    /// As sent.
    pub headers: Headers,
    /// When it was sent, by the store's clock.
    pub sent_at: Timestamp,
    /// When it was dropped.
    pub died_at: Timestamp,
}

/// The body of a message that was dropped.
#[derive(Debug, Clone, PartialEq)]
pub enum Content<B> {
    /// As a handler would have got it.
    Decoded(B),
    /// It cannot be decoded.
    Raw {
        /// `None` is JSON.
        content_type: Option<String>,
        /// What was sent.
        bytes: Vec<u8>,
        /// Why it cannot.
        why: String,
    },
}

impl<B> Content<B> {
    /// The body, if it could be decoded.
    pub const fn body(&self) -> Option<&B> {
        match self {
            Content::Decoded(body) => Some(body),
            Content::Raw { .. } => None,
        }
    }
}

/// A plain async function whose first argument is what was dropped; up to two others are shared state, by type. It
/// returns nothing, or a `Result`.
///
/// ```
/// use millpond_engine::hook::{Dropped, Hook};
///
/// async fn mark_failed(report: Dropped<u64>) {
///     println!("report {:?} is given up: {}", report.message.body(), report.reason);
/// }
///
/// fn takes<B, A>(_: impl Hook<B, A>) {}
/// takes(mark_failed);
/// takes(|_: Dropped<String>| async { Err::<(), _>("the mail server is away") });
/// ```
///
/// It is called for every drop, whoever settled the message: at least once, and never for a message whose success is
/// recorded. It runs beside the slots of the queue, for 30 s at most. If it fails, panics or takes longer, that is logged
/// and counted, and it is not called again for that message; if its process dies, it is begun three times at most. It
/// changes nothing about the message.
///
/// Messages that only ever were in a process's memory (`commit-unknown`, `handoff-failed`) have no dead letter: the hook of
/// a worker that was started on the same pond is called once, and not again if the process dies.
///
/// Two messages with the same body are two messages: one may be dropped though the other succeeded. So a hook changes
/// only what is still in the state that it expects (`… where status = 'pending'`).
pub trait Hook<B, Args>: Send + Sync + Sized + 'static {
    /// Finds the state that it needs, once, at start.
    ///
    /// # Errors
    ///
    /// `invalid-config`, with the name of a type of which no state was given.
    fn bind(self, states: &States) -> Result<BoundHook>;
}

/// What a hook may return.
pub trait IntoHooked {
    /// The text of its error, if it failed.
    fn into_hooked(self) -> std::result::Result<(), String>;
}

impl IntoHooked for () {
    fn into_hooked(self) -> std::result::Result<(), String> {
        Ok(())
    }
}

impl<E: Display> IntoHooked for std::result::Result<(), E> {
    fn into_hooked(self) -> std::result::Result<(), String> {
        self.map_err(|error| format!("{error:#}"))
    }
}

/// Where a dead letter came from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) queue: Arc<str>,
    pub(crate) kind: Arc<str>,
}

type Run = dyn Fn(Origin, Pending) -> BoxFuture<'static, std::result::Result<(), String>> + Send + Sync;

/// A hook with its state, ready to run.
#[derive(Clone)]
pub struct BoundHook(Arc<Run>);

impl BoundHook {
    /// The run. Everything happens when it is polled.
    pub(crate) fn run(
        &self,
        origin: Origin,
        pending: Pending,
    ) -> BoxFuture<'static, std::result::Result<(), String>> {
        (self.0)(origin, pending)
    }
}

impl std::fmt::Debug for BoundHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoundHook")
    }
}

impl<B: Body> Dropped<B> {
    fn of(origin: Origin, pending: Pending) -> std::result::Result<Self, String> {
        let Pending { id, reason, detail, class, attempt, key, headers, content_type, body, .. } = pending;
        let decoded = catch_unwind(AssertUnwindSafe(|| B::decode(content_type.as_deref(), &body)));
        let why = match decoded {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err("body: decoding it panicked".to_owned()),
        };
        let message = match why {
            Ok(body) => Content::Decoded(body),
            Err(why) => Content::Raw { content_type, bytes: body, why },
        };
        Ok(Self {
            id,
            queue: origin.queue,
            kind: origin.kind,
            message,
            error: detail,
            class,
            attempts: attempt,
            reason: DropReason::parse(&reason)
                .ok_or_else(|| format!("this release does not know the reason `{reason}`"))?,
            key,
            // Headers that cannot be read are why it was dropped, and no reason to tell nobody.
            headers: headers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
            sent_at: pending.sent_at,
            died_at: pending.died_at,
        })
    }
}

/// Implements [`Hook`] for functions with so many states.
macro_rules! hooks {
    ($($state:ident)*) => {
        impl<B, Run, Running, $($state,)*> Hook<B, ($($state,)*)> for Run
        where
            B: Body,
            Run: Fn(Dropped<B>, $($state,)*) -> Running + Send + Sync + 'static,
            Running: Future<Output: IntoHooked> + Send + 'static,
            $($state: Clone + Send + Sync + 'static,)*
        {
            #[allow(non_snake_case, unused_variables, reason = "a state is named as its type, or there is none")]
            fn bind(self, states: &States) -> Result<BoundHook> {
                $(let $state = states.find::<$state>(type_name::<Run>())?;)*
                let hook = Arc::new(self);
                let run = move |origin: Origin, pending: Pending| {
                    let hook = Arc::clone(&hook);
                    $(let $state = $state.clone();)*
                    let run: BoxFuture<'static, std::result::Result<(), String>> = Box::pin(async move {
                        let running = hook(Dropped::<B>::of(origin, pending)?, $($state,)*);
                        running.await.into_hooked()
                    });
                    run
                };
                Ok(BoundHook(Arc::new(run)))
            }
        }
    };
}

hooks!();
hooks!(S1);
hooks!(S1 S2);

//! A store behind a wire that can be cut: so a node dies, or loses its store, inside one process.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{Due, Leased, MessageId, NewMessage, Offset};
use millpond_core::query::Query;
use millpond_core::queue::QueueSettings;
use millpond_core::store::{
    Act, Admin, Begun, BoxFuture, Changed, ClaimRef, History, Inspect, Lease, LeaseRequest, Log, Operate,
    Outbox, Pulse, Purged, Queue, QueueId, Redrive, Relayed, Renewal, Renewed, SettleClaim, Settled, Store,
    Stored, TakeOver, TakenOver,
};
use millpond_core::time::Timestamp;
use millpond_core::view::{
    AuditLine, DeadLetterView, EventView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView,
    OutboxRow, OutboxSummary, Pause, QueueView, Scope, StoreInfo, Tallies, Tally, Wish, WorkerView,
};

/// A store that passes every call on, while it is connected.
///
/// A call that begins while the wire is cut answers `store-unavailable`: nothing happened. One whose answer
/// comes after the cut answers `unknown-outcome`, whatever became of it.
pub struct Wire {
    capabilities: Capabilities,
    /// The store, while it is connected, and the number of cuts so far.
    end: RwLock<(Option<Arc<dyn Store>>, u64)>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Wire {
    /// A wire to `store`.
    pub fn to(store: Arc<dyn Store>) -> Self {
        Self { capabilities: store.capabilities(), end: RwLock::new((Some(store), 0)) }
    }

    /// Cuts it; answers the store, if it was connected.
    pub fn cut(&self) -> Option<Arc<dyn Store>> {
        let mut end = self.end.write().unwrap_or_else(PoisonError::into_inner);
        end.1 += 1;
        end.0.take()
    }

    /// Connects it.
    pub fn connect(&self, store: Arc<dyn Store>) {
        self.end.write().unwrap_or_else(PoisonError::into_inner).0 = Some(store);
    }

    /// The store at its end.
    pub fn store(&self) -> Option<Arc<dyn Store>> {
        self.end.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn cuts(&self) -> u64 {
        self.end.read().unwrap_or_else(PoisonError::into_inner).1
    }

    async fn call<T, C: Future<Output = Result<T>>>(
        &self,
        doing: &str,
        call: impl FnOnce(Arc<dyn Store>) -> C,
    ) -> Result<T> {
        let cuts = self.cuts();
        let gone = || Error::new(Code::StoreUnavailable, doing).because("the wire is cut");
        let answer = call(self.store().ok_or_else(gone)?).await;
        match answer {
            _ if self.cuts() != cuts => {
                Err(Error::new(Code::UnknownOutcome, doing).because("the wire was cut"))
            }
            // A store that was closed took nothing; for who is at this end it is away.
            Err(error) if error.code() == Code::ShuttingDown => Err(gone()),
            answer => answer,
        }
    }
}

/// The methods of a port, each passed on under its own name.
macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> BoxFuture<'_, Result<$answer>> {
            Box::pin(self.call(stringify!($name), async move |store: Arc<dyn Store>| store.$name($($arg),*).await))
        })*
    };
}

impl Log for Wire {
    pass_on! {
        fn append(queue: QueueId, messages: Vec<NewMessage>) -> Vec<Stored>;
        fn lease(request: LeaseRequest) -> Lease;
        fn settle(claims: Vec<SettleClaim>) -> Vec<Settled>;
        fn renew(renewal: Renewal) -> Renewed;
        fn unsettled(held: ClaimRef) -> Vec<Leased>;
        fn end_worker(worker: String) -> ();
        fn take_over(request: TakeOver) -> Vec<TakenOver>;
        fn begin(held: ClaimRef, offset: Offset, limit: Duration) -> Begun;
        fn pulse(queues: Vec<QueueId>) -> Pulse;
    }

    fn changed(&self) -> BoxFuture<'_, Vec<QueueId>> {
        Box::pin(async {
            match self.store() {
                Some(store) => store.changed().await,
                None => std::future::pending().await,
            }
        })
    }
}

impl Outbox for Wire {
    pass_on! {
        fn relay(rows_max: usize) -> Relayed;
    }
}

impl Inspect for Wire {
    pass_on! {
        fn queues() -> Vec<QueueView>;
        fn message(id: MessageId) -> Option<MessageView>;
        fn messages(find: Find) -> Found<MessageRow>;
        fn dead_letters(find: Find) -> Found<DeadLetterView>;
        fn dead_letter_groups(query: Query, by: GroupBy) -> Vec<FailureGroup>;
        fn outbox(find: Find) -> Found<OutboxRow>;
        fn outbox_summary() -> Vec<OutboxSummary>;
        fn workers() -> Vec<WorkerView>;
        fn info() -> StoreInfo;
    }
}

impl History for Wire {
    pass_on! {
        fn events(find: Find) -> Found<EventView>;
        fn tallies(which: Tallies) -> Vec<Tally>;
        fn run_times(queue: String, runs_max: usize) -> Vec<Duration>;
        fn audit(before: Option<u64>, rows_max: usize) -> Vec<AuditLine>;
    }
}

impl Operate for Wire {
    pass_on! {
        fn change(queue: String, settings: Vec<(String, Option<serde_json::Value>)>, act: Act) -> Queue;
        fn pause(scope: Scope, until: Option<Due>, act: Act) -> Vec<Pause>;
        fn resume(scope: Scope, act: Act) -> Vec<Pause>;
        fn cancel(ids: Vec<MessageId>, act: Act) -> Vec<Changed>;
        fn hasten(ids: Vec<MessageId>, act: Act) -> Vec<Changed>;
        fn redrive(redrives: Vec<Redrive>, act: Act) -> Vec<Changed>;
        fn remove_dead_letters(ids: Vec<MessageId>, act: Act) -> Vec<Changed>;
        fn purge(queue: String, rows_max: usize, act: Act) -> Purged;
        fn steer(worker: Option<String>, wish: Option<Wish>, act: Act) -> u64;
    }
}

impl Admin for Wire {
    pass_on! {
        fn declare(name: String, settings: QueueSettings) -> Queue;
        fn queue(name: String) -> Option<Queue>;
        fn retain(node: String, rows_max: usize) -> u64;
        fn now() -> Timestamp;
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(store) = self.store() {
                store.close().await;
            }
        })
    }
}

impl Store for Wire {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}

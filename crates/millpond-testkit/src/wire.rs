//! A store behind a wire that can be cut: so a node dies, or loses its store, inside one process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::hook::{HookEnd, Hooks, Pending, TakeHooks};
use millpond_core::message::{Due, Leased, MessageId, NewMessage, Offset};
use millpond_core::query::Query;
use millpond_core::queue::QueueSettings;
use millpond_core::store::{
    Act, Admin, Begun, BoxFuture, Changed, ClaimRef, EffectTx, History, Inspect, Lease, LeaseRequest, Log,
    Operate, Outbox, Pulse, Purged, Queue, QueueId, Redrive, Relayed, Renewal, Renewed, SettleClaim, Settled,
    Store, Stored, TakeOver, TakenOver,
};
use millpond_core::time::Timestamp;
use millpond_core::view::{
    AuditLine, DeadLetterView, EventView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView,
    OutboxRow, OutboxSummary, Pause, QueueView, Scope, StoreInfo, Tallies, Tally, Wish, WorkerView,
};
use millpond_core::within::{Dialect, Hold, Row, Statement, Within};

use crate::faults::{self, Fault, Faults};

/// A store that passes every call on, while it is connected.
///
/// A call that begins while the wire is cut answers `store-unavailable`: nothing happened. One whose answer
/// comes after the cut answers `unknown-outcome`, whatever became of it.
pub struct Wire {
    capabilities: Capabilities,
    /// The store, while it is connected, and the number of cuts so far.
    end: RwLock<(Option<Arc<dyn Store>>, u64)>,
    faults: Faults,
    /// Every message that is sent is stored twice, as two messages.
    doubles: AtomicBool,
    /// What was sent, if somebody wants to know.
    sent: Mutex<Option<Vec<SentHere>>>,
}

/// A message that was sent over a wire.
#[derive(Debug, Clone)]
pub struct SentHere {
    /// The number of its queue.
    pub queue: QueueId,
    /// As it was given to the store.
    pub message: NewMessage,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

impl Wire {
    /// A wire to `store`.
    pub fn to(store: Arc<dyn Store>) -> Self {
        Self {
            capabilities: store.capabilities(),
            end: RwLock::new((Some(store), 0)),
            faults: Faults::default(),
            doubles: AtomicBool::new(false),
            sent: Mutex::default(),
        }
    }

    /// The faults of the store at its end.
    pub const fn faults(&self) -> &Faults {
        &self.faults
    }

    /// From now on every message that is sent is stored twice, as two independent messages with two ids and two
    /// budgets, or no longer. What is sent in a transaction is stored once.
    pub fn double(&self, doubles: bool) {
        self.doubles.store(doubles, Ordering::SeqCst);
    }

    /// From now on it remembers what is sent.
    pub fn record(&self) {
        self.sent_here().get_or_insert_default();
    }

    /// What was sent since [`record`](Self::record), in order: what the store has accepted.
    pub fn sent(&self) -> Vec<SentHere> {
        self.sent_here().clone().unwrap_or_default()
    }

    fn sent_here(&self) -> MutexGuard<'_, Option<Vec<SentHere>>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends once or twice; answers about the first ones.
    async fn append_all(&self, queue: QueueId, messages: Vec<NewMessage>) -> Result<Vec<Stored>> {
        let doubles = self.doubles.load(Ordering::SeqCst);
        let record = self.sent_here().is_some().then(|| messages.clone());
        let all = if doubles { messages.into_iter().flat_map(twice).collect() } else { messages };
        let mut stored =
            self.call("append", async move |store: Arc<dyn Store>| store.append(queue, all).await).await?;
        if doubles {
            stored = stored.into_iter().step_by(2).collect();
        }
        if let (Some(messages), Some(sent)) = (record, &mut *self.sent_here()) {
            sent.extend(messages.into_iter().map(|message| SentHere { queue, message }));
        }
        Ok(stored)
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
        let fault = self.faults.next(doing);
        match &fault {
            Some(Fault::Unavailable) => return Err(faults::error(Code::StoreUnavailable, doing)),
            Some(Fault::Refused(code)) => return Err(faults::error(*code, doing)),
            Some(Fault::Held(gate)) => gate.pass().await,
            Some(Fault::LostAnswer) | None => {}
        }
        let answer = call(self.store().ok_or_else(gone)?).await;
        if matches!(fault, Some(Fault::LostAnswer)) {
            return Err(faults::error(Code::UnknownOutcome, doing));
        }
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

/// A message and a second one that has everything of it but its id, and its dedup key: they are not the same message.
fn twice(message: NewMessage) -> [NewMessage; 2] {
    // The first of the random bits of an id.
    let id = MessageId(uuid::Uuid::from_u128(message.id.0.as_u128() ^ 1 << 61));
    let copy = NewMessage { id, dedup: None, ..message.clone() };
    [message, copy]
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
    fn append(&self, queue: QueueId, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<Vec<Stored>>> {
        Box::pin(self.append_all(queue, messages))
    }

    pass_on! {
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
        fn open(limit: Duration) -> Box<dyn EffectTx>;
        fn arrived(ids: Vec<MessageId>) -> Vec<MessageId>;
    }
}

/// What needs no connection is asked of the store, which must be there.
impl Wire {
    fn within(&self) -> Arc<dyn Store> {
        self.store().expect("the wire is connected")
    }
}

impl Within for Wire {
    fn dialect(&self) -> Dialect {
        self.within().dialect()
    }

    fn find_queue(&self, name: &str) -> Statement {
        self.within().find_queue(name)
    }

    fn found_queue(&self, name: &str, rows: Vec<Row>) -> Result<Option<Queue>> {
        self.within().found_queue(name, rows)
    }

    fn later_release(&self) -> Option<Statement> {
        self.within().later_release()
    }

    fn hold(&self, queue: QueueId, hold: Hold<'_>) -> Vec<Statement> {
        self.within().hold(queue, hold)
    }

    fn put(&self, queue: QueueId, messages: &[&NewMessage]) -> Vec<Statement> {
        self.within().put(queue, messages)
    }

    fn checksum(&self, body: &[u8]) -> i64 {
        self.within().checksum(body)
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

impl Hooks for Wire {
    pass_on! {
        fn expect_hooks(queue: QueueId) -> ();
        fn take_hooks(take: TakeHooks) -> Vec<Pending>;
        fn finish_hooks(ends: Vec<(i64, HookEnd)>) -> ();
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

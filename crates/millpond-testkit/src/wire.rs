//! A store behind a wire that can be cut: so a node dies, or loses its store, inside one process.

use std::any::Any;
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
    Act, Admin, Begun, BoxFuture, Changed, ClaimRef, EffectTx, Frame, History, Inspect, Lease, LeaseRequest,
    Log, Operate, Outbox, Pulse, Purged, Queue, QueueId, Redrive, Relayed, Renewal, Renewed, SettleClaim,
    Settled, Store, Stored, TakeOver, TakenOver,
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
    line: Arc<Line>,
    /// Every message that is sent is stored twice, as two messages.
    doubles: AtomicBool,
    /// What was sent, if somebody wants to know.
    sent: Mutex<Option<Vec<SentHere>>>,
}

/// What a wire shares with the transactions that go over it.
struct Line {
    /// The store, while it is connected, and the number of cuts so far.
    end: RwLock<(Option<Arc<dyn Store>>, u64)>,
    faults: Faults,
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
            line: Arc::new(Line { end: RwLock::new((Some(store), 0)), faults: Faults::default() }),
            doubles: AtomicBool::new(false),
            sent: Mutex::default(),
        }
    }

    /// The faults of the store at its end.
    pub fn faults(&self) -> &Faults {
        &self.line.faults
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
        let (line, cuts) = (&self.line, self.line.cuts());
        let fault = line.met("append").await?;
        let store = line.store().ok_or_else(|| gone("append"))?;
        if matches!(fault, Some(Fault::Repeated)) {
            store.append(queue, all.clone()).await?;
        }
        let answer = store.append(queue, all).await;
        let mut stored = line.heard("append", cuts, fault.as_ref(), answer)?;
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
        let mut end = self.line.end.write().unwrap_or_else(PoisonError::into_inner);
        end.1 += 1;
        end.0.take()
    }

    /// Connects it.
    pub fn connect(&self, store: Arc<dyn Store>) {
        self.line.end.write().unwrap_or_else(PoisonError::into_inner).0 = Some(store);
    }

    /// The store at its end.
    pub fn store(&self) -> Option<Arc<dyn Store>> {
        self.line.store()
    }
}

impl Line {
    fn store(&self) -> Option<Arc<dyn Store>> {
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
        let fault = self.met(doing).await?;
        let answer = call(self.store().ok_or_else(|| gone(doing))?).await;
        self.heard(doing, cuts, fault.as_ref(), answer)
    }

    /// The fault that a call meets before it begins: those after which nothing is done end it here.
    async fn met(&self, doing: &str) -> Result<Option<Fault>> {
        let fault = self.faults.next(doing);
        match &fault {
            Some(Fault::Unavailable) => return Err(faults::error(Code::StoreUnavailable, doing)),
            Some(Fault::Refused(code)) => return Err(faults::error(*code, doing)),
            Some(Fault::Held(gate)) => gate.pass().await,
            Some(Fault::LostAnswer | Fault::Repeated) | None => {}
        }
        Ok(fault)
    }

    /// What is heard of an answer at this end, of a call that began after so many cuts.
    fn heard<T>(&self, doing: &str, cuts: u64, fault: Option<&Fault>, answer: Result<T>) -> Result<T> {
        if matches!(fault, Some(Fault::LostAnswer)) {
            return Err(faults::error(Code::UnknownOutcome, doing));
        }
        match answer {
            _ if self.cuts() != cuts => {
                Err(Error::new(Code::UnknownOutcome, doing).because("the wire was cut"))
            }
            // A store that was closed took nothing; for who is at this end it is away.
            Err(error) if error.code() == Code::ShuttingDown => Err(gone(doing)),
            answer => answer,
        }
    }
}

fn gone(doing: &str) -> Error {
    Error::new(Code::StoreUnavailable, doing).because("the wire is cut")
}

/// A transaction over a wire. A cut ends its connection, and so rolls it back.
struct WiredTx {
    tx: Option<Box<dyn EffectTx>>,
    line: Arc<Line>,
    /// How many there were when it was begun.
    cuts: u64,
}

impl WiredTx {
    fn over(line: &Arc<Line>, tx: Box<dyn EffectTx>) -> Box<dyn EffectTx> {
        Box::new(Self { tx: Some(tx), line: Arc::clone(line), cuts: line.cuts() })
    }

    /// The transaction, unless it is over.
    fn there(&mut self, doing: &str) -> Result<&mut Box<dyn EffectTx>> {
        if self.line.cuts() != self.cuts {
            self.tx = None;
        }
        self.tx.as_mut().ok_or_else(|| gone(doing))
    }
}

impl EffectTx for WiredTx {
    fn queue(&mut self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        Box::pin(async move { self.there("queue")?.queue(name).await })
    }

    fn send<'a>(
        &'a mut self,
        queue: &'a Queue,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'a, Result<Vec<Stored>>> {
        Box::pin(async move {
            let (line, cuts) = (Arc::clone(&self.line), self.cuts);
            let fault = line.met("write").await?;
            let answer = self.there("write")?.send(queue, messages).await;
            line.heard("write", cuts, fault.as_ref(), answer)
        })
    }

    fn frame(&mut self, frame: Frame) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.there("frame")?.frame(frame).await })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            // An error drops the transaction: nothing is committed.
            let fault = self.line.met("commit").await?;
            self.there("commit")?;
            let Some(tx) = self.tx.take() else { return Err(gone("commit")) };
            let answer = tx.commit().await;
            self.line.heard("commit", self.cuts, fault.as_ref(), answer)
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        match &mut self.tx {
            Some(tx) => tx.as_any(),
            // Nobody's type: the transaction is over.
            None => &mut self.cuts,
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
            Box::pin(self.line.call(
                stringify!($name),
                async move |store: Arc<dyn Store>| store.$name($($arg),*).await,
            ))
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
        fn pulse(queues: Vec<QueueId>) -> Pulse;
    }

    fn begin(&self, held: ClaimRef, offset: Offset, limit: Duration) -> BoxFuture<'_, Result<Begun>> {
        let begin = async move |store: Arc<dyn Store>| store.begin(held, offset, limit).await;
        Box::pin(async move {
            Ok(match self.line.call("begin", begin).await? {
                Begun::Open(tx) => Begun::Open(WiredTx::over(&self.line, tx)),
                Begun::AlreadyDone => Begun::AlreadyDone,
            })
        })
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
        fn arrived(ids: Vec<MessageId>) -> Vec<MessageId>;
    }

    fn open(&self, limit: Duration) -> BoxFuture<'_, Result<Box<dyn EffectTx>>> {
        let open = async move |store: Arc<dyn Store>| store.open(limit).await;
        Box::pin(async move { Ok(WiredTx::over(&self.line, self.line.call("open", open).await?)) })
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

//! A store in memory that knows just enough for the tests of this crate.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Code, Error, Result};
use millpond_core::hook::{HookEnd, Hooks, Pending, TakeHooks};
use millpond_core::limit::Limit;
use millpond_core::message::{Due, Leased, MessageId, NewMessage, Offset, Token};
use millpond_core::query::Query;
use millpond_core::queue::QueueSettings;
use millpond_core::settle::Settlement;
use millpond_core::state::State;
use millpond_core::store::{
    self as port, Act, BoxFuture, Changed, ClaimRef, Purged, Queue, QueueId, Redrive, Stored,
};
use millpond_core::time::Timestamp;
use millpond_core::view::{
    AuditLine, DeadLetterView, EventView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView,
    OutboxRow, OutboxSummary, Pause, QueueView, Scope, StoreInfo, Tallies, Tally, Wish, WorkerView,
};
use millpond_core::within::{Dialect, Hold, Row, Statement, Value, Within};
use tokio::sync::Notify;

/// A leased message with this body.
pub(crate) fn leased(body: &[u8]) -> Leased {
    Leased {
        offset: Offset(0),
        id: MessageId(uuid::Uuid::nil()),
        kind: None,
        key: None,
        headers: None,
        content_type: None,
        body: body.to_vec(),
        attempt: 1,
        releases: 0,
        suspect: 0,
        attempts_max: None,
        retry_until: None,
        sent_at: Timestamp::from_secs(1),
        intact: true,
    }
}

/// Messages with these bodies and rising ids.
pub(crate) fn messages(bodies: &[u32]) -> Vec<NewMessage> {
    let pond = crate::pond::Pond::new(Arc::new(FakeStore::default()));
    let queue = Queue { id: QueueId(1), name: "mail".to_owned(), settings: QueueSettings::DEFAULT };
    let batch = pond.encode("mail", bodies.iter().copied()).unwrap().unwrap();
    pond.check(&queue, batch).unwrap().messages
}

/// A claim that nobody checks.
pub(crate) fn held() -> ClaimRef {
    ClaimRef { subscription: 1, partition: 1, to_offset: Offset(0), token: Token([1; 16]) }
}

/// Declares, appends, begins, leases what it was given, and keeps what is settled; everything else is refused.
#[derive(Default)]
pub(crate) struct FakeStore {
    queues: Mutex<Vec<Queue>>,
    log: Arc<Mutex<Vec<NewMessage>>>,
    ready: Mutex<Vec<Leased>>,
    no_room: AtomicBool,
    settled: Mutex<Vec<port::SettleItem>>,
    some_settled: Condvar,
    refusals: Mutex<Vec<Code>>,
    append_refusals: Mutex<Vec<Code>>,
    append_takes: Mutex<Duration>,
    appended: Mutex<Vec<usize>>,
    pub(crate) pending: Mutex<Vec<Pending>>,
    pub(crate) finished: Mutex<Vec<(i64, HookEnd)>>,
    declarations: AtomicUsize,
    hangs: AtomicBool,
    away: AtomicBool,
    taken_over: tokio::sync::Notify,
    closed: AtomicBool,
    relays: AtomicUsize,
    relayed: Notify,
    looks: AtomicUsize,
    looked: Notify,
    /// Messages of transactions of others are there from this look on.
    arrive_after: AtomicUsize,
    frames: Arc<Mutex<Vec<port::Frame>>>,
    commit_fails: Mutex<Option<Code>>,
}

impl FakeStore {
    pub(crate) fn bodies(&self) -> Vec<Vec<u8>> {
        self.log.lock().unwrap().iter().map(|message| message.body.clone()).collect()
    }

    pub(crate) fn ids(&self) -> Vec<MessageId> {
        self.log.lock().unwrap().iter().map(|message| message.id).collect()
    }

    /// The next lease is a claim of this message.
    pub(crate) fn give(&self, message: Leased) {
        self.ready.lock().unwrap().push(message);
    }

    /// Once it has nothing to give, a limit of the queue leaves no room.
    pub(crate) fn leave_no_room(&self) {
        self.no_room.store(true, Ordering::SeqCst);
    }

    /// What was settled so far.
    pub(crate) fn settled(&self) -> Vec<port::SettleItem> {
        self.settled.lock().unwrap().clone()
    }

    /// What was settled, once something was.
    pub(crate) fn settled_within(&self, limit: Duration) -> Vec<Settlement> {
        let none = |settled: &mut Vec<port::SettleItem>| settled.is_empty();
        let settled = self.settled.lock().unwrap();
        let (settled, _) = self.some_settled.wait_timeout_while(settled, limit, none).unwrap();
        settled.iter().map(|item| item.settlement.clone()).collect()
    }

    /// The next settlements fail like this, the last of `codes` first.
    pub(crate) fn refuse_to_settle(&self, codes: &[Code]) {
        self.refusals.lock().unwrap().extend(codes);
    }

    /// Every append from now on takes so long.
    pub(crate) fn append_takes(&self, takes: Duration) {
        *self.append_takes.lock().unwrap() = takes;
    }

    /// The next appends fail like this, the last of `codes` first; `internal` is a panic, and `unknown-outcome` stores.
    pub(crate) fn refuse_to_append(&self, codes: &[Code]) {
        self.append_refusals.lock().unwrap().extend(codes);
    }

    /// How many messages each append had that succeeded.
    pub(crate) fn appended(&self) -> Vec<usize> {
        self.appended.lock().unwrap().clone()
    }

    pub(crate) fn declarations(&self) -> usize {
        self.declarations.load(Ordering::Relaxed)
    }

    /// From now on nothing is answered.
    pub(crate) fn hang(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }

    fn tx(&self) -> FakeTx {
        FakeTx {
            log: Arc::clone(&self.log),
            sent: Vec::new(),
            frames: Arc::clone(&self.frames),
            fails: *self.commit_fails.lock().unwrap(),
        }
    }

    /// What became of frames so far.
    pub(crate) fn frames(&self) -> Vec<port::Frame> {
        self.frames.lock().unwrap().clone()
    }

    /// Every commit of a transaction that is opened from now on fails like this.
    pub(crate) fn commits_fail(&self, code: Code) {
        *self.commit_fails.lock().unwrap() = Some(code);
    }

    /// How often the relay ran.
    pub(crate) fn relays(&self) -> usize {
        self.relays.load(Ordering::Relaxed)
    }

    /// Waits until the relay has run since the last call.
    pub(crate) async fn relayed(&self) {
        self.relayed.notified().await;
    }

    /// How often messages of others were looked for.
    pub(crate) fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }

    /// Waits until they were looked for since the last call.
    pub(crate) async fn looked(&self) {
        self.looked.notified().await;
    }

    /// Messages of transactions of others are there from this look on.
    pub(crate) fn arrive_after(&self, looks: usize) {
        self.arrive_after.store(looks, Ordering::Relaxed);
    }

    /// From now on takeovers fail, or do so no longer.
    pub(crate) fn go_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Once a takeover was answered.
    pub(crate) async fn taken_over(&self) {
        self.taken_over.notified().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn answer<'a, T: Send + 'a>(&self, answer: Result<T>) -> BoxFuture<'a, Result<T>> {
        if self.hangs.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(answer))
    }

    fn refuse<'a, T: Send + 'a>(&self) -> BoxFuture<'a, Result<T>> {
        self.answer(Err(Error::new(Code::Internal, "ask a fake store")))
    }
}

/// A message that is ready.
fn view(message: &NewMessage) -> MessageView {
    MessageView {
        id: message.id,
        queue: "fake".to_owned(),
        state: State::Ready,
        kind: "fake".to_owned(),
        key: None,
        headers: serde_json::Value::Null,
        content_type: String::new(),
        body: message.body.clone(),
        priority: 2,
        attempt: 0,
        releases: 0,
        attempts_max: None,
        retry_until: None,
        sent_at: Timestamp::from_secs(1),
        since: None,
        ready_at: None,
        reason: None,
        error: None,
        worker: None,
        lease_until: None,
        suspect: 0,
        behind: None,
        redriven_as: None,
        retry_of: None,
        cancel_asked: false,
        events: Vec::new(),
    }
}

fn push(log: &Mutex<Vec<NewMessage>>, messages: Vec<NewMessage>) -> Vec<Stored> {
    let stored = vec![Stored::New; messages.len()];
    log.lock().unwrap().extend(messages);
    stored
}

struct FakeTx {
    log: Arc<Mutex<Vec<NewMessage>>>,
    sent: Vec<NewMessage>,
    frames: Arc<Mutex<Vec<port::Frame>>>,
    /// How the commit ends, if not well.
    fails: Option<Code>,
}

impl port::EffectTx for FakeTx {
    fn queue(&mut self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        let queue = Queue { id: QueueId(1), name, settings: QueueSettings::DEFAULT };
        Box::pin(std::future::ready(Ok((queue.name == "stored").then_some(queue))))
    }

    fn send<'a>(&'a mut self, _: &'a Queue, messages: Vec<NewMessage>) -> BoxFuture<'a, Result<Vec<Stored>>> {
        let stored = vec![Stored::New; messages.len()];
        self.sent.extend(messages);
        Box::pin(std::future::ready(Ok(stored)))
    }

    fn frame(&mut self, frame: port::Frame) -> BoxFuture<'_, Result<()>> {
        self.frames.lock().unwrap().push(frame);
        Box::pin(std::future::ready(Ok(())))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        if let Some(code) = self.fails {
            return Box::pin(std::future::ready(Err(Error::new(code, "commit in a fake store"))));
        }
        push(&self.log, self.sent);
        Box::pin(std::future::ready(Ok(())))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl port::Log for FakeStore {
    fn append(&self, _: QueueId, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<Vec<Stored>>> {
        let refusal = self.append_refusals.lock().unwrap().pop();
        let refused = |code| Err(Error::new(code, "append to a fake store"));
        match refusal {
            Some(Code::Internal) => panic!("the fake store was told to"),
            Some(code) if code != Code::UnknownOutcome => return self.answer(refused(code)),
            _ => {}
        }
        self.appended.lock().unwrap().push(messages.len());
        let stored = push(&self.log, messages);
        let answer = match refusal {
            Some(code) => refused(code),
            None => Ok(stored),
        };
        let takes = *self.append_takes.lock().unwrap();
        if takes.is_zero() {
            return self.answer(answer);
        }
        Box::pin(async move {
            // Of the virtual time of a test.
            drop(tokio::time::timeout(takes, std::future::pending::<()>()).await);
            answer
        })
    }

    fn lease(&self, request: port::LeaseRequest) -> BoxFuture<'_, Result<port::Lease>> {
        let Some(message) = self.ready.lock().unwrap().pop() else {
            let (limit, no_room) = (Limit::Concurrency, self.no_room.load(Ordering::SeqCst));
            let limited = port::Lease::Limited { limit, wait: None };
            return self.answer(Ok(if no_room { limited } else { port::Lease::Empty }));
        };
        let held = ClaimRef { token: request.token, ..held() };
        let leased_at = Timestamp::from_secs(1);
        self.answer(Ok(port::Lease::Claim(port::Claim { held, messages: vec![message], leased_at })))
    }

    fn settle(&self, claims: Vec<port::SettleClaim>) -> BoxFuture<'_, Result<Vec<port::Settled>>> {
        if let Some(code) = self.refusals.lock().unwrap().pop() {
            return self.answer(Err(Error::new(code, "settle in a fake store")));
        }
        let answers = claims.iter().map(|_| port::Settled::Applied { done_anyway: Vec::new() }).collect();
        self.settled.lock().unwrap().extend(claims.into_iter().flat_map(|claim| claim.items));
        self.some_settled.notify_all();
        self.answer(Ok(answers))
    }

    fn renew(&self, _: port::Renewal) -> BoxFuture<'_, Result<port::Renewed>> {
        self.answer(Ok(port::Renewed {
            now: Timestamp::from_secs(1),
            claims: Vec::new(),
            wish: None,
            cancels: Vec::new(),
        }))
    }

    fn unsettled(&self, _: ClaimRef) -> BoxFuture<'_, Result<Vec<Leased>>> {
        self.refuse()
    }

    fn end_worker(&self, _: String) -> BoxFuture<'_, Result<()>> {
        self.refuse()
    }

    fn take_over(&self, _: port::TakeOver) -> BoxFuture<'_, Result<Vec<port::TakenOver>>> {
        if self.away.load(Ordering::Relaxed) {
            return self.answer(Err(Error::new(Code::StoreUnavailable, "take over in a fake store")));
        }
        self.taken_over.notify_one();
        self.answer(Ok(Vec::new()))
    }

    fn begin(&self, _: ClaimRef, _: Offset, _: std::time::Duration) -> BoxFuture<'_, Result<port::Begun>> {
        let tx = self.tx();
        self.answer(Ok(port::Begun::Open(Box::new(tx))))
    }

    fn pulse(&self, _: Vec<QueueId>) -> BoxFuture<'_, Result<port::Pulse>> {
        self.refuse()
    }

    fn changed(&self) -> BoxFuture<'_, Vec<QueueId>> {
        Box::pin(std::future::pending())
    }
}

impl port::Outbox for FakeStore {
    fn relay(&self, _: usize) -> BoxFuture<'_, Result<port::Relayed>> {
        self.relays.fetch_add(1, Ordering::Relaxed);
        self.relayed.notify_one();
        self.answer(Ok(port::Relayed::default()))
    }

    fn open(&self, _: Duration) -> BoxFuture<'_, Result<Box<dyn port::EffectTx>>> {
        let tx = self.tx();
        self.answer(Ok(Box::new(tx)))
    }

    fn arrived(&self, ids: Vec<MessageId>) -> BoxFuture<'_, Result<Vec<MessageId>>> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        self.looked.notify_one();
        let there = if self.arrive_after.load(Ordering::Relaxed) <= looks { ids } else { Vec::new() };
        self.answer(Ok(there))
    }
}

/// A transaction writes straight into the log; its statements say what they do.
impl Within for FakeStore {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn find_queue(&self, name: &str) -> Statement {
        Statement::question("find", vec![Value::Text(Some(name.to_owned()))])
    }

    fn found_queue(&self, name: &str, _: Vec<Row>) -> Result<Option<Queue>> {
        let queue = Queue { id: QueueId(1), name: name.to_owned(), settings: QueueSettings::DEFAULT };
        Ok((name == "stored").then_some(queue))
    }

    fn later_release(&self) -> Option<Statement> {
        None
    }

    fn hold(&self, _: QueueId, _: Hold<'_>) -> Vec<Statement> {
        Vec::new()
    }

    fn put(&self, _: QueueId, messages: &[&NewMessage]) -> Vec<Statement> {
        let bodies = messages.iter().map(|message| Value::Bytes(Some(message.body.clone())));
        vec![Statement::change("put", bodies.collect())]
    }

    fn checksum(&self, _: &[u8]) -> i64 {
        0
    }
}

impl port::Inspect for FakeStore {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        self.refuse()
    }

    fn message(&self, id: MessageId) -> BoxFuture<'_, Result<Option<MessageView>>> {
        let found = self.log.lock().unwrap().iter().find(|message| message.id == id).map(view);
        self.answer(Ok(found))
    }

    fn messages(&self, _: Find) -> BoxFuture<'_, Result<Found<MessageRow>>> {
        self.refuse()
    }

    fn dead_letters(&self, _: Find) -> BoxFuture<'_, Result<Found<DeadLetterView>>> {
        self.refuse()
    }

    fn dead_letter_groups(&self, _: Query, _: GroupBy) -> BoxFuture<'_, Result<Vec<FailureGroup>>> {
        self.refuse()
    }

    fn outbox(&self, _: Find) -> BoxFuture<'_, Result<Found<OutboxRow>>> {
        self.refuse()
    }

    fn outbox_summary(&self) -> BoxFuture<'_, Result<Vec<OutboxSummary>>> {
        self.refuse()
    }

    fn info(&self) -> BoxFuture<'_, Result<StoreInfo>> {
        self.refuse()
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerView>>> {
        self.refuse()
    }
}

impl port::History for FakeStore {
    fn events(&self, _: Find) -> BoxFuture<'_, Result<Found<EventView>>> {
        self.refuse()
    }

    fn tallies(&self, _: Tallies) -> BoxFuture<'_, Result<Vec<Tally>>> {
        self.refuse()
    }

    fn run_times(&self, _: String, _: usize) -> BoxFuture<'_, Result<Vec<std::time::Duration>>> {
        self.refuse()
    }

    fn audit(&self, _: Option<u64>, _: usize) -> BoxFuture<'_, Result<Vec<AuditLine>>> {
        self.refuse()
    }
}

impl port::Operate for FakeStore {
    fn change(
        &self,
        _: String,
        _: Vec<(String, Option<serde_json::Value>)>,
        _: Act,
    ) -> BoxFuture<'_, Result<Queue>> {
        self.refuse()
    }

    fn pause(&self, _: Scope, _: Option<Due>, _: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.refuse()
    }

    fn resume(&self, _: Scope, _: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.refuse()
    }

    fn cancel(&self, _: Vec<MessageId>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        self.refuse()
    }

    fn hasten(&self, _: Vec<MessageId>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        self.refuse()
    }

    fn redrive(&self, _: Vec<Redrive>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        self.refuse()
    }

    fn remove_dead_letters(&self, _: Vec<MessageId>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        self.refuse()
    }

    fn purge(&self, _: String, _: usize, _: Act) -> BoxFuture<'_, Result<Purged>> {
        self.refuse()
    }

    fn steer(&self, _: Option<String>, _: Option<Wish>, _: Act) -> BoxFuture<'_, Result<u64>> {
        self.refuse()
    }
}

impl Hooks for FakeStore {
    fn expect_hooks(&self, _: QueueId) -> BoxFuture<'_, Result<()>> {
        self.answer(Ok(()))
    }

    fn take_hooks(&self, _: TakeHooks) -> BoxFuture<'_, Result<Vec<Pending>>> {
        let taken = std::mem::take(&mut *self.pending.lock().unwrap());
        self.answer(Ok(taken))
    }

    fn finish_hooks(&self, ends: Vec<(i64, HookEnd)>) -> BoxFuture<'_, Result<()>> {
        self.finished.lock().unwrap().extend(ends);
        self.answer(Ok(()))
    }
}

impl port::Admin for FakeStore {
    fn declare(&self, name: String, settings: QueueSettings) -> BoxFuture<'_, Result<Queue>> {
        self.declarations.fetch_add(1, Ordering::Relaxed);
        let mut queues = self.queues.lock().unwrap();
        let known = queues.iter().position(|queue| queue.name == name);
        let number = known.map_or(queues.len() as i64 + 1, |place| queues.remove(place).id.0);
        let queue = Queue { id: QueueId(number), name, settings };
        queues.push(queue.clone());
        self.answer(Ok(queue))
    }

    fn queue(&self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        let queues = self.queues.lock().unwrap();
        self.answer(Ok(queues.iter().find(|queue| queue.name == name).cloned()))
    }

    fn retain(&self, _: String, _: usize) -> BoxFuture<'_, Result<u64>> {
        self.refuse()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        self.refuse()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

impl port::Store for FakeStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { store: "fake", survives_restart: false, many_processes: false, effects_once: true }
    }
}

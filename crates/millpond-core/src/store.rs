//! The ports: what the engine needs from a database.
//!
//! The engine decides; a store makes each decision atomic and durable. So no method here knows a retry
//! policy, starts a task or reads a node's clock, and every method works on a batch: one message is a batch
//! of one. `millpond-testkit` holds the contract that every store must pass.
//!
//! Dropping a returned future never drops a half-done transaction: a store runs what was asked to its end.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::capability::Capabilities;
use crate::error::Result;
use crate::hook::Hooks;
use crate::limit::Limit;
use crate::message::{Due, Leased, MessageId, NewMessage, Offset, Token};
use crate::pick::Lane;
use crate::query::Query;
use crate::queue::QueueSettings;
use crate::settle::Settlement;
use crate::state::State;
use crate::time::Timestamp;
use crate::view::{
    AuditLine, DeadLetterView, EventView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView,
    OutboxRow, OutboxSummary, Pause, QueueView, Scope, StoreInfo, Tallies, Tally, Wish, WorkerFacts,
    WorkerView,
};
use crate::within::Within;

/// A future of a port.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Most messages of one claim: what its done bitmap holds.
pub const CLAIM_MESSAGES_MAX: usize = 1_024;

/// The number of a queue in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub i64);

/// A declared queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// Its number in this store.
    pub id: QueueId,
    /// Its name.
    pub name: String,
    /// Its stored settings.
    pub settings: QueueSettings,
}

/// What became of one message of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is in the log or in the outbox.
    New,
    /// It is in the sender's memory, and will be stored soon, unless the process dies.
    Buffered,
    /// Its dedup key is held by an earlier message, which stands for it.
    Duplicate {
        /// The id of the earlier one.
        of: MessageId,
    },
}

/// Asks for the next messages of a queue.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    /// From which queue.
    pub queue: QueueId,
    /// For which worker; its lease is the claim's.
    pub worker: String,
    /// Drawn at random by the worker, and registered by it before it asks.
    pub token: Token,
    /// Where to look, in this order: the first part that has messages is taken from.
    pub turns: Vec<(u8, Lane)>,
    /// At most this many.
    pub messages_max: usize,
    /// At most this many bytes of bodies, but always one message.
    pub bytes_max: usize,
    /// From the suspect lane, a group of one is leased only by a worker with empty hands.
    pub hands_empty: bool,
    /// The messages of the claim will be handled one after the other. To another worker an exclusive queue gives one at
    /// a time.
    pub one_by_one: bool,
}

/// The answer to a [`LeaseRequest`].
#[derive(Debug, Clone)]
pub enum Lease {
    /// Nothing is ready.
    Empty,
    /// A pause holds the queue.
    Paused,
    /// A suspect waits that must be alone in its worker's hands.
    EmptyHandsFirst,
    /// Something is ready, and a limit of the queue leaves no room for it.
    Limited {
        /// Which one.
        limit: Limit,
        /// For how long there is none, if that is known: otherwise until something of the queue is settled.
        wait: Option<Duration>,
    },
    /// A claim over the messages.
    Claim(Claim),
}

/// The key of a claim, with the token that proves the right to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// Who reads: a queue has one subscription, a topic several.
    pub subscription: i64,
    /// What is read.
    pub partition: i64,
    /// The last offset of the claim.
    pub to_offset: Offset,
    /// Changes when the claim is taken over.
    pub token: Token,
}

/// Messages under lease.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its key and token.
    pub held: ClaimRef,
    /// In offset order.
    pub messages: Vec<Leased>,
    /// Database time of the lease.
    pub leased_at: Timestamp,
}

/// The end of one delivery, to be recorded.
#[derive(Debug, Clone)]
pub struct SettleItem {
    /// Which message of the claim.
    pub offset: Offset,
    /// The name of the work, for the counters; `None` is the queue's own name.
    pub kind: Option<Arc<str>>,
    /// What to record.
    pub settlement: Settlement,
    /// The redacted text of the last error.
    pub error: Option<String>,
    /// The class of that error.
    pub class: Option<Arc<str>>,
    /// How long the handler ran.
    pub run: Duration,
}

/// The ends of deliveries of one claim.
#[derive(Debug, Clone)]
pub struct SettleClaim {
    /// The claim, by its token.
    pub held: ClaimRef,
    /// The attempt that each item ends is in the claim; items may come in any order.
    pub items: Vec<SettleItem>,
}

/// Whether a settlement was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Recorded.
    Applied {
        /// Messages whose effect was found committed, so that they are done whatever was asked.
        done_anyway: Vec<Offset>,
    },
    /// The claim is no longer held: nothing was changed.
    LeaseLost,
}

/// Takes the claims of workers whose lease is over.
#[derive(Debug, Clone)]
pub struct TakeOver {
    /// The worker of this node: unless its own lease lasts, nothing is taken. A node that was suspended has to renew
    /// first, and so have the others. `None`: a node that has no worker.
    pub worker: Option<String>,
    /// How long the node has until another may take them from it.
    pub lease: Duration,
    /// Since when this node has been in touch with the store without a gap: nothing is taken from a worker
    /// before a third of *its* lease has passed since then, so that live workers renew first (R10).
    pub in_touch_since: Timestamp,
    /// Claims at most.
    pub claims_max: usize,
}

/// A claim that was taken over.
#[derive(Debug, Clone)]
pub struct TakenOver {
    /// The claim with its new token.
    pub held: ClaimRef,
    /// The token that was replaced.
    pub old_token: Token,
    /// The queue.
    pub queue: Queue,
    /// The worker that lost it.
    pub worker: String,
    /// Unsettled messages in that worker's hands when it was lost.
    pub in_hand: u32,
    /// What nobody settled and no effect is known of. Bodies are left out.
    pub unsettled: Vec<Leased>,
    /// What the inbox knows to be done.
    pub done: Vec<Offset>,
}

/// The heartbeat of a worker, and with it its lease.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// Unique per process start.
    pub worker: String,
    /// The host it runs on.
    pub host: String,
    /// How long the lease lasts from now.
    pub lease: Duration,
    /// The queues it listens to.
    pub queues: Vec<String>,
    /// Handlers it can run at once.
    pub slots: u32,
    /// Handlers it runs.
    pub busy: u32,
    /// What is wrong with it, if anything is.
    pub error: Option<String>,
    /// What it knows of itself.
    pub facts: WorkerFacts,
}

/// The answer to a [`Renewal`].
#[derive(Debug, Clone)]
pub struct Renewed {
    /// Database time.
    pub now: Timestamp,
    /// The claims that the store holds for this worker.
    pub claims: Vec<ClaimRef>,
    /// What an operator wants of it.
    pub wish: Option<Wish>,
    /// Messages in those claims that somebody wants stopped.
    pub cancels: Vec<(Token, Offset)>,
}

/// What is where in one queue, from one statement for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The queue.
    pub queue: QueueId,
    /// The priority class.
    pub class: u8,
    /// The lane.
    pub lane: Lane,
    /// Messages beyond the cursor.
    pub ready: u64,
    /// When the oldest of them was published.
    pub oldest: Option<Timestamp>,
}

/// The state of the store at one moment, as far as an idle node must know it.
#[derive(Debug, Clone, Default)]
pub struct Pulse {
    /// Database time.
    pub now: Timestamp,
    /// Parts that have ready messages, paused queues left out.
    pub heads: Vec<Head>,
    /// When the next outbox row is due.
    pub next_due: Option<Timestamp>,
    /// Changes whenever a declaration, a setting or a pause does, and when a worker or a job is wished something: then
    /// what a node remembers of its queues is old, and its worker should renew.
    pub declarations: u64,
}

/// What the relay moved.
#[derive(Debug, Clone, Default)]
pub struct Relayed {
    /// Rows moved to the log.
    pub moved: usize,
    /// Where they went.
    pub queues: Vec<QueueId>,
    /// When the next row is due.
    pub next_due: Option<Timestamp>,
}

/// The answer to [`Log::begin`].
pub enum Begun {
    /// The effect of this message was committed before: acknowledge it.
    AlreadyDone,
    /// An open transaction that holds the message's inbox row.
    Open(Box<dyn EffectTx>),
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Begun::AlreadyDone => "AlreadyDone",
            Begun::Open(_) => "Open",
        })
    }
}

/// What becomes of a frame within a transaction: a savepoint of the database, by its depth from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// It begins.
    Open(usize),
    /// It ends, and what was done in it stays.
    Release(usize),
    /// It ends, and what was done in it, and in frames within it, is undone.
    RollBack(usize),
}

impl Frame {
    /// In the SQL that all stores speak, one statement after the other.
    pub fn statements(self) -> Vec<String> {
        match self {
            Frame::Open(depth) => vec![format!("savepoint millpond_frame_{depth}")],
            Frame::Release(depth) => vec![format!("release savepoint millpond_frame_{depth}")],
            Frame::RollBack(depth) => vec![
                format!("rollback to savepoint millpond_frame_{depth}"),
                format!("release savepoint millpond_frame_{depth}"),
            ],
        }
    }
}

/// A transaction on a connection of the store. A handler's own commits its writes and the inbox row together, and only if
/// the lease is still held; a plain one has no lease to check. Dropping it rolls back.
pub trait EffectTx: Send {
    /// The declared queue of this name, looked up in the transaction: another call of the store may wait for it.
    fn queue(&mut self, name: String) -> BoxFuture<'_, Result<Option<Queue>>>;

    /// Stores messages that exist exactly if the transaction commits.
    ///
    /// # Errors
    ///
    /// After any of them the transaction is not to be committed: some of the messages may be in it.
    fn send<'a>(
        &'a mut self,
        queue: &'a Queue,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'a, Result<Vec<Stored>>>;

    /// Opens or ends a frame.
    fn frame(&mut self, frame: Frame) -> BoxFuture<'_, Result<()>>;

    /// Checks the lease and the message's done bit, if there is one, then commits.
    ///
    /// # Errors
    ///
    /// `lease-lost`: nothing was committed. `unknown-outcome`: the commit was sent, its answer was not seen.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// The store's own type, through which a handler writes.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// The log of one store.
pub trait Log: Send + Sync {
    /// Stores all of `messages` or none, durably: those that are due at once in the log, in the order given,
    /// the others in the outbox. Answers one [`Stored`] for each.
    fn append(&self, queue: QueueId, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<Vec<Stored>>>;

    /// Claims the next messages of one part of a queue for one worker.
    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease>>;

    /// Records how deliveries ended, one answer for each claim, in order. A claim that is no longer held
    /// changes nothing.
    fn settle(&self, claims: Vec<SettleClaim>) -> BoxFuture<'_, Result<Vec<Settled>>>;

    /// Writes a worker's heartbeat and moves its lease, on a connection that no other work can hold up.
    fn renew(&self, renewal: Renewal) -> BoxFuture<'_, Result<Renewed>>;

    /// What is unsettled in a claim that is still held, without bodies: what its holder forgot, or never heard
    /// of. Empty when it is not held.
    fn unsettled(&self, held: ClaimRef) -> BoxFuture<'_, Result<Vec<Leased>>>;

    /// Ends a worker's lease: what it still holds may be taken over at once.
    fn end_worker(&self, worker: String) -> BoxFuture<'_, Result<()>>;

    /// Takes claims from their owners, each by one compare-and-set: still that token, and its lease still
    /// over. From here the old holder can settle nothing. What becomes of the messages is decided in core and
    /// recorded with [`Log::settle`].
    fn take_over(&self, request: TakeOver) -> BoxFuture<'_, Result<Vec<TakenOver>>>;

    /// Opens a handler's own transaction for one message of a claim.
    fn begin(&self, held: ClaimRef, offset: Offset, limit: Duration) -> BoxFuture<'_, Result<Begun>>;

    /// One combined statement for all queues of an idle node.
    fn pulse(&self, queues: Vec<QueueId>) -> BoxFuture<'_, Result<Pulse>>;

    /// Waits until another process may have written after this call, whenever the future is polled: a hint, never a
    /// promise. Answers the queues whose logs are known to have grown; more may have.
    fn changed(&self) -> BoxFuture<'_, Vec<QueueId>>;
}

/// The outbox of one store: messages that may not be worked on yet.
pub trait Outbox: Send + Sync {
    /// Moves at most `rows_max` due rows to the log, each deleted and appended in one transaction.
    fn relay(&self, rows_max: usize) -> BoxFuture<'_, Result<Relayed>>;

    /// Opens a transaction that belongs to no job. When `limit` passes, it is rolled back.
    fn open(&self, limit: Duration) -> BoxFuture<'_, Result<Box<dyn EffectTx>>>;

    /// Which of these messages, sent in transactions of others, are in the outbox now or were moved from it: their
    /// transactions were committed.
    fn arrived(&self, ids: Vec<MessageId>) -> BoxFuture<'_, Result<Vec<MessageId>>>;
}

/// What people ask about the present. Every answer is of one moment, and none changes anything.
pub trait Inspect: Send + Sync {
    /// All queues with their counts, by name.
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueView>>>;

    /// Where a message is and how it fared.
    fn message(&self, id: MessageId) -> BoxFuture<'_, Result<Option<MessageView>>>;

    /// Messages in any state, the last sent first. A search that is too broad is cut short.
    fn messages(&self, find: Find) -> BoxFuture<'_, Result<Found<MessageRow>>>;

    /// Dead letters, newest first: the open ones. Those that were redriven or cancelled are in the answer only if the
    /// query asks about the status.
    fn dead_letters(&self, find: Find) -> BoxFuture<'_, Result<Found<DeadLetterView>>>;

    /// Dead letters by what they have in common, the largest group first; as [`Inspect::dead_letters`] finds them.
    fn dead_letter_groups(&self, query: Query, by: GroupBy) -> BoxFuture<'_, Result<Vec<FailureGroup>>>;

    /// Rows of the outbox, the next due first.
    fn outbox(&self, find: Find) -> BoxFuture<'_, Result<Found<OutboxRow>>>;

    /// The outbox by queue.
    fn outbox_summary(&self) -> BoxFuture<'_, Result<Vec<OutboxSummary>>>;

    /// Workers, newest heartbeat first.
    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerView>>>;

    /// What the store tells about itself.
    fn info(&self) -> BoxFuture<'_, Result<StoreInfo>>;
}

/// What people ask about the past.
pub trait History: Send + Sync {
    /// The run log, newest first, assembled from the log, claims, history and events.
    fn events(&self, find: Find) -> BoxFuture<'_, Result<Found<EventView>>>;

    /// Counters, one for each span of time from the first to the last, zeros included.
    fn tallies(&self, which: Tallies) -> BoxFuture<'_, Result<Vec<Tally>>>;

    /// How long the newest runs of a queue took, at most `runs_max` of them.
    fn run_times(&self, queue: String, runs_max: usize) -> BoxFuture<'_, Result<Vec<Duration>>>;

    /// The audit, newest first; `before`: lines with a lower number only.
    fn audit(&self, before: Option<u64>, rows_max: usize) -> BoxFuture<'_, Result<Vec<AuditLine>>>;
}

/// Who changes something, and why. Every change is a line of the audit, written with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// Who: `local`, or a token's name.
    pub actor: String,
    /// What was called, such as `queue pause`.
    pub verb: String,
    /// Of what: a name, an id, or the filter that chose the rows.
    pub object: String,
    /// Why, if it was said.
    pub reason: Option<String>,
}

/// A dead letter that begins a new life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redrive {
    /// The dead letter.
    pub id: MessageId,
    /// The id of its new life.
    pub new_id: MessageId,
    /// When it is due; `None`: at once.
    pub due: Option<Due>,
    /// Moves it to this queue.
    pub queue: Option<QueueId>,
    /// Deliveries in all, instead of its own number.
    pub attempts_max: Option<u32>,
}

/// What became of one message of a bulk change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Done.
    Done,
    /// It is running: its worker is told, and decides how it ends.
    Asked,
    /// It was done, dead or cancelled already.
    AlreadySettled,
    /// It was redriven already, as this message.
    AlreadyRetried(MessageId),
    /// It is not in a state in which this can be done.
    WrongState(State),
    /// It is not stored, or not any more.
    NotFound,
}

/// What a purge took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Messages that are gone.
    pub messages: u64,
    /// There may be more.
    pub more: bool,
}

/// What people change. Each call is one transaction, with its line of the audit.
pub trait Operate: Send + Sync {
    /// Changes settings of a queue at run time, each by its name as in `QueueSettings`; `None` goes back to the
    /// declared value. Answers the queue as it is now.
    ///
    /// # Errors
    ///
    /// `unknown-queue`; `invalid-config` for a setting that does not exist, is fixed for life, or cannot work.
    fn change(
        &self,
        queue: String,
        settings: Vec<(String, Option<serde_json::Value>)>,
        act: Act,
    ) -> BoxFuture<'_, Result<Queue>>;

    /// Pauses a queue, or all; a pause that is there gets the new reason and end. Answers all that hold it.
    fn pause(&self, scope: Scope, until: Option<Due>, act: Act) -> BoxFuture<'_, Result<Vec<Pause>>>;

    /// Ends a pause. Answers those that still hold it.
    fn resume(&self, scope: Scope, act: Act) -> BoxFuture<'_, Result<Vec<Pause>>>;

    /// Cancels messages: what waits becomes a dead letter with the reason `cancelled`; what runs is told to stop.
    ///
    /// # Errors
    ///
    /// `batch-too-large`, here and below: a call takes at most 1,000 ids, and 500 to redrive.
    fn cancel(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>>;

    /// Makes waiting messages due now; their attempts stay as they are.
    fn hasten(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>>;

    /// Sends dead letters again, each as a message with a new id and no attempts.
    fn redrive(&self, redrives: Vec<Redrive>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>>;

    /// Deletes dead letters for good.
    fn remove_dead_letters(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>>;

    /// Drops what waits in a queue, ready or not due, at most `rows_max` messages and never more than 10,000; what is
    /// leased is left alone.
    fn purge(&self, queue: String, rows_max: usize, act: Act) -> BoxFuture<'_, Result<Purged>>;

    /// Wishes something of a worker, or of all that live; `None` takes a wish back. Answers how many workers it
    /// concerns.
    fn steer(&self, worker: Option<String>, wish: Option<Wish>, act: Act) -> BoxFuture<'_, Result<u64>>;
}

/// What keeps a store in order.
pub trait Admin: Send + Sync {
    /// Declares a queue, or gives its stored declaration the new settings. What an operator changed at run time
    /// stays.
    ///
    /// # Errors
    ///
    /// `queue-conflict` when it is stored with another kind of delivery.
    fn declare(&self, name: String, settings: QueueSettings) -> BoxFuture<'_, Result<Queue>>;

    /// The declared queue of this name.
    fn queue(&self, name: String) -> BoxFuture<'_, Result<Option<Queue>>>;

    /// Deletes what is past its retention, at most `rows_max` rows of each table; answers how many went.
    /// One node does it at a time: another one's call within the minute deletes nothing.
    fn retain(&self, node: String, rows_max: usize) -> BoxFuture<'_, Result<u64>>;

    /// Database time.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>>;

    /// Writes everything out and closes the store; later calls answer `shutting-down`.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// A whole store.
pub trait Store: Log + Outbox + Within + Inspect + History + Operate + Admin + Hooks {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
}

/// The host's time, for a store that has no server of its own.
pub trait Clock: Send + Sync {
    /// Microseconds since the epoch. Never less than before.
    fn micros(&self) -> i64;

    /// Raises the clock to what a store has already written: a host that was set back goes on from there.
    fn not_before(&self, floor: i64);
}

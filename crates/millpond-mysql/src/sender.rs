//! Group commit: whatever arrived while the last commit ran is the next one. Nobody waits for company.
//!
//! One thread, over the sends of all queues, and two connections. While one transaction is flushed, a large batch inserts
//! by another: the server lets go of the row of a partition before it flushes, and flushes in the order of commits. The
//! second is sent when the first holds its locks, so offsets are in the order of the calls, but for a transaction that
//! must be repeated. A small batch waits for the end of the one before and grows meanwhile, because a commit of its own
//! costs more than its messages.
//!
//! If the connection is lost before the answer, the sender finds out by itself what happened: it ends the server's side of
//! it, which may not have read the script yet, locks the partition again, which proves that the first transaction is
//! over, and looks for its own messages from the offset where they could begin. Behind a proxy the server's side is not
//! known: there the lock alone must do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{MessageId, NewMessage};
use millpond_core::store::{BoxFuture, QueueId, Stored};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::append::{Appended, Partitions, append_log, known_in_outbox, put_outbox};
use crate::connection::{Connection, Server};
use crate::error::{Fault, Lost, Tried, closed};
use crate::lane::{CALL_WAIT, DEADLOCK_TRIES, Lane};
use crate::pool::Pool;
use crate::sabotage::sabotaged;

/// Most calls of one transaction.
const CALLS_MAX: usize = 1_024;

/// Messages of one transaction, unless one call alone has more.
const MESSAGES_MAX: usize = 10_000;

/// Bytes of bodies of one transaction, unless one call alone has more.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Transactions under way at once, each with a connection.
pub(crate) const UNDER_WAY_MAX: usize = 2;

/// From how many messages on a batch does not wait for the end of the one before.
const OVERLAP_MESSAGES_MIN: usize = 250;

/// Most calls that wait; a caller beyond it waits for room.
const WAITING_MAX: usize = 4_096;

/// How long one call waits for room among the waiting ones.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How long the sender tries to find out what became of a transaction.
const RESOLVE_WAIT: Duration = Duration::from_secs(30);

/// The wait between two tries to reach the server again.
const RECONNECT_WAIT: Duration = Duration::from_millis(100);

/// The wait between two looks whether a connection of the server has ended.
const END_WAIT: Duration = Duration::from_millis(5);

const DOING: &str = "store messages";

/// One call of [`Log::append`](millpond_core::store::Log::append).
struct Call {
    queue: QueueId,
    messages: Vec<NewMessage>,
    reply: oneshot::Sender<Result<Vec<Stored>>>,
}

/// A handle to the sender.
#[derive(Clone)]
pub(crate) struct Sender {
    calls: mpsc::Sender<Call>,
    pub(crate) lane: Lane,
    pub(crate) partitions: Arc<Partitions>,
}

impl Sender {
    /// Starts it on its lane.
    pub(crate) async fn start(lane: Lane) -> Result<Self> {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let partitions = Arc::new(Partitions::default());
        let shared = Arc::clone(&partitions);
        lane.spawn("start the sender", async move |pool: Arc<Pool>| {
            let work = Rc::new(Work { pool, partitions: shared, ends: RefCell::default() });
            tokio::task::spawn_local(run(work, waiting));
        })
        .await?;
        Ok(Self { calls, lane, partitions })
    }

    /// Stores messages without dedup keys, all or none, durably.
    pub(crate) fn send(
        &self,
        queue: QueueId,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'_, Result<Vec<Stored>>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let call = Call { queue, messages, reply };
            match tokio::time::timeout(ROOM_WAIT, self.calls.send(call)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(closed(DOING)),
                Err(_) => {
                    let why = "the sender is behind by thousands of calls";
                    return Err(Error::new(Code::StoreUnavailable, DOING).because(why));
                }
            }
            answer.await.map_err(|_| Error::new(Code::UnknownOutcome, DOING).because("the sender ended"))?
        })
    }
}

/// The calls of one transaction.
struct Gathered {
    calls: Vec<Call>,
    messages: usize,
    bytes: usize,
    /// Some are not due yet: repeated ones are told apart, for which the transaction before must be over.
    has_outbox: bool,
    /// A call that does not fit.
    next: Option<Call>,
}

/// Keeps transactions in the order of their calls.
struct Turn {
    /// Ends when the transaction before has its locks, or is over.
    before: Option<oneshot::Receiver<()>>,
    /// Tells the next one.
    locked: oneshot::Sender<()>,
}

/// What one transaction stores, by where it goes. Partitions are in ascending order, which is the order of their
/// locks (R2).
struct Batch<'c> {
    log: BTreeMap<i32, (QueueId, Vec<&'c NewMessage>)>,
    outbox: BTreeMap<QueueId, Vec<&'c NewMessage>>,
    /// The lowest offset that a message of it can have, of each partition.
    from: BTreeMap<i32, i64>,
}

/// The loop behind a [`Sender`].
struct Work {
    pool: Arc<Pool>,
    partitions: Arc<Partitions>,
    /// Of each partition the lowest offset that the next message can have, as far as is known.
    ends: RefCell<BTreeMap<i32, i64>>,
}

async fn run(work: Rc<Work>, mut waiting: mpsc::Receiver<Call>) {
    let mut under_way = JoinSet::new();
    let (mut next, mut before) = (None, None);
    // What is under way has no outbox rows.
    let mut shares = true;
    loop {
        let first = match next.take() {
            Some(call) => Some(call),
            None => waiting.recv().await,
        };
        let Some(first) = first else { break };
        let mut gathered = Gathered::from(first);
        gathered.more(&mut waiting);
        while under_way.try_join_next().is_some() {}
        let may_join = |under_way: usize, gathered: &Gathered| {
            under_way == 0 || shares && gathered.may_overlap() && under_way < UNDER_WAY_MAX
        };
        while !may_join(under_way.len(), &gathered) {
            under_way.join_next().await;
            gathered.more(&mut waiting);
        }
        let (locked, next_before) = oneshot::channel();
        let turn = Turn { before: before.replace(next_before), locked };
        shares = !gathered.has_outbox;
        next = gathered.next.take();
        let work = Rc::clone(&work);
        under_way.spawn_local(async move {
            let outcome = work.store(&gathered.calls, turn).await;
            answer(gathered.calls, outcome);
        });
    }
    // Whoever waits for an answer gets one.
    while under_way.join_next().await.is_some() {}
}

impl Gathered {
    fn from(first: Call) -> Self {
        let mut gathered = Self { calls: Vec::new(), messages: 0, bytes: 0, has_outbox: false, next: None };
        gathered.add(first);
        gathered
    }

    fn add(&mut self, call: Call) {
        self.messages += call.messages.len();
        self.bytes += call.bytes();
        self.has_outbox |= call.messages.iter().any(|message| message.due.is_some());
        self.calls.push(call);
    }

    /// Takes what waits, up to the limits of one transaction.
    fn more(&mut self, waiting: &mut mpsc::Receiver<Call>) {
        while self.next.is_none() && self.calls.len() < CALLS_MAX {
            let Ok(call) = waiting.try_recv() else { return };
            let fits =
                self.messages + call.messages.len() <= MESSAGES_MAX && self.bytes + call.bytes() <= BYTES_MAX;
            if fits {
                self.add(call);
            } else {
                self.next = Some(call);
            }
        }
    }

    fn may_overlap(&self) -> bool {
        !self.has_outbox && OVERLAP_MESSAGES_MIN <= self.messages
    }
}

impl Call {
    fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.body.len()).sum()
    }
}

impl Work {
    /// One transaction over all calls; answers the ids that the outbox had not.
    async fn store(&self, calls: &[Call], turn: Turn) -> Result<Vec<MessageId>> {
        let failed = |fault: Fault| fault.into_error(DOING, Lost::MayHaveHappened);
        // Nothing was sent yet.
        let mut lent = self.pool.lend().await.map_err(|fault| fault.into_error(DOING, Lost::AskAgain))?;
        let batch = self.batch(lent.peek(), calls).await;
        let batch = batch.map_err(|fault| fault.into_error(DOING, Lost::AskAgain))?;
        let stored = tokio::time::timeout(CALL_WAIT, write(lent.get(), &batch, Some(turn))).await;
        match stored.unwrap_or(Err(Fault::Silence(CALL_WAIT))) {
            Ok((ends, new)) => {
                self.learn(ends);
                lent.give_back();
                Ok(new)
            }
            Err(fault) if fault.is_ambiguous() => {
                let lost = lent.peek().server.clone();
                drop(lent);
                if sabotaged("lost_answer_is_yes") {
                    return Ok(batch.outbox.values().flatten().map(|message| message.id).collect());
                }
                self.resolve(&batch, &lost).await.ok_or_else(|| failed(fault))?
            }
            Err(fault) => {
                lent.give_back();
                Err(failed(fault))
            }
        }
    }

    /// Remembers where partitions end. Another transaction may have been later and is known already.
    fn learn(&self, ends: Vec<(i32, i64)>) {
        let mut known = self.ends.borrow_mut();
        for (partition, end) in ends {
            let known = known.entry(partition).or_insert(end);
            *known = end.max(*known);
        }
    }

    /// Sorts the calls by where they go. What is not known of a partition is asked before the transaction.
    async fn batch<'c>(&self, connection: &Connection, calls: &'c [Call]) -> Tried<Batch<'c>> {
        let mut batch = Batch { log: BTreeMap::new(), outbox: BTreeMap::new(), from: BTreeMap::new() };
        for call in calls {
            for message in &call.messages {
                if message.due.is_some() {
                    batch.outbox.entry(call.queue).or_default().push(message);
                    continue;
                }
                let partition = self.partitions.main(connection, call.queue, message.priority).await?;
                batch.log.entry(partition).or_insert_with(|| (call.queue, Vec::new())).1.push(message);
            }
        }
        for partition in batch.log.keys() {
            let known = self.ends.borrow().get(partition).copied();
            let from = match known {
                Some(end) => end,
                None => connection.row("log_end", &[partition]).await?.get(0),
            };
            batch.from.insert(*partition, from);
        }
        Ok(batch)
    }

    /// Finds out what became of a transaction whose answer was lost, and repeats it if nothing did. `None`: the server
    /// could not be reached for so long that nobody knows.
    async fn resolve(&self, batch: &Batch<'_>, lost: &Server) -> Option<Result<Vec<MessageId>>> {
        let began = Instant::now();
        while began.elapsed() < RESOLVE_WAIT {
            let tried = tokio::time::timeout(CALL_WAIT, self.resolve_once(batch, lost)).await;
            match tried.unwrap_or(Err(Fault::Silence(CALL_WAIT))) {
                Ok(new) => return Some(Ok(new)),
                Err(Fault::Core(error))
                    if error.code() != Code::StoreUnavailable && error.code() != Code::StoreUnreachable =>
                {
                    return Some(Err(error));
                }
                Err(error) => {
                    tracing::info!(%error, "asking again what became of a send");
                    tokio::time::sleep(RECONNECT_WAIT).await;
                }
            }
        }
        None
    }

    async fn resolve_once(&self, batch: &Batch<'_>, lost: &Server) -> Tried<Vec<MessageId>> {
        let mut lent = self.pool.lend().await?;
        while !lent.peek().end(lost).await? {
            tokio::time::sleep(END_WAIT).await;
        }
        let look = async |connection: &mut Connection| is_stored(connection, batch).await;
        let stored = lent.get().change(look).await?;
        let new = if stored {
            // The outbox rows are of the same transaction.
            batch.outbox.values().flatten().map(|message| message.id).collect()
        } else {
            let (ends, new) = write(lent.get(), batch, None).await?;
            self.learn(ends);
            new
        };
        lent.give_back();
        Ok(new)
    }
}

/// What a batch that is stored tells: the new ends of its partitions, and the ids that the outbox had not.
type Written = (Vec<(i32, i64)>, Vec<MessageId>);

/// Stores a batch. A transaction that another one made impossible is repeated.
async fn write(connection: &Connection, batch: &Batch<'_>, mut turn: Option<Turn>) -> Tried<Written> {
    let mut tries = 1;
    loop {
        let written = write_once(connection, batch, turn.take()).await;
        if DEADLOCK_TRIES <= tries || !written.as_ref().is_err_and(Fault::is_deadlock) {
            return written;
        }
        tries += 1;
    }
}

async fn write_once(connection: &Connection, batch: &Batch<'_>, turn: Option<Turn>) -> Tried<Written> {
    let mut new = Vec::new();
    let mut script = connection.new_script();
    script.begin()?;
    for (queue, messages) in &batch.outbox {
        let mut known = known_in_outbox(connection, messages).await?;
        let unknown: Vec<&NewMessage> =
            messages.iter().copied().filter(|message| known.insert(message.id)).collect();
        put_outbox(&mut script, *queue, &unknown)?;
        new.extend(unknown.iter().map(|message| message.id));
    }
    let mut parts: Vec<(i32, i64, Appended)> = Vec::with_capacity(batch.log.len());
    for (partition, (queue, messages)) in &batch.log {
        let appended = append_log(&mut script, *queue, *partition, messages)?;
        parts.push((*partition, messages.len() as i64, appended));
    }
    script.step("commit")?;
    let locked = match turn {
        Some(Turn { before, locked }) => {
            if let Some(before) = before {
                // An error: it is over.
                let _ = before.await;
            }
            Some(locked)
        }
        None => None,
    };
    let (last, locked) = (parts.last().map(|(.., appended)| appended.lock), Cell::new(locked));
    let tell = |place: usize| {
        if let Some(locked) = (Some(place) == last).then(|| locked.take()).flatten() {
            // Nobody may be behind it.
            let _ = locked.send(());
        }
    };
    let answers = connection.script_of_transaction(script, tell).await?;
    let ends = parts.into_iter().map(|(partition, count, appended)| {
        let base: i64 = answers[appended.base].rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok((partition, base + count))
    });
    Ok((ends.collect::<Tried<_>>()?, new))
}

/// Whether a batch is stored, once the transaction that wrote it is over.
async fn is_stored(connection: &Connection, batch: &Batch<'_>) -> Tried<bool> {
    let Some((partition, (_, messages))) = batch.log.first_key_value() else {
        // Only the outbox: its ids are unique, so writing again is the way to find out.
        return Ok(false);
    };
    connection.row("log_end_lock", &[partition]).await?;
    let from = batch.from.get(partition).copied().unwrap_or(0);
    Ok(connection.row("log_has", &[partition, &from, &messages[0].id.0]).await?.get(0))
}

fn answer(calls: Vec<Call>, outcome: Result<Vec<MessageId>>) {
    let outcome = outcome.map(|new| new.into_iter().collect::<std::collections::HashSet<_>>());
    for call in calls {
        let stored = match &outcome {
            Ok(new) => Ok(call.messages.iter().map(|message| stored(message, new)).collect()),
            Err(error) => Err(Error::new(error.code(), DOING).because(error.causes())),
        };
        // A caller that stopped waiting does not undo what was committed.
        let _ = call.reply.send(stored);
    }
}

fn stored(message: &NewMessage, new: &std::collections::HashSet<MessageId>) -> Stored {
    if message.due.is_none() || new.contains(&message.id) {
        Stored::New
    } else {
        Stored::Duplicate { of: message.id }
    }
}

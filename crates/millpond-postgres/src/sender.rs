//! Group commit: whatever arrived while the last commit ran is the next one. Nobody waits for company.
//!
//! One thread, one connection, one transaction at a time, over the sends of all queues. If the connection is lost
//! before the answer, the sender finds out by itself what happened: it ends the server's process that served it, which
//! may not have read the statement yet, takes the append lock again, which proves that the first transaction is over, and
//! looks for its own messages from the offset where they could begin. Behind a proxy the process is not known: there the
//! lock alone must do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{MessageId, NewMessage};
use millpond_core::store::{BoxFuture, QueueId, Stored};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;

use crate::append::{Partitions, append_log, put_outbox};
use crate::connection::{Backend, Connection};
use crate::error::{Fault, Lost, Tried, closed};
use crate::lane::{CALL_WAIT, Lane};
use crate::pool::Pool;
use crate::sabotage::sabotaged;
use crate::wake::Wake;

/// Most calls of one transaction.
const CALLS_MAX: usize = 1_024;

/// Messages of one transaction, unless one call alone has more.
const MESSAGES_MAX: usize = 10_000;

/// Bytes of bodies of one transaction, unless one call alone has more.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most calls that wait; a caller beyond it waits for room.
const WAITING_MAX: usize = 4_096;

/// How long one call waits for room among the waiting ones.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// How long the sender tries to find out what became of a transaction.
const RESOLVE_WAIT: Duration = Duration::from_secs(30);

/// The wait between two tries to reach the server again.
const RECONNECT_WAIT: Duration = Duration::from_millis(100);

/// The wait between two looks whether a process of the server has ended.
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
    pub(crate) async fn start(lane: Lane, wake: Wake) -> Result<Self> {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let partitions = Arc::new(Partitions::default());
        let shared = Arc::clone(&partitions);
        lane.spawn("start the sender", async move |pool: Arc<Pool>| {
            let work = Work { pool, partitions: shared, ends: BTreeMap::new(), wake };
            tokio::task::spawn_local(work.run(waiting));
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

/// What one transaction stores, by where it goes. Partitions are in ascending order, which is the order of their
/// locks (R2).
struct Batch<'c> {
    log: BTreeMap<i32, (QueueId, Vec<&'c NewMessage>)>,
    outbox: BTreeMap<QueueId, Vec<&'c NewMessage>>,
}

/// The loop behind a [`Sender`].
struct Work {
    pool: Arc<Pool>,
    partitions: Arc<Partitions>,
    /// Of each partition the lowest offset that the next message can have, as far as is known.
    ends: BTreeMap<i32, i64>,
    wake: Wake,
}

impl Work {
    async fn run(mut self, mut waiting: mpsc::Receiver<Call>) {
        let mut next = waiting.recv().await;
        while let Some(first) = next.take() {
            let mut calls = vec![first];
            next = gather(&mut calls, &mut waiting);
            let outcome = self.store(&calls).await;
            if outcome.is_ok() {
                self.wake.tell(calls.iter().map(|call| call.queue));
            }
            answer(calls, outcome);
            if next.is_none() {
                next = waiting.recv().await;
            }
        }
    }

    /// One transaction over all calls; answers the ids that the outbox had not.
    async fn store(&mut self, calls: &[Call]) -> Result<Vec<MessageId>> {
        let failed = |fault: Fault| fault.into_error(DOING, Lost::MayHaveHappened);
        // Nothing was sent yet.
        let mut lent = self.pool.lend().await.map_err(|fault| fault.into_error(DOING, Lost::AskAgain))?;
        let batch = self.batch(lent.peek(), calls).await;
        let batch = batch.map_err(|fault| fault.into_error(DOING, Lost::AskAgain))?;
        let stored = tokio::time::timeout(CALL_WAIT, write(lent.get(), &batch)).await;
        match stored.unwrap_or(Err(Fault::Silence(CALL_WAIT))) {
            Ok((ends, new)) => {
                self.ends.extend(ends);
                lent.give_back();
                Ok(new)
            }
            Err(fault) if fault.is_ambiguous() => {
                let lost = lent.peek().backend;
                drop(lent);
                if sabotaged("lost_answer_is_yes") {
                    return Ok(batch.outbox.values().flatten().map(|message| message.id).collect());
                }
                self.resolve(&batch, lost).await.ok_or_else(|| failed(fault))?
            }
            Err(fault) => {
                lent.give_back();
                Err(failed(fault))
            }
        }
    }

    /// Sorts the calls by where they go. What is not known of a partition is asked before the transaction.
    async fn batch<'c>(&mut self, connection: &Connection, calls: &'c [Call]) -> Tried<Batch<'c>> {
        let mut batch = Batch { log: BTreeMap::new(), outbox: BTreeMap::new() };
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
            if !self.ends.contains_key(partition) {
                let end = connection.row("log_end", &[(partition, Type::INT4)]).await?.get(0);
                self.ends.insert(*partition, end);
            }
        }
        Ok(batch)
    }

    /// Finds out what became of a transaction whose answer was lost, and repeats it if nothing did. `None`: the server
    /// could not be reached for so long that nobody knows.
    async fn resolve(&mut self, batch: &Batch<'_>, lost: Backend) -> Option<Result<Vec<MessageId>>> {
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

    async fn resolve_once(&mut self, batch: &Batch<'_>, lost: Backend) -> Tried<Vec<MessageId>> {
        let mut lent = self.pool.lend().await?;
        while !lent.peek().target.is_shared() && !lent.peek().end(lost).await? {
            tokio::time::sleep(END_WAIT).await;
        }
        let ends = &self.ends;
        let look = async |connection: &mut Connection| is_stored(connection, batch, ends).await;
        let stored = lent.get().transaction("begin", look).await?;
        let new = if stored {
            // The outbox rows are of the same transaction.
            batch.outbox.values().flatten().map(|message| message.id).collect()
        } else {
            let (ends, new) = write(lent.get(), batch).await?;
            self.ends.extend(ends);
            new
        };
        lent.give_back();
        Ok(new)
    }
}

/// Takes what waits, up to the limits of one transaction; answers a call that does not fit.
fn gather(calls: &mut Vec<Call>, waiting: &mut mpsc::Receiver<Call>) -> Option<Call> {
    let bytes = |call: &Call| call.messages.iter().map(|message| message.body.len()).sum::<usize>();
    let (mut messages, mut sum) = (calls[0].messages.len(), bytes(&calls[0]));
    while calls.len() < CALLS_MAX {
        let call = waiting.try_recv().ok()?;
        messages += call.messages.len();
        sum += bytes(&call);
        if MESSAGES_MAX < messages || BYTES_MAX < sum {
            return Some(call);
        }
        calls.push(call);
    }
    None
}

/// Stores a batch; answers the new ends of its partitions, and the ids that the outbox had not.
async fn write(connection: &mut Connection, batch: &Batch<'_>) -> Tried<(Vec<(i32, i64)>, Vec<MessageId>)> {
    // One statement is a transaction of its own; the connection is in none, or the pool would not have lent it.
    if batch.log.len() + batch.outbox.len() == 1 {
        return write_open(connection, batch).await;
    }
    connection
        .transaction("begin", async |connection: &mut Connection| write_open(connection, batch).await)
        .await
}

async fn write_open(
    connection: &mut Connection,
    batch: &Batch<'_>,
) -> Tried<(Vec<(i32, i64)>, Vec<MessageId>)> {
    let mut new = Vec::new();
    for (queue, messages) in &batch.outbox {
        new.extend(put_outbox(connection, *queue, messages).await?);
    }
    let mut ends = Vec::with_capacity(batch.log.len());
    for (partition, (queue, messages)) in &batch.log {
        let base = append_log(connection, *queue, *partition, messages).await?;
        ends.push((*partition, base + messages.len() as i64));
    }
    Ok((ends, new))
}

/// Whether a batch is stored, once the transaction that wrote it is over.
async fn is_stored(connection: &Connection, batch: &Batch<'_>, ends: &BTreeMap<i32, i64>) -> Tried<bool> {
    let Some((partition, (_, messages))) = batch.log.first_key_value() else {
        // Only the outbox: its ids are unique, so writing again is the way to find out.
        return Ok(false);
    };
    connection.row("log_append_lock", &[(partition, Type::INT4)]).await?;
    let from = ends.get(partition).copied().unwrap_or(0);
    let params =
        [(partition as _, Type::INT4), (&from as _, Type::INT8), (&messages[0].id.0 as _, Type::UUID)];
    Ok(connection.row("log_has", &params).await?.get(0))
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

//! The one writer: a thread with one connection, which takes everything that waits, runs it in one
//! transaction, one savepoint each, and commits once.
//!
//! What arrives while a commit runs is the next batch; there is no artificial delay. Sends are committed
//! durably; a batch that only leases, settles or moves is not flushed, because losing it in a power cut only
//! means another delivery.
//!
//! States of the writer, and what leaves each:
//!
//! - *idle*: waits for work, without limit.
//! - *batch*: one transaction over at most [`OPS_MAX`] operations; ends with its commit.
//! - *unit*: a handler's own transaction holds the writer, at most until its limit; ends with commit,
//!   rollback, or the limit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::store::{BoxFuture, Clock};
use millpond_core::time::Timestamp;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::draft::Draft;
use crate::error::{Fault, Tried, closed, code_of_commit};
use crate::lane::spawn;
use crate::migrate;
use crate::reserve::Reserve;
use crate::turn::Turn;
use crate::unit::UnitStart;
use crate::wal::Wal;

/// Most operations of one transaction.
const OPS_MAX: usize = 1_024;

/// Most operations that wait; a caller beyond it waits for room.
const QUEUE_MAX: usize = 4_096;

/// How long one call waits for room among the waiting operations.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// Whether a commit must be on the disk before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durable {
    /// A send, or a handler's effects. Refused when the disk is full, so that the rest can go on.
    Yes,
    /// A lease, a settlement, a move, a clean-up.
    No,
}

/// An open transaction of the writer.
pub(crate) struct Tx<'t> {
    /// For statements.
    pub(crate) conn: &'t Connection,
    /// Database time, one value for the transaction.
    pub(crate) now: Timestamp,
    /// What is remembered within it.
    pub(crate) draft: &'t mut Draft,
}

/// One operation: run within a transaction, answered after its commit.
trait Write: Send {
    fn durable(&self) -> Durable;
    fn apply(&mut self, tx: &mut Tx<'_>) -> std::result::Result<(), Fault>;
    /// `Err` names why the transaction as a whole did not happen.
    fn finish(self: Box<Self>, committed: std::result::Result<(), (Code, String)>);
}

enum Op {
    Write(Box<dyn Write>),
    Unit(UnitStart),
    Stop(oneshot::Sender<()>),
}

impl Op {
    /// It came after the end.
    fn refuse(self) {
        match self {
            Op::Write(write) => write.finish(Err((Code::ShuttingDown, "the store was closed".to_owned()))),
            Op::Unit(start) => drop(start.reply.send(Err(closed("open the job's transaction")))),
            Op::Stop(ended) => drop(ended.send(())),
        }
    }
}

/// A handle to the writer's thread.
#[derive(Clone)]
pub(crate) struct Writer {
    ops: mpsc::Sender<Op>,
}

impl Writer {
    /// Starts the thread on a prepared connection.
    pub(crate) fn start(
        conn: Connection,
        clock: Arc<dyn Clock>,
        place: Option<Place>,
        draft: Draft,
    ) -> Result<Self> {
        let (ops, waiting) = mpsc::channel(QUEUE_MAX);
        let thread = WriterThread { conn, clock, place, draft, synchronous: None };
        spawn("millpond-writer", move || thread.run(waiting))?;
        Ok(Self { ops })
    }

    /// Runs `apply` in the next transaction and answers after its commit. It may be run twice, when the first
    /// transaction could not be committed.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        durable: Durable,
        doing: &'static str,
        apply: impl FnMut(&mut Tx<'_>) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let call = Call { durable, doing, apply, value: None, failed: None, reply };
            self.hand_over(Op::Write(Box::new(call)), doing).await?;
            answer.await.map_err(|_| Error::new(Code::UnknownOutcome, doing).because("the writer ended"))?
        })
    }

    /// Gives the writer to a handler's own transaction.
    pub(crate) async fn unit(&self, start: UnitStart) -> Result<()> {
        self.hand_over(Op::Unit(start), "open the job's transaction").await
    }

    /// Ends the thread after everything that waits.
    pub(crate) async fn stop(&self) {
        let (reply, ended) = oneshot::channel();
        if self.ops.send(Op::Stop(reply)).await.is_ok() {
            let _ = ended.await;
        }
    }

    async fn hand_over(&self, op: Op, doing: &str) -> Result<()> {
        match tokio::time::timeout(ROOM_WAIT, self.ops.send(op)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(closed(doing)),
            Err(_) => Err(Error::new(Code::StoreUnavailable, doing)
                .because("the writer is behind by thousands of calls")),
        }
    }
}

/// A [`Write`] made of a closure.
struct Call<T, F> {
    durable: Durable,
    doing: &'static str,
    apply: F,
    value: Option<T>,
    failed: Option<Error>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Write for Call<T, F>
where
    T: Send,
    F: FnMut(&mut Tx<'_>) -> Tried<T> + Send,
{
    fn durable(&self) -> Durable {
        self.durable
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> std::result::Result<(), Fault> {
        (self.value, self.failed) = (None, None);
        // One operation that panics must not end the only writer.
        let applied = catch_unwind(AssertUnwindSafe(|| (self.apply)(tx))).unwrap_or_else(|_| {
            tracing::error!(doing = self.doing, "an operation of the store panicked");
            Err(Error::new(Code::Internal, self.doing).because("it panicked").into())
        });
        match applied {
            Ok(value) => {
                self.value = Some(value);
                Ok(())
            }
            Err(fault) if fault.is_full() => Err(fault),
            Err(fault) => {
                self.failed = Some(fault.into_error(self.doing));
                Err(Fault::Core(Error::new(Code::Internal, self.doing)))
            }
        }
    }

    fn finish(self: Box<Self>, committed: std::result::Result<(), (Code, String)>) {
        let Self { doing, value, failed, reply, .. } = *self;
        let answer = match (failed, committed, value) {
            (Some(error), _, _) => Err(error),
            (None, Err((code, why)), _) => Err(Error::new(code, doing).because(why)),
            (None, Ok(()), Some(value)) => Ok(value),
            (None, Ok(()), None) => Err(Error::new(Code::Internal, doing).because("it was never run")),
        };
        // A caller that stopped waiting does not undo what was committed.
        let _ = reply.send(answer);
    }
}

/// What belongs to the file of a store.
pub(crate) struct Place {
    pub(crate) reserve: Reserve,
    pub(crate) wal: Wal,
}

pub(crate) struct WriterThread {
    pub(crate) conn: Connection,
    pub(crate) clock: Arc<dyn Clock>,
    /// Only a store in a file has one.
    place: Option<Place>,
    pub(crate) draft: Draft,
    /// How the connection commits at present.
    synchronous: Option<Durable>,
}

type Committed = std::result::Result<(), (Code, String)>;

impl WriterThread {
    fn run(mut self, mut waiting: mpsc::Receiver<Op>) {
        let mut turn = Turn::new();
        let mut next = waiting.blocking_recv();
        while let Some(op) = next.take() {
            // In memory there is nobody else.
            if self.place.is_some() {
                turn.begin();
            }
            match op {
                Op::Write(first) => next = self.batch(first, &mut waiting),
                Op::Unit(start) => self.serve(start),
                Op::Stop(ended) => {
                    waiting.close();
                    while let Ok(late) = waiting.try_recv() {
                        late.refuse();
                    }
                    self.close();
                    let _ = ended.send(());
                    return;
                }
            }
            turn.end();
            if next.is_none() {
                next = waiting.blocking_recv();
            }
        }
        self.close();
    }

    /// Collects what waits behind `first` and commits it; answers an operation that is no write, if it met one.
    fn batch(&mut self, first: Box<dyn Write>, waiting: &mut mpsc::Receiver<Op>) -> Option<Op> {
        let mut writes = vec![first];
        let mut next = None;
        while writes.len() < OPS_MAX && next.is_none() {
            match waiting.try_recv() {
                Ok(Op::Write(write)) => writes.push(write),
                Ok(other) => next = Some(other),
                Err(_) => break,
            }
        }
        self.commit(writes);
        next
    }

    fn commit(&mut self, mut writes: Vec<Box<dyn Write>>) {
        if !self.has_room() {
            let refused = |write: &mut Box<dyn Write>| write.durable() == Durable::Yes;
            for write in writes.extract_if(.., refused) {
                write.finish(Err(storage_full()));
            }
        }
        if writes.is_empty() {
            return;
        }
        match self.transaction(&mut writes) {
            Err((Code::StorageFull, _)) if self.give_back_reserve() => {
                tracing::error!(
                    "the disk is full: sends are refused, the reserve is used to settle and clean up"
                );
                self.commit(writes);
            }
            committed => {
                for write in writes {
                    write.finish(committed.clone());
                }
            }
        }
    }

    /// One transaction over all writes. After a full disk or an I/O error all of it may be gone, savepoints
    /// included: then the whole batch has failed.
    fn transaction(&mut self, writes: &mut [Box<dyn Write>]) -> Committed {
        let durable = writes.iter().any(|write| write.durable() == Durable::Yes);
        self.begin(if durable { Durable::Yes } else { Durable::No }).map_err(|error| not_begun(&error))?;
        let outcome =
            self.still_ours().and_then(|()| self.apply_all(writes)).and_then(|()| self.commit_open());
        if outcome.is_err() {
            self.abandon();
        }
        outcome
    }

    fn still_ours(&self) -> Committed {
        migrate::still_ours(&self.conn).map_err(|fault| match fault {
            Fault::Sqlite(error) => failed(&error),
            Fault::Core(error) => (error.code(), error.causes()),
        })
    }

    fn apply_all(&mut self, writes: &mut [Box<dyn Write>]) -> Committed {
        let now = Timestamp::from_micros(self.clock.micros());
        let alone = writes.len() == 1;
        for write in writes {
            if !alone {
                self.step("savepoint op").map_err(|error| failed(&error))?;
            }
            let before = self.draft.mark();
            let mut tx = Tx { conn: &self.conn, now, draft: &mut self.draft };
            let applied = write.apply(&mut tx);
            if self.conn.is_autocommit() || matches!(&applied, Err(fault) if fault.is_full()) {
                let full = matches!(&applied, Err(fault) if fault.is_full());
                let lost = (Code::StoreUnavailable, "the transaction was rolled back by SQLite".to_owned());
                return Err(if full { storage_full() } else { lost });
            }
            if applied.is_err() {
                self.draft.back_to(before);
                let undo = if alone { "rollback" } else { "rollback to op" };
                self.step(undo).map_err(|error| failed(&error))?;
                if alone {
                    return Ok(());
                }
            }
            if !alone {
                self.step("release op").map_err(|error| failed(&error))?;
            }
        }
        let mut tx = Tx { conn: &self.conn, now, draft: &mut self.draft };
        tx.write_counts().map_err(|fault| match fault {
            Fault::Sqlite(error) => failed(&error),
            Fault::Core(error) => (error.code(), error.causes()),
        })
    }

    fn commit_open(&mut self) -> Committed {
        if self.conn.is_autocommit() {
            return Ok(());
        }
        self.step("commit").map_err(|error| (code_of_commit(&error), error.to_string()))?;
        self.draft.committed();
        if let Some(place) = &mut self.place {
            place.wal.committed(&mut self.conn);
        }
        Ok(())
    }

    /// Whether sends may be accepted: the reserve is filled.
    pub(crate) fn has_room(&mut self) -> bool {
        self.place.as_mut().is_none_or(|place| place.reserve.ready())
    }

    fn give_back_reserve(&mut self) -> bool {
        self.place.as_mut().is_some_and(|place| place.reserve.give_back())
    }

    /// Opens a transaction that is ready to write: a lock that is taken later can fail at once.
    pub(crate) fn begin(&mut self, durable: Durable) -> rusqlite::Result<()> {
        if self.synchronous != Some(durable) {
            self.conn.execute_batch(match durable {
                Durable::Yes => self.draft.pragma_durable,
                Durable::No => "pragma synchronous = normal",
            })?;
            self.synchronous = Some(durable);
        }
        if !self.conn.is_autocommit() {
            // A rollback failed before.
            self.step("rollback")?;
        }
        self.step("begin immediate")
    }

    /// Rolls back whatever is open and forgets what was remembered of it.
    pub(crate) fn abandon(&mut self) {
        self.draft.abandon();
        if !self.conn.is_autocommit()
            && let Err(error) = self.step("rollback")
        {
            tracing::error!(%error, "cannot roll back");
        }
    }

    pub(crate) fn step(&self, statement: &str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(statement)?.execute([]).map(drop)
    }

    fn close(self) {
        // Everything that was committed without a flush is flushed now.
        if let Err(error) =
            self.conn.execute_batch("pragma synchronous = full; pragma wal_checkpoint(passive)")
        {
            tracing::warn!(%error, "the last checkpoint failed; the next start repeats it");
        }
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(%error, "the writing connection did not close");
        }
    }
}

/// What a send is told while the reserve is in use.
pub(crate) fn storage_full() -> (Code, String) {
    (Code::StorageFull, "the disk is full; what is left is kept for settling".to_owned())
}

fn not_begun(error: &rusqlite::Error) -> (Code, String) {
    (crate::error::code_of(error), format!("cannot begin to write: {error}"))
}

fn failed(error: &rusqlite::Error) -> (Code, String) {
    (crate::error::code_of(error), error.to_string())
}

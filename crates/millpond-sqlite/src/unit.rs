//! Transactions that a caller holds: a handler's own (M7), whose writes and the message's inbox row commit together, if
//! the lease is still held; and a plain one, which has no lease to check.
//!
//! Each runs on the writing connection, so it holds the one writer from [`Log::begin`] until it ends: do the slow
//! work first, open it late. Its limit bounds how long everybody else waits.
//!
//! [`Log::begin`]: millpond_core::store::Log::begin

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{NewMessage, Offset};
use millpond_core::store::{Begun, BoxFuture, ClaimRef, EffectTx, Frame, Queue, QueueId, Stored};
use millpond_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;

use crate::append::Path;
use crate::connect::SqliteStore;
use crate::error::{Fault, Tried, code_of, code_of_commit};
use crate::migrate;
use crate::queues::stored_queue;
use crate::sabotage::sabotaged;
use crate::settle::is_set;
use crate::sql::sql;
use crate::writer::{Durable, Tx, WriterThread, storage_full};

/// Commands that one unit may have waiting: a handler waits for the answer of each before it gives the next,
/// or drops its future and gives up.
const COMMANDS_MAX: usize = 16;

/// Steps of SQLite's machine between two looks at the clock: well under a millisecond.
const LOOK_EVERY_STEPS: i32 = 10_000;

const BEGIN: &str = "open the job's transaction";
const OPEN: &str = "open a transaction";
const COMMIT: &str = "commit the transaction";

/// Asks the writer to open a unit.
pub(crate) struct UnitStart {
    /// The message whose lease the commit checks, if it is a handler's own.
    pub(crate) job: Option<(ClaimRef, Offset)>,
    pub(crate) limit: Duration,
    pub(crate) reply: oneshot::Sender<Result<Begun>>,
}

enum Command {
    Run(Box<dyn FnOnce(&Connection) + Send>),
    Send(QueueId, Vec<NewMessage>, oneshot::Sender<Result<Vec<Stored>>>),
    Commit(oneshot::Sender<Result<()>>),
}

/// SQLite's side of a transaction that a caller holds.
#[derive(Debug)]
pub struct SqliteTx {
    commands: mpsc::SyncSender<Command>,
}

impl SqliteTx {
    /// Runs `work` on the connection of the open transaction.
    ///
    /// The closure runs on the writer's thread, which waits for nothing else meanwhile: a statement that runs past
    /// the transaction's limit is interrupted, but nothing can interrupt the closure itself. It must not begin,
    /// commit or roll back; a savepoint is fine.
    ///
    /// # Errors
    ///
    /// What SQLite says of a statement, or that the transaction is over: its limit passed, or `work` ended it.
    pub async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let doing = "write in the transaction";
        let run = move |conn: &Connection| {
            work(conn).map_err(|error| match code_of(&error) {
                // It is the handler's statement that is wrong, not the store.
                Code::Internal => Error::new(Code::StatementFailed, doing).because(error).into(),
                _ => Fault::from(error),
            })
        };
        self.ask(doing, run).await
    }

    async fn ask<T: Send + 'static>(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Connection) -> Tried<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let run = move |conn: &Connection| {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(conn)));
            let _ = reply.send(outcome);
        };
        self.commands.try_send(Command::Run(Box::new(run))).map_err(|_| over(doing))?;
        match answer.await.map_err(|_| over(doing))? {
            Ok(outcome) => outcome.map_err(|fault| fault.into_error(doing)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl EffectTx for SqliteTx {
    fn queue(&mut self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        let found = move |conn: &Connection| Ok(stored_queue(conn, &name)?.map(|stored| stored.queue));
        Box::pin(self.ask("look a queue up in the transaction", found))
    }

    fn send<'a>(
        &'a mut self,
        queue: &'a Queue,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'a, Result<Vec<Stored>>> {
        Box::pin(async move {
            let doing = "send in the transaction";
            let (reply, answer) = oneshot::channel();
            let command = Command::Send(queue.id, messages, reply);
            self.commands.try_send(command).map_err(|_| over(doing))?;
            answer.await.map_err(|_| over(doing))?
        })
    }

    fn frame(&mut self, frame: Frame) -> BoxFuture<'_, Result<()>> {
        let step = move |conn: &Connection| Ok(conn.execute_batch(&frame.statements().join("; "))?);
        Box::pin(self.ask("set a savepoint in the transaction", step))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.commands.try_send(Command::Commit(reply)).map_err(|_| over(COMMIT))?;
            answer.await.map_err(|_| Error::new(Code::UnknownOutcome, COMMIT).because("the writer ended"))?
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn over(doing: &str) -> Error {
    Error::new(Code::StoreUnavailable, doing)
        .because("the transaction is over: its limit passed, or one of its statements ended it")
}

impl SqliteStore {
    /// Opens a transaction, for one message of a claim or for no job.
    pub(crate) fn begin_unit(
        &self,
        job: Option<(ClaimRef, Offset)>,
        limit: Duration,
    ) -> BoxFuture<'_, Result<Begun>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.writer.unit(UnitStart { job, limit, reply }).await?;
            let ended = |_| Error::new(Code::StoreUnavailable, if job.is_some() { BEGIN } else { OPEN });
            answer.await.map_err(ended)?
        })
    }
}

impl WriterThread {
    /// Serves one unit until it commits, rolls back, or its limit passes.
    pub(crate) fn serve(&mut self, start: UnitStart) {
        let UnitStart { job, limit, reply } = start;
        let opened = self.open_unit(job.as_ref());
        // The wait for another process's transaction is not the handler's.
        let until = Instant::now() + limit;
        match opened {
            Ok(true) => {
                let (commands, waiting) = mpsc::sync_channel(COMMANDS_MAX);
                if reply.send(Ok(Begun::Open(Box::new(SqliteTx { commands })))).is_ok() {
                    self.interrupt_at(Some(until));
                    self.obey(&waiting, job.as_ref(), until);
                    self.interrupt_at(None);
                }
            }
            Ok(false) => drop(reply.send(Ok(Begun::AlreadyDone))),
            Err(fault) => {
                drop(reply.send(Err(fault.into_error(if job.is_some() { BEGIN } else { OPEN }))));
            }
        }
        self.abandon();
    }

    /// A statement that runs past the limit is interrupted, so that one handler cannot hold the writer for ever.
    fn interrupt_at(&mut self, until: Option<Instant>) {
        let past = until.map(|until| move || until <= Instant::now());
        if let Err(error) = self.conn.progress_handler(LOOK_EVERY_STEPS, past) {
            tracing::warn!(%error, "cannot limit the statements of a handler");
        }
    }

    /// Begins; for a job, looks whether the lease is held, and writes the inbox row. False: the effect was committed before.
    fn open_unit(&mut self, job: Option<&(ClaimRef, Offset)>) -> Tried<bool> {
        if !self.has_room() {
            let (code, why) = storage_full();
            return Err(Error::new(code, BEGIN).because(why).into());
        }
        self.begin(Durable::Yes)?;
        migrate::still_ours(&self.conn)?;
        let Some((held, offset)) = job else { return Ok(true) };
        let offset = *offset;
        let now = Timestamp::from_micros(self.clock.micros());
        let tx = Tx { conn: &self.conn, now, draft: &mut self.draft };
        let id: Option<uuid::Uuid> = tx
            .conn
            .prepare_cached(sql("log_identity"))?
            .query_row(params![held.partition, offset.0], |row| row.get(0))
            .optional()?;
        let Some(id) = id else { return Err(lost(BEGIN).into()) };
        let added = tx.conn.prepare_cached(sql("inbox_add"))?.execute(params![
            held.subscription,
            id,
            now.as_micros()
        ])?;
        if added == 0 {
            return Ok(false);
        }
        if !tx.still_held(held, offset)? {
            return Err(lost(BEGIN).into());
        }
        Ok(true)
    }

    fn obey(&mut self, waiting: &mpsc::Receiver<Command>, job: Option<&(ClaimRef, Offset)>, until: Instant) {
        while let Some(command) = next_command(waiting, until) {
            match command {
                Command::Run(run) => run(&self.conn),
                Command::Send(queue, messages, reply) => {
                    let sent = self.send_in_unit(queue, &messages);
                    let _ = reply.send(sent.map_err(|fault| fault.into_error("send in the transaction")));
                }
                Command::Commit(reply) => {
                    let outcome = self.commit_unit(job);
                    let _ = reply.send(outcome);
                    return;
                }
            }
            if self.conn.is_autocommit() {
                tracing::warn!("a statement ended the transaction that it was in");
                return;
            }
        }
    }

    /// Stores all of the messages or none: the handler may go on after a refusal, and then nothing of it may be
    /// left, least of all a dedup key that stands for a message that was never stored.
    fn send_in_unit(&mut self, queue: QueueId, messages: &[NewMessage]) -> Tried<Vec<Stored>> {
        self.step("savepoint send")?;
        let before = self.draft.mark();
        let now = Timestamp::from_micros(self.clock.micros());
        let mut tx = Tx { conn: &self.conn, now, draft: &mut self.draft };
        let sent = tx.append(queue, messages, Path::Outbox);
        // After a full disk SQLite may have rolled back everything, savepoints included.
        if self.conn.is_autocommit() {
            return sent;
        }
        if sent.is_err() {
            self.draft.back_to(before);
            self.step("rollback to send")?;
        }
        self.step("release send")?;
        sent
    }

    /// Last, the claim is looked at again: token and done bit (R15).
    fn commit_unit(&mut self, job: Option<&(ClaimRef, Offset)>) -> Result<()> {
        let now = Timestamp::from_micros(self.clock.micros());
        let mut tx = Tx { conn: &self.conn, now, draft: &mut self.draft };
        let held = job.map_or(Ok(true), |(held, offset)| tx.still_held(held, *offset));
        let ready = held.and_then(|held| tx.write_counts().map(|()| held));
        if !ready.map_err(|fault| fault.into_error(COMMIT))? {
            return Err(lost(COMMIT));
        }
        self.step("commit").map_err(|error| Error::new(code_of_commit(&error), COMMIT).because(error))?;
        self.draft.committed();
        Ok(())
    }
}

impl Tx<'_> {
    /// Whether the claim has this token still and the message is not settled in it.
    fn still_held(&self, held: &ClaimRef, offset: Offset) -> Tried<bool> {
        if sabotaged("no_fence") {
            return Ok(true);
        }
        let row = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 16]>>(1)?, row.get::<_, Vec<u8>>(4)?))
        };
        let mut get = self.conn.prepare_cached(sql("claim_get"))?;
        let claim =
            get.query_row(params![held.subscription, held.partition, held.to_offset.0], row).optional()?;
        Ok(claim.is_some_and(|(from, token, done)| {
            let place = offset.0.wrapping_sub(from.unsigned_abs()) as usize;
            token == Some(held.token.0) && !is_set(&done, place)
        }))
    }
}

/// The next command, or nothing when the handler dropped its side or the limit passed.
fn next_command(waiting: &mpsc::Receiver<Command>, until: Instant) -> Option<Command> {
    match waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(command) => Some(command),
        Err(mpsc::RecvTimeoutError::Disconnected) => None,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            tracing::warn!("a transaction was held to its limit; it was rolled back");
            None
        }
    }
}

fn lost(doing: &str) -> Error {
    Error::new(Code::LeaseLost, doing).because("another worker may have the message")
}

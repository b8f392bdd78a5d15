//! Transactions that a caller holds: a handler's own (M7), whose writes and the message's inbox row commit together, if the
//! lease is still held; and a plain one, which has no lease to check.
//!
//! Each has a connection for itself, from [`Log::begin`] until it ends. When its limit passes, the server is told to end
//! the connection, and rolls back. The connection does not commit by itself meanwhile: after a deadlock the server has
//! rolled back, and what a handler writes then belongs to no transaction that anybody commits.
//!
//! [`Log::begin`]: millpond_core::store::Log::begin

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{NewMessage, Offset};
use millpond_core::store::{Begun, BoxFuture, ClaimRef, EffectTx, Frame, Queue, Stored};
use mysql_async::Conn;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::append::{Path, append_within};
use crate::bits::Bits;
use crate::connect::MysqlStore;
use crate::connection::{Connection, Server, Target};
use crate::error::{Fault, Lost, Tried};
use crate::lane::Lane;
use crate::pool::{Lent, Pool};
use crate::queues::stored_queue;
use crate::runs::place;
use crate::sabotage::sabotaged;

const BEGIN: &str = "open the job's transaction";
const OPEN: &str = "open a transaction";
const COMMIT: &str = "commit the transaction";
const SEND: &str = "send in the transaction";

/// Of a plain transaction: set at its begin, and looked for at its commit.
const BEGIN_OF_ALL: &str = "savepoint millpond_unit";
const END_OF_ALL: &str = "release savepoint millpond_unit";

/// The side of a transaction that a caller holds that is MySQL's or MariaDB's.
pub struct MysqlTx {
    /// `None` once it is over.
    lent: Option<Lent>,
    /// The message whose lease the commit checks, if it is a handler's own.
    job: Option<(ClaimRef, Offset)>,
    watchdog: AbortHandle,
    lane: Lane,
}

impl std::fmt::Debug for MysqlTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MysqlTx").field("job", &self.job).finish_non_exhaustive()
    }
}

impl Drop for MysqlTx {
    fn drop(&mut self) {
        self.watchdog.abort();
        // The driver needs a runtime to close a connection: that of the lane.
        if let Some(lent) = self.lent.take() {
            if sabotaged("dropped_begin_is_kept") {
                lent.peek().forget_transaction();
                lent.give_back();
                return;
            }
            self.lane.drop_there(lent);
        }
    }
}

impl MysqlTx {
    /// The driver's connection with the open transaction, for statements.
    ///
    /// It must not begin, commit or roll back, and no statement may change a table's definition, which commits; a
    /// savepoint is fine.
    pub fn conn(&mut self) -> &mut Conn {
        self.lent.as_mut().expect("it is there until the commit").get().driver()
    }

    fn connection(&self) -> &Connection {
        self.lent.as_ref().expect("it is there until the commit").peek()
    }

    async fn commit_held(&mut self) -> Tried<()> {
        let lent = self.lent.take().expect("a transaction is committed once");
        let connection = lent.peek();
        let still = match &self.job {
            Some((held, offset)) => is_still_ours(connection, held, *offset).await,
            // The savepoint is gone if the server has rolled back: what was written since would be committed alone.
            None => connection.step(END_OF_ALL).await.map(|()| true),
        };
        // Nothing is committed yet: a lost connection has rolled it back.
        let refused = match still {
            Ok(true) => None,
            Ok(false) => Some(lost(COMMIT).into()),
            Err(fault) if self.job.is_none() && !fault.is_ambiguous() => Some(over(fault, COMMIT).into()),
            Err(fault) => return Err(fault.into_error(COMMIT, Lost::AskAgain).into()),
        };
        if let Some(refused) = refused {
            connection.rollback().await;
            give_back(lent).await;
            return Err(refused);
        }
        connection.commit().await?;
        give_back(lent).await;
        Ok(())
    }
}

/// Gives a connection back that commits by itself again.
async fn give_back(lent: Lent) {
    if lent.peek().step("set session autocommit = 1").await.is_ok() {
        lent.give_back();
    }
}

/// Opens a handler's transaction for one message of a claim, or one that belongs to no job.
pub(crate) fn begin(
    store: &MysqlStore,
    job: Option<(ClaimRef, Offset)>,
    limit: Duration,
) -> BoxFuture<'_, Result<Begun>> {
    let (lane, target) = (store.main.clone(), Arc::clone(&store.target));
    let doing = if job.is_some() { BEGIN } else { OPEN };
    store.main.take(doing, Lost::AskAgain, async move |lent: Lent| {
        let opened = open(lent.peek(), job.as_ref()).await;
        if !matches!(opened, Ok(true)) {
            lent.peek().rollback().await;
            give_back(lent).await;
            return opened.map(|_| Begun::AlreadyDone);
        }
        let server = lent.peek().server.clone();
        let watchdog = tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            tracing::warn!("a transaction was held to its limit; it is rolled back");
            if let Err(error) = end(&target, &server).await {
                tracing::warn!(%error, "its connection could not be ended");
            }
        });
        let watchdog = watchdog.abort_handle();
        Ok(Begun::Open(Box::new(MysqlTx { lent: Some(lent), job, watchdog, lane })))
    })
}

/// Tells the server to end one of our connections.
async fn end(target: &Arc<Target>, server: &Server) -> Tried<()> {
    Connection::open(target).await?.end(server).await.map(drop)
}

/// Begins; for a job, writes the inbox row, and looks whether the lease is held. False: the effect was committed before.
async fn open(connection: &Connection, job: Option<&(ClaimRef, Offset)>) -> Tried<bool> {
    connection.begun();
    let mut script = connection.new_script();
    script.step("set session autocommit = 0")?;
    script.begin()?;
    let Some((held, offset)) = job else {
        script.step(BEGIN_OF_ALL)?;
        connection.script(script).await?;
        return Ok(true);
    };
    let offset = *offset;
    let add = script.add("inbox_add", &[&held.subscription, &held.partition, &offset.0])?;
    let answers = connection.script(script).await?;
    let is_held = is_open(connection, "claim_get", held, offset).await?;
    match (answers[add].affected, is_held) {
        (1, true) => Ok(true),
        (1, false) => Err(lost(BEGIN).into()),
        _ => {
            // The row was there, or the log has no such message any more.
            let range = connection.rows("log_read_range", &[&held.partition, &offset.0, &offset.0]).await?;
            if range.is_empty() { Err(lost(BEGIN).into()) } else { Ok(false) }
        }
    }
}

/// Whether the transaction is still the one that wrote the inbox row, and the message still ours.
async fn is_still_ours(connection: &Connection, held: &ClaimRef, offset: Offset) -> Tried<bool> {
    let own =
        connection.row_if_any("inbox_of_offset", &[&held.subscription, &held.partition, &offset.0]).await?;
    Ok(own.is_some()
        && (sabotaged("no_fence") || is_open(connection, "claim_get_shared", held, offset).await?))
}

/// Whether the claim has this token still and the message is not settled in it.
async fn is_open(connection: &Connection, statement: &str, held: &ClaimRef, offset: Offset) -> Tried<bool> {
    let ClaimRef { subscription, partition, to_offset, token } = held;
    let token = Uuid::from_bytes(token.0);
    let found = connection.row_if_any(statement, &[subscription, partition, &to_offset.0, &token]).await?;
    let Some(claim) = found else { return Ok(false) };
    let done: Option<Bits> = claim.try_get(1)?;
    let is_done = |place: usize| done.as_ref().is_some_and(|done| done.is_set(place));
    let from: u64 = claim.try_get(0)?;
    Ok(from <= offset.0 && place(*to_offset, offset).is_some_and(|place| !is_done(place)))
}

impl EffectTx for MysqlTx {
    fn queue(&mut self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        Box::pin(async move {
            let found = stored_queue(self.connection(), &name)
                .await
                .map_err(|fault| over(fault, "look a queue up in the transaction"))?;
            Ok(found.map(|stored| stored.queue))
        })
    }

    fn send<'a>(
        &'a mut self,
        queue: &'a Queue,
        messages: Vec<NewMessage>,
    ) -> BoxFuture<'a, Result<Vec<Stored>>> {
        Box::pin(async move {
            let to_log = BTreeMap::new();
            let sent = append_within(self.connection(), queue.id, &messages, Path::Outbox, &to_log).await;
            sent.map_err(|fault| over(fault, SEND))
        })
    }

    fn frame(&mut self, frame: Frame) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for statement in frame.statements() {
                let step = self.connection().step(&statement).await;
                step.map_err(|fault| over(fault, "set a savepoint in the transaction"))?;
            }
            Ok(())
        })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            // To its end, whether or not the handler still waits.
            let lane = self.lane.clone();
            let commit = async move |_: Arc<Pool>| {
                self.commit_held().await.map_err(|fault| fault.into_error(COMMIT, Lost::MayHaveHappened))
            };
            lane.spawn(COMMIT, commit).await?
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn over(fault: Fault, doing: &str) -> Error {
    if fault.is_ambiguous() || fault.is_deadlock() {
        let why = "the transaction is over: its limit passed, it met another one, or the connection was lost";
        return Error::new(Code::StoreUnavailable, doing).because(why);
    }
    fault.into_error(doing, Lost::AskAgain)
}

fn lost(doing: &str) -> Error {
    Error::new(Code::LeaseLost, doing).because("another worker may have the message")
}

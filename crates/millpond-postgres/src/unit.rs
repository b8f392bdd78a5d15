//! Transactions that a caller holds: a handler's own (M7), whose writes and the message's inbox row commit together, if the
//! lease is still held; and a plain one, which has no lease to check.
//!
//! Each has a connection for itself, from [`Log::begin`] until it ends. When its limit passes, the connection is closed, and
//! the server rolls back.
//!
//! [`Log::begin`]: millpond_core::store::Log::begin

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{NewMessage, Offset};
use millpond_core::store::{Begun, BoxFuture, ClaimRef, EffectTx, Frame, Queue, Stored};
use tokio::task::AbortHandle;
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::append::{Path, append_within};
use crate::connect::PostgresStore;
use crate::connection::{Connection, Param};
use crate::error::{Fault, Lost, Tried};
use crate::lane::Lane;
use crate::pool::{Lent, Pool};
use crate::queues::stored_queue;
use crate::sabotage::sabotaged;
use crate::settle::narrow;
use crate::wake::Wake;

const BEGIN: &str = "open the job's transaction";
const OPEN: &str = "open a transaction";
const COMMIT: &str = "commit the transaction";
const SEND: &str = "send in the transaction";

/// Postgres' side of a transaction that a caller holds.
pub struct PostgresTx {
    /// `None` once it is over.
    lent: Option<Lent>,
    /// The message whose lease the commit checks, if it is a handler's own.
    job: Option<(ClaimRef, Offset)>,
    watchdog: AbortHandle,
    lane: Lane,
    wake: Wake,
}

impl std::fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTx").field("job", &self.job).finish_non_exhaustive()
    }
}

impl Drop for PostgresTx {
    fn drop(&mut self) {
        self.watchdog.abort();
        if sabotaged("dropped_begin_is_kept")
            && let Some(mut lent) = self.lent.take()
        {
            lent.get().forget_transaction();
            lent.give_back();
        }
    }
}

impl PostgresTx {
    /// The client of the open transaction, for statements.
    ///
    /// It must not begin, commit or roll back; a savepoint is fine. Through a proxy that shares connections use
    /// [`Client::query_typed`], or drop prepared statements before the commit: the next transaction may be given
    /// another connection.
    pub fn client(&self) -> &Client {
        &self.connection().client
    }

    fn connection(&self) -> &Connection {
        self.lent.as_ref().expect("it is there until the commit").peek()
    }

    async fn commit_held(&mut self) -> Tried<()> {
        let mut lent = self.lent.take().expect("a transaction is committed once");
        if let Some((held, offset)) = &self.job {
            let still = still_held(lent.peek(), "claim_still_held_at_commit", held, *offset).await;
            // Nothing is committed yet: a lost connection has rolled it back.
            let refused = |fault: Fault| {
                if fault.is_of_a_failed_transaction() {
                    return failed();
                }
                fault.into_error(COMMIT, Lost::AskAgain)
            };
            if !still.map_err(refused)? {
                lent.get().rollback().await;
                lent.give_back();
                return Err(lost(COMMIT).into());
            }
        }
        if self.job.is_none() {
            // The server answers the commit of a transaction in which a statement has failed with a rollback, and calls
            // that a success; every other statement is refused. (That of a job has asked for its claim.)
            let committed = lent.get().commit_if_whole().await;
            committed
                .map_err(|fault| if fault.is_of_a_failed_transaction() { failed().into() } else { fault })?;
        } else {
            lent.get().commit().await?;
        }
        lent.give_back();
        Ok(())
    }
}

/// Opens a handler's transaction for one message of a claim, or one that belongs to no job.
pub(crate) fn begin(
    store: &PostgresStore,
    job: Option<(ClaimRef, Offset)>,
    limit: Duration,
) -> BoxFuture<'_, Result<Begun>> {
    let (wake, lane) = (store.wake.clone(), store.main.clone());
    let doing = if job.is_some() { BEGIN } else { OPEN };
    store.main.take(doing, Lost::AskAgain, async move |mut lent: Lent| {
        let opened = open(lent.get(), job.as_ref(), limit).await;
        if !matches!(opened, Ok(true)) {
            lent.get().rollback().await;
            lent.give_back();
            return opened.map(|_| Begun::AlreadyDone);
        }
        let driver = lent.peek().driver();
        let watchdog = tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            tracing::warn!("a transaction was held to its limit; it was rolled back");
            driver.abort();
        });
        let watchdog = watchdog.abort_handle();
        Ok(Begun::Open(Box::new(PostgresTx { lent: Some(lent), job, watchdog, lane, wake })))
    })
}

/// Begins; for a job, writes the inbox row, and looks whether the lease is held. False: the effect was committed before.
async fn open(connection: &mut Connection, job: Option<&(ClaimRef, Offset)>, limit: Duration) -> Tried<bool> {
    // The server's own limits, for a node that is gone and does not say so. Locks of the handler count as its own time.
    let millis = limit.as_millis().clamp(1, 2_000_000_000);
    connection
        .begin(&format!(
            "begin; set local idle_in_transaction_session_timeout = {millis}; set local statement_timeout = {millis}; {}",
            connection.target.statements.get("still_ours")
        ))
        .await?;
    let Some((held, offset)) = job else { return Ok(true) };
    let offset = *offset;
    let (now, subscription, partition) =
        (connection.now(), narrow(held.subscription), narrow(held.partition));
    let offset_number = offset.0.cast_signed();
    let params: [Param<'_>; 4] = [
        (&subscription, Type::INT4),
        (&now, Type::INT8),
        (&partition, Type::INT4),
        (&offset_number, Type::INT8),
    ];
    let added = connection.run("inbox_add", &params).await?;
    let is_held = still_held(connection, "claim_still_held", held, offset).await?;
    match (added, is_held) {
        (1, true) => Ok(true),
        (1, false) => Err(lost(BEGIN).into()),
        _ => {
            // The row was there, or the log has no such message any more.
            let known = connection
                .rows(
                    "log_read_range",
                    &[(&partition, Type::INT4), (&offset_number, Type::INT8), (&offset_number, Type::INT8)],
                )
                .await?;
            if known.is_empty() { Err(lost(BEGIN).into()) } else { Ok(false) }
        }
    }
}

/// Whether the claim has this token still and the message is not settled in it.
async fn still_held(
    connection: &Connection,
    statement: &str,
    held: &ClaimRef,
    offset: Offset,
) -> Tried<bool> {
    if sabotaged("no_fence") {
        return Ok(true);
    }
    let (subscription, partition) = (narrow(held.subscription), narrow(held.partition));
    let (to_offset, token) = (held.to_offset.0.cast_signed(), Uuid::from_bytes(held.token.0));
    let offset = offset.0.cast_signed();
    let params: [Param<'_>; 5] = [
        (&subscription, Type::INT4),
        (&partition, Type::INT4),
        (&to_offset, Type::INT8),
        (&token, Type::UUID),
        (&offset, Type::INT8),
    ];
    Ok(connection.row_if_any(statement, &params).await?.is_some())
}

impl EffectTx for PostgresTx {
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
            let step = self.connection().step(&frame.statements().join("; ")).await;
            step.map_err(|fault| over(fault, "set a savepoint in the transaction"))
        })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            // To its end, whether or not the handler still waits.
            let lane = self.lane.clone();
            let commit = async move |_: Arc<Pool>| {
                let committed = self.commit_held().await;
                if committed.is_ok() {
                    self.wake.tell([]);
                }
                committed.map_err(|fault| fault.into_error(COMMIT, Lost::MayHaveHappened))
            };
            lane.spawn(COMMIT, commit).await?
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn over(fault: Fault, doing: &str) -> Error {
    if fault.is_ambiguous() {
        let why = "the transaction is over: its limit passed, or the connection was lost";
        return Error::new(Code::StoreUnavailable, doing).because(why);
    }
    fault.into_error(doing, Lost::AskAgain)
}

fn failed() -> Error {
    let why =
        "one of its statements had failed, and the server rolls back; put such a statement into a savepoint";
    Error::new(Code::StatementFailed, COMMIT).because(why)
}

fn lost(doing: &str) -> Error {
    Error::new(Code::LeaseLost, doing).because("another worker may have the message")
}

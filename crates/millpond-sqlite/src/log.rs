//! The log of the store: append, lease, settle, renew, take over. Each verb is one transaction of the writer.

use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{Leased, NewMessage, Offset, Token};
use millpond_core::pick::Lane;
use millpond_core::store::{
    Begun, BoxFuture, ClaimRef, Head, Lease, LeaseRequest, Log, Pulse, QueueId, Renewal, Renewed,
    SettleClaim, Settled, Stored, TakeOver, TakenOver,
};
use millpond_core::time::{Timestamp, micros};
use millpond_core::view::Wish;
use rusqlite::{Connection, OptionalExtension, named_params};

use crate::append::Path;
use crate::connect::SqliteStore;
use crate::error::Tried;
use crate::migrate;
use crate::sql::sql;
use crate::take_over::expired;
use crate::writer::Durable;

impl Log for SqliteStore {
    fn append(&self, queue: QueueId, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<Vec<Stored>>> {
        self.writer.write(Durable::Yes, "store messages", move |tx| tx.append(queue, &messages, Path::Log))
    }

    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease>> {
        self.writer.write(Durable::No, "lease messages", move |tx| tx.lease(&request))
    }

    fn settle(&self, claims: Vec<SettleClaim>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        self.writer.write(Durable::No, "settle messages", move |tx| {
            claims.iter().map(|claim| tx.settle(claim)).collect()
        })
    }

    fn renew(&self, renewal: Renewal) -> BoxFuture<'_, Result<Renewed>> {
        Box::pin(async move {
            let doing = "renew a lease";
            if let Some(lane) = &self.renewal {
                let asked = renewal.clone();
                match lane.call(doing, move |conn, now| renew(conn, now, &asked)).await {
                    // Only the writer can give the reserve back.
                    Err(error) if error.code() == Code::StorageFull => {}
                    answer => return answer,
                }
            }
            self.writer.write(Durable::No, doing, move |tx| renew(tx.conn, tx.now, &renewal)).await
        })
    }

    fn unsettled(&self, held: ClaimRef) -> BoxFuture<'_, Result<Vec<Leased>>> {
        self.writer.write(Durable::No, "look into a claim", move |tx| tx.unsettled_of(&held))
    }

    fn end_worker(&self, worker: String) -> BoxFuture<'_, Result<()>> {
        self.writer.write(Durable::No, "end a worker", move |tx| {
            let named = named_params! { ":id": worker, ":now": tx.now.as_micros() };
            tx.conn.prepare_cached(sql("worker_end"))?.execute(named)?;
            Ok(())
        })
    }

    fn take_over(&self, request: TakeOver) -> BoxFuture<'_, Result<Vec<TakenOver>>> {
        Box::pin(async move {
            // Nearly always there is nothing: then the one write lock is left alone.
            let asked = request.clone();
            let any = move |conn: &Connection, now| Ok(!expired(conn, now, &asked)?.is_empty());
            if !self.read("find lost claims", any).await? {
                return Ok(Vec::new());
            }
            let tokens = tokens(request.claims_max)?;
            #[cfg(feature = "sabotage")]
            if crate::sabotage::sabotaged("reclaim_without_cas") {
                return self.take_over_without_cas(request, tokens).await;
            }
            self.writer
                .write(Durable::No, "take claims over", move |tx| {
                    let expired = expired(tx.conn, tx.now, &request)?;
                    tx.take_over(&request, &expired, &tokens)
                })
                .await
        })
    }

    fn begin(&self, held: ClaimRef, offset: Offset, limit: Duration) -> BoxFuture<'_, Result<Begun>> {
        self.begin_unit(Some((held, offset)), limit)
    }

    fn pulse(&self, queues: Vec<QueueId>) -> BoxFuture<'_, Result<Pulse>> {
        self.read("look for work", move |conn, now| pulse(conn, now, &queues, false))
    }

    fn changed(&self) -> BoxFuture<'_, Vec<QueueId>> {
        let changed = self.probe.changed();
        Box::pin(async move {
            changed.await;
            // Of which queue is not known.
            Vec::new()
        })
    }
}

#[cfg(feature = "sabotage")]
impl SqliteStore {
    /// The known bug: what was read in one transaction is acted on in a later one, without comparing.
    async fn take_over_without_cas(&self, request: TakeOver, tokens: Vec<Token>) -> Result<Vec<TakenOver>> {
        let asked = request.clone();
        let expired =
            self.writer.write(Durable::No, "find claims", move |tx| expired(tx.conn, tx.now, &asked)).await?;
        let wait = Duration::from_millis(u64::from(tokens[0].0[0]) * 4);
        tokio::time::sleep(wait).await;
        self.writer
            .write(Durable::No, "take claims over", move |tx| tx.take_over(&request, &expired, &tokens))
            .await
    }
}

/// As many random tokens.
fn tokens(count: usize) -> Result<Vec<Token>> {
    let mut bits = vec![0; count * 16];
    getrandom::fill(&mut bits)
        .map_err(|error| Error::new(Code::Internal, "draw lease tokens").because(error.to_string()))?;
    Ok(bits.as_chunks().0.iter().map(|bits| Token(*bits)).collect())
}

fn renew(conn: &Connection, now: Timestamp, renewal: &Renewal) -> Tried<Renewed> {
    // A lease that goes on would keep from others what this process can settle no more.
    migrate::still_ours(conn)?;
    let queues = serde_json::json!(renewal.queues).to_string();
    conn.prepare_cached(sql("worker_renew"))?.execute(named_params! {
        ":id": renewal.worker, ":host": renewal.host, ":queues": queues, ":slots": renewal.slots,
        ":busy": renewal.busy, ":error": renewal.error, ":now": now.as_micros(), ":lease": micros(renewal.lease),
        ":facts": serde_json::json!(renewal.facts).to_string(),
    })?;
    let mut list = conn.prepare_cached(sql("claim_of_worker"))?;
    let rows = list.query_map([&renewal.worker], |row| {
        Ok(ClaimRef {
            subscription: row.get(0)?,
            partition: row.get(1)?,
            to_offset: Offset(row.get::<_, i64>(2)?.unsigned_abs()),
            token: Token(row.get(3)?),
        })
    })?;
    let claims = rows.collect::<rusqlite::Result<_>>()?;
    let mut list = conn.prepare_cached(sql("cancel_of_worker"))?;
    let cancels = list.query_map([&renewal.worker], |row| {
        Ok((Token(row.get(0)?), Offset(row.get::<_, i64>(1)?.unsigned_abs())))
    })?;
    let cancels = cancels.collect::<rusqlite::Result<_>>()?;
    let mut wished = conn.prepare_cached(sql("worker_wished"))?;
    let wish: Option<String> = wished.query_row([&renewal.worker], |row| row.get(0)).optional()?.flatten();
    Ok(Renewed { now, claims, wish: wish.as_deref().and_then(Wish::parse), cancels })
}

/// What is where in these queues; without `paused`, those that are paused are left out.
pub(crate) fn pulse(conn: &Connection, now: Timestamp, queues: &[QueueId], paused: bool) -> Tried<Pulse> {
    let ids = serde_json::json!(queues.iter().map(|queue| queue.0).collect::<Vec<_>>()).to_string();
    let mut list = conn.prepare_cached(sql("pulse_heads"))?;
    let named = named_params! { ":queues": ids, ":now": now.as_micros(), ":paused": paused };
    let rows = list.query_map(named, |row| {
        let lane = Lane::from_number(row.get(2)?).unwrap_or(Lane::Main);
        Ok(Head {
            queue: QueueId(row.get(0)?),
            class: row.get(1)?,
            lane,
            ready: row.get::<_, i64>(3)?.unsigned_abs(),
            oldest: row.get::<_, Option<i64>>(4)?.map(Timestamp::from_micros),
        })
    })?;
    let heads = rows.collect::<rusqlite::Result<_>>()?;
    let next = conn.prepare_cached(sql("outbox_next"))?.query_row([], |row| row.get(0)).optional()?;
    let mut number = conn.prepare_cached(sql("declarations_number"))?;
    let declarations = number.query_row([], |row| row.get(0))?;
    Ok(Pulse { now, heads, next_due: next.map(Timestamp::from_micros), declarations })
}

//! The log of the store: append, lease, settle, renew, take over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::error::Result;
use millpond_core::message::{Leased, NewMessage, Offset, Token};
use millpond_core::pick::Lane;
use millpond_core::store::{
    Begun, BoxFuture, ClaimRef, Head, Lease, LeaseRequest, Log, Pulse, QueueId, Renewal, Renewed,
    SettleClaim, Settled, Stored, TakeOver, TakenOver,
};
use millpond_core::time::{Timestamp, micros};
use millpond_core::view::Wish;
use millpond_sql::Quiet;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::append::{Path, append_within, classes_at_once, number};
use crate::cell::{count, instant, instant_if_any, small};
use crate::connect::PostgresStore;
use crate::connection::{Connection, Param};
use crate::error::{Lost, Tried};
use crate::floor::Floor;
use crate::lease::lease;
use crate::settle::settle;
use crate::{take_over, unit};

impl Log for PostgresStore {
    fn append(&self, queue: QueueId, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<Vec<Stored>>> {
        if messages.iter().all(|message| message.dedup.is_none()) {
            return self.sender.send(queue, messages);
        }
        Box::pin(async move {
            let stored = self.append_with_keys(queue, messages).await?;
            self.wake.tell([queue]);
            Ok(stored)
        })
    }

    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease>> {
        self.main.call("lease messages", Lost::AskAgain, async move |connection: &mut Connection| {
            lease(connection, &request).await
        })
    }

    fn settle(&self, claims: Vec<SettleClaim>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        let homes = std::sync::Arc::clone(&self.homes);
        self.main.call("settle messages", Lost::AskAgain, async move |connection: &mut Connection| {
            settle(connection, &homes, &claims).await
        })
    }

    fn renew(&self, renewal: Renewal) -> BoxFuture<'_, Result<Renewed>> {
        let quiet = Arc::clone(&self.quiet);
        self.renewal.call("renew a lease", Lost::AskAgain, async move |connection: &mut Connection| {
            let renewed = renew(connection, &renewal).await;
            quiet.forget();
            renewed
        })
    }

    fn unsettled(&self, held: ClaimRef) -> BoxFuture<'_, Result<Vec<Leased>>> {
        self.read("look into a claim", async move |connection: &mut Connection| {
            take_over::unsettled_of(connection, &held).await
        })
    }

    fn end_worker(&self, worker: String) -> BoxFuture<'_, Result<()>> {
        let quiet = Arc::clone(&self.quiet);
        self.renewal.call("end a worker", Lost::AskAgain, async move |connection: &mut Connection| {
            let now = connection.now();
            let ended = connection.run("worker_end", &[(&worker, Type::TEXT), (&now, Type::INT8)]).await;
            quiet.forget();
            ended.map(drop)
        })
    }

    fn take_over(&self, request: TakeOver) -> BoxFuture<'_, Result<Vec<TakenOver>>> {
        // A clock that somebody moves makes what was seen just now worth nothing.
        if self.target.clock.is_none() && self.quiet.is_quiet() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        self.main.call("take claims over", Lost::AskAgain, async move |connection: &mut Connection| {
            take_over::take_over(connection, &request).await
        })
    }

    fn begin(&self, held: ClaimRef, offset: Offset, limit: Duration) -> BoxFuture<'_, Result<Begun>> {
        unit::begin(self, Some((held, offset)), limit)
    }

    fn pulse(&self, queues: Vec<QueueId>) -> BoxFuture<'_, Result<Pulse>> {
        let (floor, quiet) = (Arc::clone(&self.floor), Arc::clone(&self.quiet));
        self.read("look for work", async move |connection: &mut Connection| {
            pulse(connection, &queues, &floor, &quiet).await
        })
    }

    fn changed(&self) -> BoxFuture<'_, Vec<QueueId>> {
        Box::pin(self.wake.changed())
    }
}

impl PostgresStore {
    /// A send with dedup keys: outside of the group commit, because another transaction may hold a key for as long as
    /// its user likes (R16).
    async fn append_with_keys(&self, queue: QueueId, messages: Vec<NewMessage>) -> Result<Vec<Stored>> {
        let (doing, partitions) = ("store messages", std::sync::Arc::clone(&self.sender.partitions));
        self.main
            .call(doing, Lost::MayHaveHappened, async move |connection: &mut Connection| {
                // Made before, in a transaction of their own.
                let mut main = BTreeMap::new();
                for class in classes_at_once(&messages) {
                    main.insert(class, partitions.main(connection, queue, class).await?);
                }
                let store = async |connection: &mut Connection| {
                    append_within(connection, queue, &messages, Path::Log, &main).await
                };
                connection.transaction("begin", store).await
            })
            .await
    }
}

/// As many random tokens.
pub(crate) fn tokens(count: usize) -> Result<Vec<Token>> {
    use millpond_core::error::{Code, Error};
    let mut bits = vec![0; count * 16];
    getrandom::fill(&mut bits)
        .map_err(|error| Error::new(Code::Internal, "draw lease tokens").because(error.to_string()))?;
    Ok(bits.as_chunks().0.iter().map(|bits| Token(*bits)).collect())
}

async fn renew(connection: &Connection, renewal: &Renewal) -> Tried<Renewed> {
    let (now, lease) = (connection.now(), micros(renewal.lease));
    let (slots, busy) = (renewal.slots.cast_signed(), renewal.busy.cast_signed());
    let facts = serde_json::json!(renewal.facts).to_string();
    let params: [Param<'_>; 9] = [
        (&now, Type::INT8),
        (&renewal.worker, Type::TEXT),
        (&renewal.host, Type::TEXT),
        (&renewal.queues, Type::TEXT_ARRAY),
        (&slots, Type::INT4),
        (&busy, Type::INT4),
        (&renewal.error, Type::TEXT),
        (&lease, Type::INT8),
        (&facts, Type::TEXT),
    ];
    let rows = connection.rows("renew", &params).await?;
    let now = rows.first().map_or(0, |row| row.get(0));
    let wish = rows.first().and_then(|row| row.get::<_, Option<&str>>(1)).and_then(Wish::parse);
    let claims: Vec<ClaimRef> = rows.iter().filter_map(held).collect();
    let cancels = rows.iter().flat_map(|row| {
        let token = held(row).map(|held| held.token);
        let offsets = row.get::<_, Option<Vec<i64>>>(6).unwrap_or_default();
        offsets.into_iter().filter_map(move |offset| Some((token?, Offset(offset.unsigned_abs()))))
    });
    Ok(Renewed { now: Timestamp::from_micros(now), wish, cancels: cancels.collect(), claims })
}

/// A row of `renew`; the first says the time and may have no claim.
fn held(row: &Row) -> Option<ClaimRef> {
    Some(ClaimRef {
        token: Token(row.get::<_, Option<Uuid>>(5)?.into_bytes()),
        subscription: row.get::<_, i32>(2).into(),
        partition: row.get::<_, i32>(3).into(),
        to_offset: Offset(row.get::<_, i64>(4).unsigned_abs()),
    })
}

/// One statement for all queues of an idle node, and for its reclaim (R14).
async fn pulse(connection: &Connection, queues: &[QueueId], floor: &Floor, quiet: &Quiet) -> Tried<Pulse> {
    let (now, at) = (connection.now(), Instant::now());
    let (question, looks) = (floor.ask(at), quiet.wants_a_look());
    let queues: Vec<i32> = queues.iter().map(|queue| number(*queue)).collect();
    let params: [Param<'_>; 5] = [
        (&now, Type::INT8),
        (&queues, Type::INT4_ARRAY),
        (&false, Type::BOOL),
        (&question.low, Type::INT8),
        (&looks, Type::BOOL),
    ];
    let rows = connection.rows("pulse", &params).await?;
    let Some(first) = rows.first() else { return Ok(Pulse::default()) };
    floor.answered(question, first.get(0), first.get(1));
    if looks {
        quiet.looked(at, !first.get::<_, bool>(8));
    }
    Ok(Pulse {
        now: instant(first, 0),
        next_due: instant_if_any(first, 1),
        declarations: count(first, 2),
        heads: rows.iter().filter_map(head).collect(),
    })
}

/// A row of `pulse`; the first says the time and may have no part.
fn head(row: &Row) -> Option<Head> {
    Some(Head {
        queue: QueueId(row.get::<_, Option<i32>>(3)?.into()),
        class: small(row, 4),
        lane: Lane::from_number(small(row, 5)).unwrap_or(Lane::Main),
        ready: count(row, 6),
        oldest: instant_if_any(row, 7),
    })
}

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
use millpond_core::time::micros;
use millpond_core::view::Wish;
use millpond_sql::Quiet;
use uuid::Uuid;

use crate::append::{Path, append_within, classes_at_once, number};
use crate::connect::MysqlStore;
use crate::connection::Connection;
use crate::error::{Lost, Tried};
use crate::lease::lease;
use crate::literal::List;
use crate::row::Row;
use crate::settle::settle;
use crate::{take_over, unit};

impl Log for MysqlStore {
    fn append(&self, queue: QueueId, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<Vec<Stored>>> {
        if messages.iter().all(|message| message.dedup.is_none()) {
            return self.sender.send(queue, messages);
        }
        Box::pin(self.append_with_keys(queue, messages))
    }

    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease>> {
        self.main.call("lease messages", Lost::AskAgain, async move |connection: &mut Connection| {
            lease(connection, &request).await
        })
    }

    fn settle(&self, claims: Vec<SettleClaim>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        self.main.call("settle messages", Lost::AskAgain, async move |connection: &mut Connection| {
            settle(connection, &claims).await
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
            let ended = connection.run("worker_end", &[&worker]).await.map(drop);
            quiet.forget();
            ended
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
        let quiet = Arc::clone(&self.quiet);
        self.read("look for work", async move |connection: &mut Connection| {
            pulse(connection, &queues, &quiet).await
        })
    }

    /// The server has no way to tell of a commit: other processes are found by polling.
    fn changed(&self) -> BoxFuture<'_, Vec<QueueId>> {
        Box::pin(std::future::pending())
    }
}

impl MysqlStore {
    /// A send with dedup keys: outside of the group commit, because another transaction may hold a key for as long as
    /// its user likes (R16).
    async fn append_with_keys(&self, queue: QueueId, messages: Vec<NewMessage>) -> Result<Vec<Stored>> {
        let (doing, partitions) = ("store messages", Arc::clone(&self.sender.partitions));
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
                connection.change(store).await
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

/// Writes a worker's heartbeat and moves its lease. A renewal that was on its way when its worker ended does not bring
/// it back.
async fn renew(connection: &Connection, renewal: &Renewal) -> Tried<Renewed> {
    let Renewal { worker, host, slots, busy, error, .. } = renewal;
    let (lease, queues) = (micros(renewal.lease), serde_json::json!(renewal.queues).to_string());
    let facts = serde_json::json!(renewal.facts).to_string();
    let mut script = connection.new_script();
    script.add("still_ours", &[])?;
    script.add("worker_renew", &[worker, host, &queues, slots, busy, error, &lease, &facts])?;
    let seen = script.add("worker_seen", &[worker])?;
    let answers = connection.script(script).await?;
    let rows = &answers[seen].rows;
    let mut claims: Vec<ClaimRef> = rows.iter().filter_map(held).collect();
    claims.dedup();
    let cancel = |row: &Row| Some((held(row)?.token, Offset(row.get::<_, Option<u64>>(6)?)));
    Ok(Renewed {
        now: rows.first().map(|row| row.get(0)).unwrap_or_default(),
        wish: rows.first().and_then(|row| row.get::<_, Option<&str>>(1)).and_then(Wish::parse),
        claims,
        cancels: rows.iter().filter_map(cancel).collect(),
    })
}

/// A row of `worker_seen`, if there is a claim in it.
fn held(row: &Row) -> Option<ClaimRef> {
    Some(ClaimRef {
        token: Token(row.get::<_, Option<Uuid>>(5)?.into_bytes()),
        subscription: row.get(2),
        partition: row.get(3),
        to_offset: Offset(row.get(4)),
    })
}

/// One statement for all queues of an idle node, and for its reclaim (R14).
async fn pulse(connection: &Connection, queues: &[QueueId], quiet: &Quiet) -> Tried<Pulse> {
    let queues = List(queues.iter().map(|queue| number(*queue)).collect());
    let (at, looks) = (Instant::now(), quiet.wants_a_look());
    let rows = connection.rows("pulse", &[&queues, &looks]).await?;
    let Some(first) = rows.first() else { return Ok(Pulse::default()) };
    if looks {
        quiet.looked(at, !first.try_get::<_, bool>(8)?);
    }
    Ok(Pulse {
        now: first.get(0),
        next_due: first.get(1),
        declarations: first.get(2),
        heads: rows.iter().filter_map(head).collect(),
    })
}

/// A row of `pulse`; there is one with the time alone if there is no part.
fn head(row: &Row) -> Option<Head> {
    Some(Head {
        queue: QueueId(row.get::<_, Option<i64>>(3)?),
        class: row.get(4),
        lane: Lane::from_number(row.get(5)).unwrap_or(Lane::Main),
        ready: row.get(6),
        oldest: row.get(7),
    })
}

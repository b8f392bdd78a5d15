//! What people ask: queues with their counts, one message, dead letters, workers. Every answer is of one moment.

use std::collections::HashMap;

use millpond_core::error::Result;
use millpond_core::message::{JSON, MessageId};
use millpond_core::reason::OutboxReason;
use millpond_core::state::{Place, State};
use millpond_core::store::{BoxFuture, Inspect, Queue};
use millpond_core::time::Timestamp;
use millpond_core::view::{DeadFilter, DeadLetterView, MessageView, Page, QueueView, WorkerView};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::bits::Bits;
use crate::connect::PostgresStore;
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::find::message_view;
use crate::queues::stored_queues;

impl Inspect for PostgresStore {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        self.at_one_moment("count messages", async |connection: &mut Connection| {
            queue_views(connection).await
        })
    }

    fn message(&self, id: MessageId) -> BoxFuture<'_, Result<Option<MessageView>>> {
        self.at_one_moment("look a message up", async move |connection: &mut Connection| {
            message_view(connection, id).await
        })
    }

    fn dead_letters(&self, filter: DeadFilter, page: Page) -> BoxFuture<'_, Result<Vec<DeadLetterView>>> {
        self.read("list dead letters", async move |connection: &mut Connection| {
            dead_letters(connection, &filter, page).await
        })
    }

    fn dead_letter_count(&self, filter: DeadFilter) -> BoxFuture<'_, Result<u64>> {
        self.read("count dead letters", async move |connection: &mut Connection| {
            let ids = ids(&filter);
            let row = connection.row("inspect_dead_letter_count", &dead_params(&filter, &ids)).await?;
            Ok(row.get::<_, i64>(0).unsigned_abs())
        })
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerView>>> {
        self.read("list workers", async |connection: &mut Connection| {
            Ok(connection.rows("inspect_workers", &[]).await?.iter().map(worker_view).collect())
        })
    }
}

/// A stored time.
pub(crate) fn instant(row: &Row, column: usize) -> Timestamp {
    Timestamp::from_micros(row.get(column))
}

/// A stored time that may be missing.
pub(crate) fn instant_if_any(row: &Row, column: usize) -> Option<Timestamp> {
    row.get::<_, Option<i64>>(column).map(Timestamp::from_micros)
}

/// A count.
pub(crate) fn count(row: &Row, column: usize) -> u64 {
    row.get::<_, i64>(column).unsigned_abs()
}

/// The views of all queues, by number.
type Views = HashMap<i32, QueueView>;

async fn queue_views(connection: &Connection) -> Tried<Vec<QueueView>> {
    let queues = stored_queues(connection).await?;
    let order: Vec<i32> = queues.iter().map(|queue| crate::append::number(queue.id)).collect();
    let mut views: Views = order.iter().copied().zip(queues.into_iter().map(empty)).collect();
    let now = connection.now();
    for row in connection.rows("inspect_heads", &[(&now, Type::INT8)]).await? {
        change(&mut views, &row, |view| {
            view.ready += count(&row, 1);
            view.oldest_ready = [view.oldest_ready, instant_if_any(&row, 2)].into_iter().flatten().min();
        });
    }
    for row in connection.rows("inspect_leased", &[]).await? {
        let settled = row.try_get::<_, Option<Bits>>(2)?.map_or(0, |done| done.count());
        change(&mut views, &row, |view| view.leased += count(&row, 1).saturating_sub(settled.into()));
    }
    for row in connection.rows("inspect_outbox", &[]).await? {
        // A word of a later release counts as what it is at least: waiting.
        let reason = OutboxReason::parse(row.get(1)).unwrap_or(OutboxReason::Delay);
        let attempt = u32::from(row.get::<_, bool>(2));
        change(&mut views, &row, |view| match State::of(Place::Outbox { reason, attempt }) {
            State::Retrying => view.retrying += count(&row, 3),
            _ => view.scheduled += count(&row, 3),
        });
    }
    for row in connection.rows("inspect_dead", &[]).await? {
        change(&mut views, &row, |view| view.dead = count(&row, 1));
    }
    for row in connection.rows("inspect_stat", &[]).await? {
        change(&mut views, &row, |view| (view.sent, view.done) = (count(&row, 1), count(&row, 2)));
    }
    let mut views: Vec<QueueView> = order.iter().filter_map(|id| views.remove(id)).collect();
    for row in connection.rows("inspect_listeners", &[(&now, Type::INT8)]).await? {
        let name: &str = row.get(0);
        for view in views.iter_mut().filter(|view| view.name == name) {
            view.listeners = count(&row, 1);
        }
    }
    Ok(views)
}

fn empty(queue: Queue) -> QueueView {
    QueueView {
        name: queue.name,
        settings: queue.settings,
        ready: 0,
        leased: 0,
        scheduled: 0,
        retrying: 0,
        dead: 0,
        done: 0,
        sent: 0,
        oldest_ready: None,
        listeners: 0,
    }
}

/// Changes the view of the queue that is in the first column.
fn change(views: &mut Views, row: &Row, change: impl FnOnce(&mut QueueView)) {
    if let Some(view) = views.get_mut(&row.get::<_, i32>(0)) {
        change(view);
    }
}

async fn dead_letters(
    connection: &Connection,
    filter: &DeadFilter,
    page: Page,
) -> Tried<Vec<DeadLetterView>> {
    let ids = ids(filter);
    let most = i64::try_from(page.rows_max).unwrap_or(i64::MAX);
    let skip = i64::try_from(page.skip).unwrap_or(i64::MAX);
    let mut params = dead_params(filter, &ids).to_vec();
    params.extend([(&most as _, Type::INT8), (&skip as _, Type::INT8)]);
    let rows = connection.rows("inspect_dead_letters", &params).await?;
    Ok(rows.iter().map(dead_letter_view).collect())
}

fn dead_params<'p>(filter: &'p DeadFilter, ids: &'p Option<Vec<Uuid>>) -> [Param<'p>; 3] {
    [(&filter.queue, Type::TEXT), (&filter.reason, Type::TEXT), (ids, Type::UUID_ARRAY)]
}

/// The ids of a filter; nothing when all match.
fn ids(filter: &DeadFilter) -> Option<Vec<Uuid>> {
    (!filter.ids.is_empty()).then(|| filter.ids.iter().map(|id| id.0).collect())
}

fn dead_letter_view(row: &Row) -> DeadLetterView {
    let queue: String = row.get(1);
    DeadLetterView {
        id: MessageId(row.get(0)),
        kind: row.get::<_, Option<String>>(2).unwrap_or_else(|| queue.clone()),
        queue,
        key: row.get(3),
        reason: row.get(4),
        detail: row.get(5),
        attempt: row.get::<_, i32>(6).unsigned_abs(),
        content_type: row.get::<_, Option<String>>(7).unwrap_or_else(|| JSON.to_owned()),
        body: row.get(8),
        sent_at: instant(row, 9),
        died_at: instant(row, 10),
    }
}

fn worker_view(row: &Row) -> WorkerView {
    WorkerView {
        id: row.get(0),
        host: row.get(1),
        queues: row.get(2),
        slots: row.get::<_, i32>(3).unsigned_abs(),
        busy: row.get::<_, i32>(4).unsigned_abs(),
        started_at: instant(row, 5),
        seen_at: instant(row, 6),
        lease_until: instant(row, 7),
        stopped: row.get(8),
        error: row.get(9),
    }
}

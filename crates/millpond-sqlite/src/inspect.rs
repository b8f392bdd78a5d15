//! What people ask: queues with their counts, one message, dead letters, workers. Every answer is of one moment.

use std::collections::HashMap;

use millpond_core::error::Result;
use millpond_core::message::MessageId;
use millpond_core::query::Query;
use millpond_core::store::{BoxFuture, Inspect, Queue, QueueId};
use millpond_core::time::Timestamp;
use millpond_core::view::{
    DeadLetterView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView, OutboxRow, OutboxSummary,
    QueueView, StoreInfo, Wish, WorkerView,
};
use rusqlite::{Connection, Params, Row, named_params};

use crate::change::setting_changes;
use crate::connect::{SqliteStore, at_one_moment};
use crate::dead_letters::{dead_letters, groups};
use crate::error::Tried;
use crate::info::info;
use crate::limit::{buckets, unsettled};
use crate::log::pulse;
use crate::message::{instant, message_view};
use crate::messages::messages;
use crate::pause::{holding, pauses};
use crate::queues::stored_queues;
use crate::sql::sql;
use crate::waiting::{outbox, summary};

impl Inspect for SqliteStore {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueView>>> {
        self.read("count messages", |conn, now| at_one_moment(conn, || queue_views(conn, now)))
    }

    fn message(&self, id: MessageId) -> BoxFuture<'_, Result<Option<MessageView>>> {
        self.read("look a message up", move |conn, now| at_one_moment(conn, || message_view(conn, now, id)))
    }

    fn messages(&self, find: Find) -> BoxFuture<'_, Result<Found<MessageRow>>> {
        self.ask("list messages", move |conn, now| messages(conn, now, &find))
    }

    fn dead_letters(&self, find: Find) -> BoxFuture<'_, Result<Found<DeadLetterView>>> {
        self.ask("list dead letters", move |conn, now| dead_letters(conn, now, &find))
    }

    fn dead_letter_groups(&self, query: Query, by: GroupBy) -> BoxFuture<'_, Result<Vec<FailureGroup>>> {
        self.ask("group dead letters", move |conn, now| groups(conn, now, &query, by))
    }

    fn outbox(&self, find: Find) -> BoxFuture<'_, Result<Found<OutboxRow>>> {
        self.ask("list the outbox", move |conn, now| outbox(conn, now, &find))
    }

    fn outbox_summary(&self) -> BoxFuture<'_, Result<Vec<OutboxSummary>>> {
        self.ask("sum the outbox up", summary)
    }

    fn info(&self) -> BoxFuture<'_, Result<StoreInfo>> {
        let file = self.file.clone();
        self.ask("look at the store", move |conn, now| info(conn, now, file.as_ref()))
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerView>>> {
        self.read("list workers", |conn, _| {
            let mut list = conn.prepare_cached(sql("inspect_workers"))?;
            let rows = list.query_map([], worker_view)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }
}

/// Runs a statement and hands over each of its rows.
fn each(
    conn: &Connection,
    name: &str,
    given: impl Params,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Tried<()> {
    let mut statement = conn.prepare_cached(sql(name))?;
    let mut rows = statement.query(given)?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

fn queue_views(conn: &Connection, now: Timestamp) -> Tried<Vec<QueueView>> {
    let queues = stored_queues(conn)?;
    let ids: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
    let mut views: HashMap<QueueId, QueueView> =
        queues.into_iter().map(|queue| (queue.id, empty(queue))).collect();
    for head in pulse(conn, now, &ids, true)?.heads {
        change(&mut views, head.queue, |view| {
            view.ready += head.ready;
            view.oldest_ready = [view.oldest_ready, head.oldest].into_iter().flatten().min();
        });
    }
    each(conn, "inspect_leased", [], |row| {
        let unsettled = unsettled(row, 1)?;
        change(&mut views, QueueId(row.get(0)?), |view| view.leased += unsettled as u64);
        Ok(())
    })?;
    each(conn, "inspect_outbox", [], |row| {
        let (count, retrying): (u64, u64) = (row.get(1)?, row.get(2)?);
        change(&mut views, QueueId(row.get(0)?), |view| {
            (view.retrying, view.scheduled) = (retrying, count - retrying);
        });
        Ok(())
    })?;
    each(conn, "inspect_dead", [], |row| {
        let count = row.get(1)?;
        change(&mut views, QueueId(row.get(0)?), |view| view.dead = count);
        Ok(())
    })?;
    each(conn, "inspect_stat", [], |row| {
        let (sent, done) = (row.get(1)?, row.get(2)?);
        change(&mut views, QueueId(row.get(0)?), |view| (view.sent, view.done) = (sent, done));
        Ok(())
    })?;
    let pauses = pauses(conn, now)?;
    for (id, view) in &mut views {
        view.paused_by = holding(&pauses, *id);
    }
    for (id, full_at) in buckets(conn)? {
        change(&mut views, id, |view| view.rate_until = view.settings.limits().rate_until(full_at, now));
    }
    for (id, changed) in setting_changes(conn)? {
        change(&mut views, id, |view| view.changes.push(changed));
    }
    let mut views: Vec<QueueView> = ids.iter().filter_map(|id| views.remove(id)).collect();
    each(conn, "inspect_listeners", named_params! { ":now": now.as_micros() }, |row| {
        let (name, count): (String, u64) = (row.get(0)?, row.get(1)?);
        for view in views.iter_mut().filter(|view| view.name == name) {
            view.listeners = count;
        }
        Ok(())
    })?;
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
        changes: Vec::new(),
        paused_by: Vec::new(),
        rate_until: None,
    }
}

fn change(views: &mut HashMap<QueueId, QueueView>, queue: QueueId, change: impl FnOnce(&mut QueueView)) {
    if let Some(view) = views.get_mut(&queue) {
        change(view);
    }
}

fn worker_view(row: &Row<'_>) -> rusqlite::Result<WorkerView> {
    let queues: String = row.get(2)?;
    let (facts, wish): (Option<String>, Option<String>) = (row.get(10)?, row.get(11)?);
    Ok(WorkerView {
        id: row.get(0)?,
        host: row.get(1)?,
        queues: serde_json::from_str(&queues).unwrap_or_default(),
        slots: row.get(3)?,
        busy: row.get(4)?,
        started_at: instant(row.get(5)?),
        seen_at: instant(row.get(6)?),
        lease_until: instant(row.get(7)?),
        stopped: row.get(8)?,
        error: row.get(9)?,
        facts: facts.and_then(|facts| serde_json::from_str(&facts).ok()).unwrap_or_default(),
        wish: wish.as_deref().and_then(Wish::parse),
    })
}

//! What people ask: queues with their counts, one message, dead letters, workers. Every answer is of one moment.

use std::collections::HashMap;

use crate::row::Row;
use millpond_core::error::Result;
use millpond_core::message::MessageId;
use millpond_core::query::Query;
use millpond_core::store::{BoxFuture, Inspect, Queue};
use millpond_core::view::{
    DeadLetterView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView, OutboxRow, OutboxSummary,
    QueueView, StoreInfo, Wish, WorkerView,
};

use crate::admin::now;
use crate::bits::Bits;
use crate::cell::{count, instant, instant_if_any, number};
use crate::change::setting_changes;
use crate::connect::MysqlStore;
use crate::connection::Connection;
use crate::dead_letters::{dead_letters, groups};
use crate::error::Tried;
use crate::find::message_view;
use crate::info::info;
use crate::messages::messages;
use crate::pause::{holding, pauses};
use crate::queues::stored_queues;
use crate::waiting::{outbox, summary};

impl Inspect for MysqlStore {
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

    fn messages(&self, find: Find) -> BoxFuture<'_, Result<Found<MessageRow>>> {
        self.at_one_moment("list messages", async move |connection: &mut Connection| {
            messages(connection, &find).await
        })
    }

    fn dead_letters(&self, find: Find) -> BoxFuture<'_, Result<Found<DeadLetterView>>> {
        self.at_one_moment("list dead letters", async move |connection: &mut Connection| {
            dead_letters(connection, &find).await
        })
    }

    fn dead_letter_groups(&self, query: Query, by: GroupBy) -> BoxFuture<'_, Result<Vec<FailureGroup>>> {
        self.at_one_moment("group dead letters", async move |connection: &mut Connection| {
            groups(connection, &query, by).await
        })
    }

    fn outbox(&self, find: Find) -> BoxFuture<'_, Result<Found<OutboxRow>>> {
        self.at_one_moment("list the outbox", async move |connection: &mut Connection| {
            outbox(connection, &find).await
        })
    }

    fn outbox_summary(&self) -> BoxFuture<'_, Result<Vec<OutboxSummary>>> {
        self.at_one_moment("sum the outbox up", async |connection: &mut Connection| summary(connection).await)
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<WorkerView>>> {
        self.read("list workers", async |connection: &mut Connection| {
            Ok(connection.rows("inspect_workers", &[]).await?.iter().map(worker_view).collect())
        })
    }

    fn info(&self) -> BoxFuture<'_, Result<StoreInfo>> {
        self.read("look at the store", async |connection: &mut Connection| info(connection).await)
    }
}

/// The views of all queues, by number.
type Views = HashMap<i32, QueueView>;

async fn queue_views(connection: &Connection) -> Tried<Vec<QueueView>> {
    let queues = stored_queues(connection).await?;
    let order: Vec<i32> = queues.iter().map(|queue| crate::append::number(queue.id)).collect();
    let mut views: Views = order.iter().copied().zip(queues.into_iter().map(empty)).collect();
    for row in connection.rows("inspect_heads", &[]).await? {
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
        change(&mut views, &row, |view| {
            (view.retrying, view.scheduled) = (count(&row, 2), count(&row, 1) - count(&row, 2));
        });
    }
    for row in connection.rows("inspect_dead", &[]).await? {
        change(&mut views, &row, |view| view.dead = count(&row, 1));
    }
    for row in connection.rows("inspect_stat", &[]).await? {
        change(&mut views, &row, |view| (view.sent, view.done) = (count(&row, 1), count(&row, 2)));
    }
    let pauses = pauses(connection, self::now(connection).await?).await?;
    for (id, view) in &mut views {
        view.paused_by = holding(&pauses, *id);
    }
    for (id, changed) in setting_changes(connection).await? {
        if let Some(view) = views.get_mut(&id) {
            view.changes.push(changed);
        }
    }
    let mut views: Vec<QueueView> = order.iter().filter_map(|id| views.remove(id)).collect();
    for row in connection.rows("inspect_listeners", &[]).await? {
        let names = listed(&row, 0);
        for view in views.iter_mut().filter(|view| names.contains(&view.name)) {
            view.listeners += 1;
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
        changes: Vec::new(),
        paused_by: Vec::new(),
    }
}

/// Changes the view of the queue that is in the first column.
fn change(views: &mut Views, row: &Row, change: impl FnOnce(&mut QueueView)) {
    if let Some(view) = views.get_mut(&row.get::<_, i32>(0)) {
        change(view);
    }
}

/// A list of names in JSON.
fn listed(row: &Row, column: usize) -> Vec<String> {
    serde_json::from_str(row.get(column)).unwrap_or_default()
}

fn worker_view(row: &Row) -> WorkerView {
    let (facts, wish): (Option<&str>, Option<&str>) = (row.get(10), row.get(11));
    WorkerView {
        id: row.get(0),
        host: row.get(1),
        queues: listed(row, 2),
        slots: number(row, 3),
        busy: number(row, 4),
        started_at: instant(row, 5),
        seen_at: instant(row, 6),
        lease_until: instant(row, 7),
        stopped: row.get(8),
        error: row.get(9),
        facts: facts.and_then(|facts| serde_json::from_str(facts).ok()).unwrap_or_default(),
        wish: wish.and_then(Wish::parse),
    }
}

//! Queues with their counts, and workers.

use std::collections::HashMap;

use millpond_core::store::Queue;
use millpond_core::view::{QueueView, SettingChange, Wish, WorkerView};
use serde_json::Value;

use crate::bits::Bits;
use crate::pause::{holding, pauses};
use crate::queues::number;
use crate::reader::{Reader, Tried};
use crate::row::Row;

/// The views of all queues, by number.
type Views = HashMap<i32, QueueView>;

/// All queues with their counts.
pub async fn queue_views<R: Reader>(connection: &R) -> Tried<R, Vec<QueueView>> {
    let queues = connection.queues().await?;
    let order: Vec<i32> = queues.iter().map(|queue| number(queue.id)).collect();
    let mut views: Views = order.iter().copied().zip(queues.into_iter().map(empty)).collect();
    let now = connection.time().await?;
    let micros = now.as_micros();
    for row in connection.rows("inspect_heads", &[micros.into()]).await? {
        change(&mut views, &row, |view| {
            view.ready += row.get::<u64>(1);
            view.oldest_ready = [view.oldest_ready, row.get(2)].into_iter().flatten().min();
        });
    }
    for row in connection.rows("inspect_leased", &[]).await? {
        let settled = row.try_get::<Option<Bits>>(2)?.map_or(0, |done| done.count());
        change(&mut views, &row, |view| view.leased += row.get::<u64>(1).saturating_sub(settled.into()));
    }
    for row in connection.rows("inspect_outbox", &[]).await? {
        let (all, retrying): (u64, u64) = (row.get(1), row.get(2));
        change(&mut views, &row, |view| (view.retrying, view.scheduled) = (retrying, all - retrying));
    }
    for row in connection.rows("inspect_dead", &[]).await? {
        change(&mut views, &row, |view| view.dead = row.get(1));
    }
    for row in connection.rows("inspect_stat", &[]).await? {
        change(&mut views, &row, |view| (view.sent, view.done) = (row.get(1), row.get(2)));
    }
    let pauses = pauses(connection, now).await?;
    for (id, view) in &mut views {
        view.paused_by = holding(&pauses, *id);
    }
    for row in connection.rows("limit_list", &[]).await? {
        let full_at = row.get(1);
        change(&mut views, &row, |view| view.rate_until = view.settings.limits().rate_until(full_at, now));
    }
    for row in connection.rows("setting_list", &[]).await? {
        change(&mut views, &row, |view| view.changes.push(setting_change(&row)));
    }
    let mut views: Vec<QueueView> = order.iter().filter_map(|id| views.remove(id)).collect();
    for row in connection.rows("inspect_listeners", &[micros.into()]).await? {
        let names = listed(&row, 0);
        for view in views.iter_mut().filter(|view| names.contains(&view.name)) {
            view.listeners += 1;
        }
    }
    Ok(views)
}

/// All workers, the last seen first.
pub async fn workers<R: Reader>(connection: &R) -> Tried<R, Vec<WorkerView>> {
    Ok(connection.rows("inspect_workers", &[]).await?.iter().map(worker_view).collect())
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

/// Changes the view of the queue that is in the first column.
fn change(views: &mut Views, row: &impl Row, change: impl FnOnce(&mut QueueView)) {
    if let Some(view) = views.get_mut(&row.get(0)) {
        change(view);
    }
}

fn setting_change(row: &impl Row) -> SettingChange {
    let value: String = row.get(2);
    SettingChange {
        setting: row.get(1),
        value: serde_json::from_str(&value).unwrap_or(Value::String(value)),
        actor: row.get(3),
        at: row.get(4),
    }
}

/// A list of names in JSON.
fn listed(row: &impl Row, column: usize) -> Vec<String> {
    serde_json::from_str(row.get(column)).unwrap_or_default()
}

fn worker_view(row: &impl Row) -> WorkerView {
    let (facts, wish): (Option<&str>, Option<&str>) = (row.get(10), row.get(11));
    WorkerView {
        id: row.get(0),
        host: row.get(1),
        queues: listed(row, 2),
        slots: row.get(3),
        busy: row.get(4),
        started_at: row.get(5),
        seen_at: row.get(6),
        lease_until: row.get(7),
        stopped: row.get(8),
        error: row.get(9),
        facts: facts.and_then(|facts| serde_json::from_str(facts).ok()).unwrap_or_default(),
        wish: wish.and_then(Wish::parse),
    }
}

//! Declarations: queues with their settings.

use millpond_core::error::{Code, Error};
use millpond_core::queue::{HistoryLevel, QueueSettings};
use millpond_core::store::{Queue, QueueId};
use millpond_sql::queues::{Stored, check_delivery, declared_over, delivery_text, settings_text};
use rusqlite::{Connection, OptionalExtension, Row, named_params};

use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

impl Tx<'_> {
    /// Stores a declaration, or gives the stored one its settings.
    pub(crate) fn declare(&mut self, name: &str, settings: &QueueSettings) -> Tried<Queue> {
        let Some(Stored { mut queue, declared: before, delivery, changes }) = stored_queue(self.conn, name)?
        else {
            self.raise_declarations()?;
            let queue = self.add_queue(name, settings, &settings_text(settings)?)?;
            self.note_limit(&queue)?;
            return Ok(queue);
        };
        check_delivery(name, &delivery, settings.delivery)?;
        let settings = settings.over(&before);
        if before != settings {
            // What an operator changed at run time stays.
            queue.settings = declared_over(name, &settings, &changes)?;
            let set = named_params! { ":settings": settings_text(&settings)?, ":id": queue.id.0 };
            self.conn.prepare_cached(sql("queue_set"))?.execute(set)?;
            self.note_limit(&queue)?;
            self.raise_declarations()?;
        }
        Ok(queue)
    }

    fn add_queue(&mut self, name: &str, settings: &QueueSettings, text: &str) -> Tried<Queue> {
        let delivery = delivery_text(settings.delivery);
        let row = named_params! {
            ":name": name, ":delivery": delivery, ":settings": text, ":now": self.now.as_micros(),
        };
        let id = self.conn.prepare_cached(sql("queue_add"))?.query_row(row, |row| row.get(0))?;
        self.conn
            .prepare_cached(sql("subscription_add"))?
            .query_row(named_params! { ":queue": id }, |row| row.get::<_, i64>(0))?;
        Ok(Queue { id: QueueId(id), name: name.to_owned(), settings: *settings })
    }

    /// The queue with this number.
    pub(crate) fn queue_of(&self, id: QueueId) -> Tried<Queue> {
        let mut by_id = self.conn.prepare_cached(sql("queue_by_id"))?;
        Ok(by_id.query_row(named_params! { ":id": id.0 }, queue_row)??.queue)
    }

    /// The same, if it is there and this release can read it.
    pub(crate) fn readable_queue(&self, id: QueueId) -> Tried<Option<Queue>> {
        let mut by_id = self.conn.prepare_cached(sql("queue_by_id"))?;
        let row = by_id.query_row(named_params! { ":id": id.0 }, queue_row).optional()?;
        Ok(row.and_then(Tried::ok).map(|stored| stored.queue))
    }

    /// How much of the run log is kept for a queue.
    pub(crate) fn history_level(&mut self, id: QueueId) -> Tried<HistoryLevel> {
        if let Some(level) = self.draft.history_levels.get(&id) {
            return Ok(*level);
        }
        let level = self.queue_of(id)?.settings.events;
        self.draft.history_levels.insert(id, level);
        Ok(level)
    }
}

/// The stored declaration of this name.
pub(crate) fn stored_queue(conn: &Connection, name: &str) -> Tried<Option<Stored>> {
    let mut by_name = conn.prepare_cached(sql("queue_by_name"))?;
    by_name.query_row(named_params! { ":name": name }, queue_row).optional()?.transpose()
}

/// All declared queues, by name. One that this release cannot read takes no other along: it is left out, and says
/// why when it is asked for by its name.
pub(crate) fn stored_queues(conn: &Connection) -> Tried<Vec<Queue>> {
    let mut list = conn.prepare_cached(sql("queue_list"))?;
    let rows = list.query_map([], queue_row)?;
    let mut queues = Vec::new();
    for row in rows {
        match row? {
            Ok(stored) => queues.push(stored.queue),
            Err(fault) => {
                let error = fault.into_error("list queues");
                tracing::warn!(%error, cause = error.causes(), "a queue cannot be read, and is left out");
            }
        }
    }
    Ok(queues)
}

fn queue_row(row: &Row<'_>) -> rusqlite::Result<Tried<Stored>> {
    let (id, name, declared): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (delivery, changes): (String, String) = (row.get(3)?, row.get(4)?);
    Ok(stored_of(QueueId(id), name, &declared, delivery, &changes).map_err(Into::into))
}

/// A queue from what is stored of it.
pub(crate) fn stored_of(
    id: QueueId,
    name: String,
    declared: &str,
    delivery: String,
    changes: &str,
) -> Result<Stored, Error> {
    let broken =
        |error| Error::new(Code::Internal, format!("read the settings of queue `{name}`")).because(error);
    let changes = serde_json::from_str(changes).map_err(broken)?;
    Stored::with(id, name, declared, delivery, changes)
}

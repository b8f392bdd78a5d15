//! Declarations: queues with their settings.

use millpond_core::error::{Code, Error};
use millpond_core::queue::{Delivery, HistoryLevel, QueueSettings};
use millpond_core::store::{Queue, QueueId};
use rusqlite::{Connection, OptionalExtension, Row, named_params};

use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

/// The word of a kind of delivery, as it is stored.
const fn delivery_text(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Dispatch => "dispatch",
    }
}

impl Tx<'_> {
    /// Stores a declaration, or gives the stored one its settings.
    pub(crate) fn declare(&mut self, name: &str, settings: &QueueSettings) -> Tried<Queue> {
        let text = serde_json::to_string(settings).map_err(|error| internal("store a declaration", error))?;
        let Some((mut queue, delivery)) = stored_queue(self.conn, name)? else {
            return self.add_queue(name, settings, &text);
        };
        if delivery != delivery_text(settings.delivery) {
            let declared = delivery_text(settings.delivery);
            let why = format!("it is stored as {delivery} and declared as {declared}");
            return Err(Error::new(Code::QueueConflict, format!("declare queue `{name}`"))
                .because(why)
                .into());
        }
        if queue.settings != *settings {
            let set = named_params! { ":settings": text, ":id": queue.id.0 };
            self.conn.prepare_cached(sql("queue_set"))?.execute(set)?;
            queue.settings = *settings;
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
        Ok(by_id.query_row(named_params! { ":id": id.0 }, queue_row)??.0)
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

/// The stored declaration of this name, with its kind of delivery.
pub(crate) fn stored_queue(conn: &Connection, name: &str) -> Tried<Option<(Queue, String)>> {
    let mut by_name = conn.prepare_cached(sql("queue_by_name"))?;
    by_name.query_row(named_params! { ":name": name }, queue_row).optional()?.transpose()
}

/// All declared queues, by name.
pub(crate) fn stored_queues(conn: &Connection) -> Tried<Vec<Queue>> {
    let mut list = conn.prepare_cached(sql("queue_list"))?;
    let rows = list.query_map([], queue_row)?;
    rows.map(|row| Ok(row??.0)).collect()
}

fn queue_row(row: &Row<'_>) -> rusqlite::Result<Tried<(Queue, String)>> {
    let (name, text): (String, String) = (row.get(1)?, row.get(2)?);
    let (id, delivery) = (QueueId(row.get(0)?), row.get(3)?);
    let settings = serde_json::from_str(&text)
        .map_err(|error| internal(&format!("read the settings of queue `{name}`"), error).into());
    Ok(settings.map(|settings| (Queue { id, name, settings }, delivery)))
}

fn internal(doing: &str, error: serde_json::Error) -> Error {
    Error::new(Code::Internal, doing).because(error)
}

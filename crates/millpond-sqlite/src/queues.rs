//! Declarations: queues with their settings.

use millpond_core::error::{Code, Error};
use millpond_core::queue::{Delivery, HistoryLevel, QueueSettings};
use millpond_core::store::{Queue, QueueId};
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use serde_json::{Map, Value};

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
        let Some(Stored { mut queue, declared: before, delivery, changes }) = stored_queue(self.conn, name)?
        else {
            self.raise_declarations()?;
            return self.add_queue(name, settings, &text);
        };
        if delivery != delivery_text(settings.delivery) {
            let declared = delivery_text(settings.delivery);
            let why = format!("it is stored as {delivery} and declared as {declared}");
            return Err(Error::new(Code::QueueConflict, format!("declare queue `{name}`"))
                .because(why)
                .into());
        }
        if before != *settings {
            let set = named_params! { ":settings": text, ":id": queue.id.0 };
            self.conn.prepare_cached(sql("queue_set"))?.execute(set)?;
            self.raise_declarations()?;
            // What an operator changed at run time stays.
            queue.settings = overlaid(name, settings, &changes)?;
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

/// A queue as it is stored.
pub(crate) struct Stored {
    /// With the settings that count: what was declared, and over it what was changed at run time.
    pub(crate) queue: Queue,
    pub(crate) declared: QueueSettings,
    pub(crate) delivery: String,
    pub(crate) changes: Map<String, Value>,
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

/// Declared settings with changes over them.
pub(crate) fn overlaid(
    name: &str,
    declared: &QueueSettings,
    changes: &Map<String, Value>,
) -> Result<QueueSettings, Error> {
    if changes.is_empty() {
        return Ok(*declared);
    }
    let merged = serde_json::to_value(declared).and_then(|mut settings| {
        if let Some(settings) = settings.as_object_mut() {
            settings.extend(changes.iter().map(|(setting, value)| (setting.clone(), value.clone())));
        }
        serde_json::from_value(settings)
    });
    merged.map_err(|error| internal(&format!("read the changed settings of queue `{name}`"), error))
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
    let broken = |error| internal(&format!("read the settings of queue `{name}`"), error);
    let declared = declared_settings(declared).map_err(broken)?;
    let changes = match changes {
        "{}" => Map::new(),
        changes => known(serde_json::from_str(changes).map_err(broken)?),
    };
    let settings = overlaid(&name, &declared, &changes)?;
    let queue = Queue { id, name, settings };
    Ok(Stored { queue, declared, delivery, changes })
}

/// Settings as they were declared, by this release or a later one: what only that one knows is its own affair.
fn declared_settings(text: &str) -> serde_json::Result<QueueSettings> {
    serde_json::from_str(text).or_else(|_| serde_json::from_value(known(serde_json::from_str(text)?).into()))
}

/// The settings that this release knows.
fn known(mut settings: Map<String, Value>) -> Map<String, Value> {
    if let Ok(Value::Object(ours)) = serde_json::to_value(QueueSettings::DEFAULT) {
        settings.retain(|name, _| ours.contains_key(name));
    }
    settings
}

fn internal(doing: &str, error: serde_json::Error) -> Error {
    Error::new(Code::Internal, doing).because(error)
}

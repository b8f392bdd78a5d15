//! Declarations: queues with their settings.

use millpond_core::error::{Code, Error};
use millpond_core::queue::{Delivery, HistoryLevel, QueueSettings};
use millpond_core::store::{Queue, QueueId};
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::append::number;
use crate::connection::{Connection, Param};
use crate::error::Tried;

/// The word of a kind of delivery, as it is stored.
const fn delivery_text(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Dispatch => "dispatch",
    }
}

/// Stores a declaration, or gives the stored one its settings. What an operator changed at run time stays.
pub(crate) async fn declare(connection: &Connection, name: &str, settings: &QueueSettings) -> Tried<Queue> {
    let text = serde_json::to_string(settings).map_err(|error| internal("store a declaration", error))?;
    if stored_queue(connection, name).await?.is_none()
        && let Some(id) = add_queue(connection, name, settings, &text).await?
    {
        connection.run("declarations_raise", &[]).await?;
        return Ok(Queue { id: QueueId(id.into()), name: name.to_owned(), settings: *settings });
    }
    // It was there, or another node has added it at this moment.
    let Some(stored) = stored_queue(connection, name).await? else {
        let why = "it was added and is gone";
        return Err(Error::new(Code::StoreUnavailable, format!("declare queue `{name}`"))
            .because(why)
            .into());
    };
    let Stored { mut queue, declared: before, delivery, changes } = stored;
    if delivery != delivery_text(settings.delivery) {
        let declared = delivery_text(settings.delivery);
        let why = format!("it is stored as {delivery} and declared as {declared}");
        return Err(Error::new(Code::QueueConflict, format!("declare queue `{name}`")).because(why).into());
    }
    if before != *settings {
        queue.settings = overlaid(name, settings, &changes)?;
        set_queue(connection, queue.id, settings, has_history(&queue.settings)).await?;
        connection.run("declarations_raise", &[]).await?;
    }
    Ok(queue)
}

/// Writes a declaration, and whether finished claims leave a row of history.
pub(crate) async fn set_queue(
    connection: &Connection,
    id: QueueId,
    declared: &QueueSettings,
    history: bool,
) -> Tried<()> {
    let text = serde_json::to_string(declared).map_err(|error| internal("store a declaration", error))?;
    let params: [Param<'_>; 3] = [(&number(id), Type::INT4), (&text, Type::TEXT), (&history, Type::BOOL)];
    connection.run("queue_set", &params).await.map(drop)
}

/// `None`: another node was first.
async fn add_queue(
    connection: &Connection,
    name: &str,
    settings: &QueueSettings,
    text: &str,
) -> Tried<Option<i32>> {
    let (delivery, history, now) =
        (delivery_text(settings.delivery), has_history(settings), connection.now());
    let params: [Param<'_>; 5] = [
        (&name, Type::TEXT),
        (&delivery, Type::TEXT),
        (&text, Type::TEXT),
        (&history, Type::BOOL),
        (&now, Type::INT8),
    ];
    Ok(connection.row_if_any("queue_add", &params).await?.map(|row| row.get(0)))
}

/// Whether finished claims leave a row of history.
pub(crate) fn has_history(settings: &QueueSettings) -> bool {
    settings.events == HistoryLevel::All
}

/// A queue as it is stored.
pub(crate) struct Stored {
    /// With the settings that count: what was declared, and over it what was changed at run time.
    pub(crate) queue: Queue,
    pub(crate) declared: QueueSettings,
    pub(crate) delivery: String,
    pub(crate) changes: Map<String, Value>,
}

/// The queue with this number.
pub(crate) async fn queue_of(connection: &Connection, id: i32) -> Tried<Queue> {
    let row = connection.row("queue_by_id", &[(&id, Type::INT4)]).await?;
    Ok(queue_row(&row)?.queue)
}

/// The same, if it is there and this release can read it.
pub(crate) async fn readable_queue(connection: &Connection, id: i32) -> Tried<Option<Queue>> {
    let row = connection.row_if_any("queue_by_id", &[(&id, Type::INT4)]).await?;
    Ok(row.and_then(|row| queue_row(&row).ok()).map(|stored| stored.queue))
}

/// The stored declaration of this name.
pub(crate) async fn stored_queue(connection: &Connection, name: &str) -> Tried<Option<Stored>> {
    let row = connection.row_if_any("queue_by_name", &[(&name, Type::TEXT)]).await?;
    Ok(row.as_ref().map(queue_row).transpose()?)
}

/// All declared queues, by name. One that this release cannot read takes no other along: it is left out, and says why
/// when it is asked for by its name.
pub(crate) async fn stored_queues(connection: &Connection) -> Tried<Vec<Queue>> {
    let mut queues = Vec::new();
    for row in connection.rows("queue_list", &[]).await? {
        match queue_row(&row) {
            Ok(stored) => queues.push(stored.queue),
            Err(error) => {
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

fn queue_row(row: &Row) -> Result<Stored, Error> {
    let settings: Option<Vec<String>> = row.get(4);
    let values: Option<Vec<String>> = row.get(5);
    let changes = settings.unwrap_or_default().into_iter().zip(values.unwrap_or_default());
    stored_of(row.get(0), row.get(1), row.get(2), row.get(3), changes)
}

/// A queue from what is stored of it.
pub(crate) fn stored_of(
    id: i32,
    name: String,
    declared: &str,
    delivery: String,
    changes: impl Iterator<Item = (String, String)>,
) -> Result<Stored, Error> {
    let broken = |error| internal(&format!("read the settings of queue `{name}`"), error);
    let declared = declared_settings(declared).map_err(broken)?;
    // What cannot be read counts as not changed.
    let changes = changes.filter_map(|(setting, value)| Some((setting, serde_json::from_str(&value).ok()?)));
    let changes = known(changes.collect());
    let settings = overlaid(&name, &declared, &changes)?;
    let queue = Queue { id: QueueId(id.into()), name, settings };
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

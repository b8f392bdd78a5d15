//! Declarations: queues with their settings.

use millpond_core::error::{Code, Error};
use millpond_core::queue::{Delivery, HistoryLevel, QueueSettings};
use millpond_core::store::{Queue, QueueId};
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

/// Stores a declaration, or gives the stored one its settings.
pub(crate) async fn declare(connection: &Connection, name: &str, settings: &QueueSettings) -> Tried<Queue> {
    let text = serde_json::to_string(settings).map_err(|error| internal("store a declaration", error))?;
    if stored_queue(connection, name).await?.is_none()
        && let Some(id) = add_queue(connection, name, settings, &text).await?
    {
        return Ok(Queue { id: QueueId(id.into()), name: name.to_owned(), settings: *settings });
    }
    // It was there, or another node has added it at this moment.
    let Some((mut queue, delivery)) = stored_queue(connection, name).await? else {
        let why = "it was added and is gone";
        return Err(Error::new(Code::StoreUnavailable, format!("declare queue `{name}`"))
            .because(why)
            .into());
    };
    if delivery != delivery_text(settings.delivery) {
        let declared = delivery_text(settings.delivery);
        let why = format!("it is stored as {delivery} and declared as {declared}");
        return Err(Error::new(Code::QueueConflict, format!("declare queue `{name}`")).because(why).into());
    }
    if queue.settings != *settings {
        let (id, history) = (number(queue.id), has_history(settings));
        let params: [Param<'_>; 3] = [(&id, Type::INT4), (&text, Type::TEXT), (&history, Type::BOOL)];
        connection.run("queue_set", &params).await?;
        queue.settings = *settings;
    }
    Ok(queue)
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

fn has_history(settings: &QueueSettings) -> bool {
    settings.events == HistoryLevel::All
}

/// The queue with this number.
pub(crate) async fn queue_of(connection: &Connection, id: i32) -> Tried<Queue> {
    let row = connection.row("queue_by_id", &[(&id, Type::INT4)]).await?;
    Ok(queue_row(&row)?.0)
}

/// The stored declaration of this name, with its kind of delivery.
pub(crate) async fn stored_queue(connection: &Connection, name: &str) -> Tried<Option<(Queue, String)>> {
    let row = connection.row_if_any("queue_by_name", &[(&name, Type::TEXT)]).await?;
    row.as_ref().map(queue_row).transpose()
}

/// All declared queues, by name.
pub(crate) async fn stored_queues(connection: &Connection) -> Tried<Vec<Queue>> {
    let rows = connection.rows("queue_list", &[]).await?;
    rows.iter().map(|row| Ok(queue_row(row)?.0)).collect()
}

fn queue_row(row: &Row) -> Tried<(Queue, String)> {
    let (name, text): (String, String) = (row.get(1), row.get(2));
    let settings = serde_json::from_str(&text)
        .map_err(|error| internal(&format!("read the settings of queue `{name}`"), error))?;
    Ok((Queue { id: QueueId(row.get::<_, i32>(0).into()), name, settings }, row.get(3)))
}

fn internal(doing: &str, error: serde_json::Error) -> Error {
    Error::new(Code::Internal, doing).because(error)
}

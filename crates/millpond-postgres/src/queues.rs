//! Declarations: queues with their settings.

use millpond_core::error::{Code, Error};
use millpond_core::queue::QueueSettings;
use millpond_core::store::{Queue, QueueId};
use millpond_sql::queues::{
    Stored, check_delivery, declared_over, delivery_text, has_history, settings_text,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::append::number;
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::limit::note_limit;

/// Stores a declaration, or gives the stored one its settings. What an operator changed at run time stays.
pub(crate) async fn declare(connection: &Connection, name: &str, settings: &QueueSettings) -> Tried<Queue> {
    let text = settings_text(settings)?;
    if stored_queue(connection, name).await?.is_none()
        && let Some(id) = add_queue(connection, name, settings, &text).await?
    {
        connection.run("declarations_raise", &[]).await?;
        let queue = Queue { id: QueueId(id.into()), name: name.to_owned(), settings: *settings };
        note_limit(connection, &queue).await?;
        return Ok(queue);
    }
    // It was there, or another node has added it at this moment.
    let Some(stored) = stored_queue(connection, name).await? else {
        let why = "it was added and is gone";
        return Err(Error::new(Code::StoreUnavailable, format!("declare queue `{name}`"))
            .because(why)
            .into());
    };
    check_delivery(name, &stored.delivery, settings.delivery)?;
    if stored.declared == settings.over(&stored.declared) {
        return Ok(stored.queue);
    }
    let Some(stored) = locked_queue(connection, name).await? else { return Ok(stored.queue) };
    let Stored { mut queue, declared: before, changes, .. } = stored;
    let settings = settings.over(&before);
    queue.settings = declared_over(name, &settings, &changes)?;
    set_queue(connection, &queue, &settings).await?;
    connection.run("declarations_raise", &[]).await?;
    Ok(queue)
}

/// Writes a declaration, and of the settings that count what statements read by themselves: whether finished claims leave
/// a row of history, and whether the queue has a limit.
pub(crate) async fn set_queue(connection: &Connection, queue: &Queue, declared: &QueueSettings) -> Tried<()> {
    let (text, history) = (settings_text(declared)?, has_history(&queue.settings));
    let params: [Param<'_>; 3] =
        [(&number(queue.id), Type::INT4), (&text, Type::TEXT), (&history, Type::BOOL)];
    connection.run("queue_set", &params).await?;
    note_limit(connection, queue).await
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

/// The same, and nobody else changes it meanwhile: what is sticky in it is never lowered by a change that was read before.
pub(crate) async fn locked_queue(connection: &Connection, name: &str) -> Tried<Option<Stored>> {
    connection.row_if_any("queue_lock", &[(&name, Type::TEXT)]).await?;
    stored_queue(connection, name).await
}

/// All declared queues, by name. One that this release cannot read takes no other along: it is left out, and says why
/// when it is asked for by its name.
pub(crate) async fn stored_queues(connection: &Connection) -> Tried<Vec<Queue>> {
    Ok(readable_queues(&connection.rows("queue_list", &[]).await?))
}

/// The queues of rows that begin as those of `queue_list` do; a row may be there without one.
pub(crate) fn readable_queues(rows: &[Row]) -> Vec<Queue> {
    let mut queues = Vec::new();
    for row in rows.iter().filter(|row| row.get::<_, Option<i32>>(0).is_some()) {
        match queue_row(row) {
            Ok(stored) => queues.push(stored.queue),
            Err(error) => {
                tracing::warn!(%error, cause = error.causes(), "a queue cannot be read, and is left out");
            }
        }
    }
    queues
}

fn queue_row(row: &Row) -> Result<Stored, Error> {
    let settings: Option<Vec<String>> = row.get(4);
    let values: Option<Vec<String>> = row.get(5);
    let changes = settings.unwrap_or_default().into_iter().zip(values.unwrap_or_default());
    let id = QueueId(row.get::<_, i32>(0).into());
    Stored::read(id, row.get(1), row.get(2), row.get(3), changes)
}

//! The run log, assembled: six kinds of entries, of which only what is rare has rows of its own.
//!
//! - ENQUEUE is read from the message itself, wherever it is; that of a redrive is a row of `millpond_event`.
//! - START and SUCCESS come from the claim that holds the message, or from the row of history of the one that did, as
//!   long as the message's row in the log is kept.
//! - RETRY, DLQ and RECOVER are rows of `millpond_event`.

use millpond_core::message::MessageId;
use millpond_core::query::{Field, Query};
use millpond_core::time::Timestamp;
use millpond_core::view::{Count, EventView, Find, Found};
use millpond_sql::list::{Gather, Mark};
use rusqlite::Connection;

use crate::entry::{Asked, Entry};
use crate::error::Tried;
use crate::merge::{Cursor, Merge};
use crate::message::message_view;

/// The run log, newest first.
pub(crate) fn events(conn: &Connection, now: Timestamp, find: &Find) -> Tried<Found<EventView>> {
    let cursor = find.after.as_deref().map(Cursor::parse).transpose()?;
    let mut gather = Gather::new(find, cursor.as_ref().map(|cursor| cursor.mark));
    if let Some(ids) = find.query.only(&Field::Id) {
        by_id(conn, now, &find.query, &ids, &mut gather)?;
        return Ok(gather.found());
    }
    let resumed = cursor.filter(|_| find.count == Count::No);
    let mut merge = Merge::new(conn, now, &find.query, gather.from(), resumed)?;
    while let Some(entry) = merge.next(&mut gather)? {
        let mark = entry.mark;
        let matches = find.query.matches(&Asked::new(&entry, conn, now));
        if !matches {
            gather.pass(mark);
            continue;
        }
        let item = gather.wants(mark).then_some(entry.view);
        if !gather.take(mark, item) {
            break;
        }
    }
    let mut found = gather.found();
    found.next = found.next.map(|next| merge.cursor(&next)).transpose()?;
    Ok(found)
}

/// Entries of these messages.
fn by_id(
    conn: &Connection,
    now: Timestamp,
    query: &Query,
    ids: &[&str],
    gather: &mut Gather<EventView>,
) -> Tried<()> {
    let mut entries = Vec::new();
    for id in ids.iter().filter_map(|id| id.parse::<MessageId>().ok()) {
        let Some(message) = message_view(conn, now, id)? else { continue };
        for view in message.events {
            entries.push(Entry { mark: Mark::parse(&view.id)?, view, key: message.key.clone() });
        }
    }
    entries.sort_by(|one, other| other.cmp(one));
    entries.dedup();
    for entry in entries {
        let mark = entry.mark;
        let asked = Asked::new(&entry, conn, now);
        if mark >= gather.from() || !query.matches(&asked) {
            continue;
        }
        let item = gather.wants(mark).then_some(entry.view);
        if !gather.take(mark, item) {
            break;
        }
    }
    Ok(())
}

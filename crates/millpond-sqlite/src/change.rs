//! Settings that are changed at run time: they lie over the declaration, and no declaration takes them away.

use millpond_core::error::{Code, Error};
use millpond_core::store::{Act, Queue, QueueId};
use millpond_core::view::SettingChange;
use millpond_sql::queues::{Stored, check_change, overlaid};
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::error::Tried;
use crate::message::instant;
use crate::queues::stored_queue;
use crate::sql::sql;
use crate::writer::Tx;

impl Tx<'_> {
    /// Changes settings, or goes back to what is declared; all of them or none.
    pub(crate) fn change(&self, name: &str, settings: &[(String, Option<Value>)], act: &Act) -> Tried<Queue> {
        let doing = format!("change queue `{name}`");
        let Some(Stored { mut queue, declared, mut changes, .. }) = stored_queue(self.conn, name)? else {
            let unknown = Error::new(Code::UnknownQueue, doing).because("no queue of this name is declared");
            return Err(unknown.into());
        };
        for (setting, value) in settings {
            check_change(&doing, name, &declared, setting, value.as_ref())?;
            match value {
                Some(value) => changes.insert(setting.clone(), value.clone()),
                None => changes.remove(setting),
            };
        }
        queue.settings = overlaid(name, &declared, &changes)?;
        queue.settings.check(name)?;
        for (setting, value) in settings {
            self.write_change(queue.id, setting, value.as_ref(), act)?;
        }
        self.note_limit(&queue)?;
        self.raise_declarations()?;
        self.audit(act, settings.len() as u64)?;
        Ok(queue)
    }

    fn write_change(&self, queue: QueueId, setting: &str, value: Option<&Value>, act: &Act) -> Tried<()> {
        let Some(value) = value else {
            self.conn.prepare_cached(sql("setting_unset"))?.execute(params![queue.0, setting])?;
            return Ok(());
        };
        self.conn.prepare_cached(sql("setting_put"))?.execute(params![
            queue.0,
            setting,
            value.to_string(),
            act.actor,
            self.now.as_micros(),
        ])?;
        Ok(())
    }
}

/// What was changed at run time, by queue.
pub(crate) fn setting_changes(conn: &Connection) -> Tried<Vec<(QueueId, SettingChange)>> {
    let mut list = conn.prepare_cached(sql("setting_list"))?;
    let rows = list.query_map([], |row| {
        let value: String = row.get(2)?;
        let change = SettingChange {
            setting: row.get(1)?,
            value: serde_json::from_str(&value).unwrap_or(Value::String(value)),
            actor: row.get(3)?,
            at: instant(row.get(4)?),
        };
        Ok((QueueId(row.get(0)?), change))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

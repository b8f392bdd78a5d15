//! Settings that are changed at run time: they lie over the declaration, and no declaration takes them away.

use millpond_core::error::{Code, Error};
use millpond_core::queue::QueueSettings;
use millpond_core::store::Queue;
use millpond_core::text::nearest;
use millpond_core::view::SettingChange;
use serde_json::{Map, Value};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::append::number;
use crate::cell::instant;
use crate::connection::{Connection, Param};
use crate::error::Tried;
use crate::operate::Change;
use crate::queues::{Stored, has_history, overlaid, set_queue, stored_queue};

/// A setting that a queue has for life.
const FIXED: [&str; 2] = ["delivery", "transactional"];

impl Change<'_> {
    /// Changes settings, or goes back to what is declared; all of them or none.
    pub(crate) async fn settings(&self, name: &str, settings: &[(String, Option<Value>)]) -> Tried<Queue> {
        let doing = format!("change queue `{name}`");
        let Some(Stored { mut queue, declared, mut changes, .. }) =
            stored_queue(self.connection, name).await?
        else {
            let unknown = Error::new(Code::UnknownQueue, doing).because("no queue of this name is declared");
            return Err(unknown.into());
        };
        for (setting, value) in settings {
            check(&doing, name, &declared, setting, value.as_ref())?;
            match value {
                Some(value) => changes.insert(setting.clone(), value.clone()),
                None => changes.remove(setting),
            };
        }
        queue.settings = overlaid(name, &declared, &changes)?;
        queue.settings.check(name)?;
        for (setting, value) in settings {
            self.write_change(number(queue.id), setting, value.as_ref()).await?;
        }
        // What the settling statement reads is that of the settings that count.
        set_queue(self.connection, queue.id, &declared, has_history(&queue.settings)).await?;
        self.raise_declarations().await?;
        self.audit(settings.len() as u64).await?;
        Ok(queue)
    }

    async fn write_change(&self, queue: i32, setting: &str, value: Option<&Value>) -> Tried<()> {
        let Some(value) = value else {
            let params: [Param<'_>; 2] = [(&queue, Type::INT4), (&setting, Type::TEXT)];
            return self.connection.run("setting_unset", &params).await.map(drop);
        };
        let params: [Param<'_>; 5] = [
            (&queue, Type::INT4),
            (&setting, Type::TEXT),
            (&value.to_string(), Type::TEXT),
            (&self.act.actor, Type::TEXT),
            (&self.now.as_micros(), Type::INT8),
        ];
        self.connection.run("setting_put", &params).await.map(drop)
    }
}

/// Refuses a setting that does not exist, that is fixed, or whose value is none of its kind.
fn check(
    doing: &str,
    queue: &str,
    declared: &QueueSettings,
    setting: &str,
    value: Option<&Value>,
) -> Result<(), Error> {
    let wrong = |why: String| Err(Error::new(Code::InvalidConfig, doing).because(why));
    let known = serde_json::to_value(declared).unwrap_or_default();
    let known: Vec<&str> = known.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if !known.contains(&setting) {
        return wrong(match nearest(setting, &known) {
            Some(near) => format!("there is no setting `{setting}`; did you mean `{near}`?"),
            None => format!("there is no setting `{setting}`; there are {}", known.join(", ")),
        });
    }
    if FIXED.contains(&setting) {
        return wrong(format!("a queue has its `{setting}` from its declaration, for life"));
    }
    let Some(value) = value else { return Ok(()) };
    match overlaid(queue, declared, &Map::from_iter([(setting.to_owned(), value.clone())])) {
        Ok(_) => Ok(()),
        Err(error) => wrong(format!("{setting} cannot be {value}: {}", error.causes())),
    }
}

/// What was changed at run time, by queue.
pub(crate) async fn setting_changes(connection: &Connection) -> Tried<Vec<(i32, SettingChange)>> {
    let change = |row: &Row| {
        let value: String = row.get(2);
        let change = SettingChange {
            setting: row.get(1),
            value: serde_json::from_str(&value).unwrap_or(Value::String(value)),
            actor: row.get(3),
            at: instant(row, 4),
        };
        (row.get(0), change)
    };
    Ok(connection.rows("setting_list", &[]).await?.iter().map(change).collect())
}

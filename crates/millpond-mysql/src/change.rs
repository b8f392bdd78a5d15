//! Settings that are changed at run time: they lie over the declaration, and no declaration takes them away.

use millpond_core::error::{Code, Error};
use millpond_core::store::Queue;
use millpond_sql::queues::{Stored, check_change, overlaid};
use serde_json::Value;

use crate::append::number;
use crate::connection::Param;
use crate::error::Tried;
use crate::operate::Change;
use crate::queues::{locked_queue, set_queue};

impl Change<'_> {
    /// Changes settings, or goes back to what is declared; all of them or none.
    pub(crate) async fn settings(&self, name: &str, settings: &[(String, Option<Value>)]) -> Tried<Queue> {
        let doing = format!("change queue `{name}`");
        let Some(Stored { mut queue, declared, mut changes, .. }) =
            locked_queue(self.connection, name).await?
        else {
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
            self.write_change(number(queue.id), setting, value.as_ref()).await?;
        }
        set_queue(self.connection, &queue, &declared).await?;
        self.raise_declarations().await?;
        self.audit(settings.len() as u64).await?;
        Ok(queue)
    }

    async fn write_change(&self, queue: i32, setting: &str, value: Option<&Value>) -> Tried<()> {
        let Some(value) = value else {
            let params: [Param<'_>; 2] = [&queue, &setting];
            return self.connection.run("setting_unset", &params).await.map(drop);
        };
        let params: [Param<'_>; 5] =
            [&queue, &setting, &value.to_string(), &self.act.actor, &self.now.as_micros()];
        self.connection.run("setting_put", &params).await.map(drop)
    }
}

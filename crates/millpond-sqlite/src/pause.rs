//! Pauses: what they hold is not leased. Read with every lease, so that a pause holds on every node and after a
//! restart; one with an end is over by itself.

use std::collections::HashMap;

use millpond_core::error::{Code, Error};
use millpond_core::message::Due;
use millpond_core::store::{Act, QueueId};
use millpond_core::time::Timestamp;
use millpond_core::view::{Pause, Scope};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::Tried;
use crate::message::instant;
use crate::queues::stored_queue;
use crate::sql::sql;
use crate::writer::Tx;

/// Stands for every queue.
const EVERY_QUEUE: QueueId = QueueId(0);

impl Tx<'_> {
    pub(crate) fn pause(&self, scope: &Scope, until: Option<Due>, act: &Act) -> Tried<Vec<Pause>> {
        let queue = self.scope(scope, "pause")?;
        self.conn.prepare_cached(sql("pause_put"))?.execute(params![
            queue.0,
            act.reason,
            act.actor,
            self.now.as_micros(),
            until.map(|until| until.resolve(self.now).as_micros()),
        ])?;
        self.raise_declarations()?;
        self.audit(act, 1)?;
        Ok(holding(&pauses(self.conn, self.now)?, queue))
    }

    pub(crate) fn resume(&self, scope: &Scope, act: &Act) -> Tried<Vec<Pause>> {
        let queue = self.scope(scope, "resume")?;
        let mut end = self.conn.prepare_cached(sql("pause_end"))?;
        let ended: Option<bool> =
            end.query_row(params![queue.0, self.now.as_micros()], |row| row.get(0)).optional()?;
        self.raise_declarations()?;
        self.audit(act, u64::from(ended == Some(true)))?;
        if queue != EVERY_QUEUE {
            return Ok(holding(&pauses(self.conn, self.now)?, queue));
        }
        // Nothing holds all queues any more; what holds single ones is still there.
        let mut left: Vec<(QueueId, Pause)> = pauses(self.conn, self.now)?.into_iter().collect();
        left.sort_by_key(|(queue, _)| *queue);
        Ok(left.into_iter().map(|(_, pause)| pause).collect())
    }

    /// What nodes remember of queues is old from here on.
    pub(crate) fn raise_declarations(&self) -> Tried<()> {
        self.conn.prepare_cached(sql("declarations_raise"))?.execute([])?;
        Ok(())
    }

    fn scope(&self, scope: &Scope, verb: &str) -> Tried<QueueId> {
        match scope {
            Scope::Global => Ok(EVERY_QUEUE),
            Scope::Queue(name) => self.declared(name, verb),
        }
    }

    /// The number of the declared queue of this name.
    pub(crate) fn declared(&self, name: &str, verb: &str) -> Tried<QueueId> {
        match stored_queue(self.conn, name)? {
            Some(stored) => Ok(stored.queue.id),
            None => {
                let unknown = Error::new(Code::UnknownQueue, format!("{verb} queue `{name}`"));
                Err(unknown.because("no queue of this name is declared").into())
            }
        }
    }
}

/// All pauses that last, by what they hold.
pub(crate) fn pauses(conn: &Connection, now: Timestamp) -> Tried<HashMap<QueueId, Pause>> {
    let mut list = conn.prepare_cached(sql("pause_list"))?;
    let rows = list.query_map([now.as_micros()], |row| Ok((QueueId(row.get(0)?), pause(row)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Everything that holds a queue, what holds all queues first.
pub(crate) fn holding(pauses: &HashMap<QueueId, Pause>, queue: QueueId) -> Vec<Pause> {
    let own = (queue != EVERY_QUEUE).then_some(queue);
    [Some(EVERY_QUEUE), own].into_iter().flatten().filter_map(|held| pauses.get(&held).cloned()).collect()
}

fn pause(row: &Row<'_>) -> rusqlite::Result<Pause> {
    let name: Option<String> = row.get(1)?;
    Ok(Pause {
        scope: name.map_or(Scope::Global, Scope::Queue),
        reason: row.get(2)?,
        actor: row.get(3)?,
        since: instant(row.get(4)?),
        until: row.get::<_, Option<i64>>(5)?.map(instant),
    })
}

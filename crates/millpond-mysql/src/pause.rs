//! Pauses: what they hold is not leased. Read with every lease, so that a pause holds on every node and after a
//! restart; one with an end is over by itself.

use millpond_core::error::{Code, Error};
use millpond_core::message::Due;
use millpond_core::view::{Pause, Scope};
use millpond_sql::pause::{EVERY_QUEUE, holding, pauses};

use crate::append::number;
use crate::connection::Param;
use crate::error::Tried;
use crate::operate::Change;
use crate::queues::stored_queue;

impl Change<'_> {
    pub(crate) async fn pause(&self, scope: &Scope, until: Option<Due>) -> Tried<Vec<Pause>> {
        let queue = self.scope(scope, "pause").await?;
        let until = until.map(|until| until.resolve(self.now).as_micros());
        let params: [Param<'_>; 5] =
            [&queue, &self.act.reason, &self.act.actor, &self.now.as_micros(), &until];
        self.connection.run("pause_put", &params).await?;
        self.raise_declarations().await?;
        self.audit(1).await?;
        Ok(holding(&pauses(self.connection, self.now).await?, queue))
    }

    pub(crate) async fn resume(&self, scope: &Scope) -> Tried<Vec<Pause>> {
        let queue = self.scope(scope, "resume").await?;
        let params: [Param<'_>; 2] = [&queue, &self.now.as_micros()];
        let ended = self.connection.row_if_any("pause_lasts", &params).await?;
        self.connection.run("pause_end", &params).await?;
        self.raise_declarations().await?;
        self.audit(u64::from(ended.is_some_and(|row| row.get(0)))).await?;
        let left = pauses(self.connection, self.now).await?;
        if queue != EVERY_QUEUE {
            return Ok(holding(&left, queue));
        }
        // Nothing holds all queues any more; what holds single ones is still there.
        let mut left: Vec<(i32, Pause)> = left.into_iter().collect();
        left.sort_by_key(|(queue, _)| *queue);
        Ok(left.into_iter().map(|(_, pause)| pause).collect())
    }

    /// What nodes remember of queues is old from here on.
    pub(crate) async fn raise_declarations(&self) -> Tried<()> {
        self.connection.run("declarations_raise", &[]).await.map(drop)
    }

    async fn scope(&self, scope: &Scope, verb: &str) -> Tried<i32> {
        match scope {
            Scope::Global => Ok(EVERY_QUEUE),
            Scope::Queue(name) => self.declared(name, verb).await,
        }
    }

    /// The number of the declared queue of this name.
    pub(crate) async fn declared(&self, name: &str, verb: &str) -> Tried<i32> {
        match stored_queue(self.connection, name).await? {
            Some(stored) => Ok(number(stored.queue.id)),
            None => {
                let unknown = Error::new(Code::UnknownQueue, format!("{verb} queue `{name}`"));
                Err(unknown.because("no queue of this name is declared").into())
            }
        }
    }
}

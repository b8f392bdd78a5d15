//! What people change, each with its line of the audit.

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{Due, MessageId};
use millpond_core::store::{Act, BoxFuture, Changed, Operate, Purged, Queue, Redrive};
use millpond_core::time::Timestamp;
use millpond_core::view::{Pause, Scope, Wish};
use serde_json::Value;

use crate::admin::now;
use crate::connect::PostgresStore;
use crate::connection::Connection;
use crate::error::{Lost, Tried};

/// Most messages that one call redrives: each costs a look-up and several rows.
const REDRIVES_MAX: usize = 500;

/// Most messages of any other call.
const IDS_MAX: usize = 1_000;

/// A change that is being made, in a transaction of its own.
pub(crate) struct Change<'c> {
    pub(crate) connection: &'c Connection,
    /// Database time, one value for the change.
    pub(crate) now: Timestamp,
    /// Who makes it, and why.
    pub(crate) act: &'c Act,
}

impl PostgresStore {
    /// Makes a change. Nodes are told of it at once.
    fn change_with<T: Send + 'static>(
        &self,
        doing: &'static str,
        act: Act,
        work: impl AsyncFn(&Change<'_>) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let change = async move |connection: &mut Connection| {
                let now = now(connection).await?;
                work(&Change { connection, now, act: &act }).await
            };
            let changed = self.write(doing, Lost::MayHaveHappened, change).await?;
            self.wake.tell([]);
            Ok(changed)
        })
    }
}

impl Operate for PostgresStore {
    fn change(
        &self,
        queue: String,
        settings: Vec<(String, Option<Value>)>,
        act: Act,
    ) -> BoxFuture<'_, Result<Queue>> {
        self.change_with("change a queue", act, async move |change: &Change<'_>| {
            change.settings(&queue, &settings).await
        })
    }

    fn pause(&self, scope: Scope, until: Option<Due>, act: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.change_with("pause", act, async move |change: &Change<'_>| change.pause(&scope, until).await)
    }

    fn resume(&self, scope: Scope, act: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.change_with("resume", act, async move |change: &Change<'_>| change.resume(&scope).await)
    }

    fn cancel(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let doing = "cancel messages";
        match limited(doing, ids.len(), IDS_MAX) {
            Ok(()) => {
                self.change_with(doing, act, async move |change: &Change<'_>| change.cancel(&ids).await)
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn hasten(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let doing = "make messages due";
        match limited(doing, ids.len(), IDS_MAX) {
            Ok(()) => {
                self.change_with(doing, act, async move |change: &Change<'_>| change.hasten(&ids).await)
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn redrive(&self, redrives: Vec<Redrive>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let doing = "redrive dead letters";
        match limited(doing, redrives.len(), REDRIVES_MAX) {
            Ok(()) => {
                self.change_with(doing, act, async move |change: &Change<'_>| change.redrive(&redrives).await)
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn remove_dead_letters(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let doing = "delete dead letters";
        match limited(doing, ids.len(), IDS_MAX) {
            Ok(()) => self.change_with(doing, act, async move |change: &Change<'_>| {
                change.remove_dead_letters(&ids).await
            }),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn purge(&self, queue: String, rows_max: usize, act: Act) -> BoxFuture<'_, Result<Purged>> {
        self.change_with("purge a queue", act, async move |change: &Change<'_>| {
            change.purge(&queue, rows_max).await
        })
    }

    fn steer(&self, worker: Option<String>, wish: Option<Wish>, act: Act) -> BoxFuture<'_, Result<u64>> {
        self.change_with("steer workers", act, async move |change: &Change<'_>| {
            change.steer(worker.as_deref(), wish).await
        })
    }
}

/// Refuses a call that would hold its locks for too long.
fn limited(doing: &str, count: usize, most: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    let why = format!("it names {count} messages; one call takes at most {most}");
    Err(Error::new(Code::BatchTooLarge, doing).because(why))
}

//! What people change, each with its line of the audit.

use millpond_core::error::Result;
use millpond_core::message::{Due, MessageId};
use millpond_core::store::{Act, BoxFuture, Changed, Operate, Purged, Queue, Redrive};
use millpond_core::view::{Pause, Scope, Wish};
use serde_json::Value;

use crate::connect::SqliteStore;
use crate::inspect::not_yet;
use crate::writer::Durable;

impl Operate for SqliteStore {
    fn change(
        &self,
        _: String,
        _: Vec<(String, Option<Value>)>,
        _: Act,
    ) -> BoxFuture<'_, Result<Queue>> {
        not_yet("change a queue")
    }

    fn pause(&self, _: Scope, _: Option<Due>, _: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        not_yet("pause")
    }

    fn resume(&self, _: Scope, _: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        not_yet("resume")
    }

    fn cancel(&self, _: Vec<MessageId>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        not_yet("cancel messages")
    }

    fn hasten(&self, _: Vec<MessageId>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        not_yet("make messages due")
    }

    fn redrive(&self, redrives: Vec<Redrive>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        self.writer.write(Durable::Yes, "redrive dead letters", move |tx| {
            redrives
                .iter()
                .map(|redrive| {
                    let done = tx.redrive(&[(redrive.id, redrive.new_id)])?;
                    Ok(if done == 1 { Changed::Done } else { Changed::NotFound })
                })
                .collect()
        })
    }

    fn remove_dead_letters(&self, _: Vec<MessageId>, _: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        not_yet("delete dead letters")
    }

    fn purge(&self, _: String, _: usize, _: Act) -> BoxFuture<'_, Result<Purged>> {
        not_yet("purge a queue")
    }

    fn steer(&self, _: Option<String>, _: Option<Wish>, _: Act) -> BoxFuture<'_, Result<u64>> {
        not_yet("steer workers")
    }
}

//! What people change, each with its line of the audit.

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{Due, MessageId};
use millpond_core::store::{Act, BoxFuture, Changed, Operate, Purged, Queue, Redrive};
use millpond_core::view::{Pause, Scope, Wish};
use serde_json::Value;

use crate::connect::SqliteStore;
use crate::error::Tried;
use crate::writer::{Durable, Tx};

/// Most messages that one call redrives: each costs a look-up and several rows, under the one write lock.
const REDRIVES_MAX: usize = 500;

/// Most messages of any other call.
const IDS_MAX: usize = 1_000;

impl Operate for SqliteStore {
    fn change(
        &self,
        queue: String,
        settings: Vec<(String, Option<Value>)>,
        act: Act,
    ) -> BoxFuture<'_, Result<Queue>> {
        self.writer.write(Durable::Yes, "change a queue", move |tx| tx.change(&queue, &settings, &act))
    }

    fn pause(&self, scope: Scope, until: Option<Due>, act: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.writer.write(Durable::Yes, "pause", move |tx| tx.pause(&scope, until, &act))
    }

    fn resume(&self, scope: Scope, act: Act) -> BoxFuture<'_, Result<Vec<Pause>>> {
        self.writer.write(Durable::Yes, "resume", move |tx| tx.resume(&scope, &act))
    }

    fn cancel(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let size = (ids.len(), IDS_MAX);
        self.limited(Durable::Yes, "cancel messages", size, move |tx| tx.cancel(&ids, &act))
    }

    fn hasten(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let size = (ids.len(), IDS_MAX);
        self.limited(Durable::Yes, "make messages due", size, move |tx| tx.hasten(&ids, &act))
    }

    fn redrive(&self, redrives: Vec<Redrive>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let size = (redrives.len(), REDRIVES_MAX);
        self.limited(Durable::Yes, "redrive dead letters", size, move |tx| tx.redrive(&redrives, &act))
    }

    fn remove_dead_letters(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let size = (ids.len(), IDS_MAX);
        // Also while the disk is full: it makes room.
        self.limited(Durable::No, "delete dead letters", size, move |tx| tx.remove_dead_letters(&ids, &act))
    }

    fn purge(&self, queue: String, rows_max: usize, act: Act) -> BoxFuture<'_, Result<Purged>> {
        // Also while the disk is full: what is dropped is cleaned up later.
        self.writer.write(Durable::No, "purge a queue", move |tx| tx.purge(&queue, rows_max, &act))
    }

    fn steer(&self, worker: Option<String>, wish: Option<Wish>, act: Act) -> BoxFuture<'_, Result<u64>> {
        self.writer.write(Durable::Yes, "steer workers", move |tx| tx.steer(worker.as_deref(), wish, &act))
    }
}

impl SqliteStore {
    /// Runs a change of `count` messages, of which one call takes at most `most`: it holds the one write lock.
    fn limited<T: Send + 'static>(
        &self,
        durable: Durable,
        doing: &'static str,
        (count, most): (usize, usize),
        apply: impl FnMut(&mut Tx<'_>) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        if count <= most {
            return self.writer.write(durable, doing, apply);
        }
        let why = format!("it names {count} messages; one call takes at most {most}");
        Box::pin(std::future::ready(Err(Error::new(Code::BatchTooLarge, doing).because(why))))
    }
}

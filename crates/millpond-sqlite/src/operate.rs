//! What people change, each with its line of the audit.

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{Due, MessageId};
use millpond_core::store::{Act, BoxFuture, Changed, Operate, Purged, Queue, Redrive};
use millpond_core::view::{Pause, Scope, Wish};
use serde_json::Value;

use crate::connect::SqliteStore;
use crate::writer::Durable;

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
        let doing = "cancel messages";
        match limited(doing, ids.len(), IDS_MAX) {
            Ok(()) => self.writer.write(Durable::Yes, doing, move |tx| tx.cancel(&ids, &act)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn hasten(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let doing = "make messages due";
        match limited(doing, ids.len(), IDS_MAX) {
            Ok(()) => self.writer.write(Durable::Yes, doing, move |tx| tx.hasten(&ids, &act)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn redrive(&self, redrives: Vec<Redrive>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let doing = "redrive dead letters";
        match limited(doing, redrives.len(), REDRIVES_MAX) {
            Ok(()) => self.writer.write(Durable::Yes, doing, move |tx| tx.redrive(&redrives, &act)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn remove_dead_letters(&self, ids: Vec<MessageId>, act: Act) -> BoxFuture<'_, Result<Vec<Changed>>> {
        let doing = "delete dead letters";
        // Also while the disk is full: it makes room.
        match limited(doing, ids.len(), IDS_MAX) {
            Ok(()) => self.writer.write(Durable::No, doing, move |tx| tx.remove_dead_letters(&ids, &act)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn purge(&self, queue: String, rows_max: usize, act: Act) -> BoxFuture<'_, Result<Purged>> {
        // Also while the disk is full: what is dropped is cleaned up later.
        self.writer.write(Durable::No, "purge a queue", move |tx| tx.purge(&queue, rows_max, &act))
    }

    fn steer(&self, worker: Option<String>, wish: Option<Wish>, act: Act) -> BoxFuture<'_, Result<u64>> {
        self.writer.write(Durable::Yes, "steer workers", move |tx| tx.steer(worker.as_deref(), wish, &act))
    }
}

/// Refuses a call that would hold the write lock for too long.
fn limited(doing: &str, count: usize, most: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    let why = format!("it names {count} messages; one call takes at most {most}");
    Err(Error::new(Code::BatchTooLarge, doing).because(why))
}

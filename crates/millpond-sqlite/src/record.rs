//! What a list must know of the queues.

use std::collections::HashMap;

use millpond_core::query::{Field, Query};
use rusqlite::Connection;

use crate::error::Tried;
use crate::queues::stored_queues;

/// What a list must know of a queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueFacts {
    pub(crate) name: String,
    pub(crate) attempts_max: u32,
}

/// The queues by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Queues(HashMap<i64, QueueFacts>);

impl Queues {
    pub(crate) fn read(conn: &Connection) -> Tried<Self> {
        let facts = |queue: millpond_core::store::Queue| {
            (queue.id.0, QueueFacts { name: queue.name, attempts_max: queue.settings.attempts_max })
        };
        Ok(Self(stored_queues(conn)?.into_iter().map(facts).collect()))
    }

    /// Its name; empty if it is none of ours.
    pub(crate) fn name(&self, id: i64) -> &str {
        self.0.get(&id).map_or("", |queue| &queue.name)
    }

    /// Deliveries in all: a message's own number, else the queue's, unless a deadline alone ends it.
    pub(crate) fn attempts_max(&self, id: i64, own: Option<u32>, has_deadline: bool) -> Option<u32> {
        own.or_else(|| self.0.get(&id).filter(|_| !has_deadline).map(|queue| queue.attempts_max))
    }

    /// The numbers that a query leaves: all, or those that it names.
    pub(crate) fn wanted(&self, query: &Query) -> Vec<i64> {
        let only = query.only(&Field::Queue);
        let is_wanted = |name: &str| only.as_ref().is_none_or(|names| names.contains(&name));
        let mut ids: Vec<i64> =
            self.0.iter().filter(|(_, queue)| is_wanted(&queue.name)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// The one queue that a query is about, if there is one; of a query about none, no row is found.
    pub(crate) fn the_one(&self, query: &Query) -> Option<i64> {
        query.only(&Field::Queue)?;
        match self.wanted(query)[..] {
            [] => Some(0),
            [id] => Some(id),
            _ => None,
        }
    }
}

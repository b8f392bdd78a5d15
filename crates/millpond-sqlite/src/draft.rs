//! What the writer remembers within a transaction, so that the tenth send of a batch does not ask again what
//! the first one learnt.

use std::collections::HashMap;

use millpond_core::pick::Lane;
use millpond_core::queue::HistoryLevel;
use millpond_core::store::QueueId;
use millpond_core::time::Timestamp;
use rusqlite::OptionalExtension;

use crate::error::Tried;
use crate::sql::sql;
use crate::writer::Tx;

/// A part of a queue's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) queue: QueueId,
    pub(crate) class: u8,
    pub(crate) lane: Lane,
}

/// The end of a partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Top {
    pub(crate) next_offset: i64,
    pub(crate) published_at: i64,
}

/// Counters of one queue and kind within a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) sent: i64,
    pub(crate) leased: i64,
    pub(crate) done: i64,
    pub(crate) retried: i64,
    pub(crate) dead: i64,
    pub(crate) recovered: i64,
    /// Run times together, in microseconds.
    pub(crate) run: i64,
}

/// What is remembered. Partitions and subscriptions outlive the transaction: they never change once they are
/// committed. Tops and counts do not, because another process may write between two transactions.
#[derive(Debug)]
pub(crate) struct Draft {
    parts: HashMap<Part, i64>,
    places: HashMap<i64, Part>,
    subscriptions: HashMap<QueueId, i64>,
    /// Of the queues settled in this transaction.
    pub(crate) history_levels: HashMap<QueueId, HistoryLevel>,
    tops: HashMap<i64, Top>,
    counts: Vec<(QueueId, String, Counts)>,
    /// The counts of the operation that runs begin here; earlier ones must not change if it is undone.
    counts_from: usize,
    /// How a durable commit is made.
    pub(crate) pragma_durable: &'static str,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            parts: HashMap::new(),
            places: HashMap::new(),
            subscriptions: HashMap::new(),
            history_levels: HashMap::new(),
            tops: HashMap::new(),
            counts: Vec::new(),
            counts_from: 0,
            pragma_durable: "pragma synchronous = full",
        }
    }
}

impl Draft {
    /// A point to which one operation can be undone.
    pub(crate) fn mark(&mut self) -> usize {
        self.counts_from = self.counts.len();
        self.counts_from
    }

    /// Forgets what an operation that failed has added.
    pub(crate) fn back_to(&mut self, mark: usize) {
        let counts = std::mem::take(&mut self.counts);
        self.abandon();
        self.counts = counts;
        self.counts.truncate(mark);
    }

    /// The transaction is committed.
    pub(crate) fn committed(&mut self) {
        self.tops.clear();
        self.history_levels.clear();
        self.counts.clear();
        self.counts_from = 0;
    }

    /// The transaction is gone, and with it partitions it may have made.
    pub(crate) fn abandon(&mut self) {
        self.committed();
        self.parts.clear();
        self.places.clear();
        self.subscriptions.clear();
    }
}

impl Tx<'_> {
    /// The partition of a part, made if it is new.
    pub(crate) fn partition(&mut self, part: Part) -> Tried<i64> {
        if let Some(partition) = self.known_partition(part)? {
            return Ok(partition);
        }
        let subscription = self.subscription(part.queue)?;
        let named = rusqlite::named_params! {
            ":queue": part.queue.0, ":class": part.class, ":lane": part.lane.number(),
            ":subscription": subscription,
        };
        let partition = self.conn.prepare_cached(sql("partition_add"))?.query_row(named, |row| row.get(0))?;
        self.draft.parts.insert(part, partition);
        Ok(partition)
    }

    /// The partition of a part, if it has one yet.
    pub(crate) fn known_partition(&mut self, part: Part) -> Tried<Option<i64>> {
        if let Some(partition) = self.draft.parts.get(&part) {
            return Ok(Some(*partition));
        }
        let mut list = self.conn.prepare_cached(sql("partition_list"))?;
        let mut rows = list.query(rusqlite::named_params! { ":queue": part.queue.0 })?;
        while let Some(row) = rows.next()? {
            if let Some(lane) = Lane::from_number(row.get(2)?) {
                self.draft.parts.insert(Part { queue: part.queue, class: row.get(1)?, lane }, row.get(0)?);
            }
        }
        Ok(self.draft.parts.get(&part).copied())
    }

    /// The part that a partition is.
    pub(crate) fn place(&mut self, partition: i64) -> Tried<Option<Part>> {
        if let Some(part) = self.draft.places.get(&partition) {
            return Ok(Some(*part));
        }
        let named = rusqlite::named_params! { ":partition": partition };
        let row = |row: &rusqlite::Row<'_>| {
            Ok((QueueId(row.get(0)?), row.get::<_, u8>(1)?, Lane::from_number(row.get(2)?)))
        };
        let found = self.conn.prepare_cached(sql("partition_queue"))?.query_row(named, row).optional()?;
        let Some((queue, class, Some(lane))) = found else { return Ok(None) };
        let part = Part { queue, class, lane };
        self.draft.places.insert(partition, part);
        Ok(Some(part))
    }

    /// The subscription of a queue.
    pub(crate) fn subscription(&mut self, queue: QueueId) -> Tried<i64> {
        if let Some(subscription) = self.draft.subscriptions.get(&queue) {
            return Ok(*subscription);
        }
        let named = rusqlite::named_params! { ":queue": queue.0 };
        let subscription =
            self.conn.prepare_cached(sql("subscription_of"))?.query_row(named, |row| row.get(0))?;
        self.draft.subscriptions.insert(queue, subscription);
        Ok(subscription)
    }

    /// Takes the next offsets of a partition: the first of them, and the time of publishing, which never goes
    /// back within a partition. The lock was taken by BEGIN, in a statement before this one (R1).
    pub(crate) fn take_offsets(&mut self, partition: i64, count: i64) -> Tried<(i64, Timestamp)> {
        let top = match self.draft.tops.get(&partition) {
            Some(top) => *top,
            None => self.stored_top(partition)?,
        };
        let published_at = top.published_at.max(self.now.as_micros());
        self.draft.tops.insert(partition, Top { next_offset: top.next_offset + count, published_at });
        Ok((top.next_offset, Timestamp::from_micros(published_at)))
    }

    /// The offset that the next message of a partition will have.
    pub(crate) fn next_offset(&self, partition: i64) -> Tried<i64> {
        Ok(self.stored_top(partition)?.next_offset)
    }

    fn stored_top(&self, partition: i64) -> Tried<Top> {
        let named = rusqlite::named_params! { ":partition": partition };
        let row = |row: &rusqlite::Row<'_>| {
            Ok(Top { next_offset: row.get::<_, i64>(0)? + 1, published_at: row.get(1)? })
        };
        let found = self.conn.prepare_cached(sql("log_top"))?.query_row(named, row).optional()?;
        Ok(found.unwrap_or(Top { next_offset: 0, published_at: i64::MIN }))
    }

    /// Adds to the counters of a queue and kind; written once, at the end of the transaction.
    pub(crate) fn count(&mut self, queue: QueueId, kind: Option<&str>, add: impl FnOnce(&mut Counts)) {
        let kind = kind.unwrap_or("");
        let from = self.draft.counts_from;
        match self.draft.counts[from..].last_mut() {
            Some((last_queue, last_kind, counts)) if *last_queue == queue && last_kind == kind => add(counts),
            _ => {
                let mut counts = Counts::default();
                add(&mut counts);
                self.draft.counts.push((queue, kind.to_owned(), counts));
            }
        }
    }

    /// Writes the counters, one row for each queue and kind.
    pub(crate) fn write_counts(&mut self) -> Tried<()> {
        let mut sums: HashMap<(QueueId, &str), Counts> = HashMap::new();
        for (queue, kind, counts) in &self.draft.counts {
            let sum = sums.entry((*queue, kind)).or_default();
            sum.sent += counts.sent;
            sum.leased += counts.leased;
            sum.done += counts.done;
            sum.retried += counts.retried;
            sum.dead += counts.dead;
            sum.recovered += counts.recovered;
            sum.run += counts.run;
        }
        let minute = self.now.as_micros() / 60_000_000;
        let mut add = self.conn.prepare_cached(sql("stat_add"))?;
        for ((queue, kind), sum) in sums {
            let Counts { sent, leased, done, retried, dead, recovered, run } = sum;
            add.execute(rusqlite::params![
                queue.0, kind, minute, sent, leased, done, retried, dead, recovered, run
            ])?;
        }
        self.draft.counts.clear();
        self.draft.counts_from = 0;
        Ok(())
    }
}

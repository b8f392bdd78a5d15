//! What is in the store, by SQL of our own: it must not share a mistake with the code that is tested.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use millpond::sqlite::rusqlite::{Connection, Row};
use millpond_core::view::QueueView;
use millpond_testkit::judge::history::{Event, Op, Phase, State};
use uuid::Uuid;

use crate::Outcome;
use crate::work::{BRIEF, has_effects};

/// Bytes of a message in `runs`, and the outcome of one that is done.
const RUN_BYTES: usize = 5;
const RUN_DONE: u8 = 1;

/// The counts of a checkpoint, read in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    queues: BTreeMap<i64, Queue>,
    parts: BTreeMap<i64, Part>,
}

#[derive(Debug, Default)]
struct Queue {
    name: String,
    figures: BTreeMap<Figure, i64>,
}

/// [`State`] in the order of its figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    Sent,
    Done,
    Dead,
    Ready,
    Leased,
    Scheduled,
    Retrying,
    Sum,
}

impl Figure {
    const ALL: [(Figure, State); 8] = [
        (Figure::Sent, State::Sent),
        (Figure::Done, State::Done),
        (Figure::Dead, State::Dead),
        (Figure::Ready, State::Ready),
        (Figure::Leased, State::Leased),
        (Figure::Scheduled, State::Scheduled),
        (Figure::Retrying, State::Retrying),
        (Figure::Sum, State::Sum),
    ];
}

/// A partition of the log.
#[derive(Debug, Default)]
struct Part {
    queue: i64,
    /// The cursor: everything below was given to somebody.
    next: u64,
    /// First and last row; `None` without rows.
    rows: Option<(u64, u64)>,
    /// Settled ranges, ends exclusive.
    settled: BTreeSet<(u64, u64)>,
    /// Lowest unsettled offsets of live claims.
    held: BTreeSet<u64>,
}

impl Part {
    /// The lowest offset that no finished claim and no done bit covers. It is told from what was recorded when
    /// messages were settled, not from the cursor.
    fn unsettled(&self) -> Option<u64> {
        let (_, last) = self.rows?;
        let mut covered = 0;
        for (from, to) in &self.settled {
            if covered < *from {
                break;
            }
            covered = covered.max(*to);
        }
        (covered <= last).then_some(covered)
    }

    fn watermark(&self) -> u64 {
        self.held.first().copied().unwrap_or(self.next).min(self.next)
    }
}

/// Counts everything.
pub(crate) fn counts(conn: &Connection) -> Outcome<Counts> {
    let snapshot = conn.unchecked_transaction()?;
    let mut counts = Counts::default();
    counts.read(&snapshot)?;
    Ok(counts)
}

impl Counts {
    fn read(&mut self, conn: &Connection) -> Outcome<()> {
        each(conn, "select id, name from millpond_queue", |row| {
            let queue = Queue { name: row.get(1)?, figures: BTreeMap::new() };
            self.queues.insert(row.get(0)?, queue);
            Ok(())
        })?;
        self.read_parts(conn)?;
        self.read_claims(conn)?;
        each(
            conn,
            "select queue_id, partition, from_offset, to_offset, runs from millpond_history",
            |row| {
                let (queue, runs): (i64, Vec<u8>) = (row.get(0)?, row.get(4)?);
                self.add(queue, Figure::Done, done(&runs));
                let range = (row.get::<_, u64>(2)?, row.get::<_, u64>(3)? + 1);
                self.parts.entry(row.get(1)?).or_default().settled.insert(range);
                Ok(())
            },
        )?;
        let waiting = "select queue_id, reason, attempt, count(*) from millpond_outbox group by 1, 2, 3";
        each(conn, waiting, |row| {
            let (queue, reason, attempt): (i64, String, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let count = row.get(3)?;
            let retrying = reason == "retry" || (attempt != 0 && reason != "snooze");
            self.add(queue, if retrying { Figure::Retrying } else { Figure::Scheduled }, count);
            // What came back has a row in the log as well.
            if matches!(reason.as_str(), "delay" | "tx") && !self.is_brief(queue) {
                self.add(queue, Figure::Sent, count);
            }
            Ok(())
        })?;
        let dead = "select queue_id, count(*) from millpond_dead_letter where redriven_as is null group by 1";
        each(conn, dead, |row| {
            self.add(row.get(0)?, Figure::Dead, row.get(1)?);
            Ok(())
        })?;
        self.read_sent(conn)?;
        let effects =
            "select q.id, sum(e.amount) from torture_effect e join millpond_queue q on q.name = e.queue
                       group by 1";
        each(conn, effects, |row| {
            self.add(row.get(0)?, Figure::Sum, row.get(1)?);
            Ok(())
        })
    }

    fn read_parts(&mut self, conn: &Connection) -> Outcome<()> {
        let parts = "select p.id, p.queue_id,
                (select max(c.to_offset) from millpond_claim c where c.partition = p.id),
                (select min(l.log_offset) from millpond_log l where l.partition = p.id),
                (select max(l.log_offset) from millpond_log l where l.partition = p.id),
                (select count(*) from millpond_log l where l.partition = p.id and l.log_offset >
                    coalesce((select max(c.to_offset) from millpond_claim c where c.partition = p.id), -1))
             from millpond_log_partition p";
        each(conn, parts, |row| {
            let (queue, top): (i64, Option<u64>) = (row.get(1)?, row.get(2)?);
            let first: Option<u64> = row.get(3)?;
            let part = Part {
                queue,
                next: top.map_or(0, |top| top + 1),
                rows: first.zip(row.get(4)?),
                ..Part::default()
            };
            self.parts.insert(row.get(0)?, part);
            self.add(queue, Figure::Ready, row.get(5)?);
            Ok(())
        })
    }

    fn read_claims(&mut self, conn: &Connection) -> Outcome<()> {
        let claims = "select partition, from_offset, to_offset, done, runs from millpond_claim
                      where token is not null";
        each(conn, claims, |row| {
            let (from, to): (u64, u64) = (row.get(1)?, row.get(2)?);
            let (bits, runs): (Vec<u8>, Vec<u8>) = (row.get(3)?, row.get(4)?);
            let part = self.parts.entry(row.get(0)?).or_default();
            let mut unsettled = 0;
            for (offset, place) in (from..=to).zip(0_usize..) {
                if bits.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1) {
                    part.settled.insert((offset, offset + 1));
                } else {
                    part.held.insert(offset);
                    unsettled += 1;
                }
            }
            let queue = part.queue;
            self.add(queue, Figure::Leased, unsettled);
            self.add(queue, Figure::Done, done(&runs));
            Ok(())
        })
    }

    /// Messages that were ever stored: by their ids, where nothing is deleted.
    fn read_sent(&mut self, conn: &Connection) -> Outcome<()> {
        let ids = "select p.queue_id, count(distinct l.message_id) from millpond_log l
                   join millpond_log_partition p on p.id = l.partition group by 1";
        each(conn, ids, |row| {
            let queue = row.get(0)?;
            if !self.is_brief(queue) {
                self.add(queue, Figure::Sent, row.get(1)?);
            }
            Ok(())
        })?;
        each(conn, "select queue_id, sum(sent) from millpond_stat group by 1", |row| {
            let queue = row.get(0)?;
            if self.is_brief(queue) {
                self.add(queue, Figure::Sent, row.get(1)?);
            }
            Ok(())
        })
    }

    fn is_brief(&self, queue: i64) -> bool {
        self.queues.get(&queue).is_some_and(|queue| queue.name == BRIEF.name())
    }

    fn add(&mut self, queue: i64, figure: Figure, count: i64) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            *queue.figures.entry(figure).or_default() += count;
        }
    }

    /// The lines of a checkpoint. Their time is set by whoever writes them.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for queue in self.queues.values() {
            for (figure, state) in Figure::ALL {
                if figure == Figure::Sum && !has_effects(&queue.name) {
                    continue;
                }
                let (name, val) = (Some(queue.name.clone()), Some(queue.get(figure)));
                events.push(Event { queue: name, state: Some(state), val, ..line(Op::Count) });
            }
        }
        for (id, part) in &self.parts {
            let Some(queue) = self.queues.get(&part.queue) else { continue };
            let at = |op, off| Event {
                queue: Some(queue.name.clone()),
                part: u32::try_from(*id).ok(),
                off: Some(off),
                ..line(op)
            };
            events.push(at(Op::Watermark, part.watermark()));
            events.extend(part.unsettled().map(|off| at(Op::Unsettled, off)));
            events.extend(part.rows.map(|(first, _)| at(Op::Kept, first)));
        }
        events
    }

    /// Where the store's own counts say something else.
    pub(crate) fn differences(&self, views: &[QueueView]) -> Vec<String> {
        let mut differences = Vec::new();
        for queue in self.queues.values() {
            let Some(view) = views.iter().find(|view| view.name == queue.name) else {
                differences.push(format!("the store does not show queue `{}`", queue.name));
                continue;
            };
            let shown = [
                (Figure::Sent, view.sent),
                (Figure::Done, view.done),
                (Figure::Dead, view.dead),
                (Figure::Ready, view.ready),
                (Figure::Leased, view.leased),
                (Figure::Scheduled, view.scheduled),
                (Figure::Retrying, view.retrying),
            ];
            for (figure, shown) in shown {
                let counted = queue.get(figure);
                if i64::try_from(shown) != Ok(counted) {
                    let name = &queue.name;
                    differences
                        .push(format!("queue `{name}` shows {shown} {figure:?}, SQL counts {counted}"));
                }
            }
        }
        differences
    }
}

impl Queue {
    fn get(&self, figure: Figure) -> i64 {
        self.figures.get(&figure).copied().unwrap_or_default()
    }
}

/// Messages that are neither done nor dead.
pub(crate) fn backlog(conn: &Connection) -> Outcome<i64> {
    let left = "select (select count(*) from millpond_outbox)
                     + (select count(*) from millpond_claim where token is not null)
                     + (select count(*) from millpond_log_partition p where exists (
                            select 1 from millpond_log l where l.partition = p.id and l.log_offset >
                                coalesce((select max(c.to_offset) from millpond_claim c
                                          where c.partition = p.id), -1)))";
    Ok(conn.prepare_cached(left)?.query_row([], |row| row.get(0))?)
}

/// What the business table, the dead letters and the finished claims say at the end.
pub(crate) fn remains(conn: &Connection) -> Outcome<Vec<Event>> {
    let mut events = Vec::new();
    each(conn, "select message_id, queue, amount from torture_effect", |row| {
        let (id, queue, val) = (row.get(0)?, row.get(1)?, row.get(2)?);
        events.push(Event { id: Some(id), queue: Some(queue), val: Some(val), ..line(Op::Table) });
        Ok(())
    })?;
    let dead = "select d.message_id, q.name, d.reason, d.attempt from millpond_dead_letter d
                join millpond_queue q on q.id = d.queue_id where d.redriven_as is null";
    each(conn, dead, |row| {
        let (id, queue, reason) = (Some(row.get(0)?), Some(row.get(1)?), Some(row.get(2)?));
        events.push(Event { id, queue, reason, attempt: Some(row.get(3)?), ..line(Op::Dead) });
        Ok(())
    })?;
    let claims = "select q.name, h.partition, h.from_offset, h.to_offset from millpond_history h
                  join millpond_queue q on q.id = h.queue_id";
    each(conn, claims, |row| {
        let (queue, part, off, to) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, u64>(3)? + 1);
        let (queue, part, off, to) = (Some(queue), Some(part), Some(off), Some(to));
        events.push(Event { queue, part, off, to, ph: Phase::Info, ..line(Op::Cursor) });
        Ok(())
    })?;
    Ok(events)
}

/// What is wrong with the file, and messages that a repeat has stored again.
pub(crate) fn integrity(conn: &Connection) -> Outcome<Vec<String>> {
    let mut faults = Vec::new();
    let check: String = conn.query_row("pragma integrity_check(1)", [], |row| row.get(0))?;
    if check != "ok" {
        faults.push(format!("integrity check: {check}"));
    }
    let twice = "select count(*) from (select 1 from millpond_log l
                     join millpond_log_partition p on p.id = l.partition
                     where p.lane = 0 group by l.message_id having count(*) > 1)";
    let twice: i64 = conn.query_row(twice, [], |row| row.get(0))?;
    if twice != 0 {
        faults.push(format!("{twice} messages were stored twice"));
    }
    Ok(faults)
}

/// How many batches, of which nobody knows whether they are stored, are stored in part. Batches of a queue whose
/// messages are deleted soon cannot be looked at any more.
pub(crate) fn torn(conn: &Connection, batches: &[(String, Vec<Uuid>)]) -> Outcome<usize> {
    let mut stored = HashSet::new();
    each(conn, "select message_id from millpond_log", |row| {
        stored.insert(row.get::<_, Uuid>(0)?);
        Ok(())
    })?;
    let is_torn = |ids: &Vec<Uuid>| {
        let there = ids.iter().filter(|id| stored.contains(id)).count();
        there != 0 && there != ids.len()
    };
    Ok(batches.iter().filter(|(queue, ids)| queue != BRIEF.name() && is_torn(ids)).count())
}

fn done(runs: &[u8]) -> i64 {
    runs.chunks_exact(RUN_BYTES).map(|run| i64::from(run[0] == RUN_DONE)).sum()
}

fn line(op: Op) -> Event {
    Event::new(0, op, Phase::Ok)
}

fn each(
    conn: &Connection,
    statement: &str,
    mut take: impl FnMut(&Row<'_>) -> millpond::sqlite::rusqlite::Result<()>,
) -> Outcome<()> {
    let mut statement = conn.prepare(statement)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

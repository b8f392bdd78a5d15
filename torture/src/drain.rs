//! What is in the store, by SQL of our own: it must not share a mistake with the code that is tested.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use millpond_core::view::QueueView;
use millpond_testkit::judge::history::{Event, Op, Phase, State};
use uuid::Uuid;

use crate::Outcome;
use crate::database::Database;
use crate::reader::Reader;
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
pub(crate) fn counts(reader: &Reader) -> Outcome<Counts> {
    reader.at_one_moment(|| {
        let mut counts = Counts::default();
        counts.read(reader)?;
        Ok(counts)
    })
}

impl Counts {
    fn read(&mut self, reader: &Reader) -> Outcome<()> {
        reader.each("select id, name from millpond_queue", |row| {
            let queue = Queue { name: row.text(1)?, figures: BTreeMap::new() };
            self.queues.insert(row.int(0)?, queue);
            Ok(())
        })?;
        self.read_parts(reader)?;
        self.read_claims(reader)?;
        let finished = "select queue_id, \"partition\", from_offset, to_offset, runs from millpond_history";
        reader.each(finished, |row| {
            self.add(row.int(0)?, Figure::Done, done(&row.bytes(4)?));
            let range = (row.count(2)?, row.count(3)? + 1);
            self.parts.entry(row.int(1)?).or_default().settled.insert(range);
            Ok(())
        })?;
        let waiting = "select queue_id, reason, attempt, count(*) from millpond_outbox group by 1, 2, 3";
        reader.each(waiting, |row| {
            let (queue, reason, attempt, count) = (row.int(0)?, row.text(1)?, row.int(2)?, row.int(3)?);
            let retrying = reason == "retry" || (attempt != 0 && reason != "snooze");
            self.add(queue, if retrying { Figure::Retrying } else { Figure::Scheduled }, count);
            // What came back has a row in the log as well.
            if matches!(reason.as_str(), "delay" | "tx") && !self.is_brief(queue) {
                self.add(queue, Figure::Sent, count);
            }
            Ok(())
        })?;
        let dead = "select queue_id, count(*) from millpond_dead_letter where redriven_as is null group by 1";
        reader.each(dead, |row| {
            self.add(row.int(0)?, Figure::Dead, row.int(1)?);
            Ok(())
        })?;
        self.read_sent(reader)?;
        let effects =
            "select q.id, sum(e.amount) from torture_effect e join millpond_queue q on q.name = e.queue
                       group by 1";
        reader.each(effects, |row| {
            self.add(row.int(0)?, Figure::Sum, row.int(1)?);
            Ok(())
        })
    }

    fn read_parts(&mut self, reader: &Reader) -> Outcome<()> {
        let parts = "select p.id, p.queue_id,
                (select max(c.to_offset) from millpond_claim c where c.\"partition\" = p.id),
                (select min(l.log_offset) from millpond_log l where l.\"partition\" = p.id),
                (select max(l.log_offset) from millpond_log l where l.\"partition\" = p.id),
                (select count(*) from millpond_log l where l.\"partition\" = p.id and l.log_offset >
                    coalesce((select max(c.to_offset) from millpond_claim c where c.\"partition\" = p.id), -1))
             from millpond_log_partition p";
        reader.each(parts, |row| {
            let (queue, top) = (row.int(1)?, row.count_if_any(2)?);
            let part = Part {
                queue,
                next: top.map_or(0, |top| top + 1),
                rows: row.count_if_any(3)?.zip(row.count_if_any(4)?),
                ..Part::default()
            };
            self.parts.insert(row.int(0)?, part);
            self.add(queue, Figure::Ready, row.int(5)?);
            Ok(())
        })
    }

    fn read_claims(&mut self, reader: &Reader) -> Outcome<()> {
        let claims = "select \"partition\", from_offset, to_offset, done, runs from millpond_claim
                      where token is not null";
        reader.each(claims, |row| {
            let (from, to) = (row.count(1)?, row.count(2)?);
            let (bits, runs) = (row.bytes(3)?, row.bytes(4)?);
            let part = self.parts.entry(row.int(0)?).or_default();
            let mut unsettled = 0;
            for offset in from..=to {
                if is_done(reader.database(), &bits, from, to, offset) {
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
    fn read_sent(&mut self, reader: &Reader) -> Outcome<()> {
        let ids = "select p.queue_id, count(distinct l.message_id) from millpond_log l
                   join millpond_log_partition p on p.id = l.\"partition\" group by 1";
        reader.each(ids, |row| {
            let queue = row.int(0)?;
            if !self.is_brief(queue) {
                self.add(queue, Figure::Sent, row.int(1)?);
            }
            Ok(())
        })?;
        let counted = match reader.database() {
            Database::Sqlite => "select queue_id, sum(sent) from millpond_stat group by 1",
            // What upkeep has not summed yet is beside it.
            Database::Postgres | Database::Mysql => {
                "select s.queue_id, sum(s.sent) from (select queue_id, sent from millpond_stat
                     union all select queue_id, sent from millpond_stat_delta) s group by 1"
            }
        };
        reader.each(counted, |row| {
            let queue = row.int(0)?;
            if self.is_brief(queue) {
                self.add(queue, Figure::Sent, row.int(1)?);
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
pub(crate) fn backlog(reader: &Reader) -> Outcome<i64> {
    reader.number(
        "select (select count(*) from millpond_outbox)
              + (select count(*) from millpond_claim where token is not null)
              + (select count(*) from millpond_log_partition p where exists (
                     select 1 from millpond_log l where l.\"partition\" = p.id and l.log_offset >
                         coalesce((select max(c.to_offset) from millpond_claim c
                                   where c.\"partition\" = p.id), -1)))",
    )
}

/// What the business table, the dead letters and the finished claims say at the end.
pub(crate) fn remains(reader: &Reader) -> Outcome<Vec<Event>> {
    let mut events = Vec::new();
    reader.each("select message_id, queue, amount from torture_effect", |row| {
        let (id, queue, val) = (Some(row.id(0)?), Some(row.text(1)?), Some(row.int(2)?));
        events.push(Event { id, queue, val, ..line(Op::Table) });
        Ok(())
    })?;
    let dead = "select d.message_id, q.name, d.reason, d.attempt from millpond_dead_letter d
                join millpond_queue q on q.id = d.queue_id where d.redriven_as is null";
    reader.each(dead, |row| {
        let (id, queue, reason) = (Some(row.id(0)?), Some(row.text(1)?), Some(row.text(2)?));
        events.push(Event { id, queue, reason, attempt: u32::try_from(row.int(3)?).ok(), ..line(Op::Dead) });
        Ok(())
    })?;
    let claims = "select q.name, h.\"partition\", h.from_offset, h.to_offset from millpond_history h
                  join millpond_queue q on q.id = h.queue_id";
    reader.each(claims, |row| {
        let (queue, part) = (Some(row.text(0)?), u32::try_from(row.int(1)?).ok());
        let (off, to) = (Some(row.count(2)?), Some(row.count(3)? + 1));
        events.push(Event { queue, part, off, to, ph: Phase::Info, ..line(Op::Cursor) });
        Ok(())
    })?;
    Ok(events)
}

/// What is wrong with the database, and messages that a repeat has stored again.
pub(crate) fn integrity(reader: &Reader) -> Outcome<Vec<String>> {
    let mut faults = Vec::new();
    if reader.database() == Database::Sqlite {
        reader.each("pragma integrity_check(1)", |row| {
            let check = row.text(0)?;
            if check != "ok" {
                faults.push(format!("integrity check: {check}"));
            }
            Ok(())
        })?;
    }
    let twice = reader.number(
        "select count(*) from (select l.message_id from millpond_log l
             join millpond_log_partition p on p.id = l.\"partition\"
             where p.lane = 0 group by l.message_id having count(*) > 1) t",
    )?;
    if twice != 0 {
        faults.push(format!("{twice} messages were stored twice"));
    }
    Ok(faults)
}

/// How many batches, of which nobody knows whether they are stored, are stored in part. Batches of a queue whose
/// messages are deleted soon cannot be looked at any more.
pub(crate) fn torn(reader: &Reader, batches: &[(String, Vec<Uuid>)]) -> Outcome<usize> {
    let mut stored = HashSet::new();
    reader.each("select message_id from millpond_log", |row| {
        stored.insert(row.id(0)?);
        Ok(())
    })?;
    let is_torn = |ids: &Vec<Uuid>| {
        let there = ids.iter().filter(|id| stored.contains(id)).count();
        there != 0 && there != ids.len()
    };
    Ok(batches.iter().filter(|(queue, ids)| queue != BRIEF.name() && is_torn(ids)).count())
}

/// Whether a claim's done set has an offset. SQLite counts from the lowest one up, the first bit lowest in its byte; the
/// servers count from the highest one down, the first bit highest.
fn is_done(database: Database, bits: &[u8], from: u64, to: u64, offset: u64) -> bool {
    let (place, is_highest_first) = match database {
        Database::Sqlite => (offset - from, false),
        Database::Postgres | Database::Mysql => (to - offset, true),
    };
    let (byte, bit) = ((place / 8) as usize, place % 8);
    let mask = if is_highest_first { 0x80_u8 >> bit } else { 1_u8 << bit };
    bits.get(byte).is_some_and(|byte| byte & mask != 0)
}

fn done(runs: &[u8]) -> i64 {
    runs.chunks_exact(RUN_BYTES).map(|run| i64::from(run[0] == RUN_DONE)).sum()
}

fn line(op: Op) -> Event {
    Event::new(0, op, Phase::Ok)
}

//! Checkpoints, each read in one transaction: I7, I12, I13, and the counts of I4 and I14.

use std::collections::{BTreeMap, HashMap};

use super::Invariant;
use super::breach::{Breaches, Subject};
use super::history::{Event, Op, State};
use super::record::{Lane, Queue};

/// The figures of one lane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts([Option<i64>; 9]);

impl Counts {
    fn get(&self, state: State) -> Option<i64> {
        self.0[state as usize]
    }

    fn sum(&self, states: &[State]) -> i64 {
        states.iter().filter_map(|state| self.get(*state)).sum()
    }

    fn backlog(&self) -> i64 {
        self.sum(&[State::Ready, State::Leased, State::Scheduled, State::Retrying])
    }

    fn left(&self) -> i64 {
        self.sum(&[State::Dead, State::Cancelled])
    }
}

/// The checkpoint that is being read.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    t: Option<u64>,
    counts: BTreeMap<usize, Counts>,
    /// Watermarks by lane and partition.
    watermarks: HashMap<(usize, u32), u64>,
    /// Lowest unsettled offsets by lane and partition.
    unsettled: HashMap<(usize, u32), u64>,
    /// Lowest kept offsets by queue and partition.
    kept: HashMap<(usize, u32), u64>,
}

impl Checkpoint {
    pub(super) fn t(&self) -> Option<u64> {
        self.t
    }

    pub(super) fn take(&mut self, event: &Event, queue: usize, lane: usize) {
        self.t = Some(event.t);
        let (part, off) = (event.part.unwrap_or_default(), event.off.unwrap_or_default());
        match event.op {
            Op::Count => {
                if let Some(state) = event.state {
                    self.counts.entry(lane).or_default().0[state as usize] = event.val;
                }
            }
            Op::Watermark => {
                self.watermarks.insert((lane, part), off);
            }
            Op::Unsettled => {
                let lowest = self.unsettled.entry((lane, part)).or_insert(off);
                *lowest = off.min(*lowest);
            }
            _ => {
                self.kept.insert((queue, part), off);
            }
        }
    }

    pub(super) fn close(self, queues: &[Queue], lanes: &mut [Lane], breaches: &mut Breaches) {
        let Some(t) = self.t else { return };
        self.watermarks_hold(queues, lanes, breaches);
        for (lane, counts) in self.counts {
            conserved(t, &counts, &queues[lanes[lane].queue], breaches);
            lanes[lane].last = Some((t, counts));
        }
    }

    fn watermarks_hold(&self, queues: &[Queue], lanes: &[Lane], breaches: &mut Breaches) {
        let mut broken = |queue: usize, part, from, to, why: &str| {
            let queue = queues[queue].plan.name.clone();
            breaches.add(Invariant::I7, Subject::Offsets { queue, part, from, to }, why);
        };
        for ((lane, part), unsettled) in &self.unsettled {
            let queue = lanes[*lane].queue;
            if let Some(mark) = self.watermarks.get(&(*lane, *part)).filter(|mark| *mark > unsettled) {
                broken(queue, *part, *unsettled, *mark, "the watermark is above an unsettled offset");
            }
            if let Some(kept) = self.kept.get(&(queue, *part)).filter(|kept| *kept > unsettled) {
                broken(queue, *part, *unsettled, *kept, "an unsettled offset was deleted");
            }
        }
        for ((lane, part), mark) in &self.watermarks {
            let queue = lanes[*lane].queue;
            if let Some(kept) = self.kept.get(&(queue, *part)).filter(|kept| *kept > mark) {
                broken(queue, *part, *mark, *kept, "an offset at or above the watermark was deleted");
            }
        }
    }
}

fn conserved(t: u64, counts: &Counts, queue: &Queue, breaches: &mut Breaches) {
    let Queue { plan, sent_ok, .. } = queue;
    let mut broken = |why| {
        breaches.add(Invariant::I13, Subject::Counts { t, queue: plan.name.clone() }, why);
    };
    let there = counts.backlog() + counts.left() + counts.sum(&[State::Done]);
    let sent = counts.get(State::Sent).unwrap_or(there);
    if sent != there {
        broken(format!("{sent} were sent, and {there} are there"));
    }
    if sent < *sent_ok as i64 {
        broken(format!("the store counts {sent} of {sent_ok} messages whose send had returned"));
    }
}

/// Compares the last counts of each lane with the whole history, in which `invoked` messages per queue may
/// have been sent. Returns whether the run was finished.
pub(super) fn close(queues: &[Queue], lanes: &[Lane], invoked: &[i64], breaches: &mut Breaches) -> bool {
    let mut finished = true;
    for lane in lanes {
        let Some((t, counts)) = lane.last else {
            if lane.durable {
                finished = false;
                let why = format!("nobody counted `{}` at the end", queues[lane.queue].plan.name);
                breaches.add(Invariant::I12, Subject::Run, why);
            }
            continue;
        };
        let name = &queues[lane.queue].plan.name;
        let mut broken = |invariant, why| {
            breaches.add(invariant, Subject::Counts { t, queue: name.clone() }, why);
        };
        if counts.backlog() > 0 {
            finished = false;
            broken(Invariant::I12, format!("a backlog of {} was left", counts.backlog()));
        }
        let (sent, may) = (counts.get(State::Sent).unwrap_or_default(), invoked[lane.queue]);
        if sent > may {
            broken(Invariant::I13, format!("the store counts {sent} messages, at most {may} were sent"));
        }
        if counts.left() != lane.left as i64 {
            broken(Invariant::I14, format!("{} left by count, {} by record", counts.left(), lane.left));
        }
        if counts.get(State::Sum).is_some_and(|sum| sum != lane.sum) {
            broken(Invariant::I4, format!("the sum of the effects is not {}", lane.sum));
        }
    }
    finished
}

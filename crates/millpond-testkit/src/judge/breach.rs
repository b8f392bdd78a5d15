//! What was found broken, and the lines that show it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};

use super::history::{Event, Op};
use super::{Invariant, Line};

/// The most lines that one finding shows: the first half and the last half of those that there are.
const SLICE_LINES_MAX: usize = 50;

/// What a breach is about. Of several, the smallest is shown: the earliest message, the lowest offset.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Message(u128),
    Offsets { queue: String, part: u32, from: u64, to: u64 },
    Counts { t: u64, queue: String },
    Run,
}

impl Subject {
    fn concerns(&self, event: &Event) -> bool {
        match self {
            Subject::Message(id) => event.id.is_some_and(|other| other.as_u128() == *id),
            Subject::Counts { t, queue } => {
                event.op == Op::Count && event.t == *t && event.queue.as_deref() == Some(queue)
            }
            Subject::Run => false,
            Subject::Offsets { queue, part, from, to } => {
                let first = event.off.unwrap_or(u64::MAX);
                let last = event.to.map_or(first, |to| to.saturating_sub(1));
                event.part == Some(*part)
                    && event.queue.as_deref().unwrap_or_default() == queue
                    && first <= *to
                    && last >= *from
            }
        }
    }
}

/// The breaches of one invariant: how many, and the one that is shown.
#[derive(Debug)]
pub(super) struct Breach {
    pub(super) count: u64,
    pub(super) subject: Subject,
    pub(super) why: String,
}

/// All breaches of a run.
#[derive(Debug, Default)]
pub(super) struct Breaches(BTreeMap<Invariant, Breach>);

impl Breaches {
    pub(super) fn add(&mut self, invariant: Invariant, subject: Subject, why: impl Into<String>) {
        let breach = Breach { count: 0, subject, why: why.into() };
        match self.0.get_mut(&invariant) {
            None => {
                self.0.insert(invariant, Breach { count: 1, ..breach });
            }
            Some(found) if breach.subject < found.subject => {
                *found = Breach { count: found.count + 1, ..breach };
            }
            Some(found) => found.count += 1,
        }
    }

    pub(super) fn get(&self, invariant: Invariant) -> Option<&Breach> {
        self.0.get(&invariant)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines that show each breach. Events are numbered from 2: the run is line 1.
    pub(super) fn slices<B: Borrow<Event>, E>(
        &self,
        events: impl Iterator<Item = Result<B, E>>,
    ) -> Result<BTreeMap<Invariant, Vec<Line>>, E> {
        let mut slices: Vec<_> = self.0.iter().map(|(at, breach)| (*at, breach, Slice::default())).collect();
        for (number, event) in (2..).zip(events) {
            let event = event?;
            let event = event.borrow();
            for (_, breach, slice) in &mut slices {
                if breach.subject.concerns(event) {
                    slice.push(Line { number, event: event.clone() });
                }
            }
        }
        Ok(slices.into_iter().map(|(at, _, slice)| (at, slice.into_lines())).collect())
    }
}

#[derive(Default)]
struct Slice {
    head: Vec<Line>,
    tail: VecDeque<Line>,
}

impl Slice {
    fn push(&mut self, line: Line) {
        if self.head.len() < SLICE_LINES_MAX / 2 {
            self.head.push(line);
            return;
        }
        if self.tail.len() == SLICE_LINES_MAX / 2 {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    fn into_lines(mut self) -> Vec<Line> {
        self.head.extend(self.tail);
        self.head
    }
}

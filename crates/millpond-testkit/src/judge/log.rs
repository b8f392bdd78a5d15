//! Offsets and claims: I6.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Invariant;
use super::breach::{Breaches, Subject};
use super::history::{Event, Phase};
use super::record::{Lane, Queue};

#[derive(Debug, Default)]
pub(super) struct Log {
    /// The message at an offset, by queue, partition, offset.
    messages: HashMap<(usize, u32, u64), u128>,
    /// Claims by lane and partition.
    claims: HashMap<(usize, u32), Vec<Claim>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    from: u64,
    to: u64,
    sure: bool,
}

impl Log {
    pub(super) fn take_message(
        &mut self,
        name: &str,
        queue: usize,
        id: u128,
        event: &Event,
        breaches: &mut Breaches,
    ) {
        // A lease that the server may have forgotten in a crash had perhaps an offset that was forgotten with it: the
        // move from the outbox is no more durable than the lease behind it. The message is then in the outbox again.
        if event.ph != Phase::Ok {
            return;
        }
        let (Some(part), Some(off)) = (event.part, event.off) else { return };
        match self.messages.entry((queue, part, off)) {
            Entry::Vacant(place) => {
                place.insert(id);
            }
            Entry::Occupied(place) if *place.get() != id => {
                let subject = Subject::Offsets { queue: name.to_owned(), part, from: off, to: off };
                breaches.add(Invariant::I6, subject, "two messages have one offset");
            }
            Entry::Occupied(_) => {}
        }
    }

    pub(super) fn take_claim(&mut self, lane: usize, event: &Event) {
        let sure = event.ph == Phase::Ok;
        if !sure && event.ph != Phase::Info {
            return;
        }
        if let (Some(part), Some(from), Some(to)) = (event.part, event.off, event.to) {
            self.claims.entry((lane, part)).or_default().push(Claim { from, to, sure });
        }
    }

    /// Claims, in order of their offsets, must follow each other without a gap. Sure ones must not overlap;
    /// those that a reclaimer saw may repeat others, and stand in for those whose reader died too early.
    pub(super) fn close(&mut self, queues: &[Queue], lanes: &[Lane], breaches: &mut Breaches) {
        for ((lane, part), claims) in &mut self.claims {
            claims.sort_unstable();
            let queue = &queues[lanes[*lane].queue].plan.name;
            let mut broken = |from, to, why: &str| {
                let subject = Subject::Offsets { queue: queue.clone(), part: *part, from, to };
                breaches.add(Invariant::I6, subject, why);
            };
            // A subscription may start anywhere, a queue's reader starts at the first offset.
            let start = lanes[*lane].sub.as_ref().and(claims.first()).map_or(0, |claim| claim.from);
            let (mut read_to, mut sure_to) = (start, start);
            for claim in claims {
                if claim.from > read_to {
                    broken(read_to, claim.from, "the reader skipped offsets");
                }
                if claim.sure && claim.from < sure_to {
                    broken(claim.from, sure_to, "the reader stepped back");
                }
                read_to = read_to.max(claim.to);
                if claim.sure {
                    sure_to = sure_to.max(claim.to);
                }
            }
        }
    }
}

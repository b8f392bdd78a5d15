//! Defects, one at a time, and the invariant that each of them breaks.

use uuid::Uuid;

use super::Dice;
use crate::judge::Invariant::{self, I1, I2, I3, I4, I6, I7, I8, I9, I11, I12, I13, I14};
use crate::judge::history::{Event, Op, Phase, State};

/// One defect.
#[derive(Debug)]
pub struct Mutation {
    /// What is done to a good history.
    pub name: &'static str,
    /// The invariant that must be found broken.
    pub breaks: Invariant,
    apply: fn(&mut Story<'_>) -> Option<()>,
}

impl Mutation {
    /// Does it somewhere in a history; returns whether there was a place for it.
    pub fn apply(&self, events: &mut Vec<Event>, dice: &mut Dice) -> bool {
        (self.apply)(&mut Story { events, dice }).is_some()
    }
}

macro_rules! mutations {
    ($($breaks:ident $name:literal $apply:expr;)*) => {
        /// All defects.
        pub const MUTATIONS: &[Mutation] = &[$(Mutation { name: $name, breaks: $breaks, apply: $apply }),*];
    };
}

mutations! {
    I1 "drop a delivery" |story| {
        let id = story.acked("mail")?;
        story.remove(|event| event.id == Some(id) && event.op != Op::Send)
    };
    I1 "drop the delivery to one subscription" |story| {
        let id = story.acked("orders")?;
        story.remove(|event| event.id == Some(id) && event.sub.as_deref() == Some("search"))
    };
    I1 "lose an effect" |story| {
        let id = story.acked("mail")?;
        story.remove(|event| event.id == Some(id) && matches!(event.op, Op::Table | Op::Effect))
    };
    I1 "lose an ack" |story| {
        let id = story.acked("thumbnails")?;
        story.remove(|event| event.id == Some(id) && event.op == Op::Settle)
    };
    I1 "hide a dead letter" |story| {
        let sent = story.ids(|event| event.op == Op::Send && event.ph == Phase::Ok);
        let at = story.pick_of(Op::Dead, &sent)?;
        story.drop_line(at)
    };
    I2 "lease a message from nowhere" |story| {
        let id = story.dice.id();
        story.double(Op::Lease, |lease| lease.id = Some(id))
    };
    I2 "store an effect from nowhere" |story| {
        let id = story.dice.id();
        story.double(Op::Table, |row| row.id = Some(id))
    };
    I2 "a dead letter from nowhere" |story| {
        let id = story.dice.id();
        story.double(Op::Dead, |row| row.id = Some(id))
    };
    I2 "forget a send" |story| {
        let id = story.acked("audit")?;
        story.remove(|event| event.id == Some(id) && event.op == Op::Send)
    };
    I2 "deliver to another queue" |story| {
        story.double(Op::Lease, |lease| {
            let other = if lease.queue.as_deref() == Some("mail") { "audit" } else { "mail" };
            (lease.queue, lease.sub, lease.off) = (Some(other.into()), None, None);
        })
    };
    I2 "spoil a body" |story| story.change(Op::Lease, |lease| lease.err = Some("crc".into()));
    I3 "count `info` as `fail`" |story| {
        let leased = story.ids(|event| event.op == Op::Lease);
        let at = story.pick(|event| {
            event.op == Op::Send && event.ph == Phase::Info && event.id.is_some_and(|id| leased.contains(&id))
        })?;
        story.events[at].ph = Phase::Fail;
        Some(())
    };
    I3 "deliver what was not sent" |story| {
        let at = story.pick(|event| event.op == Op::Send && event.ph == Phase::Fail)?;
        let Event { id, queue, .. } = story.events[at].clone();
        let token = Some(story.dice.id());
        let lease = Event { id, queue, token, attempt: Some(1), ..Event::new(0, Op::Lease, Phase::Ok) };
        story.insert(at, lease)
    };
    I4 "double an effect" |story| story.double(Op::Table, |_| ());
    I4 "report an effect twice" |story| {
        let at = story.pick(|event| event.op == Op::Effect && event.ph == Phase::Ok)?;
        story.insert(at, story.events[at].clone())
    };
    I4 "dead and done" |story| {
        let at = story.pick(|event| event.op == Op::Table)?;
        let row = story.events[at].clone();
        story.insert(at, Event { op: Op::Dead, val: None, reason: Some("exhausted".into()), ..row })
    };
    I4 "a wrong amount" |story| story.change(Op::Table, |row| row.val = row.val.map(|val| val + 1));
    I4 "a wrong sum" |story| story.change_last_count(State::Sum, 1);
    I4 "an effect that was reported is gone" |story| {
        let reported = story.ids(|event| event.op == Op::Effect && event.queue.as_deref() == Some("mail"));
        let at = story.pick_of(Op::Table, &reported)?;
        story.drop_line(at)
    };
    I6 "lower a cursor" |story| {
        let at = story.claim(|claims, at| at > 0 && claims[at - 1].ph == Phase::Ok)?;
        story.events[at].off = story.events[at].off.map(|off| off - 1);
        Some(())
    };
    I6 "make a gap" |story| {
        let at = story.claim(|claims, at| at > 0 && claims.len() > at + 1)?;
        story.drop_line(at)
    };
    I6 "leave out the first offset" |story| {
        let at = story.claim(|claims, at| at == 0 && claims[0].sub.is_none())?;
        story.events[at].off = Some(1);
        story.events[at].to = story.events[at].to.map(|to| to + 1);
        Some(())
    };
    I6 "claim twice" |story| {
        let at = story.claim(|_, _| true)?;
        story.insert(at, story.events[at].clone())
    };
    I6 "two messages at one offset" |story| {
        let is_sure = |event: &Event| event.op == Op::Lease && event.ph == Phase::Ok;
        let at = story.pick(is_sure)?;
        let Event { queue, part, off, id, .. } = story.events[at].clone();
        let other = story.pick(|event| is_sure(event) && event.queue == queue && event.id != id)?;
        (story.events[other].part, story.events[other].off) = (part, off);
        Some(())
    };
    I7 "raise a watermark" |story| {
        let at = story.pick(|event| event.op == Op::Unsettled)?;
        let Event { t, queue, sub, part, off, .. } = story.events[at].clone();
        let mark = story.pick(|event| {
            (event.op, event.t) == (Op::Watermark, t)
                && (&event.queue, &event.sub, event.part) == (&queue, &sub, part)
        })?;
        story.events[mark].off = off.map(|off| off + 1);
        Some(())
    };
    I7 "delete an unsettled offset" |story| {
        let at = story.pick(|event| event.op == Op::Unsettled)?;
        let Event { t, queue, part, off, .. } = story.events[at].clone();
        let kept = story.pick(|event| {
            (event.op, event.t) == (Op::Kept, t) && (&event.queue, event.part) == (&queue, part)
        })?;
        story.events[kept].off = off.map(|off| off + 1);
        Some(())
    };
    I7 "delete above the watermark of a slow subscription" |story| {
        let last = story.events.last()?.t;
        let at = story.pick(|event| event.op == Op::Kept && event.t == last)?;
        story.events[at].off = story.events[at].off.map(|off| off + 10);
        Some(())
    };
    I8 "settle with an old token" |story| {
        let at = story.pick(|event| event.op == Op::Reclaim)?;
        let takeover = story.events[at].clone();
        let verdict = Some("ack".into());
        let token = takeover.old;
        story.insert(at, Event { op: Op::Settle, token, old: None, val: None, verdict, ..takeover })
    };
    I8 "accept a late settle" |story| {
        let at = story.pick(|event| event.err.as_deref() == Some("lease-lost"))?;
        (story.events[at].ph, story.events[at].err) = (Phase::Ok, None);
        Some(())
    };
    I8 "settle with a foreign token" |story| {
        let token = story.dice.id();
        story.change_ack(|settle| settle.token = Some(token))
    };
    I8 "settle without a token" |story| story.change_ack(|settle| settle.token = None);
    I9 "accept an ack twice" |story| {
        let at = story.pick(is_sure_ack)?;
        let last = story.last(story.events[at].id)?;
        let settle = story.events[at].clone();
        story.insert(last.max(at), settle.clone());
        story.insert(last.max(at), settle)
    };
    I9 "lease twice at once" |story| {
        let taken = story.ids(|event| event.op == Op::Reclaim);
        let at = story.pick(|event| {
            event.op == Op::Lease && event.id.is_some_and(|id| !taken.contains(&id))
        })?;
        let token = Some(story.dice.id());
        story.insert(at, Event { token, part: None, ..story.events[at].clone() })
    };
    I9 "settle one delivery under two tokens" |story| {
        let token = story.dice.id();
        let at = story.sure_ack()?;
        story.insert(at, Event { token: Some(token), ..story.events[at].clone() })
    };
    I9 "lease after the ack" |story| {
        let at = story.sure_ack()?;
        let ack = story.events[at].clone();
        let (delivery, token) = (ack.delivery.map(|delivery| delivery + 1), Some(story.dice.id()));
        story.insert(at, Event { op: Op::Lease, verdict: None, delivery, token, ..ack })
    };
    I9 "settle again after the ack" |story| {
        let at = story.sure_ack()?;
        let ack = story.events[at].clone();
        let (delivery, token) = (ack.delivery.map(|delivery| delivery + 1), Some(story.dice.id()));
        story.insert(at, Event { delivery, token, ..ack })
    };
    I9 "take one token over twice" |story| {
        let token = story.dice.id();
        story.double(Op::Reclaim, |takeover| takeover.token = Some(token))
    };
    I11 "charge a neighbour" |story| {
        let steady = story.ids(|event| event.op == Op::Send && event.kind.as_deref() == Some("steady"));
        let alone = story.ids(|event| event.op == Op::Reclaim && event.val == Some(1));
        let at = story.pick(|event| {
            let spared = |id: &Uuid| steady.contains(id) && !alone.contains(id);
            event.op == Op::Lease && event.id.as_ref().is_some_and(spared)
        })?;
        story.events[at].attempt = Some(2);
        Some(())
    };
    I11 "a neighbour dies" |story| {
        let id = story.acked("mail")?;
        let at = story.pick(|event| event.op == Op::Table && event.id == Some(id))?;
        let row = &mut story.events[at];
        (row.op, row.val, row.reason) = (Op::Dead, None, Some("lease-exhausted".into()));
        Some(())
    };
    I11 "a killing body never dies" |story| {
        let at = story.pick_dead("lease-exhausted")?;
        story.drop_line(at)
    };
    I11 "a killing body dies of something else" |story| {
        let at = story.pick_dead("lease-exhausted")?;
        story.events[at].reason = Some("exhausted".into());
        Some(())
    };
    I11 "lease beyond the last attempt" |story| story.change(Op::Lease, |lease| lease.attempt = Some(4));
    I12 "leave a backlog" |story| {
        story.change_last_count(State::Done, -1)?;
        story.change_last_count(State::Retrying, 1)
    };
    I12 "count nothing at the end" |story| story.remove(|event| event.op == Op::Count);
    I13 "counts that do not add up" |story| {
        let at = story.pick(|event| event.op == Op::Count && event.state == Some(State::Leased))?;
        story.events[at].val = story.events[at].val.map(|val| val + 1);
        Some(())
    };
    I13 "store a repeat again" |story| {
        story.change_last_count(State::Done, 1_000)?;
        story.change_last_count(State::Sent, 1_000)
    };
    I13 "forget messages from the counts" |story| {
        story.change_last_count(State::Done, -50)?;
        story.change_last_count(State::Sent, -50)
    };
    I14 "an unknown reason" |story| story.change(Op::Dead, |row| row.reason = Some("bored".into()));
    I14 "no reason" |story| story.change(Op::Dead, |row| row.reason = None);
    I14 "dead-letter for an unknown reason" |story| {
        let dead_letter = Some("dead-letter");
        let at = story.pick(|event| event.verdict.as_deref() == dead_letter && event.ph == Phase::Ok)?;
        story.events[at].reason = Some("bored".into());
        Some(())
    };
    I14 "die twice" |story| story.double(Op::Dead, |_| ());
    I14 "dead by verdict, not by record" |story| {
        let at = story.pick_dead("refused")?;
        story.drop_line(at)
    };
    I14 "a dead letter that is not counted" |story| {
        story.change_last_count(State::Done, 1)?;
        story.change_last_count(State::Dead, -1)
    };
    I14 "vanish without a trace" |story| {
        let unknown = story.ids(|event| event.op == Op::Send && event.ph == Phase::Info);
        let at = story.pick_of(Op::Table, &unknown)?;
        story.drop_line(at)
    };
}

fn is_sure_ack(event: &Event) -> bool {
    event.op == Op::Settle && event.ph == Phase::Ok && event.verdict.as_deref() == Some("ack")
}

/// A history in which something is about to go wrong.
struct Story<'a> {
    events: &'a mut Vec<Event>,
    dice: &'a mut Dice,
}

impl Story<'_> {
    fn pick(&mut self, fits: impl Fn(&Event) -> bool) -> Option<usize> {
        let places: Vec<usize> =
            (0..).zip(&*self.events).filter(|(_, e)| fits(e)).map(|(at, _)| at).collect();
        (!places.is_empty()).then(|| places[self.dice.below(places.len() as u64) as usize])
    }

    fn pick_of(&mut self, op: Op, ids: &[Uuid]) -> Option<usize> {
        self.pick(|event| event.op == op && event.id.is_some_and(|id| ids.contains(&id)))
    }

    fn pick_dead(&mut self, reason: &str) -> Option<usize> {
        self.pick(|event| event.op == Op::Dead && event.reason.as_deref() == Some(reason))
    }

    fn ids(&self, fits: impl Fn(&Event) -> bool) -> Vec<Uuid> {
        self.events.iter().filter(|event| fits(event)).filter_map(|event| event.id).collect()
    }

    /// A message of a queue whose send returned, and that was acknowledged under its first lease.
    fn acked(&mut self, queue: &str) -> Option<Uuid> {
        let sent = self.ids(|event| event.op == Op::Send && event.ph == Phase::Ok);
        let taken = self.ids(|event| event.op == Op::Reclaim);
        let at = self.pick(|event| {
            let plain = |id: &Uuid| sent.contains(id) && !taken.contains(id);
            let first = event.attempt == Some(1) && event.queue.as_deref() == Some(queue);
            is_sure_ack(event) && first && event.id.as_ref().is_some_and(plain)
        })?;
        self.events[at].id
    }

    /// An accepted ack that nothing later takes back.
    fn sure_ack(&mut self) -> Option<usize> {
        let doubted = self.ids(|event| event.op == Op::Settle && event.ph == Phase::Info);
        self.pick(|event| is_sure_ack(event) && event.id.is_some_and(|id| !doubted.contains(&id)))
    }

    fn last(&self, id: Option<Uuid>) -> Option<usize> {
        self.events.iter().rposition(|event| event.id == id)
    }

    /// The claim whose place among the claims of its lane and partition fits, and that no reclaimer saw.
    fn claim(&mut self, fits: impl Fn(&[Event], usize) -> bool) -> Option<usize> {
        let lane = |event: &Event| (event.queue.clone(), event.sub.clone(), event.part);
        let mut claims: Vec<Event> =
            self.events.iter().filter(|event| event.op == Op::Cursor).cloned().collect();
        claims.sort_by_key(|event| (lane(event), event.off, event.ph == Phase::Ok));
        let mut fitting = Vec::new();
        for claims in claims.chunk_by(|a, b| lane(a) == lane(b)) {
            let seen = |at: usize| claims.iter().filter(|other| other.off == claims[at].off).count() > 1;
            let fits = |at: &usize| claims[*at].ph == Phase::Ok && !seen(*at) && fits(claims, *at);
            fitting.extend((0..claims.len()).filter(fits).map(|at| claims[at].clone()));
        }
        self.pick(|event| fitting.contains(event))
    }

    fn change(&mut self, op: Op, change: impl FnOnce(&mut Event)) -> Option<()> {
        let at = self.pick(|event| event.op == op)?;
        change(&mut self.events[at]);
        Some(())
    }

    fn change_ack(&mut self, change: impl FnOnce(&mut Event)) -> Option<()> {
        let at = self.sure_ack()?;
        change(&mut self.events[at]);
        Some(())
    }

    fn change_last_count(&mut self, state: State, by: i64) -> Option<()> {
        let at = self
            .events
            .iter()
            .rposition(|event| event.state == Some(state) && event.queue.as_deref() == Some("orders"))?;
        self.events[at].val = self.events[at].val.map(|val| val + by);
        Some(())
    }

    fn double(&mut self, op: Op, change: impl FnOnce(&mut Event)) -> Option<()> {
        let at = self.pick(|event| event.op == op)?;
        let mut event = self.events[at].clone();
        change(&mut event);
        self.insert(at, event)
    }

    /// Inserts an event after another one, at the same time.
    fn insert(&mut self, after: usize, event: Event) -> Option<()> {
        let t = self.events[after].t;
        self.events.insert(after + 1, Event { t, ..event });
        Some(())
    }

    fn drop_line(&mut self, at: usize) -> Option<()> {
        self.events.remove(at);
        Some(())
    }

    fn remove(&mut self, goes: impl Fn(&Event) -> bool) -> Option<()> {
        let before = self.events.len();
        self.events.retain(|event| !goes(event));
        (self.events.len() < before).then_some(())
    }
}

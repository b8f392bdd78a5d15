//! Histories in which everything is as it should be, with kills, takeovers, retries and unknown outcomes.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Dice;
use crate::judge::history::{Effects, Event, HISTORY_VERSION, Op, Phase, Plan, QueuePlan, Run, State};

/// Messages of a history; they make about 10,000 events.
const MESSAGES: u64 = 1_150;
const ATTEMPTS_MAX: u32 = 3;
const PARTITIONS: u64 = 2;
/// Return partitions are numbered from here, one per lane.
const RETURN_PARTITIONS: u32 = 8;

/// The run and the events of a seed.
pub fn good_history(seed: u64) -> (Run, Vec<Event>) {
    let run = run(seed);
    let mut world = World::new(&run, seed);
    for n in 0..MESSAGES {
        world.message(n);
    }
    let events = world.close();
    (run, events)
}

fn run(seed: u64) -> Run {
    let queue = |name: &str, subs: &[&str], effects| QueuePlan {
        name: name.into(),
        subs: subs.iter().map(|sub| (*sub).into()).collect(),
        attempts_max: ATTEMPTS_MAX,
        effects,
    };
    Run {
        version: HISTORY_VERSION,
        seed,
        commit: "0000000".into(),
        store: "memory".into(),
        server: String::new(),
        faults: vec!["F01".into()],
        queues: vec![
            queue("mail", &[], Effects::Table),
            queue("thumbnails", &[], Effects::None),
            queue("orders", &["billing", "search"], Effects::Table),
            queue("audit", &[], Effects::Reported),
        ],
        kinds: [("steady", Plan::Ack), ("shaky", Plan::Fail), ("poison", Plan::Kill)]
            .map(|(kind, plan)| (kind.to_owned(), plan))
            .into(),
        killing: Vec::new(),
        in_flight_max: 8,
    }
}

struct Lane {
    plan: QueuePlan,
    queue: usize,
    sub: Option<String>,
    /// For each message, the times at which it changed its state.
    lives: Vec<Vec<(u64, State)>>,
    /// For each offset of a partition, when it was settled.
    settled: BTreeMap<u32, Vec<u64>>,
    sum: i64,
}

/// A message on its way through one lane.
struct Life {
    lane: usize,
    id: Uuid,
    plan: Plan,
    amount: i64,
    part: u32,
    off: u64,
    t: u64,
    attempt: u32,
    delivery: u32,
    states: Vec<(u64, State)>,
}

struct World {
    dice: Dice,
    lanes: Vec<Lane>,
    queues: usize,
    heads: BTreeMap<(usize, u32), u64>,
    events: Vec<Event>,
    /// Rows found at the end.
    rows: Vec<Event>,
    now: u64,
}

impl World {
    fn new(run: &Run, seed: u64) -> Self {
        let lanes = run.queues.iter().enumerate().flat_map(|(queue, plan)| {
            let subs =
                if plan.subs.is_empty() { vec![None] } else { plan.subs.iter().cloned().map(Some).collect() };
            subs.into_iter().map(move |sub| Lane {
                plan: plan.clone(),
                queue,
                sub,
                lives: Vec::new(),
                settled: BTreeMap::new(),
                sum: 0,
            })
        });
        World {
            dice: Dice::new(seed),
            lanes: lanes.collect(),
            queues: run.queues.len(),
            heads: BTreeMap::new(),
            events: Vec::new(),
            rows: Vec::new(),
            now: 0,
        }
    }

    fn message(&mut self, n: u64) {
        let queue = self.dice.below(self.queues as u64) as usize;
        let (kind, plan) = match self.dice.below(100) {
            0..=1 => ("poison", Plan::Kill),
            2..=9 => ("shaky", Plan::Fail),
            _ => ("steady", Plan::Ack),
        };
        let (stored, answer) = match self.dice.below(100) {
            0..=2 => (true, Phase::Info),
            3..=4 => (false, Phase::Info),
            5..=6 => (false, Phase::Fail),
            _ => (true, Phase::Ok),
        };
        let mut t = n * 1_000;
        let id = Uuid::from_u64_pair(n + 1, self.dice.next());
        let amount = 1 + self.dice.below(100) as i64;
        let name = self.lanes.iter().find(|lane| lane.queue == queue).map(|lane| lane.plan.name.clone());
        let send = Event {
            queue: name,
            id: Some(id),
            kind: Some(kind.into()),
            val: Some(amount),
            ..Event::new(0, Op::Send, Phase::Invoke)
        };
        self.push(t, send.clone());
        t += 1 + self.dice.below(500);
        let answered = t + self.dice.below(3_000);
        self.push(answered, Event { ph: answer, ..send });
        if !stored {
            return;
        }
        let part = self.dice.below(PARTITIONS) as u32;
        let off = self.offset(queue, part);
        for lane in (0..self.lanes.len()).filter(|lane| self.lanes[*lane].queue == queue).collect::<Vec<_>>()
        {
            let (attempt, delivery, states) = (1, 1, Vec::new());
            self.live(Life { lane, id, plan, amount, part, off, t, attempt, delivery, states });
        }
    }

    fn live(&mut self, mut life: Life) {
        let first = if self.dice.percent(5) { State::Scheduled } else { State::Ready };
        life.states.push((life.t, first));
        if self.dice.percent(2) {
            self.step(&mut life, State::Cancelled);
            self.leave(&mut life, "cancelled");
        } else {
            while !self.deliver(&mut life) {}
        }
        self.now = self.now.max(life.t);
        let lane = &mut self.lanes[life.lane];
        lane.lives.push(life.states);
        lane.settled.entry(life.part).or_default().push(life.t);
    }

    /// One delivery; returns whether it was the last.
    fn deliver(&mut self, life: &mut Life) -> bool {
        let token = self.dice.id();
        self.step(life, State::Leased);
        let mut lease = self.about(life, Op::Lease, Phase::Ok);
        lease.token = Some(token);
        (lease.part, lease.off) = if life.delivery == 1 {
            (Some(life.part), Some(life.off))
        } else {
            let part = RETURN_PARTITIONS + life.lane as u32;
            (Some(part), Some(self.offset(self.lanes[life.lane].queue, part)))
        };
        self.push(life.t, lease.clone());
        if self.dice.percent(2) {
            self.push(life.t + 5, lease);
        }
        match life.plan {
            Plan::Kill => self.die(life, token),
            Plan::Ack if life.delivery < 4 && self.dice.percent(12) => self.die(life, token),
            Plan::Fail if self.dice.percent(50) => self.fail(life, token),
            _ => self.finish(life, token),
        }
    }

    /// The worker dies, or stops for so long that it is taken for dead.
    fn die(&mut self, life: &mut Life, token: Uuid) -> bool {
        let committed = life.plan == Plan::Ack && self.dice.percent(30);
        if committed {
            self.effect(life);
        }
        let alone = match life.plan {
            Plan::Kill => life.delivery > 1,
            _ => life.attempt < ATTEMPTS_MAX && self.dice.percent(30),
        };
        life.t += 100;
        let new = self.dice.id();
        self.push(life.t, Event { kind: Some("kill".into()), ..Event::new(0, Op::Fault, Phase::Ok) });
        let mut takeover = self.about(life, Op::Reclaim, Phase::Ok);
        (takeover.old, takeover.token) = (Some(token), Some(new));
        takeover.val = Some(if alone { 1 } else { 8 });
        self.push(life.t + 1, takeover);
        if self.dice.percent(50) {
            self.settle(life, token, "ack", None, Phase::Fail);
        }
        if committed {
            self.settle(life, new, "ack", None, Phase::Ok);
            return self.done(life);
        }
        if alone && life.attempt == ATTEMPTS_MAX {
            self.settle(life, new, "dead-letter", Some("lease-exhausted"), Phase::Ok);
            self.step(life, State::Dead);
            return self.leave(life, "lease-exhausted");
        }
        self.settle(life, new, "release", None, Phase::Ok);
        self.again(life, alone)
    }

    fn fail(&mut self, life: &mut Life, token: Uuid) -> bool {
        let reason = match life.attempt {
            ATTEMPTS_MAX => "exhausted",
            _ if self.dice.percent(20) => "refused",
            _ => {
                self.settle(life, token, "retry", None, Phase::Ok);
                return self.again(life, true);
            }
        };
        self.settle(life, token, "dead-letter", Some(reason), Phase::Ok);
        self.step(life, State::Dead);
        self.leave(life, reason)
    }

    fn finish(&mut self, life: &mut Life, token: Uuid) -> bool {
        self.effect(life);
        let answer = if self.dice.percent(3) { Phase::Info } else { Phase::Ok };
        self.settle(life, token, "ack", None, answer);
        if self.dice.percent(1) {
            self.settle(life, token, "ack", None, Phase::Info);
        }
        self.done(life)
    }

    fn effect(&mut self, life: &mut Life) {
        life.t += 10;
        let unseen = self.dice.percent(5);
        match self.lanes[life.lane].plan.effects {
            Effects::None => {}
            Effects::Table if unseen => {}
            Effects::Reported if unseen => self.push(life.t, self.about(life, Op::Effect, Phase::Info)),
            _ => self.push(life.t, self.about(life, Op::Effect, Phase::Ok)),
        }
    }

    fn settle(&mut self, life: &mut Life, token: Uuid, verdict: &str, reason: Option<&str>, answer: Phase) {
        life.t += 10;
        let mut settle = self.about(life, Op::Settle, Phase::Invoke);
        settle.token = Some(token);
        settle.verdict = Some(verdict.into());
        settle.reason = reason.map(str::to_owned);
        let err = (answer == Phase::Fail).then(|| "lease-lost".to_owned());
        self.push(life.t, settle.clone());
        self.push(life.t + 5, Event { ph: answer, err, ..settle });
    }

    fn again(&mut self, life: &mut Life, charged: bool) -> bool {
        self.step(life, State::Retrying);
        self.step(life, State::Ready);
        life.attempt += u32::from(charged);
        life.delivery += 1;
        false
    }

    fn done(&mut self, life: &mut Life) -> bool {
        self.step(life, State::Done);
        if self.lanes[life.lane].plan.effects == Effects::Table {
            self.lanes[life.lane].sum += life.amount;
            let row = Event { attempt: None, delivery: None, ..self.about(life, Op::Table, Phase::Ok) };
            self.rows.push(Event { val: Some(life.amount), ..row });
        }
        true
    }

    fn leave(&mut self, life: &mut Life, reason: &str) -> bool {
        let row = self.about(life, Op::Dead, Phase::Ok);
        self.rows.push(Event { reason: Some(reason.into()), ..row });
        true
    }

    fn step(&mut self, life: &mut Life, state: State) {
        life.t += 1 + self.dice.below(20_000);
        life.states.push((life.t, state));
    }

    fn about(&self, life: &Life, op: Op, ph: Phase) -> Event {
        let lane = &self.lanes[life.lane];
        Event {
            queue: Some(lane.plan.name.clone()),
            sub: lane.sub.clone(),
            id: Some(life.id),
            attempt: Some(life.attempt),
            delivery: Some(life.delivery),
            ..Event::new(0, op, ph)
        }
    }

    fn lanes_of(&self, queue: usize) -> Vec<usize> {
        (0..self.lanes.len()).filter(|lane| self.lanes[*lane].queue == queue).collect()
    }

    fn offset(&mut self, queue: usize, part: u32) -> u64 {
        let head = self.heads.entry((queue, part)).or_default();
        *head += 1;
        *head - 1
    }

    /// Events have even times, checkpoints odd ones.
    fn push(&mut self, t: u64, event: Event) {
        self.now = self.now.max(t);
        self.events.push(Event { t: t * 2, ..event });
    }

    fn close(mut self) -> Vec<Event> {
        let end = self.now;
        self.claims(end);
        for fifth in 1..5 {
            self.checkpoint(end * fifth / 5);
        }
        for row in std::mem::take(&mut self.rows) {
            self.push(end + 100, row);
        }
        self.checkpoint(end + 200);
        self.events.sort_by_key(|event| event.t);
        self.events
    }

    fn claims(&mut self, end: u64) {
        let heads = std::mem::take(&mut self.heads);
        for ((queue, part), head) in heads {
            for lane in self.lanes_of(queue) {
                if part >= RETURN_PARTITIONS && part != RETURN_PARTITIONS + lane as u32 {
                    continue;
                }
                let mut from = 0;
                while from < head {
                    let to = head.min(from + 1 + self.dice.below(20));
                    self.claim(lane, part, from, to, end);
                    from = to;
                }
            }
        }
    }

    fn claim(&mut self, lane: usize, part: u32, from: u64, to: u64, end: u64) {
        let seen: &[Phase] = match self.dice.below(20) {
            0 => &[Phase::Info],
            1 => &[Phase::Ok, Phase::Info],
            _ => &[Phase::Ok],
        };
        for ph in seen {
            let t = self.dice.below(end);
            let (queue, sub) = (Some(self.lanes[lane].plan.name.clone()), self.lanes[lane].sub.clone());
            let (part, off, to) = (Some(part), Some(from), Some(to));
            self.push(t, Event { queue, sub, part, off, to, ..Event::new(0, Op::Cursor, *ph) });
        }
    }

    fn checkpoint(&mut self, t: u64) {
        let mut lines = Vec::new();
        let mut lowest: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for lane in &self.lanes {
            let line = |op| Event {
                queue: Some(lane.plan.name.clone()),
                sub: lane.sub.clone(),
                ..Event::new(t * 2 + 1, op, Phase::Ok)
            };
            for (state, val) in counts(lane, t) {
                lines.push(Event { state: Some(state), val: Some(val), ..line(Op::Count) });
            }
            if t > self.now && lane.plan.effects == Effects::Table {
                lines.push(Event { state: Some(State::Sum), val: Some(lane.sum), ..line(Op::Count) });
            }
            for (part, settled) in &lane.settled {
                let unsettled: Vec<u64> =
                    (0..).zip(settled).filter(|(_, at)| **at > t).map(|(off, _)| off).collect();
                let mark = unsettled.first().copied().unwrap_or(settled.len() as u64);
                let at = |op, off| Event { part: Some(*part), off: Some(off), ..line(op) };
                lines.push(at(Op::Watermark, mark));
                lines.extend(unsettled.iter().take(3).map(|off| at(Op::Unsettled, *off)));
                let lowest = lowest.entry((lane.queue, *part)).or_insert(mark);
                *lowest = mark.min(*lowest);
            }
        }
        for ((queue, part), mark) in lowest {
            let name = self.lanes.iter().find(|lane| lane.queue == queue).map(|lane| lane.plan.name.clone());
            let off = mark.saturating_sub(self.dice.below(3));
            let kept = Event::new(t * 2 + 1, Op::Kept, Phase::Ok);
            lines.push(Event { queue: name, part: Some(part), off: Some(off), ..kept });
        }
        self.events.extend(lines);
    }
}

fn counts(lane: &Lane, t: u64) -> Vec<(State, i64)> {
    let states = [
        State::Done,
        State::Dead,
        State::Cancelled,
        State::Ready,
        State::Leased,
        State::Scheduled,
        State::Retrying,
    ];
    let now = |life: &Vec<(u64, State)>| life.iter().rev().find(|(at, _)| *at <= t).map(|(_, state)| *state);
    let there: Vec<State> = lane.lives.iter().filter_map(now).collect();
    let mut counts = vec![(State::Sent, there.len() as i64)];
    counts.extend(states.map(|state| (state, there.iter().filter(|at| **at == state).count() as i64)));
    counts
}

//! What a seed means: the batches, and the faults with their moments. Pure.

use std::time::Duration;

use millpond_testkit::proxy::{Cut, Way};

use crate::dice::Dice;
use crate::work::{BRIEF, EFFECTS, Kind, MessageOrder, Order, PLAIN};

pub(crate) const SENDERS: usize = 4;
pub(crate) const WORKERS: usize = 5;

const BATCH: u64 = 50;

/// The mean time from one kill to the next.
const KILL_EVERY: Duration = Duration::from_millis(1_600);

/// The same for the server, which takes a while to come back, and for connections.
const SERVER_KILL_EVERY: Duration = Duration::from_millis(5_000);
const CUT_EVERY: Duration = Duration::from_millis(120);

/// One in so many messages kills its worker; at least two and at most eight of a run do.
const MESSAGES_PER_KILLER: u64 = 12_500;

/// One pause for so many kills.
const KILLS_PER_PAUSE: u64 = 8;

/// The size and the seed of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) messages: u64,
    pub(crate) kills: u64,
    /// How often the server is killed with all its processes.
    pub(crate) server_kills: u64,
    /// How many connections are cut.
    pub(crate) cuts: u64,
    /// How many calls are made of which many are given up.
    pub(crate) drops: u64,
}

/// Something that is done to a process, or to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A number of a worker; the next one that runs is taken. It dies so long after a moment.
    KillWorker(usize, Moment, Duration),
    /// A number of a sender, which dies so long after it is given its next batch.
    KillSender(usize, Duration),
    KillAll,
    /// A worker is stopped for longer than its lease, and goes on.
    Pause(usize, Duration),
    /// The server is started again after so long.
    KillServer(Duration),
    /// A connection of a sender is cut, or one of a worker.
    CutSender(Cut),
    CutWorker(Cut),
}

/// What a worker has just reported when it dies. Chance alone finds wide windows only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Whatever it does.
    Any,
    /// It was given messages.
    Lease,
    /// A handler has begun.
    Begin,
    /// An effect was committed.
    Effect,
    /// It is about to settle.
    Settle,
    /// It has taken over what another left, and has decided nothing yet. Any worker that does so dies.
    Reclaim,
}

/// A fault with its moment, counted from the start of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
}

impl Planned {
    pub(crate) fn is_kill(&self) -> bool {
        !matches!(
            self.fault,
            Fault::Pause(..) | Fault::KillServer(_) | Fault::CutSender(_) | Fault::CutWorker(_)
        )
    }
}

impl Plan {
    /// The arguments that give the same run.
    pub(crate) fn line(&self) -> String {
        let Self { seed, messages, kills, server_kills, cuts, drops } = self;
        format!(
            "--messages {messages} --kills {kills} --server-kills {server_kills} --cuts {cuts} --drops {drops} --seed {seed}"
        )
    }

    /// How long messages are sent: as long as processes are killed.
    pub(crate) fn load(&self) -> Duration {
        let times = |every: Duration, count: u64| every * u32::try_from(count).unwrap_or(u32::MAX);
        let others = times(SERVER_KILL_EVERY, self.server_kills).max(times(CUT_EVERY, self.cuts));
        times(KILL_EVERY, self.kills.max(2)).max(others)
    }

    pub(crate) fn batches(&self) -> u64 {
        self.messages.div_ceil(BATCH)
    }

    /// When a batch may be sent, so that the load is even.
    pub(crate) fn batch_at(&self, batch: u64) -> Duration {
        self.load().mul_f64(batch as f64 / self.batches().max(1) as f64)
    }

    /// Every fault, by its moment.
    pub(crate) fn faults(&self) -> Vec<Planned> {
        let mut faults: Vec<_> = (0..self.kills).map(|number| self.kill(number)).collect();
        faults.extend((0..self.kills.div_ceil(KILLS_PER_PAUSE)).map(|number| self.pause(number)));
        faults.extend((0..self.server_kills).map(|number| self.server_kill(number)));
        faults.extend((0..self.cuts).map(|number| self.cut(number)));
        faults.sort_by_key(|planned| planned.at);
        faults
    }

    fn kill(&self, number: u64) -> Planned {
        let mut dice = Dice::of(self.seed, 1, number);
        let share = (number as f64 + dice.between(0, 1_000) as f64 / 1_000.0) / self.kills as f64;
        let whom = dice.between(0, 1_000) as usize;
        let fault = match dice.between(0, 100) {
            0..=4 => Fault::KillAll,
            5..=29 => Fault::KillSender(whom, short(&mut dice)),
            30..=54 => Fault::KillWorker(whom, Moment::Any, Duration::ZERO),
            55..=59 => Fault::KillWorker(whom, Moment::Lease, short(&mut dice)),
            60..=66 => Fault::KillWorker(whom, Moment::Begin, short(&mut dice)),
            67..=74 => Fault::KillWorker(whom, Moment::Effect, short(&mut dice)),
            75..=89 => Fault::KillWorker(whom, Moment::Settle, short(&mut dice)),
            _ => Fault::KillWorker(whom, Moment::Reclaim, short(&mut dice)),
        };
        Planned { at: self.load().mul_f64(share), fault }
    }

    fn pause(&self, number: u64) -> Planned {
        let mut dice = Dice::of(self.seed, 2, number);
        let at = self.load().mul_f64(dice.between(0, 900) as f64 / 1_000.0);
        let long = Duration::from_millis(dice.between(2_500, 5_000));
        Planned { at, fault: Fault::Pause(dice.between(0, 1_000) as usize, long) }
    }

    fn server_kill(&self, number: u64) -> Planned {
        let mut dice = Dice::of(self.seed, 4, number);
        let share = (number as f64 + dice.between(0, 1_000) as f64 / 1_000.0) / self.server_kills as f64;
        // Now and then it stays away for longer than a lease.
        let away = if dice.chance(100) { dice.between(2_500, 4_000) } else { dice.between(0, 300) };
        Planned { at: self.load().mul_f64(share), fault: Fault::KillServer(Duration::from_millis(away)) }
    }

    fn cut(&self, number: u64) -> Planned {
        let mut dice = Dice::of(self.seed, 5, number);
        let share = (number as f64 + dice.between(0, 1_000) as f64 / 1_000.0) / self.cuts as f64;
        let way = if dice.chance(500) { Way::ToServer } else { Way::ToClient };
        // From the first byte of an answer to the middle of a batch.
        let after = match dice.between(0, 10) {
            0..=3 => dice.between(0, 40),
            4..=7 => dice.between(0, 600),
            _ => dice.between(0, 20_000),
        };
        let cut = Cut { way, after };
        let fault = if dice.chance(600) { Fault::CutSender(cut) } else { Fault::CutWorker(cut) };
        Planned { at: self.load().mul_f64(share), fault }
    }

    /// What is in a batch.
    pub(crate) fn order(&self, batch: u64) -> Order {
        let mut dice = Dice::of(self.seed, 3, batch);
        let queue = match dice.between(0, 100) {
            0..=39 => EFFECTS,
            40..=84 => PLAIN,
            _ => BRIEF,
        };
        let dedup = dice.chance(300);
        let size = BATCH.min(self.messages - batch * BATCH);
        let mut messages: Vec<_> = (0..size).map(|_| message(&mut dice)).collect();
        if self.has_killer(batch) {
            messages[0] = MessageOrder { kind: Kind::Killer, ..MessageOrder::steady(messages[0].amount) };
        }
        Order { batch, queue: queue.name().to_owned(), dedup, ids: Vec::new(), messages }
    }

    /// Killing messages come in the first half, because it takes several deaths to be rid of one.
    fn has_killer(&self, batch: u64) -> bool {
        let killers = (self.messages / MESSAGES_PER_KILLER).clamp(2, 8);
        let half = (self.batches() / 2).max(killers);
        (0..killers).any(|number| number * half / killers == batch)
    }
}

/// A few milliseconds, in which a call to the store is begun, under way or answered.
fn short(dice: &mut Dice) -> Duration {
    Duration::from_micros(dice.between(0, 4_000))
}

fn message(dice: &mut Dice) -> MessageOrder {
    let kind = match dice.between(0, 1_000) {
        0..=29 => Kind::Shaky,
        30..=49 => Kind::Sleepy,
        50..=53 => Kind::Doomed,
        54..=63 => Kind::Fickle,
        _ => Kind::Steady,
    };
    let amount = dice.between(1, 1_000) as i64;
    let delay_ms = if dice.chance(30) { dice.between(100, 3_000) } else { 0 };
    let before_ms = if dice.chance(500) { dice.between(20, 200) } else { dice.between(0, 8) };
    let after_ms = if dice.chance(300) { dice.between(1, 150) } else { 0 };
    MessageOrder { kind, amount, delay_ms, before_ms, after_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { seed: 42, messages: 5_020, kills: 40, server_kills: 3, cuts: 20, drops: 0 };

    #[test]
    fn a_seed_gives_the_same_run() {
        assert_eq!(PLAN.faults(), PLAN.faults());
        assert_eq!(PLAN.order(7), PLAN.order(7));
        assert_ne!(PLAN.faults(), Plan { seed: 43, ..PLAN }.faults());
    }

    #[test]
    fn batches_hold_every_message_once() {
        let held: usize = (0..PLAN.batches()).map(|batch| PLAN.order(batch).messages.len()).sum();
        assert_eq!(held, 5_020);
    }

    #[test]
    fn every_kill_falls_into_the_load() {
        let faults = PLAN.faults();
        let kills = faults.iter().filter(|planned| planned.is_kill()).count();
        assert_eq!(kills, 40);
        assert!(faults.iter().all(|planned| planned.at < PLAN.load()));
    }

    #[test]
    fn some_messages_kill_their_worker() {
        let orders = (0..PLAN.batches()).flat_map(|batch| PLAN.order(batch).messages);
        assert_eq!(orders.filter(|message| message.kind == Kind::Killer).count(), 2);
    }
}

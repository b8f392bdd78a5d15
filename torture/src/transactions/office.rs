//! The processes of a run: clerks that carry out business transactions, recipients that are given the messages, and what
//! is done to them. Whoever is killed is started again.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::child::{Notice, Running};
use crate::dice::Dice;
use crate::stage::Stage;
use crate::transactions::audit::Books;
use crate::transactions::clerk::Share;
use crate::wire::Report;

/// The longest wait for a notice while it must be looked at something else.
const TICK: Duration = Duration::from_millis(100);

/// How long nothing may be heard before the run is given up.
const STALL_LIMIT: Duration = Duration::from_secs(120);

const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// SIGKILL.
const KILLED: i32 = 9;

/// The size and the seed of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) seed: u64,
    pub(crate) transactions: u64,
    /// How often a process is killed, beside those that transactions kill.
    pub(crate) kills: u64,
    pub(crate) clerks: usize,
    pub(crate) recipients: usize,
}

/// Somebody who carries out a share of the transactions.
struct Desk {
    /// The clerk, until all is done.
    clerk: Option<Running>,
    share: Share,
}

/// The processes, and what they told.
pub(crate) struct Office<'s> {
    stage: &'s Stage,
    size: Size,
    desks: Vec<Desk>,
    recipients: Vec<Running>,
    pub(crate) books: Books,
    /// Kills that the size asks for, and those of transactions.
    planned_kills: u64,
    pub(crate) kills: u64,
}

impl<'s> Office<'s> {
    pub(crate) fn open(stage: &'s Stage, size: Size) -> Outcome<Self> {
        let mut office = Self {
            stage,
            size,
            desks: Vec::new(),
            recipients: Vec::new(),
            books: Books::default(),
            planned_kills: 0,
            kills: 0,
        };
        for first in 0..size.clerks as u64 {
            let Size { seed, transactions, clerks, .. } = size;
            let share = Share { first, step: clerks as u64, end: transactions, seed };
            office.desks.push(Desk { clerk: Some(stage.clerk(share)?), share });
        }
        for _ in 0..size.recipients {
            office.recipients.push(stage.recipient()?);
        }
        Ok(office)
    }

    /// Until every transaction was begun, and has ended.
    pub(crate) fn run(&mut self) -> Outcome<()> {
        let (started, mut heard, mut tell_at) = (Instant::now(), Instant::now(), Instant::now());
        while self.desks.iter().any(|desk| desk.clerk.is_some()) {
            match self.stage.notice(TICK) {
                Some(notice) => {
                    self.attend(notice)?;
                    heard = Instant::now();
                }
                None if heard + STALL_LIMIT < Instant::now() => {
                    return Err(format!("nothing was heard for {STALL_LIMIT:?}").into());
                }
                None => {}
            }
            while self.is_time_to_kill() {
                self.kill()?;
            }
            if tell_at + PROGRESS_EVERY < Instant::now() {
                tell_at = Instant::now();
                let (begun, kills) = (self.books.begun.len(), self.kills);
                eprintln!(
                    "{:.0?}: {begun} of {} begun, {kills} kills",
                    started.elapsed(),
                    self.size.transactions
                );
            }
        }
        Ok(())
    }

    pub(crate) fn into_recipients(self) -> (Vec<Running>, Books, u64) {
        (self.recipients, self.books, self.kills)
    }

    pub(crate) fn attend(&mut self, notice: Notice) -> Outcome<()> {
        match notice {
            Notice::Report(node, report) => {
                if let (Report::Begun { number }, Some(desk)) = (&report, self.desk(node)) {
                    desk.share.first = number + desk.share.step;
                }
                match self.books.hear(report) {
                    None => Ok(()),
                    Some(other) => Err(format!("nobody here reports {other:?}").into()),
                }
            }
            Notice::Ended(node) => self.ended(node),
        }
    }

    fn desk(&mut self, node: u32) -> Option<&mut Desk> {
        self.desks.iter_mut().find(|desk| desk.clerk.as_ref().is_some_and(|clerk| clerk.node == node))
    }

    /// A process is gone, and everything it told was heard: only now it is known where the next one begins.
    fn ended(&mut self, node: u32) -> Outcome<()> {
        let stage = self.stage;
        if let Some(desk) = self.desk(node) {
            let Some(mut clerk) = desk.clerk.take() else { return Ok(()) };
            let status = clerk.ended()?;
            let was_killed = status.signal() == Some(KILLED);
            if !was_killed && !status.success() {
                return Err(format!("a clerk ended with {status}").into());
            }
            if desk.share.first < desk.share.end {
                desk.clerk = Some(stage.clerk(desk.share)?);
            }
            self.kills += u64::from(was_killed);
        } else if self.recipients.iter().any(|recipient| recipient.node == node) {
            return Err("a recipient ended by itself".into());
        }
        Ok(())
    }

    /// Kills are spread evenly over the transactions.
    fn is_time_to_kill(&self) -> bool {
        let Size { kills, transactions, .. } = self.size;
        let begun = self.books.begun.len() as u64;
        self.planned_kills < kills && (2 * self.planned_kills + 1) * transactions <= 2 * kills * begun
    }

    fn kill(&mut self) -> Outcome<()> {
        let mut dice = Dice::of(self.size.seed, 8, self.planned_kills);
        self.planned_kills += 1;
        let (whom, place) = (dice.between(0, 10), dice.between(0, 1_000) as usize);
        match whom {
            0..=3 => self.kill_clerk(place % self.desks.len()),
            4..=8 => self.kill_recipient(place % self.recipients.len()),
            _ => {
                (0..self.desks.len()).try_for_each(|place| self.kill_clerk(place))?;
                (0..self.recipients.len()).try_for_each(|place| self.kill_recipient(place))
            }
        }
    }

    /// It is started again when all that it told was heard.
    fn kill_clerk(&mut self, place: usize) -> Outcome<()> {
        self.desks[place].clerk.as_mut().map_or(Ok(()), Running::kill)
    }

    fn kill_recipient(&mut self, place: usize) -> Outcome<()> {
        self.kills += 1;
        let mut old = std::mem::replace(&mut self.recipients[place], self.stage.recipient()?);
        old.kill()
    }
}

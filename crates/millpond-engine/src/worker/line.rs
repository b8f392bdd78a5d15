//! One queue of a worker: its slots, its speed, and what is known of its log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::pick::{self, Lane};
use millpond_core::queue::CLASSES;
use millpond_core::reason::Release;
use millpond_core::store::{Claim, Pulse};

use crate::worker::feed::Waiting;
use crate::worker::hands::Hands;
use crate::worker::limited::Limited;
use crate::worker::plan::{Ahead, InHand, Speed, next_lease};
use crate::worker::settler::Endings;
use crate::worker::slot::Station;

/// One queue of the worker.
pub(super) struct Line {
    pub(super) station: Arc<Station>,
    pub(super) speed: Speed,
    /// A lease is under way.
    pub(super) leasing: bool,
    /// There may be messages that no lease has looked for.
    pub(super) may_have_more: bool,
    /// The suspect lane has messages, as far as is known.
    pub(super) has_suspects: bool,
    /// How long the oldest ready message of each class had waited at the last pulse.
    pub(super) waited: [Option<Duration>; CLASSES as usize],
    pub(super) turn: u64,
    /// Whether it waits for room under a limit of its queue.
    pub(super) limited: Limited,
    /// Who reads its queue, as its first claim said.
    subscription: Option<i64>,
    /// What was in hand of it when it asked last, if a settlement may make room.
    in_hand: usize,
}

impl Line {
    /// A queue of which nothing is known yet.
    pub(super) fn new(station: Arc<Station>) -> Self {
        Self {
            station,
            speed: Speed::default(),
            leasing: false,
            may_have_more: true,
            has_suspects: false,
            waited: [None; CLASSES as usize],
            turn: 0,
            limited: Limited::default(),
            subscription: None,
            in_hand: 0,
        }
    }

    /// Messages and bytes that its next lease should ask for; `None`: it has enough.
    pub(super) fn next_lease(&mut self) -> Option<(usize, usize)> {
        let (runs, total) = self.station.run_times.take();
        self.speed.measured(runs, total);
        let ((waiting, waiting_bytes), (running, stuck)) =
            (self.station.feed.size(), self.station.board.counts());
        let slots = self.station.tuning.slots();
        let each = self.station.kinds.messages_max();
        let ahead = Ahead::of(&self.station.tuning.settings());
        next_lease(InHand { slots, each, stuck, waiting, waiting_bytes, running, ahead }, self.speed)
    }

    /// Where the next lease looks: classes by weight and age, and in each the lanes by turn.
    pub(super) fn next_turn(&mut self) -> Vec<(u8, Lane)> {
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        let classes = pick::classes(turn, &self.waited);
        classes.into_iter().flat_map(|class| pick::lanes(turn).map(|lane| (class, lane))).collect()
    }

    /// A lease begins, of ordinary messages or of suspects.
    pub(super) fn notes_in_hand(&mut self, hands: &Hands) {
        self.in_hand = match Ahead::of(&self.station.tuning.settings()) {
            Ahead::Far => 0,
            Ahead::NoFurther | Ahead::OneClaim => self.now_in_hand(hands),
        };
    }

    fn now_in_hand(&self, hands: &Hands) -> usize {
        self.subscription.map_or(0, |subscription| hands.of(subscription))
    }

    /// A lease of ordinary messages begins. What is heard of from here on may come after what it reads.
    pub(super) const fn asks(&mut self) {
        self.leasing = true;
        self.may_have_more = false;
    }

    /// A lease ended, and there may be more.
    pub(super) const fn may_ask_again(&mut self) {
        self.leasing = false;
        self.may_have_more = true;
    }

    /// A lease found nothing.
    pub(super) const fn found_nothing(&mut self, suspect: bool) {
        self.limited = Limited::No;
        if suspect {
            self.has_suspects = false;
        } else {
            self.leasing = false;
            self.waited = [None; CLASSES as usize];
        }
    }

    /// A lease found no room under a limit: the queue is asked again when there may be some.
    pub(super) fn found_no_room(&mut self, suspect: bool, wait: Option<Duration>, hands: &Hands) {
        self.limited = self.limited.again(wait, Instant::now());
        // What was settled while the answer was on its way.
        self.settled(hands);
        if !suspect {
            self.leasing = false;
            self.may_have_more = true;
        }
    }

    /// Something was settled; if it was of this queue, there may be room now.
    pub(super) fn settled(&mut self, hands: &Hands) {
        if self.limited != Limited::No && self.now_in_hand(hands) < self.in_hand {
            self.limited = self.limited.settled(Instant::now());
        }
    }

    pub(super) fn pulsed(&mut self, pulse: &Pulse) {
        let mine = || pulse.heads.iter().filter(|head| head.queue == self.station.queue.id);
        let ordinary = || mine().filter(|head| head.lane != Lane::Suspect);
        let mut waited = [None; CLASSES as usize];
        for head in ordinary() {
            let age = head.oldest.map(|oldest| pulse.now.since(oldest)).unwrap_or_default();
            if let Some(known) = waited.get_mut(usize::from(head.class)) {
                *known = (*known).max(Some(age));
            }
        }
        let (more, suspects) = (ordinary().next().is_some(), mine().any(|head| head.lane == Lane::Suspect));
        self.waited = waited;
        self.may_have_more |= more;
        self.has_suspects |= suspects;
    }
}

/// Puts the messages of a claim into the feed.
pub(super) fn take_claim(line: &mut Line, hands: &Hands, endings: &Endings, claim: Claim) {
    let Claim { held, messages, .. } = claim;
    let suspects = messages.first().is_some_and(|message| message.suspect != 0);
    line.limited = Limited::No;
    line.subscription = Some(held.subscription);
    hands.take(held, messages.len(), suspects);
    endings.expect(held.token, messages.len());
    let since = Instant::now();
    let waiting =
        messages.into_iter().map(|message| Waiting { held, message, since, told_low: false }).collect();
    // A feed that was closed meanwhile hands them back: the worker stops.
    release(&line.station, line.station.feed.fill(waiting), Release::Shutdown);
}

/// Gives messages back that no handler has seen.
pub(super) fn release(station: &Station, waiting: Vec<Waiting>, why: Release) {
    for Waiting { held, message, .. } in waiting {
        station.release(held, &message, why);
    }
}

/// Where a lease of suspects looks.
pub(super) fn suspect_turns() -> Vec<(u8, Lane)> {
    (0..CLASSES).map(|class| (class, Lane::Suspect)).collect()
}

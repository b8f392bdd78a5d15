//! How much is measured.

use super::programs::Kind;

/// The counts of a run. Ours is so much faster than the others that it is given more, else its time is too short to be
/// measured; every figure is per message or per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) name: &'static str,
    /// Messages of a batch send and of a drain, of the others.
    pub(crate) messages: u64,
    /// How many times as many of ours.
    pub(crate) ours_times: u64,
    /// Single sends of 64 tasks; of 8 and of 1 as many fewer.
    pub(crate) singles: u64,
    /// Transactions on 64 connections; on 8 and on 1 as many fewer.
    pub(crate) transactions: u64,
    /// How long a send or a drain may take before the rate is taken of what was done.
    pub(crate) seconds: u64,
    pub(crate) pickups: u64,
    /// Messages that are worked off under a held snapshot before the drain that is measured.
    pub(crate) held: u64,
    /// Rows that are scheduled meanwhile.
    pub(crate) scheduled: u64,
    /// Messages that wait in the measurement of many waiting: of ours, of the others.
    pub(crate) waiting: (u64, u64),
    /// The name of that ratio.
    pub(crate) waiting_name: &'static str,
    /// How long workers are idle before their queries are counted, and for how long these are counted.
    pub(crate) idle_seconds: (u64, u64),
}

impl Sizes {
    /// Minutes, on two cores.
    pub(crate) const SHORT: Self = Self {
        name: "short",
        messages: 50_000,
        ours_times: 6,
        singles: 6_400,
        transactions: 21_000,
        seconds: 15,
        pickups: 100,
        held: 50_000,
        scheduled: 20_000,
        waiting: (1_000_000, 100_000),
        waiting_name: "backlog_short_ratio",
        idle_seconds: (65, 20),
    };

    /// The sizes that are promised; an hour and more.
    pub(crate) const FULL: Self = Self {
        name: "full",
        messages: 200_000,
        singles: 32_000,
        transactions: 105_000,
        seconds: 60,
        pickups: 400,
        held: 300_000,
        scheduled: 1_000_000,
        waiting: (10_000_000, 1_000_000),
        waiting_name: "backlog_10m_ratio",
        idle_seconds: (65, 60),
        ..Self::SHORT
    };

    /// A whole run in a minute: whether everything works, not how fast it is.
    pub(crate) const TINY: Self = Self {
        name: "tiny",
        messages: 4_000,
        ours_times: 2,
        singles: 640,
        transactions: 700,
        seconds: 3,
        pickups: 5,
        held: 4_000,
        scheduled: 2_000,
        waiting: (20_000, 12_000),
        waiting_name: "backlog_tiny_ratio",
        idle_seconds: (2, 2),
    };

    /// Messages of a send or a drain of this kind of store.
    pub(crate) fn messages(&self, kind: Kind) -> u64 {
        self.messages * if kind == Kind::Ours { self.ours_times } else { 1 }
    }

    pub(crate) fn waiting(&self, kind: Kind) -> u64 {
        if kind == Kind::Ours { self.waiting.0 } else { self.waiting.1 }
    }
}

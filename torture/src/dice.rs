//! A small generator of pseudo-random numbers (SplitMix64): a seed gives the same schedule for ever.

#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The dice of one thing among many of a kind, so that things do not depend on the order of their making.
    pub(crate) fn of(seed: u64, kind: u64, number: u64) -> Self {
        let mut dice = Self(seed ^ kind.rotate_left(48));
        Self(dice.next() ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` up to, not including, `end`.
    pub(crate) fn between(&mut self, least: u64, end: u64) -> u64 {
        least + self.next() % (end - least)
    }

    pub(crate) fn chance(&mut self, in_a_thousand: u64) -> bool {
        self.between(0, 1_000) < in_a_thousand
    }
}

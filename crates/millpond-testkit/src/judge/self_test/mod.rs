//! The judge is judged: it must not alarm on good histories, and must catch each known defect.

mod good;
mod mutations;

pub use good::good_history;
pub use mutations::{MUTATIONS, Mutation};

/// A small generator of pseudo-random numbers (SplitMix64), so that a seed gives the same history for ever.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn id(&mut self) -> uuid::Uuid {
        uuid::Uuid::from_u64_pair(self.next(), self.next())
    }
}

//! Which priority class, and which lane of it, is served next.

use std::time::Duration;

use crate::queue::CLASSES;

/// A class whose oldest message has waited longer than this counts one class higher, and one more for each
/// further time it passes: nothing starves.
pub const AGE_AFTER: Duration = Duration::from_secs(60);

/// Of 16 turns the classes get 8, 4, 2 and 2, spread so that no class waits long for its turn.
const TURNS: [u8; 16] = [0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 2, 0, 1, 0, 3];

/// A part of a queue's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// What was sent.
    Main,
    /// What came back: served first, in weighted turns.
    Return,
    /// What was in the hands of a worker that died, in groups.
    Suspect,
}

impl Lane {
    /// The number that is stored.
    pub const fn number(self) -> u8 {
        match self {
            Lane::Main => 0,
            Lane::Return => 1,
            Lane::Suspect => 2,
        }
    }

    /// The lane with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Lane::Main),
            1 => Some(Lane::Return),
            2 => Some(Lane::Suspect),
            _ => None,
        }
    }
}

/// The classes of a queue in the order in which this turn offers them a lease. `waited` is how long the
/// oldest ready message of each class has waited; `None`: as far as is known, none waits.
pub fn classes(turn: u64, waited: &[Option<Duration>; CLASSES as usize]) -> [u8; CLASSES as usize] {
    let favoured = TURNS[(turn % TURNS.len() as u64) as usize];
    let mut order: [u8; CLASSES as usize] = [0, 1, 2, 3];
    order.sort_by_key(|class| {
        let age = waited[usize::from(*class)];
        let counts_as = class.saturating_sub(steps(age));
        // What waits comes before what is not known to wait; the class whose turn it is before the rest.
        (age.is_none(), counts_as != favoured, counts_as, std::cmp::Reverse(age))
    });
    order
}

/// The lanes of a class in the order of this turn: what came back is served first in three of four turns.
pub const fn lanes(turn: u64) -> [Lane; 2] {
    if turn % 4 == 3 { [Lane::Main, Lane::Return] } else { [Lane::Return, Lane::Main] }
}

fn steps(age: Option<Duration>) -> u8 {
    let passed = age.unwrap_or_default().as_secs() / AGE_AFTER.as_secs();
    u8::try_from(passed).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Option<Duration> = Some(Duration::ZERO);

    /// How often each class comes first in 16 turns.
    fn shares(waited: [Option<Duration>; 4]) -> [usize; 4] {
        let mut firsts = [0; 4];
        for turn in 0..16 {
            firsts[usize::from(classes(turn, &waited)[0])] += 1;
        }
        firsts
    }

    #[test]
    fn sixteen_turns_go_8_4_2_2() {
        assert_eq!(shares([FRESH; 4]), [8, 4, 2, 2]);
    }

    #[test]
    fn unused_turns_go_to_the_highest_that_waits() {
        assert_eq!(shares([None, FRESH, None, FRESH]), [0, 14, 0, 2]);
        assert_eq!(shares([None, None, FRESH, None]), [0, 0, 16, 0]);
    }

    #[test]
    fn a_class_ages_upward_and_the_oldest_goes_first() {
        let old = Some(AGE_AFTER * 3);
        assert_eq!(shares([FRESH, None, None, old]), [0, 0, 0, 16], "older than the fresh one of class 0");
        let one_step = Some(AGE_AFTER);
        // It takes the turns of class 2 until that has waited as long; its own go to the highest that waits.
        assert_eq!(shares([FRESH, FRESH, FRESH, one_step]), [10, 4, 0, 2]);
    }

    #[test]
    fn every_class_is_offered_in_every_turn() {
        for turn in 0..16 {
            let mut offered = classes(turn, &[None; 4]);
            offered.sort_unstable();
            assert_eq!(offered, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn what_came_back_is_first_in_three_of_four_turns() {
        let firsts = (0..4).filter(|turn| lanes(*turn)[0] == Lane::Return).count();
        assert_eq!(firsts, 3);
    }
}

//! What a claim and a history row remember of each message: how it ended, and how long its handler ran.
//!
//! Places are counted from the highest offset of the claim down, because that is what its holder knows.

use std::time::Duration;

use millpond_core::message::Offset;

use crate::bits::Bits;

/// Bytes of one message: its outcome, and its run time in microseconds.
pub const RUN_BYTES: usize = 5;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged.
    Done = 1,
    /// It went back to the outbox.
    Back = 2,
    /// It became a dead letter.
    Dead = 3,
    /// It was cancelled before the lease that reached it: it was never delivered.
    Cancelled = 4,
}

/// The whole of a history row, in one byte: its messages were dropped, and nobody had them.
const PURGED: u8 = 5;

/// The place of an offset in the claim that ends at `to_offset`; `None` if it is above.
pub fn place(to_offset: Offset, offset: Offset) -> Option<usize> {
    usize::try_from(to_offset.0.checked_sub(offset.0)?).ok()
}

/// Outcomes and run times by place; what is not settled is zero.
#[derive(Debug, Default)]
pub struct Runs(Vec<u8>);

impl Runs {
    /// For as many messages.
    pub fn clear(messages: usize) -> Self {
        Self(vec![0; messages * RUN_BYTES])
    }

    /// For as many messages, with what was recorded before.
    pub fn of(recorded: &[u8], messages: usize) -> Self {
        let mut runs = Self::clear(messages);
        let known = recorded.len().min(runs.0.len());
        runs.0[..known].copy_from_slice(&recorded[..known]);
        runs
    }

    /// Records one.
    pub fn record(&mut self, place: usize, outcome: Outcome, run: Duration) {
        let at = &mut self.0[place * RUN_BYTES..][..RUN_BYTES];
        at[0] = outcome as u8;
        let micros = u32::try_from(run.as_micros()).unwrap_or(u32::MAX);
        at[1..].copy_from_slice(&micros.to_le_bytes());
    }

    /// As it is stored.
    pub fn into_bits(self) -> Bits {
        Bits::of_bytes(self.0)
    }
}

/// How long the handler of an acknowledged message ran; `None` if it was not acknowledged.
pub fn acknowledged(runs: &Bits, place: usize) -> Option<Duration> {
    let run = run_at(runs, place)?;
    let micros = u32::from_le_bytes([run[1], run[2], run[3], run[4]]);
    (run[0] == Outcome::Done as u8).then(|| Duration::from_micros(u64::from(micros)))
}

/// Whether the lease that reached a message passed it by.
pub fn is_cancelled(runs: &Bits, place: usize) -> bool {
    run_at(runs, place).is_some_and(|run| run[0] == Outcome::Cancelled as u8)
}

fn run_at(runs: &Bits, place: usize) -> Option<&[u8]> {
    runs.bytes().get(place.checked_mul(RUN_BYTES)?..place.checked_add(1)?.checked_mul(RUN_BYTES)?)
}

/// A history row whose messages were all dropped.
pub fn purged() -> Bits {
    Bits::of_bytes(vec![PURGED])
}

/// Whether a history row says that everything in it was dropped.
pub fn is_purged(runs: &Bits) -> bool {
    runs.bytes() == [PURGED]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_found_at_its_place() {
        let mut runs = Runs::clear(3);
        runs.record(place(Offset(12), Offset(10)).unwrap(), Outcome::Done, Duration::from_micros(70_000));
        runs.record(1, Outcome::Dead, Duration::ZERO);
        let stored = runs.into_bits();
        assert_eq!(acknowledged(&stored, 2), Some(Duration::from_millis(70)));
        assert_eq!(acknowledged(&stored, 1), None);
        assert_eq!(acknowledged(&stored, 0), None);
        assert_eq!(place(Offset(1), Offset(2)), None);
    }
}

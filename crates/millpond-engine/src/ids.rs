//! The ids of messages and the tokens of claims.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_core::error::{Code, Error, Result};
use millpond_core::message::{MessageId, Token};
use millpond_core::time::Timestamp;
use uuid::Uuid;

/// Bits of a UUIDv7 below its milliseconds, without version and variant.
const TAIL_BITS: u32 = 74;

/// The top bit of a fresh tail is left free, so that a millisecond holds at least 2⁷³ / 2³² ids.
const FRESH_MASK: u128 = (1 << (TAIL_BITS - 1)) - 1;

/// A UUIDv7 has 48 bits for its milliseconds.
const MILLIS_MASK: u64 = (1 << 48) - 1;

/// Random bytes of a fresh tail.
const FRESH_BYTES: usize = 16;

/// Random bytes of the step from one id to the next.
const STEP_BYTES: usize = 4;

/// How far the two clocks of the host may be apart before the store is asked again what time it is.
const APART_MAX: Duration = Duration::from_secs(1);

/// Makes ids that rise strictly within this process, also while the clock stands still or steps back.
///
/// They are made from estimated database time: the store's time when it was last heard of, and the time since. It
/// only sorts ids and helps to find a message by its id; nothing is decided by it.
///
/// - **Shape:** UUIDv7. The 74 bits after the milliseconds start at random and grow by random steps within
///   one millisecond, so that two processes do not meet.
#[derive(Debug, Default)]
pub struct IdSource {
    last: Mutex<Last>,
    /// `None`: the host's clock has to do.
    heard: Mutex<Option<Heard>>,
}

/// Database time, and when it was heard, by both clocks of the host.
#[derive(Debug, Clone, Copy)]
struct Heard {
    now: Timestamp,
    at: Instant,
    host: SystemTime,
}

/// The last id that was given out.
#[derive(Debug, Default, Clone, Copy)]
struct Last {
    millis: u64,
    tail: u128,
}

impl IdSource {
    /// A source that has given out nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next `count` ids, in rising order.
    ///
    /// # Errors
    ///
    /// `internal` when the operating system has no random numbers.
    ///
    /// ```
    /// # fn main() -> millpond_core::Result<()> {
    /// let ids = millpond_engine::ids::IdSource::new().ids(3)?;
    /// assert!(ids[0] < ids[1] && ids[1] < ids[2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ids(&self, count: usize) -> Result<Vec<MessageId>> {
        let millis = self.now().as_micros() / 1_000;
        self.ids_at(u64::try_from(millis).unwrap_or(0) & MILLIS_MASK, count)
    }

    /// The store has said what time it is.
    pub fn heard(&self, now: Timestamp) {
        let heard = Heard { now, at: Instant::now(), host: SystemTime::now() };
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(heard);
    }

    /// Whether the store should be asked again: the clocks of the host disagree on how long ago it was heard, as they
    /// do after the host was suspended, when the one that measures stood still. An id that is hours too old is not
    /// found by who looks for its message.
    pub fn is_doubtful(&self) -> bool {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.is_some_and(|heard| apart(heard.at.elapsed(), heard.host.elapsed().ok()))
    }

    /// Estimated database time.
    pub fn now(&self) -> Timestamp {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.map_or_else(host_time, |heard| heard.now + heard.at.elapsed())
    }

    fn ids_at(&self, now: u64, count: usize) -> Result<Vec<MessageId>> {
        let mut random = vec![0; FRESH_BYTES + STEP_BYTES * count];
        fill(&mut random)?;
        let (fresh, steps) = random.split_at(FRESH_BYTES);
        let mut fresh = little_endian(fresh);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let next = |step| {
            *last = last.next(now, fresh, little_endian(step));
            // A second millisecond that begins in this batch must not begin where the first one did.
            fresh = fresh.rotate_left(29) ^ little_endian(step);
            last.id()
        };
        Ok(steps.chunks_exact(STEP_BYTES).map(next).collect())
    }
}

impl Last {
    fn next(self, now: u64, fresh: u128, step: u128) -> Self {
        if self.millis < now {
            return Self { millis: now, tail: fresh & FRESH_MASK };
        }
        let tail = self.tail + 1 + step;
        if tail >> TAIL_BITS == 0 {
            return Self { millis: self.millis, tail };
        }
        Self { millis: self.millis + 1, tail: fresh & FRESH_MASK }
    }

    fn id(self) -> MessageId {
        let bits = (u128::from(self.millis) << 80)
            | (0x7 << 76)
            | ((self.tail >> 62) << 64)
            | (0b10 << 62)
            | (self.tail & ((1 << 62) - 1));
        MessageId(Uuid::from_u128(bits))
    }
}

/// 128 random bits.
///
/// # Errors
///
/// `internal` when the operating system has no random numbers.
pub fn token() -> Result<Token> {
    let mut bits = [0; 16];
    fill(&mut bits)?;
    Ok(Token(bits))
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|why| Error::new(Code::Internal, "draw random numbers").because(why.to_string()))
}

fn little_endian(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u128::from(*byte))
}

/// Whether two clocks differ on a time that has passed; `None`: one was set back beyond its beginning.
fn apart(measured: Duration, shown: Option<Duration>) -> bool {
    shown.is_none_or(|shown| APART_MAX < measured.abs_diff(shown))
}

/// Milliseconds since the epoch by the host's clock, in the 48 bits that an id has for them.
fn host_time() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(0) + since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_strictly_within_and_across_batches() {
        let source = IdSource::new();
        let ids: Vec<_> =
            [1, 99_000, 0, 1_000].into_iter().flat_map(|count| source.ids(count).unwrap()).collect();
        assert_eq!(ids.len(), 100_001);
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn ids_are_made_from_the_stores_time_once_it_is_known() {
        let (source, ahead) = (IdSource::new(), Timestamp::from_secs(4_000_000_000));
        source.heard(ahead);
        let made_at = source.ids(1).unwrap()[0].made_at().unwrap();
        assert!(ahead <= made_at && made_at.since(ahead) < std::time::Duration::from_secs(60));
    }

    #[test]
    fn a_host_that_was_suspended_has_clocks_that_disagree() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
        for (measured, shown, doubtful) in [
            (hour, Some(hour), false),
            (hour, Some(hour + second), false),
            (second, Some(hour), true),
            (hour, Some(second), true),
            (second, None, true),
        ] {
            assert_eq!(apart(measured, shown), doubtful, "{measured:?}, {shown:?}");
        }
        let source = IdSource::new();
        assert!(!source.is_doubtful(), "nothing was heard that could be wrong");
        source.heard(Timestamp::from_secs(1));
        assert!(!source.is_doubtful());
    }

    #[test]
    fn ids_rise_under_a_clock_that_steps_back() {
        let source = IdSource::new();
        let ids: Vec<_> = [5_000, 4_000, 0, 5_001, 5_001]
            .into_iter()
            .flat_map(|now| source.ids_at(now, 10).unwrap())
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert_eq!(ids[0].made_at().unwrap().as_micros(), 5_000_000);
        assert_eq!(ids[49].made_at().unwrap().as_micros(), 5_001_000);
    }

    #[test]
    fn a_full_millisecond_borrows_the_next() {
        let full = Last { millis: 7, tail: (1 << TAIL_BITS) - 1 };
        let next = full.next(7, u128::MAX, 0);
        assert_eq!((next.millis, next.tail), (8, FRESH_MASK));
        assert!(full.id() < next.id());
    }

    #[test]
    fn an_id_is_a_uuid_of_version_7() {
        let id = Last { millis: 1, tail: (1 << TAIL_BITS) - 1 }.id();
        assert_eq!((id.0.get_version_num(), id.0.get_variant()), (7, uuid::Variant::RFC4122));
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(token().unwrap(), token().unwrap());
    }
}

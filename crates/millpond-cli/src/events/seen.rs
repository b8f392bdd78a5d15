//! Which entries a reader that follows the run log has had.
//!
//! An entry is visible some time after the instant that it bears, so a reader that goes on behind the newest one
//! would miss others. It reads again what is a little older than the newest, now and then what is a good deal older,
//! and drops what it has had.

use std::collections::BTreeSet;
use std::time::Duration;

use millpond::view::EventView;
use millpond::{MessageId, Timestamp};

/// Nearly every entry is visible so soon after the instant it bears.
const SOON: Duration = Duration::from_secs(2);

/// An entry may become visible so long after the instant it bears.
const LATE: Duration = Duration::from_secs(10);

/// Of so many readings one looks for late entries.
const LATE_EVERY: u32 = 20;

/// What an entry is, wherever its row is at the moment: a lease moves to the history when its claim has ended.
type Key = (Timestamp, Option<MessageId>, &'static str, u32, String);

/// The entries of the last while that were had.
#[derive(Debug)]
pub(super) struct Seen {
    keys: BTreeSet<Key>,
    newest: Timestamp,
    /// What is older was there before the reading began.
    first: Timestamp,
    readings: u32,
}

impl Seen {
    /// Nothing yet; the reading begins at `now`.
    pub(super) fn from(now: Timestamp) -> Self {
        Self { keys: BTreeSet::new(), newest: now, first: now - SOON, readings: 0 }
    }

    /// From where the next reading must begin.
    pub(super) fn begin(&mut self) -> Timestamp {
        self.readings = self.readings.wrapping_add(1);
        let overlap = if self.readings.is_multiple_of(LATE_EVERY) { LATE } else { SOON };
        self.first.max(self.newest - overlap)
    }

    /// Whether an entry is new; it is not from here on.
    pub(super) fn is_new(&mut self, event: &EventView) -> bool {
        self.newest = self.newest.max(event.at);
        self.keys.insert(key(event))
    }

    /// Forgets what no reading can meet again.
    pub(super) fn forget(&mut self) {
        let begin = self.newest - LATE;
        self.keys.retain(|(at, ..)| begin <= *at);
    }
}

fn key(event: &EventView) -> Key {
    // What speaks of many messages has nothing but its id.
    let id = if event.message.is_some() { String::new() } else { event.id.clone() };
    (event.at, event.message, event.kind.as_str(), event.delivery, id)
}

#[cfg(test)]
mod tests {
    use millpond_core::reason::EventKind;

    use super::*;

    fn event(id: &str, secs: i64, kind: EventKind) -> EventView {
        EventView {
            id: id.to_owned(),
            message: Some("0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10".parse().unwrap()),
            queue: "mail".into(),
            name: "mail".into(),
            kind,
            reason: None,
            attempt: 1,
            delivery: 1,
            count: 1,
            at: Timestamp::from_secs(secs),
            worker: None,
            run: None,
            error: None,
            retry_of: None,
        }
    }

    #[test]
    fn an_entry_is_new_once_though_its_row_moves() {
        let mut seen = Seen::from(Timestamp::from_secs(100));
        assert!(seen.is_new(&event("claim/1", 101, EventKind::Start)));
        assert!(!seen.is_new(&event("history/9", 101, EventKind::Start)), "the same lease, in the history");
        assert!(seen.is_new(&event("history/9", 101, EventKind::Success)));
        let bulk = |id| EventView { message: None, ..event(id, 101, EventKind::Dlq) };
        assert!(seen.is_new(&bulk("a")) && seen.is_new(&bulk("b")) && !seen.is_new(&bulk("a")));
    }

    #[test]
    fn what_becomes_visible_late_is_not_missed() {
        let mut seen = Seen::from(Timestamp::from_secs(100));
        assert!(seen.is_new(&event("new", 130, EventKind::Start)));
        seen.forget();
        let begins: Vec<Timestamp> = (0..LATE_EVERY).map(|_| seen.begin()).collect();
        let (soon, late) = (Timestamp::from_secs(128), Timestamp::from_secs(120));
        assert_eq!((begins[0], begins[LATE_EVERY as usize - 1]), (soon, late));
        assert!(seen.is_new(&event("late", 121, EventKind::Retry)));
        assert_eq!(seen.begin(), soon, "it does not move back");
    }

    #[test]
    fn what_was_there_before_the_reading_began_is_not_read() {
        let mut seen = Seen::from(Timestamp::from_secs(100));
        assert!((0..LATE_EVERY).all(|_| seen.begin() == Timestamp::from_secs(98)));
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut seen = Seen::from(Timestamp::from_secs(100));
        for secs in 100..200 {
            assert!(seen.is_new(&event("x", secs, EventKind::Start)));
            seen.forget();
        }
        assert!(seen.keys.len() <= 12, "{}", seen.keys.len());
        assert!(!seen.is_new(&event("x", 195, EventKind::Start)));
    }
}

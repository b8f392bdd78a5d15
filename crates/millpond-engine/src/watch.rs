//! Messages that were sent in a transaction of a driver, whose commit nobody tells us of: they are looked for after 1, 2, 4,
//! 8 … ms, up to the sweep. Without it a poll finds them, later.

use std::time::Duration;

use millpond_core::message::MessageId;
use tokio::time::Instant;

/// Ids that are remembered at once. Beyond them polling finds the messages.
pub(crate) const IDS_MAX: usize = 10_000;

/// The first wait; each is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Looks in all: the last is after 16 s, when the sweep finds what is left.
const LOOKS: u32 = 15;

/// Sends whose commit is waited for.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    sends: Vec<Awaited>,
    /// Whether a task looks.
    pub(crate) is_running: bool,
}

#[derive(Debug)]
struct Awaited {
    ids: Vec<MessageId>,
    since: Instant,
    looks: u32,
}

impl Awaited {
    /// When it is looked for next.
    fn next(&self) -> Instant {
        self.since + FIRST_WAIT * (1 << self.looks)
    }
}

impl Watch {
    /// Remembers a send; false if there is no room.
    pub(crate) fn add(&mut self, ids: Vec<MessageId>, now: Instant) -> bool {
        let remembered: usize = self.sends.iter().map(|awaited| awaited.ids.len()).sum();
        let has_room = remembered + ids.len() <= IDS_MAX;
        if has_room {
            self.sends.push(Awaited { ids, since: now, looks: 0 });
        }
        has_room
    }

    /// When to look next; `None`: nothing is waited for.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.sends.iter().map(Awaited::next).min()
    }

    /// One id of each send that is to be looked for now: the messages of one send are there together or not at all. What
    /// was looked for often enough is forgotten with this look.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<MessageId> {
        let mut due = Vec::new();
        self.sends.retain_mut(|awaited| {
            if now < awaited.next() {
                return true;
            }
            due.extend(awaited.ids.first());
            awaited.looks += 1;
            awaited.looks < LOOKS
        });
        due
    }

    /// The sends of these messages are committed.
    pub(crate) fn arrived(&mut self, ids: &[MessageId]) {
        self.sends.retain(|awaited| !awaited.ids.first().is_some_and(|id| ids.contains(id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> MessageId {
        MessageId(uuid::Uuid::from_u128(number))
    }

    #[tokio::test(start_paused = true)]
    async fn a_send_is_looked_for_at_growing_distances_and_then_forgotten() {
        let start = Instant::now();
        let mut watch = Watch::default();
        watch.add(vec![id(1), id(2)], start);
        let mut waits = Vec::new();
        while let Some(next) = watch.next() {
            assert!(watch.due(next - Duration::from_micros(1)).is_empty());
            assert_eq!(watch.due(next), [id(1)]);
            waits.push((next - start).as_millis());
        }
        assert_eq!(waits[..5], [1, 2, 4, 8, 16]);
        assert_eq!(waits.last(), Some(&16_384));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_is_forgotten_and_the_rest_is_not() {
        let mut watch = Watch::default();
        watch.add(vec![id(1), id(2)], Instant::now());
        watch.add(vec![id(3)], Instant::now());
        watch.arrived(&[id(1)]);
        assert_eq!(watch.due(Instant::now() + Duration::from_millis(1)), [id(3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_remembered_than_there_is_room_for() {
        let mut watch = Watch::default();
        assert!(watch.add(vec![id(1); IDS_MAX], Instant::now()));
        assert!(!watch.add(vec![id(2)], Instant::now()));
    }
}

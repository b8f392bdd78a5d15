//! Messages that were sent in a transaction of a driver, whose commit nobody tells us of: they are looked for at distances
//! that grow with the age of the send, up to the sweep. Without it a poll finds them, later.

use std::time::Duration;

use millpond_core::message::MessageId;
use tokio::time::Instant;

/// Ids that are remembered at once. Beyond them polling finds the messages.
pub(crate) const IDS_MAX: usize = 10_000;

/// Nobody waits less for the next look.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// The distance that a commit may have to wait for a look, as long as the transaction is not a long one.
const WAIT_SHORT: Duration = Duration::from_millis(8);

/// How long a send is looked for; then the sweep finds what is left.
const LOOKED_FOR: Duration = Duration::from_secs(16);

/// How long after a look the next one follows: a quarter of the age of the send, but not more than [`WAIT_SHORT`], and of
/// an old one a sixteenth. So most transactions are found within a few milliseconds of their commit, and one that was
/// rolled back costs about a hundred looks, which it shares with all others.
fn wait(age: Duration) -> Duration {
    (age / 4).clamp(WAIT_MIN, WAIT_SHORT).max(age / 16)
}

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
    /// When it is looked for next.
    next: Instant,
}

impl Watch {
    /// Remembers a send; false if there is no room.
    pub(crate) fn add(&mut self, ids: Vec<MessageId>, now: Instant) -> bool {
        let remembered: usize = self.sends.iter().map(|awaited| awaited.ids.len()).sum();
        let has_room = remembered + ids.len() <= IDS_MAX;
        if has_room {
            self.sends.push(Awaited { ids, since: now, next: now + WAIT_MIN });
        }
        has_room
    }

    /// When to look next; `None`: nothing is waited for.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.sends.iter().map(|awaited| awaited.next).min()
    }

    /// One id of each send that is to be looked for now: the messages of one send are there together or not at all. What
    /// was looked for often enough is forgotten with this look.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<MessageId> {
        let mut due = Vec::new();
        self.sends.retain_mut(|awaited| {
            if now < awaited.next {
                return true;
            }
            due.extend(awaited.ids.first());
            let age = now - awaited.since;
            awaited.next = now + wait(age);
            age < LOOKED_FOR
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

    /// The ages at which one send is looked for.
    fn looks() -> Vec<Duration> {
        let start = Instant::now();
        let mut watch = Watch::default();
        watch.add(vec![id(1), id(2)], start);
        let mut looks = Vec::new();
        while let Some(next) = watch.next() {
            assert!(watch.due(next - Duration::from_micros(1)).is_empty());
            assert_eq!(watch.due(next), [id(1)]);
            looks.push(next - start);
        }
        looks
    }

    #[tokio::test(start_paused = true)]
    async fn a_send_is_looked_for_at_growing_distances_and_then_forgotten() {
        let looks = looks();
        assert_eq!(looks[..4], [1, 2, 3, 4].map(Duration::from_millis));
        let last = *looks.last().unwrap();
        assert!(LOOKED_FOR <= last && last < LOOKED_FOR * 17 / 16, "{last:?}");
        assert!((90..120).contains(&looks.len()), "{}", looks.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_waits_for_a_look_by_the_length_of_its_transaction() {
        let looks = looks();
        let waits = looks.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
        for (age, wait) in waits {
            let most = if age <= Duration::from_millis(128) { WAIT_SHORT } else { age / 16 };
            assert!(wait <= most, "{wait:?} at {age:?}");
        }
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

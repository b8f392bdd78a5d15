//! At most one notice of a group in a while; what comes meanwhile is counted and told with the next.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_core::time::Timestamp;

use super::notice::Notice;

/// Groups that are remembered. More than that at once is one disaster, and told by what it has in common.
const GROUPS_MAX: usize = 1_000;

pub(super) struct Throttle {
    every: Duration,
    groups: BTreeMap<String, Group>,
}

#[derive(Default)]
struct Group {
    told_at: Option<Timestamp>,
    waiting: Option<Notice>,
}

impl Throttle {
    pub(super) const fn new(every: Duration) -> Self {
        Self { every, groups: BTreeMap::new() }
    }

    /// Something happened. It is told by a later [`Throttle::due`].
    pub(super) fn offer(&mut self, notice: Notice, now: Timestamp) {
        if GROUPS_MAX <= self.groups.len() {
            let every = self.every;
            self.groups.retain(|_, group| {
                group.waiting.is_some() || group.told_at.is_some_and(|at| now < at + every)
            });
        }
        let key = if self.groups.len() < GROUPS_MAX || self.groups.contains_key(&notice.group()) {
            notice.group()
        } else {
            notice.subject.as_str().to_owned()
        };
        let group = self.groups.entry(key).or_default();
        group.waiting = Some(match group.waiting.take() {
            Some(earlier) => Notice { held_back: earlier.held_back + earlier.count, ..notice },
            None => notice,
        });
    }

    /// It was due and could not be told: it may be told at once.
    pub(super) fn put_back(&mut self, notice: Notice) {
        self.groups.insert(notice.group(), Group { told_at: None, waiting: Some(notice) });
    }

    /// What may be told now.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Notice> {
        let every = self.every;
        let may = |group: &&mut Group| group.told_at.is_none_or(|at| at + every <= now);
        let tell = |group: &mut Group| {
            let notice = group.waiting.take()?;
            group.told_at = Some(now);
            Some(notice)
        };
        self.groups.values_mut().filter(may).filter_map(tell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::notice::Subject;
    use super::*;

    fn notice(queue: &str, count: u64) -> Notice {
        Notice {
            subject: Subject::DeadLetters,
            queue: queue.into(),
            class: "E".into(),
            count,
            held_back: 0,
            example: None,
            error: None,
            at_micros: 0,
        }
    }

    fn told(throttle: &mut Throttle, secs: i64) -> Vec<(String, u64, u64)> {
        let due = throttle.due(Timestamp::from_secs(secs));
        due.into_iter().map(|notice| (notice.queue, notice.count, notice.held_back)).collect()
    }

    #[test]
    fn a_group_is_told_at_once_then_at_most_once_in_the_time_with_what_was_held_back() {
        let mut throttle = Throttle::new(Duration::from_secs(300));
        let at = Timestamp::from_secs;
        throttle.offer(notice("mail", 2), at(0));
        assert_eq!(told(&mut throttle, 0), [("mail".to_owned(), 2, 0)]);
        throttle.offer(notice("mail", 3), at(5));
        throttle.offer(notice("order", 1), at(5));
        assert_eq!(told(&mut throttle, 5), [("order".to_owned(), 1, 0)], "another group has its own time");
        throttle.offer(notice("mail", 4), at(10));
        assert_eq!(told(&mut throttle, 299), []);
        assert_eq!(told(&mut throttle, 300), [("mail".to_owned(), 4, 3)], "also when nothing new comes");
        assert_eq!(told(&mut throttle, 900), [], "nothing is told twice");
    }

    #[test]
    fn what_could_not_be_told_is_told_at_the_next_look_with_what_came_meanwhile() {
        let mut throttle = Throttle::new(Duration::from_secs(300));
        let at = Timestamp::from_secs;
        throttle.offer(notice("mail", 2), at(0));
        let due = throttle.due(at(0)).remove(0);
        throttle.put_back(due);
        throttle.offer(notice("mail", 1), at(5));
        assert_eq!(told(&mut throttle, 5), [("mail".to_owned(), 1, 2)]);
        assert_eq!(told(&mut throttle, 10), []);
    }

    #[test]
    fn a_flood_of_groups_is_told_by_what_they_have_in_common() {
        let mut throttle = Throttle::new(Duration::from_secs(300));
        for number in 0..2_000 {
            throttle.offer(notice(&format!("queue-{number}"), 1), Timestamp::from_secs(0));
        }
        assert!(throttle.groups.len() <= GROUPS_MAX + 1);
        let told = throttle.due(Timestamp::from_secs(0));
        let all: u64 = told.iter().map(|notice| notice.count + notice.held_back).sum();
        assert_eq!(all, 2_000, "none is forgotten");
    }
}

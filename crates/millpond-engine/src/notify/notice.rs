//! What a notice says, from what is in the store.

use std::collections::BTreeMap;

use millpond_core::reason::DropReason;
use millpond_core::time::Timestamp;
use millpond_core::view::{DeadLetterView, WorkerView};
use serde::{Deserialize, Serialize};

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Messages became dead letters.
    DeadLetters,
    /// A worker says that something is wrong with it.
    WorkerError,
    /// A worker went silent without having stopped.
    WorkerLost,
}

/// A notice, as it is sent: one group of failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// What it is about.
    pub subject: Subject,
    /// The queue of the dead letters, or the id of the worker.
    pub queue: String,
    /// The class of the errors, or the reason where there is none.
    pub class: String,
    /// New ones since the last look.
    pub count: u64,
    /// Those since the last notice of this group, beyond `count`.
    pub held_back: u64,
    /// The newest of them: a message id, for `millpond message get` and `millpond why`.
    pub example: Option<String>,
    /// Its error, redacted.
    pub error: Option<String>,
    /// When the newest happened, in microseconds since the epoch, database time.
    pub at_micros: i64,
}

impl Subject {
    /// The word that is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Subject::DeadLetters => "dead-letters",
            Subject::WorkerError => "worker-error",
            Subject::WorkerLost => "worker-lost",
        }
    }
}

impl Notice {
    /// What is told at most once in a while.
    pub(super) fn group(&self) -> String {
        format!("{}/{}/{}", self.subject.as_str(), self.queue, self.class).chars().take(120).collect()
    }

    /// A sentence for people.
    pub fn sentence(&self) -> String {
        let total = self.count + self.held_back;
        match self.subject {
            Subject::DeadLetters if total == 1 => {
                format!("a message of queue `{}` is a dead letter", self.queue)
            }
            Subject::DeadLetters => format!("{total} messages of queue `{}` are dead letters", self.queue),
            Subject::WorkerError => format!("worker {} is in trouble", self.queue),
            Subject::WorkerLost => format!("worker {} went silent", self.queue),
        }
    }
}

/// One notice for each queue and class. What a person cancelled is no news to people.
pub(super) fn of_dead_letters(letters: &[DeadLetterView]) -> Vec<Notice> {
    let mut groups: BTreeMap<(&str, &str), Notice> = BTreeMap::new();
    for letter in letters.iter().filter(|letter| letter.reason != DropReason::Cancelled.as_str()) {
        let class = letter.class.as_deref().unwrap_or(&letter.reason);
        let notice = groups.entry((&letter.queue, class)).or_insert_with(|| Notice {
            subject: Subject::DeadLetters,
            queue: letter.queue.clone(),
            class: class.to_owned(),
            count: 0,
            held_back: 0,
            example: None,
            error: None,
            at_micros: i64::MIN,
        });
        notice.count += 1;
        if notice.at_micros < letter.died_at.as_micros() {
            notice.at_micros = letter.died_at.as_micros();
            notice.example = Some(letter.id.to_string());
            notice.error.clone_from(&letter.detail);
        }
    }
    groups.into_values().collect()
}

/// A worker in trouble: with an error in its heartbeat, or one whose lease ran out since `from` though it had not
/// stopped.
pub(super) fn of_worker(worker: &WorkerView, from: Timestamp, now: Timestamp) -> Option<Notice> {
    if worker.stopped {
        return None;
    }
    let notice = |subject: Subject, error: Option<String>, at: Timestamp| Notice {
        subject,
        queue: worker.id.clone(),
        class: subject.as_str().to_owned(),
        count: 1,
        held_back: 0,
        example: None,
        error,
        at_micros: at.as_micros(),
    };
    if worker.lease_until <= now {
        let is_news = from < worker.lease_until;
        return is_news.then(|| notice(Subject::WorkerLost, worker.error.clone(), worker.lease_until));
    }
    let error = worker.error.clone()?;
    (from < worker.seen_at).then(|| notice(Subject::WorkerError, Some(error), worker.seen_at))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond_core::MessageId;
    use millpond_core::view::WorkerFacts;

    use super::*;

    fn letter(queue: &str, class: Option<&str>, reason: &str, died: i64) -> DeadLetterView {
        DeadLetterView {
            id: MessageId(uuid::Uuid::from_u128(died.unsigned_abs().into())),
            queue: queue.into(),
            kind: queue.into(),
            key: None,
            priority: 2,
            reason: reason.into(),
            detail: Some(format!("error {died}")),
            class: class.map(Into::into),
            fingerprint: None,
            attempt: 5,
            attempts_max: Some(5),
            worker: None,
            headers: serde_json::Value::Null,
            content_type: String::new(),
            body: Vec::new(),
            body_bytes: 0,
            sent_at: Timestamp::from_secs(0),
            died_at: Timestamp::from_secs(died),
            redriven_as: None,
            retry_of: None,
        }
    }

    #[test]
    fn dead_letters_are_told_by_queue_and_class_with_the_newest_as_example() {
        let notices = of_dead_letters(&[
            letter("mail", Some("SmtpError"), "exhausted", 3),
            letter("mail", Some("SmtpError"), "exhausted", 9),
            letter("mail", None, "refused", 4),
            letter("order", Some("SmtpError"), "exhausted", 5),
            letter("order", None, "cancelled", 6),
        ]);
        let told: Vec<_> = notices
            .iter()
            .map(|one| (one.queue.as_str(), one.class.as_str(), one.count, one.error.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                ("mail", "SmtpError", 2, Some("error 9")),
                ("mail", "refused", 1, Some("error 4")),
                ("order", "SmtpError", 1, Some("error 5")),
            ]
        );
        assert_eq!(notices[0].sentence(), "2 messages of queue `mail` are dead letters");
        assert_eq!(notices[0].group(), "dead-letters/mail/SmtpError");
    }

    #[test]
    fn a_worker_is_told_of_when_it_goes_silent_or_says_that_something_is_wrong() {
        let at = Timestamp::from_secs;
        let worker = |lease_until, stopped, error: Option<&str>| WorkerView {
            id: "w1".into(),
            host: "here".into(),
            queues: Vec::new(),
            slots: 1,
            busy: 0,
            started_at: at(0),
            seen_at: at(95),
            lease_until: at(lease_until),
            stopped,
            error: error.map(Into::into),
            facts: WorkerFacts::default(),
            wish: None,
        };
        let told = |worker: &WorkerView| of_worker(worker, at(90), at(100)).map(|notice| notice.subject);
        assert_eq!(told(&worker(110, false, None)), None, "it lives");
        assert_eq!(told(&worker(98, false, None)), Some(Subject::WorkerLost));
        assert_eq!(told(&worker(98, true, None)), None, "it stopped by itself");
        assert_eq!(told(&worker(80, false, None)), None, "that was told before");
        assert_eq!(told(&worker(110, false, Some("disk"))), Some(Subject::WorkerError));
        assert_eq!(
            of_worker(&worker(110, false, Some("disk")), at(90) + Duration::from_secs(6), at(100)),
            None
        );
    }
}

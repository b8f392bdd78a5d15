//! What a declaration of a queue says.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::error::{Code, Error, Result};
use crate::limit::{Limits, Rate};
use crate::name;

/// The shortest lease: a third of it must be enough to renew.
pub const LEASE_MIN: Duration = Duration::from_secs(2);

/// The greatest limit of a body, in bytes.
pub const MESSAGE_LIMIT_MAX: u64 = 64 * 1024 * 1024;

/// The number of priority classes: 0 is served first.
pub const CLASSES: u8 = 4;

/// The class of a message that names none.
pub const CLASS_DEFAULT: u8 = 2;

/// How much of the run log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryLevel {
    /// One small row for each finished claim.
    All,
    /// Failures only.
    Failures,
}

/// How a send to a queue stands to the sender's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transactional {
    /// Only within a transaction: the message exists exactly if that commits.
    Require,
    /// Within a transaction like `require`, and outside of one directly.
    Try,
    /// Never a part of a transaction. In a unit of work the message waits in memory for the commit.
    Never,
}

impl Transactional {
    /// As it is written in settings and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Transactional::Require => "require",
            Transactional::Try => "try",
            Transactional::Never => "never",
        }
    }
}

/// The kind of delivery. A queue has one for life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Any partition, one worker, roughly first in, first out.
    Dispatch,
}

/// The settings of a queue, stored with it.
///
/// - **Source:** `queue.settings`, written by every node that declares the queue; the youngest wins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// The kind of delivery. Default: dispatch.
    pub delivery: Delivery,
    /// How a send stands to the sender's transaction. Default: try.
    pub transactional: Transactional,
    /// Deliveries in all. Default: 5.
    pub attempts_max: u32,
    /// The wait after a failed attempt. Default: 10 s doubling to 10 min, ± 10 %.
    pub backoff: Backoff,
    /// How long a silent worker is waited for. At least 2 s. Default: 30 s.
    pub lease: Duration,
    /// How long one run may take; `None`: for ever. Default: 5 min.
    pub timeout: Option<Duration>,
    /// A body of this many bytes or more is refused; `None`: 64 MiB. Default: 1 MiB.
    pub message_limit: Option<u64>,
    /// How long settled messages are kept. Default: 24 h.
    pub retention: Duration,
    /// Deliveries given back before the message dies. Default: 1,000.
    pub releases_max: u32,
    /// Handlers of this queue that one worker runs at once; `None`: what the worker says.
    pub concurrency_per_node: Option<u32>,
    /// At most one live claim over all nodes, its messages handled one after the other. A declaration raises the stored
    /// mark and never lowers it. Default: no.
    pub exclusive: bool,
    /// Messages in hand at once over all nodes, exactly; `None`: as many as the workers take.
    pub concurrency: Option<u32>,
    /// Messages leased in a time over all nodes; `None`: no limit.
    pub rate: Option<Rate>,
    /// How long a dedup key is held after sending. Default: 24 h.
    pub dedup_window: Duration,
    /// How much of the run log is kept. Default: all.
    pub events: HistoryLevel,
}

impl QueueSettings {
    /// Every setting at its default.
    pub const DEFAULT: Self = Self {
        delivery: Delivery::Dispatch,
        transactional: Transactional::Try,
        attempts_max: 5,
        backoff: Backoff::DEFAULT,
        lease: Duration::from_secs(30),
        timeout: Some(Duration::from_secs(300)),
        message_limit: Some(1024 * 1024),
        retention: Duration::from_secs(24 * 3600),
        releases_max: 1_000,
        concurrency_per_node: None,
        exclusive: false,
        concurrency: None,
        rate: None,
        dedup_window: Duration::from_secs(24 * 3600),
        events: HistoryLevel::All,
    };

    /// A body of this many bytes or more is refused.
    pub fn message_limit(&self) -> u64 {
        self.message_limit.unwrap_or(MESSAGE_LIMIT_MAX)
    }

    /// What it limits over all nodes.
    pub const fn limits(&self) -> Limits {
        Limits { exclusive: self.exclusive, concurrency: self.concurrency, rate: self.rate }
    }

    /// This declaration where another one is stored: `exclusive` is sticky upward, so that a node of an earlier version
    /// does not lower it.
    #[must_use]
    pub const fn over(mut self, stored: &Self) -> Self {
        self.exclusive |= stored.exclusive;
        self
    }

    /// Refuses a name or settings that cannot work.
    ///
    /// # Errors
    ///
    /// `invalid-name` or `invalid-config`, naming the queue, the setting and its range.
    pub fn check(&self, queue: &str) -> Result<()> {
        let doing = || format!("declare queue `{queue}`");
        name::check_queue_name(queue).map_err(|why| Error::new(Code::InvalidName, doing()).because(why))?;
        let wrong = |why: String| Err(Error::new(Code::InvalidConfig, doing()).because(why));
        if self.attempts_max == 0 {
            return wrong("attempts_max is 0; it is at least 1 (a deadline is `retry_until`)".to_owned());
        }
        if self.lease < LEASE_MIN {
            return wrong(format!("lease is {:?}; it is at least {LEASE_MIN:?}", self.lease));
        }
        if self.timeout == Some(Duration::ZERO) {
            return wrong("timeout is 0; name a duration, or none".to_owned());
        }
        if self.message_limit() == 0 || MESSAGE_LIMIT_MAX < self.message_limit() {
            let limit = self.message_limit();
            return wrong(format!("message_limit is {limit}; it is from 1 to {MESSAGE_LIMIT_MAX} bytes"));
        }
        self.backoff.check().or_else(wrong)?;
        if self.concurrency_per_node == Some(0) {
            return wrong("concurrency_per_node is 0; it is at least 1, or absent".to_owned());
        }
        if self.concurrency == Some(0) {
            return wrong("concurrency is 0; it is at least 1, or absent".to_owned());
        }
        self.rate.map_or(Ok(()), Rate::check).or_else(wrong)?;
        self.check_together(queue)
    }

    /// Refuses settings that exclude each other: with one message at a time, a limit on how many there may be says
    /// nothing.
    ///
    /// # Errors
    ///
    /// `invalid-config`, naming the queue and both settings.
    pub fn check_together(&self, queue: &str) -> Result<()> {
        let other = match self {
            Self { exclusive: false, .. } => return Ok(()),
            Self { concurrency_per_node: Some(_), .. } => "concurrency_per_node",
            Self { concurrency: Some(_), .. } => "concurrency",
            _ => return Ok(()),
        };
        let why = format!(
            "exclusive and {other} exclude each other; a queue that was declared as exclusive stays so until `millpond \
             queue set {queue} exclusive=false`"
        );
        Err(Error::new(Code::InvalidConfig, format!("declare queue `{queue}`")).because(why))
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Jitter;

    #[track_caller]
    fn refused(settings: QueueSettings, expected: &str) {
        let error = settings.check("mail").unwrap_err();
        assert_eq!(error.code(), Code::InvalidConfig);
        assert!(error.causes().contains(expected), "{}", error.causes());
    }

    #[test]
    fn the_defaults_are_accepted_and_survive_being_stored() {
        QueueSettings::DEFAULT.check("mail").unwrap();
        let text = serde_json::to_string(&QueueSettings::DEFAULT).unwrap();
        assert_eq!(serde_json::from_str::<QueueSettings>(&text).unwrap(), QueueSettings::DEFAULT);
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let good = QueueSettings::DEFAULT;
        refused(QueueSettings { attempts_max: 0, ..good }, "attempts_max is 0");
        refused(QueueSettings { lease: Duration::from_secs(1), ..good }, "lease is 1s");
        refused(QueueSettings { message_limit: Some(0), ..good }, "message_limit is 0");
        refused(QueueSettings { timeout: Some(Duration::ZERO), ..good }, "timeout is 0");
        refused(QueueSettings { concurrency_per_node: Some(0), ..good }, "concurrency_per_node is 0");
        refused(QueueSettings { concurrency: Some(0), ..good }, "concurrency is 0");
        let rate = |count, period| QueueSettings { rate: Some(Rate { count, period }), ..good };
        refused(rate(0, Duration::from_secs(1)), "rate has the count 0");
        refused(rate(1, Duration::from_micros(999)), "rate has the period 999µs");
        refused(rate(1, Duration::from_secs(24 * 3600 + 1)), "rate has the period 86401s");
        rate(1, Duration::from_millis(1)).check("mail").unwrap();
        let backoff = |backoff: Backoff| QueueSettings { backoff, ..good };
        for factor in [f64::NAN, f64::INFINITY] {
            refused(backoff(Backoff::DEFAULT.factor(factor)), "backoff has the factor");
            refused(backoff(Backoff::DEFAULT.jitter(Jitter::Share(factor))), "backoff has the jitter");
        }
    }

    #[test]
    fn an_exclusive_queue_has_no_other_limit_on_how_many_run() {
        let exclusive = QueueSettings { exclusive: true, ..QueueSettings::DEFAULT };
        exclusive.check("mail").unwrap();
        refused(
            QueueSettings { concurrency_per_node: Some(2), ..exclusive },
            "exclusive and concurrency_per_node exclude each other",
        );
        refused(
            QueueSettings { concurrency: Some(2), ..exclusive },
            "exclusive and concurrency exclude each other",
        );
        let rate = Rate { count: 5, period: Duration::from_secs(1) };
        QueueSettings { rate: Some(rate), ..exclusive }.check("mail").unwrap();
    }

    #[test]
    fn a_declaration_raises_exclusive_and_never_lowers_it() {
        let (open, exclusive) =
            (QueueSettings::DEFAULT, QueueSettings { exclusive: true, ..QueueSettings::DEFAULT });
        assert!(exclusive.over(&open).exclusive && open.over(&exclusive).exclusive);
        assert!(!open.over(&open).exclusive);
        let other = QueueSettings { attempts_max: 9, ..open };
        assert_eq!(other.over(&exclusive).attempts_max, 9, "of everything else the youngest wins");
    }

    #[test]
    fn what_an_earlier_release_stored_has_no_limits() {
        let mut stored = serde_json::to_value(QueueSettings::DEFAULT).unwrap();
        for name in ["exclusive", "concurrency", "rate"] {
            assert!(stored.as_object_mut().unwrap().remove(name).is_some());
        }
        assert_eq!(serde_json::from_value::<QueueSettings>(stored).unwrap(), QueueSettings::DEFAULT);
    }

    #[test]
    fn a_bad_name_is_refused() {
        assert_eq!(QueueSettings::DEFAULT.check("Mail").unwrap_err().code(), Code::InvalidName);
    }
}

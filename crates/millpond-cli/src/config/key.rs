//! The known keys, each with its default and its range.

use std::time::Duration;

use millpond::text::parse_duration;

/// The range of `concurrency`, as the worker has it.
const CONCURRENCY: std::ops::RangeInclusive<usize> = 1..=256;

/// The shortest lease.
const LEASE_MIN: Duration = Duration::from_secs(2);

/// A setting.
pub(super) struct Key {
    /// Its path.
    pub(super) name: &'static str,
    /// What holds when nobody says anything; empty: what the queue says.
    pub(super) default: &'static str,
    /// Refuses what cannot work.
    pub(super) check: fn(&str) -> Result<(), String>,
}

/// Every setting.
pub(super) const KEYS: &[Key] = &[
    Key { name: "store", default: "sqlite://millpond.db", check: some_text },
    Key { name: "worker.concurrency", default: "10", check: concurrency },
    Key { name: "worker.lease", default: "", check: lease },
    Key { name: "worker.snooze", default: "30s", check: duration },
    Key { name: "worker.cancel_grace", default: "5s", check: duration },
    Key { name: "worker.shutdown_timeout", default: "30s", check: duration },
];

fn some_text(text: &str) -> Result<(), String> {
    if text.is_empty() {
        Err("it is empty; name a URL such as sqlite://millpond.db".to_owned())
    } else {
        Ok(())
    }
}

fn concurrency(text: &str) -> Result<(), String> {
    match text.parse::<usize>() {
        Ok(count) if CONCURRENCY.contains(&count) => Ok(()),
        _ => Err(format!("it is a number from {} to {}", CONCURRENCY.start(), CONCURRENCY.end())),
    }
}

fn duration(text: &str) -> Result<(), String> {
    parse_duration(text).map(drop).map_err(|error| error.to_string())
}

fn lease(text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        text if parse_duration(text).is_ok_and(|lease| lease < LEASE_MIN) => {
            Err("it is at least 2s".to_owned())
        }
        text => duration(text),
    }
}

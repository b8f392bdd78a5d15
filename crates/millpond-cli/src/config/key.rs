//! The known keys, each with its default, its range, and what it is for.

use std::fmt;
use std::time::Duration;

use millpond::text::parse_duration;
use millpond_webhook::{Guard, Secret};

/// The range of `concurrency`, as the worker has it.
const CONCURRENCY: std::ops::RangeInclusive<usize> = 1..=256;

/// The shortest lease.
const LEASE_MIN: Duration = Duration::from_secs(2);

/// Where notices can go.
const CHANNELS: [&str; 2] = ["log", "webhook"];

/// A literal of fewer bytes would be masked in the middle of common words.
pub(super) const LITERAL_BYTES_MIN: usize = 4;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A text.
    Text,
    /// A whole number of this range.
    Number(usize, usize),
    /// A text such as `30s`.
    Duration,
    /// A list of texts; in a variable or a file of its own, one to a line.
    Texts,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Text => f.write_str("text"),
            Shape::Number(least, most) => write!(f, "whole number from {least} to {most}"),
            Shape::Duration => f.write_str("duration"),
            Shape::Texts => f.write_str("list of texts; in a variable, one to a line"),
        }
    }
}

/// A setting.
pub(super) struct Key {
    /// Its path.
    pub(super) name: &'static str,
    /// What it is for, in a sentence.
    pub(super) about: &'static str,
    /// What it is.
    pub(super) shape: Shape,
    /// What holds when nobody says anything; empty: nothing, or what the queue says.
    pub(super) default: &'static str,
    /// Whether the value is never shown.
    pub(super) is_secret: bool,
    /// Whether a running process follows a change. None does yet: every process reads its settings when it starts.
    pub(super) is_live: bool,
    /// Refuses what cannot work.
    pub(super) check: fn(&str) -> Result<(), String>,
}

const fn key(
    name: &'static str,
    shape: Shape,
    default: &'static str,
    check: fn(&str) -> Result<(), String>,
    about: &'static str,
) -> Key {
    Key { name, about, shape, default, is_secret: false, is_live: false, check }
}

/// Every setting.
pub(super) const KEYS: &[Key] = &[
    key(
        "store",
        Shape::Text,
        "sqlite://millpond.db",
        some_text,
        "The URL of the store. A path in it is relative to the folder in which the program runs.",
    ),
    Key {
        is_secret: true,
        ..key(
            "redact.literals",
            Shape::Texts,
            "",
            literals,
            "Secrets that are masked in every error text that `work` stores and `redact` prints.",
        )
    },
    key(
        "notify.channels",
        Shape::Texts,
        "log",
        channels,
        "Where `work` tells of dead letters and of workers in trouble: `log`, `webhook`, or nowhere.",
    ),
    Key {
        // Its query may hold a secret.
        is_secret: true,
        ..key("notify.webhook.url", Shape::Text, "", any, "The URL that the channel `webhook` posts to.")
    },
    Key {
        is_secret: true,
        ..key(
            "notify.webhook.secret",
            Shape::Text,
            "",
            secret,
            "What signs those requests, after the Standard Webhooks: base64 of 24 to 64 bytes, `whsec_` before it or not.",
        )
    },
    key(
        "outbound.allow",
        Shape::Texts,
        "",
        allow,
        "Hosts, addresses, networks and `:ports` that may be reached beside the public internet on ports 80 and 443.",
    ),
    key(
        "worker.concurrency",
        Shape::Number(*CONCURRENCY.start(), *CONCURRENCY.end()),
        "10",
        concurrency,
        "Handlers of a queue that run at once in a worker.",
    ),
    key(
        "worker.lease",
        Shape::Duration,
        "",
        lease,
        "How long a worker may be silent before others take its messages. Default: what the queue says.",
    ),
    key(
        "worker.timeout",
        Shape::Duration,
        "",
        timeout,
        "How long one run may take, beside what the queue says: the shorter one holds.",
    ),
    key(
        "worker.snooze",
        Shape::Duration,
        "30s",
        duration,
        "How long a message waits whose program ended with exit status 75.",
    ),
    key(
        "worker.cancel_grace",
        Shape::Duration,
        "5s",
        duration,
        "How long a program that was told to stop may take to do so, before it is killed.",
    ),
    key(
        "worker.shutdown_timeout",
        Shape::Duration,
        "30s",
        duration,
        "How long running programs may go on after their worker was told to stop.",
    ),
];

fn some_text(text: &str) -> Result<(), String> {
    if text.is_empty() {
        Err("it is empty; name a URL such as sqlite://millpond.db".to_owned())
    } else {
        Ok(())
    }
}

fn any(_: &str) -> Result<(), String> {
    Ok(())
}

fn channels(text: &str) -> Result<(), String> {
    match text.lines().find(|channel| !CHANNELS.contains(channel)) {
        Some(other) => Err(format!("there is no channel `{other}`; known are {}", CHANNELS.join(", "))),
        None => Ok(()),
    }
}

fn secret(text: &str) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { Secret::read(text).map(drop).map_err(|why| why.to_string()) }
}

fn allow(text: &str) -> Result<(), String> {
    text.lines().try_fold(Guard::default(), Guard::allow).map(drop)
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

fn timeout(text: &str) -> Result<(), String> {
    match text {
        "" => Ok(()),
        text if parse_duration(text) == Ok(Duration::ZERO) => {
            Err("it is 0: a run would end before it begins".to_owned())
        }
        text => duration(text),
    }
}

/// The texts themselves are not said: an error may be read by others.
fn literals(text: &str) -> Result<(), String> {
    let short = text.lines().position(|literal| literal.len() < LITERAL_BYTES_MIN);
    match short {
        Some(index) => Err(format!(
            "text {} has less than {LITERAL_BYTES_MIN} bytes, and would be masked within other words",
            index + 1
        )),
        None => Ok(()),
    }
}

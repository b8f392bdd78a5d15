//! Messages: before they are stored, and as a worker gets them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Headers of a message, sorted by name.
pub type Headers = BTreeMap<String, String>;

/// The content type of a body that does not say otherwise and is JSON.
pub const JSON: &str = "application/json";

/// The content type of bytes about which nothing is known.
pub const BYTES: &str = "application/octet-stream";

/// The identity of a message, kept through outbox, log, retries and reclaims.
///
/// - **Shape:** a UUIDv7: sorts by the time it was made, to the millisecond.
/// - **Source:** made by the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(pub uuid::Uuid);

impl MessageId {
    /// The instant that is written in the id; `None` if it is no UUIDv7.
    pub fn made_at(self) -> Option<Timestamp> {
        let (secs, nanos) = self.0.get_timestamp()?.to_unix();
        let micros = i64::try_from(secs).ok()?.checked_mul(1_000_000)?;
        Some(Timestamp::from_micros(micros.checked_add(i64::from(nanos / 1_000))?))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for MessageId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The place of one message in one partition.
///
/// - **Shape:** 0, 1, 2 … without gaps, visible in order, never reused. So the difference of two offsets
///   is a number of messages, and lag is exact.
/// - **Unit:** messages.
/// - **Source:** `log.log_offset`, given under the partition's append lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

/// The proof that a worker holds a claim. Random, so that one that was handed out and forgotten in a
/// crash is never handed out again.
///
/// - **Shape:** 128 random bits, drawn by the worker before it asks for the lease.
/// - **Source:** `claim.token`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub [u8; 16]);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

/// When a message is due. The store adds `In` to its own clock, so that no node's clock decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// After this long, counted from the moment it is stored.
    In(Duration),
    /// At this instant of database time.
    At(Timestamp),
}

impl Due {
    /// The instant, given what the store's clock says.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Due::In(wait) => now + wait,
            Due::At(instant) => instant,
        }
    }
}

impl From<Duration> for Due {
    fn from(wait: Duration) -> Self {
        Due::In(wait)
    }
}

impl From<Timestamp> for Due {
    fn from(instant: Timestamp) -> Self {
        Due::At(instant)
    }
}

/// A dedup key and how long it is held after sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    /// Compared byte by byte, within the queue.
    pub key: String,
    /// How long a second message with this key is the same message.
    pub window: Duration,
}

/// A message that passed every check and is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Made by the sender.
    pub id: MessageId,
    /// The name of the work; `None` is the queue's own name.
    pub kind: Option<String>,
    /// Groups messages for order and limits.
    pub key: Option<String>,
    /// Sorted by name.
    pub headers: Headers,
    /// `None` is JSON.
    pub content_type: Option<String>,
    /// Bytes that no store looks into.
    pub body: Vec<u8>,
    /// The priority class: 0 is served first, 3 last.
    pub priority: u8,
    /// `None`: at once.
    pub due: Option<Due>,
    /// Deliveries in all; `None`: what the queue says.
    pub attempts_max: Option<u32>,
    /// No attempt is made after this.
    pub retry_until: Option<Due>,
    /// Makes a repeated send one message.
    pub dedup: Option<Dedup>,
}

/// A message under lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    /// Its place in the claim's partition.
    pub offset: Offset,
    /// Unchanged since it was sent.
    pub id: MessageId,
    /// The name of the work; `None` is the queue's own name.
    pub kind: Option<String>,
    /// As sent.
    pub key: Option<String>,
    /// As stored: a JSON object of texts, or nothing. Decoded when a handler asks.
    pub headers: Option<String>,
    /// `None` is JSON.
    pub content_type: Option<String>,
    /// Byte for byte what was sent.
    pub body: Vec<u8>,
    /// This delivery, counted from 1, this lease included.
    pub attempt: u32,
    /// Deliveries that were given back.
    pub releases: u32,
    /// The size of the suspect group it was leased in; 0 when it is no suspect.
    pub suspect: u16,
    /// Deliveries in all, if the message has its own number.
    pub attempts_max: Option<u32>,
    /// Its own deadline.
    pub retry_until: Option<Timestamp>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// False when the stored checksum does not fit the body: the file was damaged.
    pub intact: bool,
}

impl Leased {
    /// The number of this delivery: attempts and releases, this one included. It never falls.
    pub fn delivery(&self) -> u32 {
        self.attempt.saturating_add(self.releases)
    }
}

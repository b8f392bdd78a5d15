//! What is sent: a body, or a body with options.

use std::time::Duration;

use millpond_core::message::{Dedup, Due, Headers, MessageId, NewMessage};
use millpond_core::name::CONTENT_TYPE_DEFAULT;
use millpond_core::queue::CLASS_DEFAULT;
use millpond_core::time::Timestamp;

use crate::body::{Body, Encoded};

/// A body with options.
///
/// ```
/// use std::time::Duration;
/// use millpond_engine::item::{Item, ItemOptions};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Welcome {
///     user: u64,
/// }
///
/// let item: Item<Welcome> = Welcome { user: 7 }.delay(Duration::from_secs(60)).priority(1);
/// assert_eq!(item.body.user, 7);
/// ```
#[derive(Debug, Clone)]
pub struct Item<B> {
    /// What is encoded and sent.
    pub body: B,
    pub(crate) options: Options,
}

impl<B> Item<B> {
    /// Due after this long, from 0 s to 10 years, counted by the store's clock.
    #[must_use]
    pub fn delay(mut self, wait: Duration) -> Self {
        self.options.due = (!wait.is_zero()).then_some(Due::In(wait));
        self
    }

    /// Due at this instant of database time.
    #[must_use]
    pub fn at(mut self, instant: Timestamp) -> Self {
        self.options.due = Some(Due::At(instant));
        self
    }

    /// Groups messages for order and limits. At most 250 bytes.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.options.key = Some(key.into());
        self
    }

    /// The name of the work, if it is not the queue's own.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.options.kind = Some(kind.into());
        self
    }

    /// The priority class: 0 is served first, 3 last. Default: 2.
    #[must_use]
    pub fn priority(mut self, class: u8) -> Self {
        self.options.priority = class;
        self
    }

    /// Deliveries in all, at least 1. Default: what the queue says.
    #[must_use]
    pub fn attempts_max(mut self, attempts: u32) -> Self {
        self.options.attempts_max = Some(attempts);
        self
    }

    /// No attempt is made after this. Without [`Item::attempts_max`] it replaces the number of attempts.
    #[must_use]
    pub fn retry_until(mut self, deadline: impl Into<Due>) -> Self {
        self.options.retry_until = Some(deadline.into());
        self
    }

    /// A second message of the queue with this key is the same message, for the queue's `dedup_window`.
    #[must_use]
    pub fn dedup_key(mut self, key: impl Into<String>) -> Self {
        self.options.dedup_key = Some(key.into());
        self
    }

    /// Adds a header, or replaces the one of this name. Names are lower case; all headers have at most 16 KiB.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.headers.insert(name.into(), value.into());
        self
    }
}

impl<B> From<B> for Item<B> {
    fn from(body: B) -> Self {
        Self { body, options: Options::default() }
    }
}

/// Gives every body the options of an [`Item`].
pub trait ItemOptions: Sized {
    /// See [`Item::delay`].
    #[must_use]
    fn delay(self, wait: Duration) -> Item<Self> {
        Item::from(self).delay(wait)
    }

    /// See [`Item::at`].
    #[must_use]
    fn at(self, instant: Timestamp) -> Item<Self> {
        Item::from(self).at(instant)
    }

    /// See [`Item::key`].
    #[must_use]
    fn key(self, key: impl Into<String>) -> Item<Self> {
        Item::from(self).key(key)
    }

    /// See [`Item::kind`].
    #[must_use]
    fn kind(self, kind: impl Into<String>) -> Item<Self> {
        Item::from(self).kind(kind)
    }

    /// See [`Item::priority`].
    #[must_use]
    fn priority(self, class: u8) -> Item<Self> {
        Item::from(self).priority(class)
    }

    /// See [`Item::attempts_max`].
    #[must_use]
    fn attempts_max(self, attempts: u32) -> Item<Self> {
        Item::from(self).attempts_max(attempts)
    }

    /// See [`Item::retry_until`].
    #[must_use]
    fn retry_until(self, deadline: impl Into<Due>) -> Item<Self> {
        Item::from(self).retry_until(deadline)
    }

    /// See [`Item::dedup_key`].
    #[must_use]
    fn dedup_key(self, key: impl Into<String>) -> Item<Self> {
        Item::from(self).dedup_key(key)
    }

    /// See [`Item::header`].
    #[must_use]
    fn header(self, name: impl Into<String>, value: impl Into<String>) -> Item<Self> {
        Item::from(self).header(name, value)
    }
}

impl<B: Body> ItemOptions for B {}

/// What may be said about a message beside its body.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    due: Option<Due>,
    key: Option<String>,
    kind: Option<String>,
    priority: u8,
    attempts_max: Option<u32>,
    retry_until: Option<Due>,
    dedup_key: Option<String>,
    headers: Headers,
}

impl Options {
    /// The message that is stored, its dedup key held for `dedup_window`.
    ///
    /// An empty key or dedup key means none: were an empty dedup key one like any other, the second
    /// message of a program that leaves it empty would be taken for the first.
    pub(crate) fn message(self, id: MessageId, encoded: Encoded, dedup_window: Duration) -> NewMessage {
        let dedup_key = self.dedup_key.filter(|key| !key.is_empty());
        NewMessage {
            id,
            kind: self.kind,
            key: self.key.filter(|key| !key.is_empty()),
            headers: self.headers,
            content_type: encoded.content_type.map(some_content_type),
            body: encoded.bytes,
            priority: self.priority,
            due: self.due,
            attempts_max: self.attempts_max,
            retry_until: self.retry_until,
            dedup: dedup_key.map(|key| Dedup { key, window: dedup_window }),
        }
    }
}

fn some_content_type(name: String) -> String {
    if name.is_empty() { CONTENT_TYPE_DEFAULT.to_owned() } else { name }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            due: None,
            key: None,
            kind: None,
            priority: CLASS_DEFAULT,
            attempts_max: None,
            retry_until: None,
            dedup_key: None,
            headers: Headers::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MessageId = MessageId(uuid::Uuid::nil());
    const WINDOW: Duration = Duration::from_secs(60);

    fn message(item: Item<u32>) -> NewMessage {
        let encoded = item.body.encode().unwrap();
        item.options.message(ID, encoded, WINDOW)
    }

    #[test]
    fn every_option_reaches_the_message() {
        let minute = Duration::from_secs(60);
        let item = 7_u32.delay(minute).key("k").kind("a.b").priority(0).attempts_max(2).retry_until(minute);
        let made = message(item.dedup_key("d").header("trace", "t"));
        let expected = NewMessage {
            id: ID,
            kind: Some("a.b".into()),
            key: Some("k".into()),
            headers: Headers::from([("trace".into(), "t".into())]),
            content_type: None,
            body: b"7".to_vec(),
            priority: 0,
            due: Some(Due::In(minute)),
            attempts_max: Some(2),
            retry_until: Some(Due::In(minute)),
            dedup: Some(Dedup { key: "d".into(), window: WINDOW }),
        };
        assert_eq!(made, expected);
    }

    #[test]
    fn an_empty_key_or_dedup_key_is_none_and_an_empty_content_type_is_bytes() {
        let item = 7_u32.key("").dedup_key("");
        let encoded = Encoded { content_type: Some(String::new()), bytes: b"7".to_vec() };
        let made = item.options.message(ID, encoded, WINDOW);
        assert_eq!((made.key, made.dedup), (None, None));
        assert_eq!(made.content_type.as_deref(), Some(CONTENT_TYPE_DEFAULT));
    }

    #[test]
    fn the_last_word_about_the_due_time_holds() {
        let instant = Timestamp::from_secs(9);
        assert_eq!(message(7_u32.delay(WINDOW).at(instant)).due, Some(Due::At(instant)));
        assert_eq!(message(7_u32.at(instant).delay(Duration::ZERO)).due, None, "no delay is at once");
    }
}

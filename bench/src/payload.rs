//! The body that is sent everywhere: 200 bytes of JSON.

use millpond::Queue;
use serde::{Deserialize, Serialize};

/// A mail to be sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) id: u64,
    pub(crate) to: String,
    pub(crate) subject: String,
    pub(crate) body: String,
}

/// The queue of every measurement.
pub(crate) const MAIL: Queue<Mail> = Queue::new("mail");

/// The mail with this number.
pub(crate) fn mail(id: u64) -> Mail {
    let body = (0..110_u64).map(|place| char::from(b'a' + ((id + place) % 26) as u8)).collect();
    Mail { id, to: format!("user{id:07}@example.com"), subject: "hello".to_owned(), body }
}

/// `count` mails.
pub(crate) fn mails(count: u64) -> Vec<Mail> {
    (0..count).map(mail).collect()
}

/// The mails as they are stored.
pub(crate) fn bodies(count: u64) -> Vec<Vec<u8>> {
    mails(count).iter().map(|mail| serde_json::to_vec(mail).unwrap_or_default()).collect()
}

//! The body that is sent everywhere: 200 bytes of JSON.

use serde::{Deserialize, Serialize};

/// Messages from this number on are those whose pickup is measured.
pub const PICKUP_FIRST: u64 = 1 << 40;

/// A mail to be sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mail {
    /// Its number.
    pub id: u64,
    /// The address.
    pub to: String,
    /// The subject.
    pub subject: String,
    /// The text.
    pub body: String,
}

/// The mail with this number.
pub fn mail(id: u64) -> Mail {
    let body = (0..110_u64).map(|place| char::from(b'a' + ((id + place) % 26) as u8)).collect();
    Mail { id, to: format!("user{id:07}@example.com"), subject: "hello".to_owned(), body }
}

/// `count` mails from this number on.
pub fn mails(first: u64, count: u64) -> Vec<Mail> {
    (first..first + count).map(mail).collect()
}

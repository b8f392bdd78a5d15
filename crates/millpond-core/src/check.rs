//! The checks of a send: made in the call, on every message, before anything is stored.

use std::time::Duration;

use crate::error::{Code, Error, Result};
use crate::message::NewMessage;
use crate::name;
use crate::queue::{CLASSES, QueueSettings};
use crate::time::Timestamp;

/// Most bytes of bodies in one call.
pub const BATCH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Most bytes of all headers of one message.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// The longest delay.
pub const DELAY_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Checks every message of a call against the rules of its queue. One bad message refuses the whole call.
///
/// # Errors
///
/// That of the first bad message, with its index; `batch-too-large` without one.
///
/// `now` is database time, as far as the sender knows it: only years are compared with it.
pub fn batch(queue: &str, settings: &QueueSettings, messages: &[NewMessage], now: Timestamp) -> Result<()> {
    for (index, message) in messages.iter().enumerate() {
        self::message(queue, settings, message, now).map_err(|error| error.at(index))?;
    }
    let total: u64 = messages.iter().map(|message| message.body.len() as u64).sum();
    if BATCH_BYTES_MAX < total {
        let why = format!("the bodies have {total} bytes, the limit of one call is {BATCH_BYTES_MAX}");
        return Err(Error::new(Code::BatchTooLarge, doing(queue)).because(why));
    }
    Ok(())
}

fn message(queue: &str, settings: &QueueSettings, message: &NewMessage, now: Timestamp) -> Result<()> {
    let (size, limit) = (message.body.len() as u64, settings.message_limit());
    if limit <= size {
        let why = format!("the body has {size} bytes, the limit of queue `{queue}` is {limit}");
        return Err(Error::new(Code::BodyTooLarge, doing(queue)).because(why));
    }
    names(message).map_err(|(code, why)| Error::new(code, doing(queue)).because(why))?;
    headers_together(message).map_err(|why| Error::new(Code::InvalidHeader, doing(queue)).because(why))?;
    options(message, now).map_err(|why| Error::new(Code::InvalidOption, doing(queue)).because(why))
}

fn names(message: &NewMessage) -> std::result::Result<(), (Code, name::NameError)> {
    if let Some(kind) = &message.kind {
        name::check_kind(kind).map_err(|why| (Code::InvalidName, why))?;
    }
    if let Some(key) = &message.key {
        name::check_key("key", key).map_err(|why| (Code::InvalidKey, why))?;
    }
    if let Some(dedup) = &message.dedup {
        name::check_key("dedup key", &dedup.key).map_err(|why| (Code::InvalidKey, why))?;
    }
    if let Some(content_type) = &message.content_type {
        name::check_content_type(content_type).map_err(|why| (Code::InvalidHeader, why))?;
    }
    let header = |(name, value): (&String, &String)| name::check_header(name, value);
    message.headers.iter().try_for_each(header).map_err(|why| (Code::InvalidHeader, why))
}

fn headers_together(message: &NewMessage) -> std::result::Result<(), String> {
    let bytes: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if HEADERS_BYTES_MAX < bytes {
        return Err(format!("the headers have {bytes} bytes, the limit is {HEADERS_BYTES_MAX}"));
    }
    Ok(())
}

fn options(message: &NewMessage, now: Timestamp) -> std::result::Result<(), String> {
    if CLASSES <= message.priority {
        return Err(format!("priority is {}; it is from 0 (first) to {}", message.priority, CLASSES - 1));
    }
    if message.attempts_max == Some(0) {
        return Err("attempts_max is 0; it is at least 1".to_owned());
    }
    for due in [message.due, message.retry_until].into_iter().flatten() {
        let wait = due.resolve(now).since(now);
        if DELAY_MAX < wait {
            return Err(format!("{} s from now is more than ten years", wait.as_secs()));
        }
    }
    Ok(())
}

fn doing(queue: &str) -> String {
    format!("send to queue `{queue}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Due, Headers, MessageId};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn good() -> NewMessage {
        NewMessage {
            id: MessageId(uuid::Uuid::nil()),
            kind: None,
            key: None,
            headers: Headers::new(),
            content_type: None,
            body: b"{}".to_vec(),
            priority: 2,
            due: None,
            attempts_max: None,
            retry_until: None,
            dedup: None,
        }
    }

    #[track_caller]
    fn refused(message: NewMessage, code: Code) {
        let settings = QueueSettings { message_limit: Some(10), ..QueueSettings::DEFAULT };
        let error = batch("mail", &settings, &[good(), message], NOW).unwrap_err();
        assert_eq!((error.code(), error.index()), (code, Some(1)), "{}", error.causes());
    }

    #[test]
    fn a_body_of_exactly_the_limit_is_too_large_and_both_numbers_are_named() {
        let settings = QueueSettings { message_limit: Some(10), ..QueueSettings::DEFAULT };
        let largest = NewMessage { body: vec![0; 9], ..good() };
        batch("mail", &settings, &[largest], NOW).unwrap();
        let error = batch("mail", &settings, &[NewMessage { body: vec![0; 10], ..good() }], NOW).unwrap_err();
        assert_eq!(error.causes(), "the body has 10 bytes, the limit of queue `mail` is 10");
    }

    #[test]
    fn each_field_has_its_code_and_the_item_its_index() {
        refused(NewMessage { body: vec![0; 11], ..good() }, Code::BodyTooLarge);
        refused(NewMessage { kind: Some("white space".into()), ..good() }, Code::InvalidName);
        refused(NewMessage { key: Some("a\u{0}".into()), ..good() }, Code::InvalidKey);
        refused(
            NewMessage { headers: Headers::from([("A".into(), "b".into())]), ..good() },
            Code::InvalidHeader,
        );
        refused(NewMessage { priority: 4, ..good() }, Code::InvalidOption);
        refused(NewMessage { attempts_max: Some(0), ..good() }, Code::InvalidOption);
        refused(NewMessage { due: Some(Due::In(DELAY_MAX * 2)), ..good() }, Code::InvalidOption);
        let far = Some(Due::At(Timestamp::from_micros(i64::MAX)));
        refused(NewMessage { due: far, ..good() }, Code::InvalidOption);
        refused(NewMessage { retry_until: far, ..good() }, Code::InvalidOption);
        let long = Headers::from([("a".into(), "b".repeat(HEADERS_BYTES_MAX))]);
        refused(NewMessage { headers: long, ..good() }, Code::InvalidHeader);
    }
}

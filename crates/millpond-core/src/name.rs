//! What names, kinds, keys, headers and content types may contain.
//!
//! The answer is the same on every store, even where one of them could hold more. Text is compared byte by
//! byte: `A` is not `a`, and `é` as one character is not `é` as two.

use std::fmt::Write;

use thiserror::Error;

/// The greatest length of a queue or topic name, in bytes.
pub const QUEUE_NAME_BYTES_MAX: usize = 100;
/// The greatest length of a kind, in bytes.
pub const KIND_BYTES_MAX: usize = 100;
/// The greatest length of a key, routing key or dedup key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// The greatest length of a header name, in bytes.
pub const HEADER_NAME_BYTES_MAX: usize = 64;
/// The greatest length of a content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 100;

/// What an empty or absent content type means.
pub const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// The beginning of queue names that belong to the product.
pub const RESERVED_QUEUE_PREFIX: &str = "millpond.";
/// The beginning of header names that belong to the product.
pub const RESERVED_HEADER_PREFIX: &str = "millpond-";

/// What joins a prefix, a queue name and a key.
const JOINT: &str = "__";

const QUEUE_NAME: Shape = Shape {
    field: "queue name",
    bytes_max: QUEUE_NAME_BYTES_MAX,
    first: |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
    first_allowed: "a to z and 0 to 9",
    rest: |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c),
    rest_allowed: "a to z, 0 to 9, `.`, `_` and `-`",
};

const KIND: Shape = Shape {
    field: "kind",
    bytes_max: KIND_BYTES_MAX,
    first: |c| c.is_ascii_alphanumeric(),
    first_allowed: "A to Z, a to z and 0 to 9",
    rest: |c| c.is_ascii_alphanumeric() || "._:-".contains(c),
    rest_allowed: "A to Z, a to z, 0 to 9, `.`, `_`, `:` and `-`",
};

const HEADER_NAME: Shape = Shape {
    field: "header name",
    bytes_max: HEADER_NAME_BYTES_MAX,
    first: |c| c.is_ascii_lowercase() || c.is_ascii_digit(),
    first_allowed: "a to z and 0 to 9",
    rest: |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-',
    rest_allowed: "a to z, 0 to 9 and `-`",
};

/// Why a name or a text is refused. The sentence says which field, what is wrong, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The field must not be empty.
    #[error("{field} is empty: 1 to {bytes_max} bytes are allowed")]
    Empty {
        /// Which field.
        field: &'static str,
        /// Its greatest length.
        bytes_max: usize,
    },
    /// The field is too long.
    #[error("{field} has {bytes} bytes: at most {bytes_max} are allowed")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// Its greatest length.
        bytes_max: usize,
    },
    /// The field begins with a character that may at most follow later, or not at all.
    #[error("{field} begins with {}: the first character may be {allowed}", shown(*.character))]
    First {
        /// Which field.
        field: &'static str,
        /// Its first character.
        character: char,
        /// What may stand there.
        allowed: &'static str,
    },
    /// The field contains a character that it may not contain.
    #[error("{field} contains {} at byte {at}: allowed are {allowed}", shown(*.character))]
    Character {
        /// Which field.
        field: &'static str,
        /// The first such character.
        character: char,
        /// Where it is, in bytes from 0.
        at: usize,
        /// What may stand there.
        allowed: &'static str,
    },
    /// The name belongs to the product.
    #[error(
        "{field} `{name}` is reserved: names that begin with `{prefix}` belong to the product, \
         any other beginning is allowed"
    )]
    Reserved {
        /// Which field.
        field: &'static str,
        /// The name.
        name: String,
        /// The reserved beginning.
        prefix: &'static str,
    },
}

/// Checks the name of a user's queue or topic: `[a-z0-9][a-z0-9._-]*`, at most 100 bytes, not reserved.
///
/// # Errors
/// The first rule that the name breaks.
pub fn check_queue_name(name: &str) -> Result<(), NameError> {
    check_any_queue_name(name)?;
    refuse_reserved(QUEUE_NAME.field, name, RESERVED_QUEUE_PREFIX)
}

/// [`check_queue_name`] for the product itself, which may use reserved names.
///
/// # Errors
/// The first rule that the name breaks.
pub fn check_any_queue_name(name: &str) -> Result<(), NameError> {
    QUEUE_NAME.check(name)
}

/// Checks the kind of a message: `[A-Za-z0-9][A-Za-z0-9._:-]*`, at most 100 bytes.
///
/// # Errors
/// The first rule that the kind breaks.
pub fn check_kind(kind: &str) -> Result<(), NameError> {
    KIND.check(kind)
}

/// Checks a key, routing key or dedup key, called `field` in the error: text of at most 250 bytes.
///
/// An empty key passes: it means the same as none.
///
/// # Errors
/// If the key is too long or contains a control character.
pub fn check_key(field: &'static str, key: &str) -> Result<(), NameError> {
    check_length(field, key, KEY_BYTES_MAX)?;
    refuse_control(field, key)
}

/// Checks one header of a user's message. The name is `[a-z0-9][a-z0-9-]*` of at most 64 bytes, not reserved;
/// the value is text and may be empty. How long all of them may be together is checked with the message.
///
/// # Errors
/// The first rule that the name or the value breaks.
pub fn check_header(name: &str, value: &str) -> Result<(), NameError> {
    check_any_header(name, value)?;
    refuse_reserved(HEADER_NAME.field, name, RESERVED_HEADER_PREFIX)
}

/// [`check_header`] for the product itself, which may use reserved names.
///
/// # Errors
/// The first rule that the name or the value breaks.
pub fn check_any_header(name: &str, value: &str) -> Result<(), NameError> {
    HEADER_NAME.check(name)?;
    refuse_control("header value", value)
}

/// Checks a content type: ASCII without control characters, at most 100 bytes.
///
/// An empty one passes: it means [`CONTENT_TYPE_DEFAULT`].
///
/// # Errors
/// The first rule that the content type breaks.
pub fn check_content_type(content_type: &str) -> Result<(), NameError> {
    let field = "content type";
    check_length(field, content_type, CONTENT_TYPE_BYTES_MAX)?;
    refuse_control(field, content_type)?;
    refuse_characters(field, content_type, |c| c.is_ascii(), "ASCII characters")
}

/// The name of a queue in a database or broker that several installations share: `<prefix>__<name>`.
///
/// ```
/// use millpond_core::name::prefixed;
/// assert_eq!(prefixed(Some("blue"), "mail"), "blue__mail");
/// assert_eq!(prefixed(None, "mail"), "mail");
/// ```
pub fn prefixed(prefix: Option<&str>, name: &str) -> String {
    join(&[present(prefix), Some(name)])
}

/// The name of the physical queue for one routing key: `<prefix>__<queue>__<key>`, with every byte outside
/// `[A-Za-z0-9_-]` written as `%XX`. So two keys of a queue never meet in one name.
///
/// ```
/// use millpond_core::name::physical_name;
/// assert_eq!(physical_name(Some("blue"), "mail.out", Some("a/b")), "blue__mail%2Eout__a%2Fb");
/// ```
pub fn physical_name(prefix: Option<&str>, queue: &str, key: Option<&str>) -> String {
    escaped(&join(&[present(prefix), Some(queue), present(key)]))
}

/// An empty text means the same as none.
fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn join(parts: &[Option<&str>]) -> String {
    let parts: Vec<&str> = parts.iter().copied().flatten().collect();
    parts.join(JOINT)
}

fn escaped(name: &str) -> String {
    name.bytes().fold(String::with_capacity(name.len()), |mut result, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            result.push(char::from(byte));
        } else {
            write!(result, "%{byte:02X}").expect("writing to a string does not fail");
        }
        result
    })
}

/// The rules of a field that allows few characters.
struct Shape {
    field: &'static str,
    bytes_max: usize,
    first: fn(char) -> bool,
    first_allowed: &'static str,
    rest: fn(char) -> bool,
    rest_allowed: &'static str,
}

impl Shape {
    fn check(&self, text: &str) -> Result<(), NameError> {
        let Some(first) = text.chars().next() else {
            return Err(NameError::Empty { field: self.field, bytes_max: self.bytes_max });
        };
        check_length(self.field, text, self.bytes_max)?;
        refuse_characters(self.field, text, self.rest, self.rest_allowed)?;
        if (self.first)(first) {
            return Ok(());
        }
        Err(NameError::First { field: self.field, character: first, allowed: self.first_allowed })
    }
}

fn check_length(field: &'static str, text: &str, bytes_max: usize) -> Result<(), NameError> {
    let bytes = text.len();
    if bytes <= bytes_max { Ok(()) } else { Err(NameError::TooLong { field, bytes, bytes_max }) }
}

fn refuse_control(field: &'static str, text: &str) -> Result<(), NameError> {
    refuse_characters(
        field,
        text,
        |c| !c.is_ascii_control(),
        "all characters but U+0000 to U+001F and U+007F",
    )
}

fn refuse_characters(
    field: &'static str,
    text: &str,
    allows: fn(char) -> bool,
    allowed: &'static str,
) -> Result<(), NameError> {
    match text.char_indices().find(|(_, c)| !allows(*c)) {
        Some((at, character)) => Err(NameError::Character { field, character, at, allowed }),
        None => Ok(()),
    }
}

fn refuse_reserved(field: &'static str, name: &str, prefix: &'static str) -> Result<(), NameError> {
    if name.starts_with(prefix) {
        return Err(NameError::Reserved { field, name: name.to_owned(), prefix });
    }
    Ok(())
}

/// A character for a message: as it is if it can be seen, by its number if not.
fn shown(character: char) -> String {
    if character.is_control() || character.is_whitespace() {
        format!("U+{:04X}", u32::from(character))
    } else {
        format!("`{character}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `refusal` is the text of the error, or empty if there is none.
    fn check(result: Result<(), NameError>, refusal: &str) {
        let text = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text, refusal);
    }

    #[test]
    fn queue_names() {
        let every = "0123456789abcdefghijklmnopqrstuvwxyz._-";
        let longest: String = every.chars().cycle().take(QUEUE_NAME_BYTES_MAX).collect();
        let allowed = "allowed are a to z, 0 to 9, `.`, `_` and `-`";
        check(check_queue_name(&longest), "");
        check(check_queue_name("a"), "");
        check(check_queue_name("millpond"), "");
        check(check_queue_name(""), "queue name is empty: 1 to 100 bytes are allowed");
        check(check_queue_name(&format!("{longest}a")), "queue name has 101 bytes: at most 100 are allowed");
        check(check_queue_name("mAil"), &format!("queue name contains `A` at byte 1: {allowed}"));
        check(check_queue_name("a b"), &format!("queue name contains U+0020 at byte 1: {allowed}"));
        check(check_queue_name("a\0"), &format!("queue name contains U+0000 at byte 1: {allowed}"));
        check(check_queue_name("é"), &format!("queue name contains `é` at byte 0: {allowed}"));
        check(
            check_queue_name(".a"),
            "queue name begins with `.`: the first character may be a to z and 0 to 9",
        );
    }

    #[test]
    fn names_of_the_product_are_refused_to_users() {
        check(
            check_queue_name("millpond.log"),
            "queue name `millpond.log` is reserved: names that begin with `millpond.` belong to the product, \
             any other beginning is allowed",
        );
        check(check_any_queue_name("millpond.log"), "");
        check(
            check_header("millpond-attempt", "1"),
            "header name `millpond-attempt` is reserved: names that begin with `millpond-` belong to the \
             product, any other beginning is allowed",
        );
        check(check_any_header("millpond-attempt", "1"), "");
    }

    #[test]
    fn kinds() {
        let allowed = "allowed are A to Z, a to z, 0 to 9, `.`, `_`, `:` and `-`";
        let every = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
        let longest: String = every.chars().cycle().take(KIND_BYTES_MAX).collect();
        check(check_kind(&longest), "");
        check(check_kind(""), "kind is empty: 1 to 100 bytes are allowed");
        check(check_kind("a/b"), &format!("kind contains `/` at byte 1: {allowed}"));
        check(check_kind(":a"), "kind begins with `:`: the first character may be A to Z, a to z and 0 to 9");
    }

    #[test]
    fn keys_are_text_without_control_characters() {
        let allowed = "allowed are all characters but U+0000 to U+001F and U+007F";
        check(check_key("key", ""), "");
        check(check_key("key", "Ünï 数据 😀 /?#"), "");
        check(check_key("key", &"k".repeat(KEY_BYTES_MAX)), "");
        check(
            check_key("routing key", &"é".repeat(126)),
            "routing key has 252 bytes: at most 250 are allowed",
        );
        check(check_key("dedup key", "a\0"), &format!("dedup key contains U+0000 at byte 1: {allowed}"));
        check(check_key("key", "a\u{7f}"), &format!("key contains U+007F at byte 1: {allowed}"));
        check(check_key("key", "\n"), &format!("key contains U+000A at byte 0: {allowed}"));
    }

    #[test]
    fn composed_and_decomposed_letters_are_two_keys() {
        let (composed, decomposed) = ("\u{e9}", "e\u{301}");
        check(check_key("key", composed), "");
        check(check_key("key", decomposed), "");
        assert_ne!(physical_name(None, "q", Some(composed)), physical_name(None, "q", Some(decomposed)));
    }

    #[test]
    fn headers() {
        let allowed = "allowed are a to z, 0 to 9 and `-`";
        check(check_header("trace-id", ""), "");
        check(check_header(&"h".repeat(HEADER_NAME_BYTES_MAX), "Grüße"), "");
        check(check_header("", "x"), "header name is empty: 1 to 64 bytes are allowed");
        check(check_header("Trace", "x"), &format!("header name contains `T` at byte 0: {allowed}"));
        check(check_header("a_b", "x"), &format!("header name contains `_` at byte 1: {allowed}"));
        check(
            check_header("a", "b\r\nc"),
            "header value contains U+000D at byte 1: allowed are all characters but U+0000 to U+001F \
             and U+007F",
        );
    }

    #[test]
    fn content_types() {
        check(check_content_type(""), "");
        check(check_content_type("text/plain; charset=utf-8"), "");
        check(check_content_type("é"), "content type contains `é` at byte 0: allowed are ASCII characters");
        check(check_content_type(&"x".repeat(101)), "content type has 101 bytes: at most 100 are allowed");
        check(
            check_content_type("a\tb"),
            "content type contains U+0009 at byte 1: allowed are all characters but U+0000 to U+001F \
             and U+007F",
        );
    }

    #[test]
    fn physical_names_escape_every_other_byte() {
        let cases = [
            (None, "mail", None, "mail"),
            (Some("p"), "mail", None, "p__mail"),
            (Some(""), "mail", Some(""), "mail"),
            (Some("p"), "mail", Some("a b"), "p__mail__a%20b"),
            (None, "mail.x", Some("é"), "mail%2Ex__%C3%A9"),
            (None, "mail", Some("a%20b"), "mail__a%2520b"),
            (None, "mail", Some("Az09_-"), "mail__Az09_-"),
        ];
        for (prefix, queue, key, expected) in cases {
            assert_eq!(physical_name(prefix, queue, key), expected);
        }
    }
}

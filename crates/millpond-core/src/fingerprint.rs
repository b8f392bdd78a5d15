//! The fingerprint of a failure: like errors have the same, across attempts, nodes and releases.

use sha2::{Digest as _, Sha256};

/// A run of at least this many hexadecimal digits is an id, not a word.
const HEX_CHARS_MIN: usize = 8;

/// The group of a failure: 16 hexadecimal digits.
///
/// It is made of the kind, the reason, the class of the error, and the first line of its redacted text without what
/// differs from case to case: ids and numbers become `#`, quoted texts `""`, blanks are folded, letters lower case.
///
/// ```
/// use millpond_core::fingerprint::fingerprint;
///
/// let one = fingerprint("mail", "exhausted", Some("SmtpError"), Some("no route to 10.0.0.1 after 3 s\ntrace"));
/// let other = fingerprint("mail", "exhausted", Some("SmtpError"), Some("No route to 10.0.0.9 after 12 s"));
/// assert_eq!(one, other);
/// ```
pub fn fingerprint(kind: &str, reason: &str, class: Option<&str>, error: Option<&str>) -> String {
    let line = error.and_then(|error| error.lines().next()).unwrap_or_default();
    let mut hash = Sha256::new();
    for part in [kind, reason, class.unwrap_or_default(), &general(line)] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hex(&hash.finalize()[..8])
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line without what differs from case to case.
fn general(line: &str) -> String {
    let line = without_quotes(&line.to_lowercase());
    let mut general = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '-';
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end == 0 {
            if !(first.is_whitespace() && (general.is_empty() || general.ends_with(' '))) {
                general.push(if first.is_whitespace() { ' ' } else { first });
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        push_word(&mut general, &rest[..end]);
        rest = &rest[end..];
    }
    general.trim_end().to_owned()
}

/// A UUID is one `#`; of other words, each part between dashes stands alone.
fn push_word(general: &mut String, word: &str) {
    if is_uuid(word) {
        general.push('#');
        return;
    }
    for (place, part) in word.split('-').enumerate() {
        if 0 < place {
            general.push('-');
        }
        let is_hex = HEX_CHARS_MIN <= part.len() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex { general.push('#') } else { push_without_digits(general, part) }
    }
}

fn is_uuid(word: &str) -> bool {
    let lengths: Vec<usize> = word.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && word.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// Each run of digits becomes one `#`.
fn push_without_digits(general: &mut String, part: &str) {
    let mut in_number = false;
    for c in part.chars() {
        let is_digit = c.is_numeric();
        if !is_digit {
            general.push(c);
        } else if !in_number {
            general.push('#');
        }
        in_number = is_digit;
    }
}

/// Quoted texts become `""`. An apostrophe within a word is no quote; a quote that is not closed is kept.
fn without_quotes(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let opens = matches!(c, '"' | '`') || (c == '\'' && !before.is_alphanumeric());
        match after.find(c).filter(|_| opens) {
            Some(end) => {
                kept.push_str("\"\"");
                rest = &after[end + c.len_utf8()..];
            }
            None => {
                kept.push(c);
                rest = after;
            }
        }
        before = c;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_case_to_case_goes() {
        for (line, expected) in [
            ("Connection refused", "connection refused"),
            ("no route to 10.0.0.1:8080", "no route to #.#.#.#:#"),
            ("user 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10 is gone", "user # is gone"),
            ("commit deadbeef01 is bad", "commit # is bad"),
            ("the added facade is bad", "the added facade is bad"),
            ("key \"a b\" and 'c' and `d`", "key \"\" and \"\" and \"\""),
            ("can't open; don't know", "can't open; don't know"),
            ("  a \t b  ", "a b"),
            ("attempt-3 of v2", "attempt-# of v#"),
            ("Fehler № 12 über 数据 34", "fehler № # über 数据 #"),
        ] {
            assert_eq!(general(line), expected, "{line}");
        }
    }

    #[test]
    fn kind_reason_class_and_first_line_tell_groups_apart() {
        let group = |kind, reason, class, error| fingerprint(kind, reason, Some(class), Some(error));
        let one = group("mail", "exhausted", "E", "gone\nstack 1");
        assert_eq!(one.len(), 16);
        assert_eq!(one, group("mail", "exhausted", "E", "GONE\nstack 2"));
        for other in [
            group("order", "exhausted", "E", "gone"),
            group("mail", "refused", "E", "gone"),
            group("mail", "exhausted", "F", "gone"),
            group("mail", "exhausted", "E", "lost"),
        ] {
            assert_ne!(one, other);
        }
        assert_ne!(fingerprint("ab", "c", None, None), fingerprint("a", "bc", None, None));
    }
}

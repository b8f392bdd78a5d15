//! Passwords in the user info of URLs.

use super::rewrite::Rewrite;

const AUTHORITY: &str = "://";

/// Masks the password in each `scheme://user:password@`. The user may be empty. The user info reaches to the
/// last `@` before a slash or a blank, because people write passwords with `@` in them unescaped.
pub(super) fn mask(text: &str) -> String {
    let mut rewrite = Rewrite::new(text);
    let mut at = 0;
    while let Some(found) = text[at..].find(AUTHORITY) {
        let from = at + found + AUTHORITY.len();
        let length = text[from..].find(|c: char| c == '/' || c.is_whitespace());
        at = length.map_or(text.len(), |length| from + length);
        if let Some((start, end)) = password(&text[from..at]) {
            rewrite.mask(from + start, from + end);
        }
    }
    rewrite.finish()
}

/// Where the password is in an authority, if it has one and it is not empty.
fn password(authority: &str) -> Option<(usize, usize)> {
    let end = authority.rfind('@')?;
    let start = authority[..end].find(':')? + 1;
    (start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(mask(text), expected, "{text:?}");
    }

    #[test]
    fn the_password_goes_and_the_rest_stays() {
        check("postgres://bob:hunter2@db:5432/x", "postgres://bob:***@db:5432/x");
        check("redis://:hunter2@cache", "redis://:***@cache");
        check("http://u:p@ss@w:rd@host/a@b", "http://u:***@host/a@b");
        check("a://u:1@h b://v:2@i", "a://u:***@h b://v:***@i");
    }

    #[test]
    fn a_url_without_a_password_stays() {
        for text in ["https://bob@host/x", "https://host:8080/a@b", "https://bob:@host", "mail bob@host"] {
            check(text, text);
        }
    }
}

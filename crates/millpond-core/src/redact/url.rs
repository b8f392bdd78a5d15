//! Passwords in the user info of URLs.

use super::rewrite::Rewrite;

const AUTHORITY: &str = "://";

/// Schemes whose paths may well have an `@` behind a host and its port.
const WEB: [&str; 4] = ["http", "https", "ws", "wss"];

/// Masks the password in each `scheme://user:password@`. The user may be empty. The user info reaches to the
/// last `@` before a slash or a blank, because people write passwords with `@` in them unescaped; and beyond the
/// slash if what stands before it is no port, because they write slashes too.
pub(super) fn mask(text: &str) -> String {
    let mut rewrite = Rewrite::new(text);
    let mut place = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        in_word(word, |start, end| rewrite.mask(place + start, place + end));
        place += word.len();
    }
    rewrite.finish()
}

/// Tells where the passwords of a text without blanks are.
fn in_word(word: &str, mut found: impl FnMut(usize, usize)) {
    let word = word.trim_end();
    let Some(last) = word.rfind('@') else { return };
    let mut at = 0;
    while let Some(next) = word[at..].find(AUTHORITY) {
        let (before, from) = (at, at + next + AUTHORITY.len());
        at = word[from..].find('/').map_or(word.len(), |length| from + length);
        let authority = &word[from..at];
        if let Some((start, end)) = password(authority) {
            found(from + start, from + end);
        } else if let Some(start) = reaches_on(&word[before..from - AUTHORITY.len()], authority)
            && at < last
            && !authority.contains('@')
        {
            found(from + start, last);
            at = last;
        }
    }
}

/// Where the password is in an authority, if it has one and it is not empty.
fn password(authority: &str) -> Option<(usize, usize)> {
    let end = authority.rfind('@')?;
    let start = authority[..end].find(':')? + 1;
    (start < end).then_some((start, end))
}

/// Where a password begins that does not end with this authority, if what follows the colon can be one.
fn reaches_on(before: &str, authority: &str) -> Option<usize> {
    let start = authority.find(':')? + 1;
    let is_port = start < authority.len() && authority[start..].bytes().all(|byte| byte.is_ascii_digit());
    let is_web = WEB.iter().any(|scheme| before.ends_with(scheme));
    (!is_port || !is_web).then_some(start)
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
    fn a_password_with_a_slash_in_it_goes_whole() {
        check("postgres://ada:tu/lip@db/app", "postgres://ada:***@db/app");
        check("postgres://ada:12/34@db/app", "postgres://ada:***@db/app");
        check("cannot reach https://ada:t/u@h/x.", "cannot reach https://ada:***@h/x.");
        check("a://u:x/y@h b://v:2@i", "a://u:***@h b://v:***@i");
        check("postgres://ada:***@db/a@b", "postgres://ada:***@db/a@b");
    }

    #[test]
    fn many_urls_in_one_word_take_no_longer_than_as_many_words() {
        let word = "a://b:c/".repeat(8_000);
        check(&word, &word);
        mask(&format!("{word}@"));
    }

    #[test]
    fn a_url_without_a_password_stays() {
        for text in ["https://bob@host/x", "https://host:8080/a@b", "https://bob:@host", "mail bob@host"] {
            check(text, text);
        }
    }
}

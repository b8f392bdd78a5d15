//! Keys: which names announce a secret.

/// Sensitive wherever they stand among the words of a key.
const STRONG: [&str; 10] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "authorization",
    "credential",
    "credentials",
    "apikey",
    "privatekey",
];

/// Sensitive as neighbours, wherever they stand.
const STRONG_PAIRS: [[&str; 2]; 2] = [["api", "key"], ["private", "key"]];

/// Sensitive as the last word.
const WEAK: [&str; 8] = ["token", "signature", "sig", "cookie", "pin", "otp", "cvv", "dsn"];

/// What makes a `key` after it sensitive. One blank may stand between the two.
const BEFORE_KEY: [&str; 7] = ["api", "private", "access", "secret", "signing", "encryption", "account"];

/// Sensitive at the end of a key. Chinese is written without blanks, so there are no words to compare.
const CHINESE: [&str; 4] = ["密码", "口令", "密钥", "令牌"];

/// Last words of type names, which stand before a message and not before a value.
const TYPE_NAMES: [&str; 2] = ["error", "exception"];

/// How much of the text after a sensitive key is its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sensitive {
    /// One value.
    Value,
    /// The rest of the line.
    Cookie,
    /// A scheme and its credentials.
    Authorization,
}

/// Whether `c` can stand in a key, in any script.
pub(super) fn is_key_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Where the run of key characters that begins at `from` ends. The arrow `->` is a separator.
pub(super) fn run_end(text: &str, from: usize) -> usize {
    let rest = &text[from..];
    let mut end = rest.find(|c| !is_key_char(c)).unwrap_or(rest.len());
    if rest[end..].starts_with('>') && rest[..end].ends_with('-') {
        end -= 1;
    }
    from + end
}

/// The end of a key that began as the run `from..end`: later, if one blank and the word `key` follow.
pub(super) fn key_end(text: &str, from: usize, end: usize) -> usize {
    let longer = end + " key".len();
    let follows = text.get(end..longer).is_some_and(|next| {
        next.starts_with([' ', '\t'])
            && next[1..].eq_ignore_ascii_case("key")
            && run_end(text, end + 1) == longer
    });
    let joins =
        follows && words(&text[from..end]).last().is_some_and(|word| BEFORE_KEY.contains(&word.as_str()));
    if joins { longer } else { end }
}

/// What `key` announces, given the text after it; `None` if it is not sensitive or not a key at all.
pub(super) fn sensitive(key: &str, after: &str) -> Option<Sensitive> {
    let words = words(key);
    let last = words.last()?.as_str();
    if TYPE_NAMES.contains(&last) || after.starts_with("://") || is_place(key, after) {
        return None;
    }
    // `PassWord` is two words by its humps and one by its letters.
    let segments: Vec<String> = key.split(is_word_separator).map(str::to_lowercase).collect();
    let chinese = CHINESE.iter().any(|end| key.ends_with(end));
    if !chinese && !any_sensitive(&words) && !any_sensitive(&segments) {
        return None;
    }
    Some(match last {
        "cookie" => Sensitive::Cookie,
        "authorization" => Sensitive::Authorization,
        _ => Sensitive::Value,
    })
}

fn any_sensitive(words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(|word| without_number(word)).collect();
    let strong = words.iter().any(|word| STRONG.contains(word));
    let neighbours = words.windows(2).any(|two| STRONG_PAIRS.iter().any(|pair| two == pair));
    let weak = match words[..] {
        [.., before, "key"] => BEFORE_KEY.contains(&before),
        [.., last] => WEAK.contains(&last),
        [] => false,
    };
    strong || neighbours || weak
}

/// `password2` announces what `password` does.
fn without_number(word: &str) -> &str {
    word.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// `name.ext:number` is a place in a source file, unless the part after the dot is what makes the key
/// sensitive (`db.password:1234`).
fn is_place(key: &str, after: &str) -> bool {
    let Some((_, extension)) = key.rsplit_once('.') else { return false };
    let Some(number) = after.strip_prefix(':') else { return false };
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = rest.len() < number.len() && !rest.starts_with(char::is_alphanumeric);
    let extension = words(extension);
    numbered && !extension.is_empty() && !any_sensitive(&extension) && extension[0] != "key"
}

/// A blank stands in a key only before the word `key`.
fn is_word_separator(c: char) -> bool {
    matches!(c, '_' | '-' | '.' | ' ' | '\t')
}

/// The words of a key in lower case: split at `_`, `-`, `.`, the blank before `key`, and at humps.
fn words(key: &str) -> Vec<String> {
    let parts = key.split(is_word_separator).flat_map(humps);
    parts.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

fn humps(part: &str) -> Vec<&str> {
    let mut humps = Vec::new();
    let mut from = 0;
    let mut before = None;
    for (at, c) in part.char_indices() {
        let after = part[at + c.len_utf8()..].chars().next();
        if before.is_some_and(|before| is_hump(before, c, after)) {
            humps.push(&part[from..at]);
            from = at;
        }
        before = Some(c);
    }
    humps.push(&part[from..]);
    humps
}

/// Whether a word begins at `c`: `clientSecret`, `APIKey`, or Latin letters after Chinese ones.
fn is_hump(before: char, c: char, after: Option<char>) -> bool {
    let starts_upper = c.is_uppercase() && !before.is_uppercase();
    let ends_acronym = c.is_uppercase() && after.is_some_and(char::is_lowercase);
    let changes_script = is_cased(c) && before.is_alphabetic() && !is_cased(before);
    starts_upper || ends_acronym || changes_script
}

fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, expected: Option<Sensitive>) {
        assert_eq!(sensitive(key, "= x"), expected, "{key}");
    }

    #[test]
    fn words_are_split_at_separators_and_humps() {
        let cases = [
            ("clientSecret", "client secret"),
            ("CLIENT-SECRET", "client secret"),
            ("APIKey", "api key"),
            ("x.y_z", "x y z"),
            ("--a--", "a"),
            ("oauth2Token", "oauth2 token"),
            ("数据库password", "数据库 password"),
            ("ÉtatÀJour", "état à jour"),
        ];
        for (key, expected) in cases {
            assert_eq!(words(key).join(" "), expected, "{key}");
        }
    }

    #[test]
    fn strong_words_count_anywhere() {
        for word in STRONG.into_iter().filter(|word| *word != "authorization") {
            check(word, Some(Sensitive::Value));
            check(&format!("{word}_hash"), Some(Sensitive::Value));
            check(&format!("my.{}", word.to_uppercase()), Some(Sensitive::Value));
            check(&format!("x{word}"), None);
        }
        check("api_key_id", Some(Sensitive::Value));
        check("privateKeyPath", Some(Sensitive::Value));
        check("password2", Some(Sensitive::Value));
        check("PassWord", Some(Sensitive::Value));
        check("authorization_code", Some(Sensitive::Value));
    }

    #[test]
    fn weak_words_count_at_the_end() {
        for word in WEAK.into_iter().filter(|word| *word != "cookie") {
            check(&format!("my-{word}"), Some(Sensitive::Value));
            check(&format!("{word}_count"), None);
        }
        for word in BEFORE_KEY {
            check(&format!("{word}_key"), Some(Sensitive::Value));
            check(&format!("{word}Key"), Some(Sensitive::Value));
        }
        check("Set-Cookie", Some(Sensitive::Cookie));
        check("Proxy-Authorization", Some(Sensitive::Authorization));
        for key in
            ["key", "primaryKey", "foreign_key", "tokens", "secretary", "pinned", "author", "access_keys"]
        {
            check(key, None);
        }
    }

    #[test]
    fn chinese_words_count_at_the_end() {
        for word in CHINESE {
            check(&format!("用户{word}"), Some(Sensitive::Value));
            check(&format!("{word}错误"), None);
        }
    }

    #[test]
    fn type_names_places_and_schemes_are_no_keys() {
        let cases = [
            ("InvalidPasswordError", ": bad"),
            ("secret.TokenException", ": bad"),
            ("secret.rs", ":42"),
            ("src.secret.rs", ":42:7"),
            ("secret", "://host"),
        ];
        for (key, after) in cases {
            assert_eq!(sensitive(key, after), None, "{key}{after}");
        }
        for (key, after) in [("db.password", ":1234"), ("secret.rs", ":42abc"), ("secret.rs", ": 42")] {
            assert_eq!(sensitive(key, after), Some(Sensitive::Value), "{key}{after}");
        }
    }

    #[test]
    fn one_blank_may_stand_before_key() {
        let cases = [
            ("api key: x", "api key"),
            ("My-Private KEY: x", "My-Private KEY"),
            ("api  key: x", "api"),
            ("api keys: x", "api"),
            ("primary key: x", "primary"),
        ];
        for (text, expected) in cases {
            let end = key_end(text, 0, run_end(text, 0));
            assert_eq!(&text[..end], expected);
        }
    }
}

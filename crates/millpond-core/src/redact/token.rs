//! Secrets that are known by their own form, without a key before them.

use super::rewrite::Rewrite;

/// The shortest credentials after `Bearer` or `Basic`: shorter words are prose.
const CREDENTIALS_CHARS_MIN: usize = 8;

/// The number of characters after `AKIA` or `ASIA`.
const AWS_ID_BYTES: usize = 16;

/// Tokens that begin so are masked with all token characters that follow. The last one is our own.
const PREFIXES: [&str; 10] =
    ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk_live_", "AIza", "mp_"];

/// Masks credentials after a scheme, JWTs, and tokens with a known prefix.
pub(super) fn mask(text: &str) -> String {
    let mut rewrite = Rewrite::new(text);
    let mut at = 0;
    // A part that was not the first of a JWT is not looked at again: this keeps the time linear.
    let mut jwt_from = 0;
    while let Some(next) = text[at..].chars().next() {
        if at >= jwt_from && text[at..].starts_with("eyJ") {
            if let Some(end) = jwt_end(text, at) {
                rewrite.mask(at, end);
                at = end;
                continue;
            }
            jwt_from = part_end(text, at);
        }
        match secret_at(text, at) {
            Some((from, to)) => {
                rewrite.mask(from, to);
                at = to;
            }
            None => at += next.len_utf8(),
        }
    }
    rewrite.finish()
}

/// The secret, if a word that holds or announces one begins at `at`.
fn secret_at(text: &str, at: usize) -> Option<(usize, usize)> {
    let first = *text.as_bytes().get(at)?;
    if !first.is_ascii_alphabetic() || !starts_word(text, at) {
        return None;
    }
    credentials(text, at).or_else(|| aws_id(text, at)).or_else(|| prefixed(text, at))
}

/// Whether no word reaches over `at` from the left. Escapes (`%3D`, `\n`) are not part of a word.
fn starts_word(text: &str, at: usize) -> bool {
    let before = &text[..at];
    let bytes = before.as_bytes();
    let percent = at >= 3 && bytes[at - 3] == b'%' && bytes[at - 2..].iter().all(u8::is_ascii_hexdigit);
    let slash = at >= 2 && bytes[at - 2] == b'\\' && b"nrt".contains(&bytes[at - 1]);
    percent || slash || !before.ends_with(char::is_alphanumeric)
}

/// What follows `Bearer` or `Basic`, if it is long enough. Scheme names know no case.
fn credentials(text: &str, at: usize) -> Option<(usize, usize)> {
    let scheme = ["bearer", "basic"].into_iter().find(|scheme| starts_with_word(&text[at..], scheme))?;
    let from = after_blanks(text, at + scheme.len())?;
    let length = text[from..].find(ends_credentials).unwrap_or(text.len() - from);
    let long_enough = text[from..from + length].chars().nth(CREDENTIALS_CHARS_MIN - 1).is_some();
    long_enough.then_some((from, from + length))
}

fn starts_with_word(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Where the blanks at `at` end; `None` if there are none.
fn after_blanks(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let encoded = rest.strip_prefix("%20").or_else(|| rest.strip_prefix('+'));
    let after = encoded.unwrap_or_else(|| rest.trim_start_matches(|c: char| c.is_whitespace() && c != '\n'));
    (after.len() < rest.len()).then_some(text.len() - after.len())
}

fn ends_credentials(c: char) -> bool {
    c.is_whitespace() || ",;&)]}\"'`\\<>，；＆）］｝".contains(c)
}

/// Three dotted parts; further ones belong to an encrypted token. The last may be empty (unsigned).
fn jwt_end(text: &str, at: usize) -> Option<usize> {
    let second = text[part_end(text, at)..].strip_prefix('.')?;
    let second_end = part_end(text, text.len() - second.len());
    text[second_end..].strip_prefix('.')?;
    let mut end = second_end;
    while text[end..].starts_with('.') && (end == second_end || part_end(text, end + 1) > end + 1) {
        end = part_end(text, end + 1);
    }
    Some(end)
}

fn part_end(text: &str, from: usize) -> usize {
    from + text[from..].bytes().take_while(|byte| is_token(*byte)).count()
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn aws_id(text: &str, at: usize) -> Option<(usize, usize)> {
    let id = text[at..].strip_prefix("AKIA").or_else(|| text[at..].strip_prefix("ASIA"))?;
    let length = id.bytes().take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit()).count();
    (length >= AWS_ID_BYTES).then_some((at, text.len() - id.len() + length))
}

fn prefixed(text: &str, at: usize) -> Option<(usize, usize)> {
    let rest = &text[at..];
    let known = PREFIXES.iter().find(|prefix| rest.starts_with(**prefix)).map(|prefix| prefix.len());
    let from = at + known.or_else(|| slack_prefix(rest))?;
    let to = part_end(text, from);
    (from < to).then_some((at, to))
}

/// `xox?-`, with any letter or digit for the question mark.
fn slack_prefix(text: &str) -> Option<usize> {
    match text.as_bytes() {
        [b'x', b'o', b'x', kind, b'-', ..] if kind.is_ascii_alphanumeric() => Some(5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(mask(text), expected, "{text:?}");
    }

    #[test]
    fn credentials_of_eight_characters_go() {
        check("no to Bearer abcdefgh here", "no to Bearer *** here");
        check("no to bearer abcdefgh", "no to bearer ***");
        check("no to Basic dXNlcjpwYXNz.", "no to Basic ***");
        check("no to Bearer%20abcdefgh", "no to Bearer%20***");
        check("no to Bearer abcdefg", "no to Bearer abcdefg");
        check("Basic auth", "Basic auth");
        check("forbearer abcdefgh", "forbearer abcdefgh");
    }

    #[test]
    fn a_jwt_goes_with_all_its_parts() {
        check("x eyJhbGc.eyJzdWI.c2ln y", "x *** y");
        check("x eyJhbGc.eyJzdWI. y", "x *** y");
        check("x eyJhbGc.a.b.c.d y", "x *** y");
        check("x%3DeyJhbGc.a.b", "x%3D***");
        check("x eyJhbGc.eyJzdWI y", "x eyJhbGc.eyJzdWI y");
        check("x eyJhbGc y", "x eyJhbGc y");
    }

    #[test]
    fn known_prefixes_are_enough() {
        for prefix in PREFIXES.into_iter().chain(["xoxb-", "xoxp-"]) {
            check(&format!("see {prefix}0aZ_9-x, and"), "see ***, and");
            check(&format!("see {prefix} and"), &format!("see {prefix} and"));
        }
        check(r"line\nghp_abc", r"line\n***");
        check("temp_dir", "temp_dir");
    }

    #[test]
    fn aws_ids_have_sixteen_characters() {
        check("id AKIAIOSFODNN7EXAMPLE!", "id ***!");
        check("id ASIAIOSFODNN7EXAMPLE", "id ***");
        check("id AKIAIOSFODNN7EXAMPL", "id AKIAIOSFODNN7EXAMPL");
        check("FANTASIAIOSFODNN7EXAMPLE", "FANTASIAIOSFODNN7EXAMPLE");
    }
}

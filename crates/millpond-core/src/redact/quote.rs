//! Quotes, plain and escaped: what opens a string, and what closes it again.

use std::collections::BTreeSet;

/// A quotation mark with the backslashes before it. Texts are quoted in texts, so `\"` and `\\\"` open and
/// close strings as `"` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quote {
    mark: char,
    slashes: usize,
}

/// The quote at `at` and where it ends, if a mark or a run of backslashes before a mark is there.
pub(super) fn quote_at(text: &str, at: usize) -> Option<(Quote, usize)> {
    let slashes = slashes_at(text, at);
    let mark = text[at + slashes..].chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    Some((Quote { mark, slashes }, at + slashes + mark.len_utf8()))
}

/// The length of the run of backslashes at `at`.
pub(super) fn slashes_at(text: &str, at: usize) -> usize {
    text[at..].bytes().take_while(|byte| *byte == b'\\').count()
}

impl Quote {
    /// Where the quote that closes a string begins and ends; the string's content begins at `from`.
    ///
    /// A doubled mark is an escaped one, as in SQL and CSV.
    pub(super) fn closing(self, text: &str, from: usize) -> Option<(usize, usize)> {
        let mut at = from;
        loop {
            at += text[at..].find(['\\', self.mark])?;
            let slashes = slashes_at(text, at);
            at += slashes;
            if !text[at..].starts_with(self.mark) {
                continue;
            }
            at += self.mark.len_utf8();
            if self.is_closed_after(slashes) {
                match quote_at(text, at) {
                    Some((next, end)) if next == self => at = end,
                    _ => return Some((at - self.mark.len_utf8() - self.slashes, at)),
                }
            }
        }
    }

    /// Whether a mark after so many backslashes closes this string. Inside it, each escaped backslash is
    /// written with as many backslashes as take the place of two here.
    fn is_closed_after(self, slashes: usize) -> bool {
        slashes % (2 * (self.slashes + 1)) == self.slashes
    }
}

/// The strings that are open at some place of a line.
///
/// Only this tells a quote that ends a value (`"see ?token=abc"`) from one that is a part of it. It is
/// forgotten at the end of a line, so that a stray apostrophe does no harm further down.
#[derive(Debug, Default)]
pub(super) struct OpenQuotes {
    open: BTreeSet<Quote>,
}

impl OpenQuotes {
    /// Takes note of `quote`, found at `from..to`.
    pub(super) fn pass(&mut self, text: &str, quote: Quote, from: usize, to: usize) {
        if self.closes(text, quote, to) {
            self.open.remove(&quote);
        } else if !text[..from].ends_with(char::is_alphanumeric) {
            self.open.insert(quote);
        }
    }

    /// Whether `quote`, which ends at `to`, closes a string. A mark before a letter is an apostrophe.
    pub(super) fn closes(&self, text: &str, quote: Quote, to: usize) -> bool {
        self.open.contains(&quote) && !text[to..].starts_with(char::is_alphanumeric)
    }

    pub(super) fn end_line(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `text` begins with a quote; `content` is what it holds, or `None` if nothing closes it.
    fn check(text: &str, content: Option<&str>) {
        let (quote, from) = quote_at(text, 0).unwrap();
        let found = quote.closing(text, from).map(|(to, _)| &text[from..to]);
        assert_eq!(found, content, "{text}");
    }

    #[test]
    fn a_string_ends_at_its_own_quote() {
        check(r#""abc" d"#, Some("abc"));
        check(r#"'a"b' c"#, Some(r#"a"b"#));
        check("`a` b", Some("a"));
        check(r#""" b"#, Some(""));
        check(r#""a\"b" c"#, Some(r#"a\"b"#));
        check(r#""a\\" c""#, Some(r"a\\"));
        check(r#"\"abc\" d"#, Some("abc"));
        check(r#"\"a\\\"b\" c"#, Some(r#"a\\\"b"#));
        check(r#"\"a"b\" c"#, Some(r#"a"b"#));
        check(r#"\\\"abc\\\" d"#, Some("abc"));
        check("'it''s' b", Some("it''s"));
    }

    #[test]
    fn a_string_may_never_end() {
        check(r#""abc"#, None);
        check(r#""abc\""#, None);
        check(r#"\"abc""#, None);
    }
}

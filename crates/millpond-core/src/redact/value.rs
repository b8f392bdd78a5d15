//! Values: how far the secret after a key and a separator reaches.

use super::key::Sensitive;
use super::quote::{OpenQuotes, Quote, quote_at, slashes_at};

/// What ends a plain value, beside blanks, the end of the line, `%26`, and a quote that closes a string.
const ENDS: &str = ",;&)]}，；＆）］｝";

/// A separator between key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Separator {
    /// Where it ends.
    pub(super) end: usize,
    /// Whether a block of indented lines may follow it.
    pub(super) before_block: bool,
}

/// A separator, how it is written, and whether a block of indented lines may follow it. Longer ones first.
/// Comparisons are not in the specification; without them, `password == "x"` would lose its `=` and keep `x`.
const SEPARATORS: [(&str, bool); 12] = [
    ("===", false),
    ("==", false),
    (":=", false),
    ("=>", true),
    ("->", true),
    ("=", false),
    (":", true),
    ("：", true),
    ("%3D", false),
    ("%3d", false),
    ("%3A", false),
    ("%3a", false),
];

/// What no separator is without.
const SEPARATOR_CHARS: &str = "=:>：%";

/// What to mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Whatever lies between a closing quote, which is kept, and here belongs to the value as well.
    pub(super) closing_quote: Option<(usize, usize)>,
}

impl Extent {
    fn plain(from: usize, to: usize) -> Extent {
        Extent { from, to, closing_quote: None }
    }
}

/// The separator at `at`, if one is there.
pub(super) fn separator_at(text: &str, at: usize) -> Option<Separator> {
    let (written, before_block) =
        SEPARATORS.into_iter().find(|(written, _)| text[at..].starts_with(written))?;
    Some(Separator { end: at + written.len(), before_block })
}

/// The first position at or after `at` that is not a blank within the line.
pub(super) fn after_blanks(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start_matches(is_blank).len()
}

/// The value after `separator`: the first of the forms that fits. It may be empty.
pub(super) fn extent(text: &str, separator: Separator, sensitive: Sensitive, open: &OpenQuotes) -> Extent {
    let at = after_blanks(text, separator.end);
    if let Some((quote, content)) = quote_at(text, at) {
        return quoted(text, quote, content, open);
    }
    if text[at..].starts_with(['{', '[']) {
        return Extent::plain(at, plain_end(text, bracket_end(text, at), open));
    }
    if let Some((from, to)) = block(text, at).filter(|_| separator.before_block) {
        return Extent::plain(from, to);
    }
    let to = match sensitive {
        Sensitive::Cookie => at + text[at..line_end(text, at)].trim_end().len(),
        Sensitive::Authorization => credentials_end(text, at, open),
        Sensitive::Value => plain_end(text, at, open),
    };
    Extent::plain(at, to)
}

/// To the closing quote. Letters directly after it (`'it's'`) are taken for a part of the value, unless they
/// turn out to be the next key.
fn quoted(text: &str, quote: Quote, content: usize, open: &OpenQuotes) -> Extent {
    let Some((from, to)) = quote.closing(text, content) else {
        return Extent::plain(content, text.len());
    };
    let goes_on = text[to..].starts_with(char::is_alphanumeric);
    let end = value_end(text, to, open, |c| ENDS.contains(c) || SEPARATOR_CHARS.contains(c));
    let after = quote_at(text, end).map_or(end, |(_, end)| end);
    let is_key = text[end..].starts_with(|c| SEPARATOR_CHARS.contains(c))
        || separator_at(text, after_blanks(text, after)).is_some();
    Extent { from: content, to: if goes_on && !is_key { end } else { to }, closing_quote: Some((from, to)) }
}

/// After the bracket that matches the one at `at`, or the end of the text.
fn bracket_end(text: &str, mut at: usize) -> usize {
    let (opening, closing) = if text[at..].starts_with('{') { ('{', '}') } else { ('[', ']') };
    let mut depth = 0_usize;
    while let Some(c) = text[at..].chars().next() {
        if let Some((quote, content)) = string_at(text, at) {
            let Some((_, end)) = quote.closing(text, content) else { break };
            at = end;
            continue;
        }
        at += c.len_utf8().max(slashes_at(text, at));
        if c == opening {
            depth += 1;
        } else if c == closing {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    text.len()
}

/// The quote that opens a string at `at`. A mark after a letter is an apostrophe.
fn string_at(text: &str, at: usize) -> Option<(Quote, usize)> {
    quote_at(text, at).filter(|_| !text[..at].ends_with(char::is_alphanumeric))
}

/// The indented lines after a line that holds nothing more than perhaps the `|` or `>` of a YAML block.
fn block(text: &str, at: usize) -> Option<(usize, usize)> {
    let marks = text[at..].starts_with(['|', '>']);
    let rest = if marks {
        text[at + 1..].trim_start_matches(|c| matches!(c, '0'..='9' | '+' | '-'))
    } else {
        &text[at..]
    };
    let rest = rest.trim_start_matches(is_blank);
    let first = text.len() - after_line_break(rest)?.len();
    let mut to = first;
    let mut next = first;
    while next < text.len() {
        let end = line_end(text, next);
        if text[next..].starts_with(is_blank) {
            to = end;
        } else if next < end {
            break;
        }
        next = after_line_break(&text[end..]).map_or(text.len(), |rest| text.len() - rest.len());
    }
    let starts_indented = text[first..].starts_with(is_blank);
    let from = first + text[first..to].len() - text[first..to].trim_start().len();
    (starts_indented && from < to).then_some((from, first + text[first..to].trim_end().len()))
}

fn after_line_break(text: &str) -> Option<&str> {
    text.strip_prefix("\r\n").or_else(|| text.strip_prefix(['\n', '\r']))
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find(is_line_break).map_or(text.len(), |length| at + length)
}

/// A scheme and its `name=value` pairs, or a scheme and one token. A mask is the end: it was both before.
fn credentials_end(text: &str, at: usize, open: &OpenQuotes) -> usize {
    let scheme = plain_end(text, at, open);
    let next = after_blanks(text, scheme);
    if next == scheme || &text[at..scheme] == super::MASK {
        return scheme;
    }
    if let Some(first) = parameter_end(text, next, open) {
        return parameters_end(text, first, open);
    }
    let token = token_end(text, next, open);
    if token > next { token } else { scheme }
}

/// The end of the list of pairs whose first one ends at `end`.
fn parameters_end(text: &str, mut end: usize, open: &OpenQuotes) -> usize {
    loop {
        let comma = after_blanks(text, end);
        let next = text[comma..].strip_prefix(',').map(|rest| after_blanks(text, text.len() - rest.len()));
        match next.and_then(|next| parameter_end(text, next, open)) {
            Some(next_end) => end = next_end,
            None => return end,
        }
    }
}

/// The end of the `name=value` at `at`. A `=` with nothing after it is the padding of a token.
fn parameter_end(text: &str, at: usize, open: &OpenQuotes) -> Option<usize> {
    let name =
        text[at..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'-').count();
    let value = at + name + 1;
    if name == 0 || !text[at + name..].starts_with('=') || text[value..].starts_with('=') {
        return None;
    }
    let end = match quote_at(text, value) {
        Some((quote, to)) if open.closes(text, quote, to) => value,
        Some((quote, content)) => quote.closing(text, content).map_or(text.len(), |(_, end)| end),
        None => value_end(text, value, open, |c| c == ','),
    };
    (end > value).then_some(end)
}

fn token_end(text: &str, at: usize, open: &OpenQuotes) -> usize {
    match quote_at(text, at) {
        Some((quote, content)) if !open.closes(text, quote, content) => {
            quote.closing(text, content).map_or(text.len(), |(_, end)| end)
        }
        _ => plain_end(text, at, open),
    }
}

fn plain_end(text: &str, at: usize, open: &OpenQuotes) -> usize {
    value_end(text, at, open, |c| ENDS.contains(c))
}

/// The end of an unquoted value: at a blank, at `%26`, at what `ends` it, or at a quote that closes a string.
fn value_end(text: &str, mut at: usize, open: &OpenQuotes, ends: fn(char) -> bool) -> usize {
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() || ends(c) || text[at..].starts_with("%26") {
            break;
        }
        match quote_at(text, at) {
            Some((quote, to)) if open.closes(text, quote, to) => break,
            Some((_, to)) => at = to,
            None => at += c.len_utf8().max(slashes_at(text, at)),
        }
    }
    at
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() && !is_line_break(c)
}

fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

//! Pairs of a key, a separator and a value: `password=hunter2`, in any of the forms that texts use.

use super::key::{self, Sensitive};
use super::quote::{OpenQuotes, quote_at, slashes_at};
use super::rewrite::Rewrite;
use super::value::{self, Extent, Separator};
use super::{CUT_MARK, MASK};

/// Masks the value of each pair whose key is sensitive. Key, separator and quotes stay.
pub(super) fn mask(text: &str) -> String {
    let mut scan = Scan { text, rewrite: Rewrite::new(text), open: OpenQuotes::default() };
    let mut at = 0;
    while at < text.len() {
        at = scan.step(at);
    }
    scan.rewrite.finish()
}

struct Scan<'a> {
    text: &'a str,
    rewrite: Rewrite<'a>,
    open: OpenQuotes,
}

impl Scan<'_> {
    /// Deals with what is at `at`, and returns where to go on.
    fn step(&mut self, at: usize) -> usize {
        let Some(c) = self.text[at..].chars().next() else { return self.text.len() };
        match c {
            '\n' | '\r' => self.open.end_line(),
            '%' => return at + percent_escape(&self.text[at..]).unwrap_or(1),
            '\\' | '"' | '\'' | '`' => return self.quote(at),
            c if key::is_key_char(c) => return self.run(at),
            _ => {}
        }
        at + c.len_utf8()
    }

    fn quote(&mut self, at: usize) -> usize {
        let Some((quote, end)) = quote_at(self.text, at) else { return at + slashes_at(self.text, at) };
        self.open.pass(self.text, quote, at, end);
        end
    }

    /// A run of key characters begins at `from`.
    fn run(&mut self, from: usize) -> usize {
        let run_end = key::run_end(self.text, from);
        // The run may be nothing but the dash of an arrow.
        let run_end = run_end.max(from + 1);
        let key_end = key::key_end(self.text, from, run_end);
        let Some(separator) = self.separator(key_end) else { return run_end };
        match self.sensitive(from, key_end) {
            Some(sensitive) => self.value(key_end, separator, sensitive),
            None => run_end,
        }
    }

    /// The separator after a key that ends at `key_end`. A closing quote and blanks may stand before it.
    fn separator(&self, key_end: usize) -> Option<Separator> {
        let unquoted = quote_at(self.text, key_end).map_or(key_end, |(_, end)| end);
        value::separator_at(self.text, value::after_blanks(self.text, unquoted))
    }

    fn sensitive(&self, from: usize, end: usize) -> Option<Sensitive> {
        let after = &self.text[end..];
        let escaped = from + escape_rest(self.text, from).min(end - from);
        key::sensitive(&self.text[from..end], after).or_else(|| {
            let key = &self.text[escaped..end];
            if escaped > from { key::sensitive(key, after) } else { None }
        })
    }

    fn value(&mut self, key_end: usize, separator: Separator, sensitive: Sensitive) -> usize {
        if let Some((quote, end)) = quote_at(self.text, key_end) {
            self.open.pass(self.text, quote, key_end, end);
        }
        let extent = value::extent(self.text, separator, sensitive, &self.open);
        if self.text[separator.end..extent.from].contains(['\n', '\r']) {
            self.open.end_line();
        }
        if !self.is_masked(extent) {
            self.replace(extent);
        }
        extent.to
    }

    /// Whether there is nothing left to mask: no value, or what an earlier pass and its cut left of one.
    fn is_masked(&self, extent: Extent) -> bool {
        let value = &self.text[extent.from..extent.to];
        let cut = || value.ends_with(CUT_MARK.trim_start()) && extent.to == self.text.len();
        let closed_empty = extent.closing_quote == Some((extent.from, extent.to));
        let left = |value: &str| value.is_empty() || value == MASK;
        left(value) || closed_empty || (cut() && left(value.trim_end_matches('…').trim_end()))
    }

    fn replace(&mut self, extent: Extent) {
        let Some((from, to)) = extent.closing_quote else {
            return self.rewrite.mask(extent.from, extent.to);
        };
        self.rewrite.mask(extent.from, from);
        self.rewrite.remove(to, extent.to);
    }
}

/// The length of the `%XX` that `text` begins with.
fn percent_escape(text: &str) -> Option<usize> {
    let digits = text.as_bytes().get(1..3)?;
    digits.iter().all(u8::is_ascii_hexdigit).then_some(3)
}

/// How many characters at `from` belong to an escape such as `\n` or `\u000a` that begins before: they may be
/// glued to a key.
fn escape_rest(text: &str, from: usize) -> usize {
    if !text[..from].ends_with('\\') {
        return 0;
    }
    match text.as_bytes()[from] {
        b'n' | b'r' | b't' | b'b' | b'f' | b'v' => 1,
        b'u' if text[from + 1..].bytes().take(4).filter(u8::is_ascii_hexdigit).count() == 4 => 5,
        _ => 0,
    }
}

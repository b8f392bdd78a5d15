//! A text with some of its parts replaced, built from left to right.

use super::MASK;

/// Copies `text`, except for the parts that were replaced.
pub(super) struct Rewrite<'a> {
    text: &'a str,
    result: String,
    copied: usize,
}

impl<'a> Rewrite<'a> {
    pub(super) fn new(text: &'a str) -> Rewrite<'a> {
        Rewrite { text, result: String::with_capacity(text.len()), copied: 0 }
    }

    /// Puts the mask in the place of `from..to`. Parts come in order and do not overlap.
    pub(super) fn mask(&mut self, from: usize, to: usize) {
        self.replace(from, to, MASK);
    }

    /// Leaves `from..to` out.
    pub(super) fn remove(&mut self, from: usize, to: usize) {
        self.replace(from, to, "");
    }

    pub(super) fn finish(mut self) -> String {
        self.result.push_str(&self.text[self.copied..]);
        self.result
    }

    fn replace(&mut self, from: usize, to: usize, with: &str) {
        self.result.push_str(&self.text[self.copied..from]);
        self.result.push_str(with);
        self.copied = to;
    }
}

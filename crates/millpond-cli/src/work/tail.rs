//! The end of a program's stderr, which becomes the error of its message.

/// Characters that are kept: what the store keeps of an error.
const CHARS_MAX: usize = 2_000;

/// Bytes that are held: enough for that many characters of any kind.
const BYTES_MAX: usize = 4 * CHARS_MAX;

/// The last bytes of an output.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    /// Adds bytes, and forgets the oldest.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Forgets rarely, so that many small writes stay cheap.
        if 2 * BYTES_MAX < self.bytes.len() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let excess = self.bytes.len().saturating_sub(BYTES_MAX);
        self.bytes.drain(..excess);
        self.cut |= 0 < excess;
    }

    /// The last characters. A line that was cut loses its rest, which could be the secret whose name is gone; so
    /// does a key whose beginning is gone.
    pub(super) fn text(mut self) -> String {
        self.forget();
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim_end();
        let count = text.chars().count();
        let skipped: String = text.chars().skip(count.saturating_sub(CHARS_MAX)).collect();
        if !self.cut && count <= CHARS_MAX {
            return skipped;
        }
        let whole = skipped.split_once('\n').map_or(skipped.as_str(), |(_, whole)| whole);
        let (begin, end) = (whole.find("-----BEGIN "), whole.find("-----END "));
        let whole = match end {
            Some(end) if begin.is_none_or(|begin| end < begin) => {
                whole[end..].split_once('\n').map_or("", |(_, after)| after)
            }
            _ => whole,
        };
        whole.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], expected: &str) {
        let mut tail = Tail::default();
        pieces.iter().for_each(|piece| tail.push(piece.as_bytes()));
        assert_eq!(tail.text(), expected);
    }

    #[test]
    fn a_short_output_is_kept() {
        check(&["no ", "route\n", "\n"], "no route");
        check(&[], "");
    }

    #[test]
    fn of_a_long_one_the_last_whole_lines_are_kept() {
        let lines: Vec<String> = (0..10_000).map(|number| format!("line {number}\n")).collect();
        let mut tail = Tail::default();
        lines.iter().for_each(|line| tail.push(line.as_bytes()));
        let text = tail.text();
        assert!(text.starts_with("line 9") && text.ends_with("line 9999"), "{text}");
        assert!(text.chars().count() <= 2_000);
    }

    #[test]
    fn a_line_without_end_keeps_its_last_characters() {
        check(&["é".repeat(5_000).as_str()], &"é".repeat(2_000));
    }

    #[test]
    fn a_key_whose_beginning_is_gone_is_gone() {
        let key = format!("{}\n-----END PRIVATE KEY-----\nno route", "QUJD\n".repeat(1_000));
        check(&[&key], "no route");
    }
}

//! Reading a file of many bodies: one line is one body, in batches, in constant memory.

use std::io::{self, BufRead, Read as _};

use serde::de::IgnoredAny;

/// Lines of a batch at most.
pub(super) const BATCH_LINES_MAX: usize = 1_000;

/// Bytes of a batch at most, but always one line.
pub(super) const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A line that is a body, with its number from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) body: Vec<u8>,
}

/// Why a file cannot be read on.
#[derive(Debug)]
pub(super) enum Stop {
    /// A line that can never be sent.
    Bad { number: u64, code: &'static str, why: String },
    /// The input itself.
    Unreadable(io::Error),
}

/// Reads batches of lines.
pub(super) struct Lines<R> {
    reader: R,
    /// A body of this many bytes is too large.
    limit: u64,
    from: u64,
    number: u64,
    bytes_read: u64,
    /// A line that did not fit into the last batch.
    held: Option<Line>,
}

impl<R: BufRead> Lines<R> {
    /// Lines from number `from` on.
    pub(super) fn new(reader: R, limit: u64, from: u64) -> Self {
        Self { reader, limit, from, number: 0, bytes_read: 0, held: None }
    }

    /// The number of the last line that was read.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes of the input that were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next batch; an empty one is the end. Lines without a character but white space are passed over.
    pub(super) fn batch(&mut self) -> Result<Vec<Line>, Stop> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_LINES_MAX {
            let Some(line) = self.held.take().map_or_else(|| self.line(), |line| Ok(Some(line)))? else {
                break;
            };
            if !batch.is_empty() && BATCH_BYTES_MAX < bytes + line.body.len() {
                self.held = Some(line);
                break;
            }
            bytes += line.body.len();
            batch.push(line);
        }
        Ok(batch)
    }

    fn line(&mut self) -> Result<Option<Line>, Stop> {
        loop {
            let mut body = Vec::new();
            // One byte for the newline, and one to tell a line that is too long from one that just fits.
            let most = self.limit.saturating_add(2);
            let read =
                (&mut self.reader).take(most).read_until(b'\n', &mut body).map_err(Stop::Unreadable)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.bytes_read += read as u64;
            let ended = body.last() == Some(&b'\n');
            if ended {
                body.pop();
            } else if read as u64 == most {
                self.skip_rest()?;
            }
            if self.from <= self.number && !body.trim_ascii().is_empty() {
                self.check(&body)?;
                return Ok(Some(Line { number: self.number, body }));
            }
        }
    }

    fn skip_rest(&mut self) -> Result<(), Stop> {
        loop {
            let buffer = self.reader.fill_buf().map_err(Stop::Unreadable)?;
            let (length, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(place) => (place + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.reader.consume(length);
            self.bytes_read += length as u64;
            if ended {
                return Ok(());
            }
        }
    }

    fn check(&self, body: &[u8]) -> Result<(), Stop> {
        let bad = |code, why| Err(Stop::Bad { number: self.number, code, why });
        if self.limit <= body.len() as u64 {
            let why = format!("it has {} bytes, the limit of the queue", self.limit);
            let why = if body.len() as u64 == self.limit {
                why
            } else {
                format!("it has more than {} bytes, the limit of the queue", self.limit)
            };
            return bad("body-too-large", why);
        }
        match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Ok(()),
            Err(error) => bad("invalid-json", format!("it is not JSON: {}", without_line(&error))),
        }
    }
}

/// The line that serde_json names is that of the body, not of the file.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("{what} at column {}", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, limit: u64, from: u64) -> (Vec<Vec<u64>>, Option<Stop>) {
        // A small buffer, so that long lines span it.
        let mut lines = Lines::new(io::BufReader::with_capacity(3, text.as_bytes()), limit, from);
        let mut batches = Vec::new();
        loop {
            match lines.batch() {
                Ok(batch) if batch.is_empty() => return (batches, None),
                Ok(batch) => batches.push(batch.iter().map(|line| line.number).collect()),
                Err(stop) => return (batches, Some(stop)),
            }
        }
    }

    #[track_caller]
    fn bad(text: &str, expected_number: u64, expected_why: &str) {
        match read(text, 10, 1).1 {
            Some(Stop::Bad { number, why, .. }) => {
                assert_eq!((number, why.as_str()), (expected_number, expected_why))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_line_is_a_body_as_it_stands() {
        let mut lines = Lines::new(&b" {\"a\": 1}\r\n\n[2]"[..], 100, 1);
        let bodies: Vec<_> =
            lines.batch().unwrap().into_iter().map(|line| (line.number, line.body)).collect();
        assert_eq!(bodies, [(1, b" {\"a\": 1}\r".to_vec()), (3, b"[2]".to_vec())]);
        assert_eq!((lines.number(), lines.bytes_read()), (3, 15));
    }

    #[test]
    fn batches_end_at_a_thousand_lines_or_four_mebibytes() {
        let (batches, _) = read(&"1\n".repeat(2_001), 10, 1);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 1_000, 1]);
        let long = format!("\"{}\"\n", "x".repeat(1_500_000));
        let (batches, _) = read(&long.repeat(4), 2_000_000, 1);
        assert_eq!(batches, [vec![1, 2], vec![3, 4]]);
    }

    #[test]
    fn it_goes_on_from_a_line() {
        assert_eq!(read("1\nbad\n3\n4\n", 10, 3).0, [vec![3, 4]]);
        assert!(read("1\n", 10, 7).0.is_empty());
    }

    #[test]
    fn a_bad_line_says_where_and_why() {
        bad("1\n\n{\"a\":\n", 3, "it is not JSON: EOF while parsing a value at column 5");
        bad("1\n\"12345678\"\n", 2, "it has 10 bytes, the limit of the queue");
        bad("1\n\"1234567890123456\"\n2\n", 2, "it has more than 10 bytes, the limit of the queue");
    }
}

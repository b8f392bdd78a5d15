//! Durations, sizes and names as people write them in settings and on the command line.

use std::time::Duration;

use thiserror::Error;

/// The longest duration that is accepted: ten years of 365 days.
pub const DURATION_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The greatest edit distance at which a known word is suggested.
const DISTANCE_MAX: usize = 2;

/// Longer words are not compared; no name that can be misspelt is longer.
const WORD_CHARS_MAX: usize = 100;

/// The units of durations in milliseconds, longest first.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The units of sizes in bytes, in the order in which they are preferred for printing.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

const DURATION_ALLOWED: &str = "ms, s, m, h and d";
const SIZE_ALLOWED: &str = "B, kB, MB, GB, TB, KiB, MiB, GiB and TiB";

/// Why a text is not a duration or a size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextError {
    /// There is no text.
    #[error("a {what} is missing, such as `{example}`")]
    Empty {
        /// What was expected: a duration or a size.
        what: &'static str,
        /// A text that would do.
        example: &'static str,
    },
    /// A number without a unit.
    #[error("`{text}` needs a unit, such as `{text}{unit}`: allowed are {allowed}")]
    UnitMissing {
        /// The whole text.
        text: String,
        /// The unit that is meant most often.
        unit: &'static str,
        /// All units.
        allowed: &'static str,
    },
    /// A unit that does not exist.
    #[error("`{text}` has the unknown unit `{unit}`: allowed are {allowed}")]
    UnitUnknown {
        /// The whole text.
        text: String,
        /// The unit in it.
        unit: String,
        /// All units.
        allowed: &'static str,
    },
    /// The text is not made of whole numbers and units, longest unit first.
    #[error("`{text}` is not a {what}: write whole numbers with a unit, such as `{example}`")]
    Malformed {
        /// The whole text.
        text: String,
        /// What was expected: a duration or a size.
        what: &'static str,
        /// A text that would do.
        example: &'static str,
    },
    /// More than can be used.
    #[error("`{text}` is too much: at most {max} is allowed")]
    TooLarge {
        /// The whole text.
        text: String,
        /// The greatest value.
        max: &'static str,
    },
}

/// What is being read.
struct Quantity {
    what: &'static str,
    example: &'static str,
    units: &'static [(&'static str, u64)],
    /// The unit that is meant most often.
    unit: &'static str,
    allowed: &'static str,
    max: &'static str,
}

const DURATION: Quantity = Quantity {
    what: "duration",
    example: "1h30m",
    units: &DURATION_UNITS,
    unit: "s",
    allowed: DURATION_ALLOWED,
    max: "3650d",
};

const SIZE: Quantity = Quantity {
    what: "size",
    example: "8MiB",
    units: &SIZE_UNITS,
    unit: "B",
    allowed: SIZE_ALLOWED,
    max: "16777215TiB",
};

/// Reads a duration: whole numbers with a unit (`ms`, `s`, `m`, `h`, `d`), longest unit first.
///
/// ```
/// use millpond_core::text::parse_duration;
/// use std::time::Duration;
/// assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
/// assert_eq!(
///     parse_duration("30").unwrap_err().to_string(),
///     "`30` needs a unit, such as `30s`: allowed are ms, s, m, h and d",
/// );
/// ```
///
/// # Errors
/// If the text is something else, or more than [`DURATION_MAX`].
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    let mut ms = 0_u64;
    let mut rest = text;
    let mut shorter_than = u64::MAX;
    loop {
        let (part, unit, after) = DURATION.part(text, rest)?;
        if unit >= shorter_than {
            return Err(DURATION.malformed(text));
        }
        ms = ms.checked_add(part).ok_or_else(|| DURATION.too_large(text))?;
        (rest, shorter_than) = (after, unit);
        if rest.is_empty() {
            break;
        }
    }
    let duration = Duration::from_millis(ms);
    if duration > DURATION_MAX { Err(DURATION.too_large(text)) } else { Ok(duration) }
}

/// Writes a duration in the form that [`parse_duration`] reads: `1h30m`, `300ms`, `0s`. What is less than a
/// millisecond is left out.
pub fn format_duration(duration: Duration) -> String {
    let mut ms = duration.as_millis();
    let mut text = String::new();
    for (unit, unit_ms) in DURATION_UNITS {
        let count = ms / u128::from(unit_ms);
        ms %= u128::from(unit_ms);
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a size in bytes: a whole number with a unit (`B`, `kB` … `TB` by thousands, `KiB` … `TiB` by 1 024).
///
/// # Errors
/// If the text is something else, or does not fit.
pub fn parse_size(text: &str) -> Result<u64, TextError> {
    let (bytes, _, rest) = SIZE.part(text, text)?;
    if rest.is_empty() { Ok(bytes) } else { Err(SIZE.malformed(text)) }
}

/// Writes a size in the form that [`parse_size`] reads, in the first unit in which it is a whole number:
/// `8MiB`, `64kB`, `1001B`.
pub fn format_size(bytes: u64) -> String {
    let fits = |(_, unit): &(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
    let (unit, unit_bytes) = SIZE_UNITS.into_iter().find(fits).unwrap_or(("B", 1));
    format!("{}{unit}", bytes / unit_bytes)
}

/// The word of `known` that `word` most likely means, for "did you mean"; `None` if all are too different.
///
/// ```
/// use millpond_core::text::nearest;
/// assert_eq!(nearest("max_attemps", &["lease", "max_attempts"]), Some("max_attempts"));
/// ```
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|candidate| (distance(word, candidate), *candidate));
    let near = distances.filter_map(|(distance, candidate)| Some((distance?, candidate)));
    // Of a short word, two changes leave nothing.
    let near =
        near.filter(|(distance, candidate)| *distance <= DISTANCE_MAX.min(candidate.chars().count() / 2));
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

impl Quantity {
    /// The value of the number and unit that `rest` begins with, the unit's size, and what follows.
    fn part<'a>(&self, text: &str, rest: &'a str) -> Result<(u64, u64, &'a str), TextError> {
        if text.is_empty() {
            return Err(TextError::Empty { what: self.what, example: self.example });
        }
        let (digits, rest) = split_before(rest, |c| !c.is_ascii_digit());
        let (unit, rest) = split_before(rest, |c| !c.is_alphabetic());
        if digits.is_empty() || (unit.is_empty() && digits != text) {
            return Err(self.malformed(text));
        }
        let unit_size = self.unit_size(text, unit)?;
        let number: u64 = digits.parse().map_err(|_| self.too_large(text))?;
        let value = number.checked_mul(unit_size).ok_or_else(|| self.too_large(text))?;
        Ok((value, unit_size, rest))
    }

    fn unit_size(&self, text: &str, unit: &str) -> Result<u64, TextError> {
        if unit.is_empty() {
            return Err(TextError::UnitMissing {
                text: text.to_owned(),
                unit: self.unit,
                allowed: self.allowed,
            });
        }
        let known = self.units.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size);
        known.ok_or_else(|| TextError::UnitUnknown {
            text: text.to_owned(),
            unit: unit.to_owned(),
            allowed: self.allowed,
        })
    }

    fn malformed(&self, text: &str) -> TextError {
        TextError::Malformed { text: text.to_owned(), what: self.what, example: self.example }
    }

    fn too_large(&self, text: &str) -> TextError {
        TextError::TooLarge { text: text.to_owned(), max: self.max }
    }
}

fn split_before(text: &str, ends: fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// How many characters must be inserted, deleted, replaced or swapped with their neighbour to turn one word
/// into the other; `None` if a word is too long to be compared.
fn distance(one: &str, other: &str) -> Option<usize> {
    let one: Vec<char> = one.chars().take(WORD_CHARS_MAX + 1).collect();
    let other: Vec<char> = other.chars().take(WORD_CHARS_MAX + 1).collect();
    if one.len().max(other.len()) > WORD_CHARS_MAX {
        return None;
    }
    let mut before_last = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for at in 1..=one.len() {
        let row = distance_row(&one[..at], &other, &last, &before_last);
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied()
}

/// The distances of `one` to each beginning of `other`, from those of `one` without its last and without its
/// last two characters.
fn distance_row(one: &[char], other: &[char], last: &[usize], before_last: &[usize]) -> Vec<usize> {
    let mut row = vec![one.len()];
    for to in 1..=other.len() {
        let replaced = last[to - 1] + usize::from(one.last() != other.get(to - 1));
        let mut least = replaced.min(last[to] + 1).min(row[to - 1] + 1);
        if let ([.., a, b], [.., c, d]) = (one, &other[..to])
            && (a, b) == (d, c)
        {
            least = least.min(before_last[to - 2] + 1);
        }
        row.push(least);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_duration(text: &str, ms: u64) {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
    }

    fn check_refusal<T: std::fmt::Debug>(result: Result<T, TextError>, refusal: &str) {
        assert_eq!(result.unwrap_err().to_string(), refusal);
    }

    #[test]
    fn durations_are_read() {
        check_duration("300ms", 300);
        check_duration("5s", 5_000);
        check_duration("2m", 120_000);
        check_duration("3h", 10_800_000);
        check_duration("1d", 86_400_000);
        check_duration("1h30m", 5_400_000);
        check_duration("1d2h3m4s5ms", 93_784_005);
        check_duration("0s", 0);
        check_duration("90m", 5_400_000);
        check_duration("3650d", 315_360_000_000);
    }

    #[test]
    fn other_durations_are_refused_with_a_reason() {
        let unit = "allowed are ms, s, m, h and d";
        check_refusal(parse_duration(""), "a duration is missing, such as `1h30m`");
        check_refusal(parse_duration("30"), &format!("`30` needs a unit, such as `30s`: {unit}"));
        check_refusal(parse_duration("5sec"), &format!("`5sec` has the unknown unit `sec`: {unit}"));
        check_refusal(parse_duration("5S"), &format!("`5S` has the unknown unit `S`: {unit}"));
        check_refusal(parse_duration("3651d"), "`3651d` is too much: at most 3650d is allowed");
        check_refusal(parse_duration("3650d1ms"), "`3650d1ms` is too much: at most 3650d is allowed");
        for text in ["99999999999999999999s", "18446744073709551615d", "18446744073709551s999999999ms"] {
            check_refusal(parse_duration(text), &format!("`{text}` is too much: at most 3650d is allowed"));
        }
        for text in ["1.5h", "-1s", " 1s", "1 s", "s", "1h30", "30m1h", "1s1s", "1s "] {
            let refusal =
                format!("`{text}` is not a duration: write whole numbers with a unit, such as `1h30m`");
            check_refusal(parse_duration(text), &refusal);
        }
    }

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["0s", "1ms", "300ms", "1s500ms", "1m", "1h30m", "1d1ms", "3650d"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(format_duration(Duration::from_micros(1_999)), "1ms");
        assert!(format_duration(Duration::MAX).ends_with("s999ms"));
    }

    #[test]
    fn sizes_are_read_and_written() {
        let cases = [
            ("0B", 0),
            ("100B", 100),
            ("64kB", 64_000),
            ("3MB", 3_000_000),
            ("512KiB", 512 << 10),
            ("8MiB", 8 << 20),
            ("2GiB", 2 << 30),
            ("1TiB", 1 << 40),
            ("1001B", 1_001),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(format_size(bytes), text);
        }
        assert_eq!(parse_size(&format_size(u64::MAX)), Ok(u64::MAX));
    }

    #[test]
    fn other_sizes_are_refused_with_a_reason() {
        let unit = "allowed are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB";
        check_refusal(parse_size(""), "a size is missing, such as `8MiB`");
        check_refusal(parse_size("30"), &format!("`30` needs a unit, such as `30B`: {unit}"));
        check_refusal(parse_size("8mb"), &format!("`8mb` has the unknown unit `mb`: {unit}"));
        check_refusal(parse_size("16777216TiB"), "`16777216TiB` is too much: at most 16777215TiB is allowed");
        for text in ["1.5MiB", "1MiB2B", "MiB", "-1B"] {
            let refusal = format!("`{text}` is not a size: write whole numbers with a unit, such as `8MiB`");
            check_refusal(parse_size(text), &refusal);
        }
    }

    fn check_nearest(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, &["attempts_max", "lease", "delay", "max", "größe"]), expected, "{word}");
    }

    #[test]
    fn the_nearest_word_is_suggested() {
        check_nearest("lease", Some("lease"));
        check_nearest("leese", Some("lease"));
        check_nearest("laese", Some("lease"));
        check_nearest("lea", Some("lease"));
        check_nearest("attemps_max", Some("attempts_max"));
        check_nearest("dealy", Some("delay"));
        check_nearest("grösse", Some("größe"));
        check_nearest("mex", Some("max"));
        check_nearest("min", None);
        check_nearest("concurrency", None);
        check_nearest("", None);
        check_nearest(&"x".repeat(10_000), None);
    }
}

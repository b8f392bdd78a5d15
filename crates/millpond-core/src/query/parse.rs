//! From a text to a query, or to what is wrong with it and where.

use std::fmt;

use crate::query::{Field, Query, Shape, Subject, Term, Test};
use crate::text::{nearest, parse_duration};
use crate::time::{Timestamp, micros};

/// Terms of one query.
const TERMS_MAX: usize = 50;

/// Characters of one query.
const CHARS_MAX: usize = 4_000;

/// What a query needs to know of time.
pub trait Calendar {
    /// The present, for `-2h` and `+10m`.
    fn now(&self) -> Timestamp;

    /// The instants that a text names, first and last: those of a day for `today` or a date, the same twice for an
    /// instant in RFC 3339.
    fn read(&self, text: &str) -> Option<(Timestamp, Timestamp)>;
}

/// Why a text is no query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Where it is wrong: characters from the beginning.
    pub at: usize,
    /// What is wrong, with what is known or meant.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.why)
    }
}

impl std::error::Error for Refused {}

/// Reads a query about one kind of list.
///
/// # Errors
///
/// [`Refused`] with the place and the nearest known name: nothing is searched until the whole query is understood.
pub fn parse(text: &str, subject: Subject, calendar: &dyn Calendar) -> Result<Query, Refused> {
    let chars: Vec<char> = text.chars().collect();
    if CHARS_MAX < chars.len() {
        let why = format!("the filter has {} characters; at most {CHARS_MAX} are read", chars.len());
        return Err(Refused { at: CHARS_MAX, why });
    }
    let mut reader = Reader { chars, at: 0, subject, calendar };
    let mut terms = Vec::new();
    while reader.skip_blanks() {
        terms.push(reader.term()?);
        if TERMS_MAX < terms.len() {
            return Err(reader.wrong(format!("more than {TERMS_MAX} conditions")));
        }
    }
    Ok(Query::new(terms))
}

/// A word as it was written.
struct Word {
    text: String,
    at: usize,
    quoted: bool,
}

struct Reader<'a> {
    chars: Vec<char>,
    at: usize,
    subject: Subject,
    calendar: &'a dyn Calendar,
}

impl Reader<'_> {
    fn wrong(&self, why: impl Into<String>) -> Refused {
        Refused { at: self.at, why: why.into() }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    /// Whether there is more.
    fn skip_blanks(&mut self) -> bool {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        self.peek().is_some()
    }

    fn takes(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn term(&mut self) -> Result<Term, Refused> {
        let negated = self.takes('-');
        let start = self.at;
        let field = self.field()?;
        let mut any = Vec::new();
        loop {
            let word = self.word(field != Field::Anything)?;
            if word.text.is_empty() && !word.quoted {
                let name: String = self.chars[start..self.at].iter().collect();
                return Err(self.wrong(format!("a value is missing after `{name}`")));
            }
            any.push(self.test(&field, &word)?);
            if field == Field::Anything || !self.takes(',') {
                break;
            }
        }
        Ok(Term { field, negated, any })
    }

    /// The field before a colon; a word without one is looked for anywhere.
    fn field(&mut self) -> Result<Field, Refused> {
        let start = self.at;
        let is_name = |c: &char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
        let end = start + self.chars[start..].iter().take_while(|c| is_name(c)).count();
        if end == start || self.chars.get(end) != Some(&':') {
            return Ok(Field::Anything);
        }
        let name: String = self.chars[start..end].iter().collect();
        match Field::parse(&name) {
            Some(field) if self.subject.has(&field) => {
                self.at = end + 1;
                Ok(field)
            }
            _ => {
                let known = self.subject.field_names();
                let hint = nearest(&name, &known).map_or_else(
                    || format!("known are {}; quote a text that holds a colon", known.join(", ")),
                    |near| format!("did you mean `{near}:`?"),
                );
                Err(Refused { at: start, why: format!("there is no field `{name}` here; {hint}") })
            }
        }
    }

    /// Up to a blank, or to a comma where values may be several; or between quotes.
    fn word(&mut self, comma_ends: bool) -> Result<Word, Refused> {
        let at = self.at;
        if self.takes('"') {
            return self.quoted(at);
        }
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|c| !(c.is_whitespace() || comma_ends && *c == ',')) {
            text.push(c);
            self.at += 1;
        }
        Ok(Word { text, at, quoted: false })
    }

    /// A quote or a backslash within has a backslash before it.
    fn quoted(&mut self, at: usize) -> Result<Word, Refused> {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            match c {
                '"' => return Ok(Word { text, at, quoted: true }),
                '\\' if matches!(self.peek(), Some('"' | '\\')) => {
                    text.extend(self.peek());
                    self.at += 1;
                }
                _ => text.push(c),
            }
        }
        Err(Refused { at, why: "this quote is not closed".to_owned() })
    }

    fn test(&self, field: &Field, word: &Word) -> Result<Test, Refused> {
        let wrong = |why: String| Refused { at: word.at, why };
        match field.shape() {
            Shape::Prose => Ok(Test::Contains(word.text.clone())),
            Shape::Name => Ok(match word.text.strip_suffix('*').filter(|_| !word.quoted) {
                Some(start) => Test::Begins(start.to_owned()),
                None => Test::Is(word.text.clone()),
            }),
            Shape::Word(known) => match known.iter().find(|known| known.eq_ignore_ascii_case(&word.text)) {
                Some(known) => Ok(Test::Is((*known).to_owned())),
                None => {
                    let near = nearest(&word.text, known).map(|near| format!("did you mean `{near}`? "));
                    let hint = format!("{}known are {}", near.unwrap_or_default(), known.join(", "));
                    Err(wrong(format!("there is no `{}`; {hint}", word.text)))
                }
            },
            Shape::Count => self.within(&word.text, &count).map_err(wrong),
            Shape::Span => self.within(&word.text, &span).map_err(wrong),
            Shape::Instant => self.within(&word.text, &|text| self.instant(text)).map_err(wrong),
        }
    }

    /// `>a`, `>=a`, `<a`, `<=a`, `a..b`, `a..`, `..b` or `a`; each text names a first and a last number.
    fn within(&self, text: &str, read: Read<'_>) -> Result<Test, String> {
        let (low, high) = if let Some(rest) = text.strip_prefix(">=") {
            (read(rest)?.0, i64::MAX)
        } else if let Some(rest) = text.strip_prefix('>') {
            (read(rest)?.1.saturating_add(1), i64::MAX)
        } else if let Some(rest) = text.strip_prefix("<=") {
            (i64::MIN, read(rest)?.1)
        } else if let Some(rest) = text.strip_prefix('<') {
            (i64::MIN, read(rest)?.0.saturating_sub(1))
        } else if let Some((from, to)) = text.split_once("..") {
            let low = if from.is_empty() { i64::MIN } else { read(from)?.0 };
            (low, if to.is_empty() { i64::MAX } else { read(to)?.1 })
        } else {
            read(text)?
        };
        if high < low {
            return Err(format!("`{text}` holds nothing: its end is before its beginning"));
        }
        Ok(Test::Within(low, high))
    }

    /// A distance from now, or what the calendar reads.
    fn instant(&self, text: &str) -> Result<(i64, i64), String> {
        let now = self.calendar.now();
        let distance = |rest: &str| parse_duration(rest).map_err(|error| error.to_string());
        let at = if let Some(rest) = text.strip_prefix('+') {
            now + distance(rest)?
        } else if let Some(rest) = text.strip_prefix('-') {
            now - distance(rest)?
        } else {
            let (first, last) = self.calendar.read(text).ok_or_else(|| {
                format!("`{text}` is not a time: write 2027-01-31, 2027-01-31T08:00:00Z, today, -2h or +10m")
            })?;
            return Ok((first.as_micros(), last.as_micros()));
        };
        Ok((at.as_micros(), at.as_micros()))
    }
}

/// From a text to the first and the last number that it names.
type Read<'a> = &'a dyn Fn(&str) -> Result<(i64, i64), String>;

fn count(text: &str) -> Result<(i64, i64), String> {
    let number =
        text.parse().map_err(|_| format!("`{text}` is not a whole number, such as 3, >3 or 1..5"))?;
    Ok((number, number))
}

fn span(text: &str) -> Result<(i64, i64), String> {
    let span = micros(parse_duration(text).map_err(|error| error.to_string())?);
    Ok((span, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Noon;

    impl Calendar for Noon {
        fn now(&self) -> Timestamp {
            Timestamp::from_secs(1_000)
        }

        fn read(&self, text: &str) -> Option<(Timestamp, Timestamp)> {
            (text == "today").then(|| (Timestamp::from_secs(900), Timestamp::from_micros(999_999_999)))
        }
    }

    fn one(text: &str) -> Test {
        let query = parse(text, Subject::Message, &Noon).unwrap_or_else(|why| panic!("{text}: {why}"));
        query.terms()[0].any[0].clone()
    }

    #[test]
    fn numbers_durations_and_times_have_bounds() {
        assert_eq!(one("attempt:3"), Test::Within(3, 3));
        assert_eq!(one("attempt:>3"), Test::Within(4, i64::MAX));
        assert_eq!(one("attempt:..3"), Test::Within(i64::MIN, 3));
        assert_eq!(one("wait:>10s"), Test::Within(10_000_001, i64::MAX));
        assert_eq!(one("run:1m..5m"), Test::Within(60_000_000, 300_000_000));
        assert_eq!(one("sent:today"), Test::Within(900_000_000, 999_999_999));
        assert_eq!(one("sent:>today"), Test::Within(1_000_000_000, i64::MAX));
        assert_eq!(one("due:<+10m"), Test::Within(i64::MIN, 1_599_999_999));
        assert_eq!(one("sent:>=-2m"), Test::Within(880_000_000, i64::MAX));
    }

    #[test]
    fn quotes_hold_blanks_commas_and_stars() {
        assert_eq!(one(r#"key:"a, b*""#), Test::Is("a, b*".into()));
        assert_eq!(one(r#"error:"say \"no\" \\ x""#), Test::Contains(r#"say "no" \ x"#.into()));
        assert_eq!(one("key:a*"), Test::Begins("a".into()));
        assert_eq!(one("a,b"), Test::Contains("a,b".into()), "free text is one word");
        assert_eq!(one("\"http://x\""), Test::Contains("http://x".into()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, at, part) in [
            ("queu:mail", 0, "did you mean `queue:`?"),
            ("queue:mail sate:ready", 11, "did you mean `state:`?"),
            ("state:redy", 6, "did you mean `ready`?"),
            ("attempt:many", 8, "not a whole number"),
            ("wait:>10", 5, "needs a unit"),
            ("sent:soon", 5, "is not a time"),
            ("key:\"open", 4, "not closed"),
            ("queue:", 6, "a value is missing after `queue:`"),
            ("queue:a,", 8, "a value is missing"),
            ("attempt:5..2", 8, "holds nothing"),
            ("event:START", 0, "there is no field `event` here"),
        ] {
            let refused = parse(text, Subject::Message, &Noon).expect_err(text);
            assert_eq!(refused.at, at, "{text}: {refused}");
            assert!(refused.why.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn a_query_has_a_limit() {
        assert!(parse(&"a ".repeat(51), Subject::Message, &Noon).is_err());
        assert!(parse(&"x".repeat(4_001), Subject::Message, &Noon).is_err());
    }
}

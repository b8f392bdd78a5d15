//! The query language of lists and bulk actions: `queue:mail state:retrying error:"connection refused"`.
//!
//! `field:value` is a condition. A blank is AND, a comma is OR within a field, `-` before a field negates it, `>`,
//! `<` and `..` compare numbers, durations and times, `"…"` holds blanks, `*` at the end is a prefix. What has no
//! field is looked for in id, key and error.
//!
//! [`parse`] reads a text; [`Query::matches`] decides about one [`Record`]. A store may narrow its search by
//! [`Query::only`] and [`Query::between`], but what belongs to an answer is decided by `matches` alone, so that every
//! store answers alike.

mod field;
mod parse;

use std::borrow::Cow;

pub use field::{Field, Shape, Subject};
pub use parse::{Calendar, Refused, parse};

use crate::time::Timestamp;

/// A parsed query. Every term must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    terms: Vec<Term>,
}

/// One condition: a field and the tests of which one must hold, or none if it is negated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// What is looked at.
    pub field: Field,
    /// `-` before the field.
    pub negated: bool,
    /// At least one.
    pub any: Vec<Test>,
}

/// What is asked of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// Is this text, byte by byte.
    Is(String),
    /// Begins with this text.
    Begins(String),
    /// Contains this text, without regard to case.
    Contains(String),
    /// Is a number from the first to the second, both included: a count, microseconds, or an instant in microseconds.
    Within(i64, i64),
}

/// A value of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// It has none: no test holds.
    Nothing,
    /// A text.
    Text(Cow<'a, str>),
    /// A count, a duration or an instant, the latter two in microseconds.
    Number(i64),
}

/// What a query can be asked about.
pub trait Record {
    /// The value of a field.
    fn value(&self, field: &Field) -> Value<'_>;
}

impl<'a> Value<'a> {
    /// A text, or nothing.
    pub fn text(text: Option<&'a str>) -> Self {
        text.map_or(Value::Nothing, |text| Value::Text(Cow::Borrowed(text)))
    }
}

impl Query {
    /// A query of these terms.
    pub fn new(terms: Vec<Term>) -> Self {
        Self { terms }
    }

    /// The terms, in the order in which they were written.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether it says nothing, so that everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The same query with one more condition: `field` is one of `texts`.
    #[must_use]
    pub fn and(mut self, field: Field, texts: impl IntoIterator<Item = String>) -> Self {
        let any = texts.into_iter().map(Test::Is).collect();
        self.terms.push(Term { field, negated: false, any });
        self
    }

    /// The same query with one more condition: the time in `field` is `from` or later.
    #[must_use]
    pub fn since(mut self, field: Field, from: Timestamp) -> Self {
        let any = vec![Test::Within(from.as_micros(), i64::MAX)];
        self.terms.push(Term { field, negated: false, any });
        self
    }

    /// Whether a record belongs to the answer.
    pub fn matches(&self, record: &impl Record) -> bool {
        self.terms.iter().all(|term| term.holds(record))
    }

    /// Whether it asks for a field.
    pub fn asks(&self, wanted: impl Fn(&Field) -> bool) -> bool {
        self.terms.iter().any(|term| wanted(&term.field))
    }

    /// The only texts that `field` may have; `None`: any.
    pub fn only(&self, field: &Field) -> Option<Vec<&str>> {
        let term = self.terms.iter().find(|term| {
            term.field == *field && !term.negated && term.any.iter().all(|test| matches!(test, Test::Is(_)))
        })?;
        Some(term.any.iter().filter_map(Test::exact).collect())
    }

    /// The bounds of a number that its terms leave, both included.
    pub fn between(&self, field: &Field) -> (i64, i64) {
        let terms = self.terms.iter().filter(|term| term.field == *field && !term.negated);
        terms.fold((i64::MIN, i64::MAX), |(low, high), term| {
            let (from, to) = term.span();
            (low.max(from), high.min(to))
        })
    }
}

impl Term {
    fn holds(&self, record: &impl Record) -> bool {
        let holds = |value: &Value<'_>| self.any.iter().any(|test| test.holds(value));
        let found = match &self.field {
            Field::Anything => {
                [Field::Id, Field::Key, Field::Error].iter().any(|field| holds(&record.value(field)))
            }
            field => holds(&record.value(field)),
        };
        found != self.negated
    }

    /// The lowest and the highest number that any of its tests lets pass.
    fn span(&self) -> (i64, i64) {
        let spans = self.any.iter().map(|test| match test {
            Test::Within(low, high) => (*low, *high),
            _ => (i64::MIN, i64::MAX),
        });
        spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or((i64::MIN, i64::MAX))
    }
}

impl Test {
    /// The only text that it lets pass.
    fn exact(&self) -> Option<&str> {
        match self {
            Test::Is(text) => Some(text),
            _ => None,
        }
    }

    fn holds(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Test::Is(wanted), Value::Text(text)) => text == wanted,
            (Test::Begins(start), Value::Text(text)) => text.starts_with(start.as_str()),
            (Test::Contains(part), Value::Text(text)) => contains(text, part),
            (Test::Within(low, high), Value::Number(number)) => low <= number && number <= high,
            _ => false,
        }
    }
}

/// Whether a text contains another, without regard to case.
fn contains(text: &str, part: &str) -> bool {
    text.contains(part) || text.to_lowercase().contains(&part.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    struct Sample;

    impl Record for Sample {
        fn value(&self, field: &Field) -> Value<'_> {
            match field {
                Field::Queue => Value::text(Some("mail")),
                Field::Id => Value::text(Some("0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10")),
                Field::Error => Value::text(Some("SMTP: Connection refused")),
                Field::State => Value::text(Some("retrying")),
                Field::Attempt => Value::Number(4),
                Field::Age => Value::Number(90_000_000),
                Field::Header(name) if name == "tenant" => Value::text(Some("acme")),
                _ => Value::Nothing,
            }
        }
    }

    struct NoCalendar;

    impl Calendar for NoCalendar {
        fn now(&self) -> Timestamp {
            Timestamp::from_secs(1_000)
        }

        fn read(&self, _: &str) -> Option<(Timestamp, Timestamp)> {
            None
        }
    }

    #[test]
    fn a_record_matches_when_every_term_holds() {
        for (text, expected) in [
            ("", true),
            ("queue:mail", true),
            ("queue:mai", false),
            ("queue:ma*", true),
            ("queue:orders,mail", true),
            ("-queue:orders", true),
            ("-queue:mail", false),
            ("queue:mail state:ready", false),
            ("queue:mail state:ready,retrying", true),
            ("error:\"connection refused\"", true),
            ("error:timeout", false),
            ("attempt:>3", true),
            ("attempt:>4", false),
            ("attempt:<=4", true),
            ("attempt:2..4", true),
            ("attempt:4", true),
            ("age:>1m", true),
            ("age:>2m", false),
            ("refused", true),
            ("0192c5d2", true),
            ("-refused", false),
            ("header.tenant:acme", true),
            ("header.tenant:other", false),
            ("key:x", false),
            ("-key:x", true),
        ] {
            let query =
                parse(text, Subject::Message, &NoCalendar).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(query.matches(&Sample), expected, "{text}");
        }
    }

    #[test]
    fn a_store_may_narrow_its_search() {
        let query =
            parse("queue:mail,orders attempt:>3 attempt:<9 -kind:x", Subject::Message, &NoCalendar).unwrap();
        assert_eq!(query.only(&Field::Queue), Some(vec!["mail", "orders"]));
        assert_eq!(query.only(&Field::Kind), None, "a negation leaves all others");
        assert_eq!(query.between(&Field::Attempt), (4, 8));
        assert_eq!(query.between(&Field::Age), (i64::MIN, i64::MAX));
    }
}

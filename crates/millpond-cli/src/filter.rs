//! What a list or a bulk action is about: a query, ids, or flags that stand for a part of a query. All are joined by
//! AND; ids among themselves by OR.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, ZonedDateTime};
use millpond::query::{self, Calendar, Field, Query, Refused, Subject};
use millpond::{MessageId, Pond, Timestamp};

use crate::exit::{Exit, Failure};
use crate::output::clean;
use crate::{Context, message, queue};

/// Characters of a filter that are shown on either side of what is wrong in it.
const SHOWN_CHARS_MAX: usize = 30;

/// Ids that are named in the audit; of more, how many they are.
const IDS_WRITTEN_MAX: usize = 10;

/// Which rows.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Filter {
    /// A query such as `queue:mail error:"connection refused"`, or ids
    #[arg(value_name = "FILTER")]
    words: Vec<String>,
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,
    /// This one; may be repeated
    #[arg(long = "id", value_name = "ID", value_parser = message::id)]
    ids: Vec<MessageId>,
}

/// A filter that is understood.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chosen {
    /// What belongs to it.
    pub(crate) query: Query,
    /// The ids that were named, and nothing else: then no search is needed.
    pub(crate) ids: Option<Vec<MessageId>>,
    /// As it was written, for the audit.
    pub(crate) written: String,
}

impl Chosen {
    /// Whether it names nothing, so that everything would be meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.query.is_empty()
    }

    /// What the audit says that was changed.
    pub(crate) fn object(&self) -> String {
        if self.written.is_empty() { "all".to_owned() } else { self.written.clone() }
    }
}

impl Filter {
    /// Reads it for one kind of list. `more` are conditions of flags that only some verbs have. Queues that are named
    /// must be there.
    pub(crate) async fn read(
        self,
        subject: Subject,
        more: Option<(Field, String)>,
        pond: &Pond,
        context: &Context,
    ) -> Result<Chosen, Failure> {
        let calendar = Here::new(pond.store().now().await?, context.output.zone().clone());
        let chosen = self.parse(subject, more, &calendar)?;
        for name in chosen.query.only(&Field::Queue).unwrap_or_default() {
            queue::must_be_declared(pond, name).await?;
        }
        Ok(chosen)
    }

    fn parse(
        self,
        subject: Subject,
        more: Option<(Field, String)>,
        calendar: &dyn Calendar,
    ) -> Result<Chosen, Failure> {
        let Self { words, queue, mut ids } = self;
        let (named, words): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| word.parse::<MessageId>().is_ok());
        ids.extend(named.iter().filter_map(|word| word.parse::<MessageId>().ok()));
        ids.sort_unstable();
        ids.dedup();
        let text = words.join(" ");
        let mut query = query::parse(&text, subject, calendar).map_err(|refused| wrong(&text, &refused))?;
        let mut written: Vec<String> = Vec::new();
        written.extend(Some(text.trim().to_owned()).filter(|text| !text.is_empty()));
        for (field, name, value) in queue
            .map(|queue| (Field::Queue, "queue", queue))
            .into_iter()
            .chain(more.map(|(f, v)| (f, "reason", v)))
        {
            written.push(format!("{name}:{value}"));
            query = query.and(field, [value]);
        }
        let only_ids = query.is_empty() && !ids.is_empty();
        if !ids.is_empty() {
            written.push(written_ids(&ids));
            query = query.and(Field::Id, ids.iter().map(ToString::to_string));
        }
        Ok(Chosen { query, ids: only_ids.then_some(ids), written: written.join(" ") })
    }
}

fn written_ids(ids: &[MessageId]) -> String {
    let shown: Vec<String> = ids.iter().take(IDS_WRITTEN_MAX).map(ToString::to_string).collect();
    match ids.len().checked_sub(IDS_WRITTEN_MAX) {
        Some(more @ 1..) => format!("id:{} and {more} more", shown.join(",")),
        _ => format!("id:{}", shown.join(",")),
    }
}

/// What is wrong, and where: the second and the third line of an error stand below each other.
fn wrong(text: &str, refused: &Refused) -> Failure {
    let chars: Vec<char> = text.chars().collect();
    let from = refused.at.saturating_sub(SHOWN_CHARS_MAX);
    let to = chars.len().min(refused.at + SHOWN_CHARS_MAX);
    let part = |from: usize, to: usize| clean(&chars[from.min(to)..to].iter().collect::<String>());
    let (start, end) = (if from == 0 { "" } else { "…" }, if to == chars.len() { "" } else { "…" });
    let before = format!("{start}{}", part(from, refused.at.min(chars.len())));
    let shown = format!("{before}{}{end}", part(refused.at.min(chars.len()), to));
    let place = before.chars().count();
    Failure::new(Exit::Usage, "invalid-filter", refused.why.clone())
        .why(shown)
        .advice(format!("{}^ correct it here", " ".repeat(place)))
}

/// The calendar of the store's time, in the zone of the output.
struct Here {
    now: Timestamp,
    zone: TimeZone,
}

impl Here {
    fn new(now: Timestamp, zone: TimeZone) -> Self {
        Self { now, zone }
    }

    /// The first and the last microsecond of a day, which is longer or shorter where clocks are changed.
    fn day(&self, date: Date) -> Option<(Timestamp, Timestamp)> {
        let start =
            |date: Date| date.to_zoned_datetime(self.zone.clone()).ok().map(|at| micros(at.timestamp()));
        let next = start(date.tomorrow().ok()?)?;
        Some((start(date)?, Timestamp::from_micros(next.as_micros() - 1)))
    }
}

impl Calendar for Here {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn read(&self, text: &str) -> Option<(Timestamp, Timestamp)> {
        if text == "today" {
            let now = Instant::from_microsecond(self.now.as_micros()).ok()?;
            return self.day(ZonedDateTime::new(now, self.zone.clone()).date());
        }
        if let Ok(at) = text.parse::<Instant>() {
            return Some((micros(at), micros(at)));
        }
        // A date and nothing more: jiff would read one out of a longer text too.
        let is_date = text.chars().all(|c| c.is_ascii_digit() || c == '-');
        self.day(text.parse().ok().filter(|_| is_date)?)
    }
}

fn micros(at: Instant) -> Timestamp {
    Timestamp::from_micros(at.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";

    fn here(zone: &str) -> Here {
        let now: Instant = "2026-10-25T12:00:00Z".parse().unwrap();
        Here::new(micros(now), TimeZone::get(zone).unwrap())
    }

    fn chosen(words: &[&str], queue: Option<&str>) -> Chosen {
        let filter = Filter {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            queue: queue.map(str::to_owned),
            ids: Vec::new(),
        };
        filter.parse(Subject::Message, None, &here("UTC")).unwrap()
    }

    #[test]
    fn words_flags_and_ids_are_joined() {
        let both = chosen(&["state:ready", "kind:a b*", ID], Some("mail"));
        assert_eq!(both.written, format!("state:ready kind:a b* queue:mail id:{ID}"));
        assert_eq!(both.query.terms().len(), 5);
        assert_eq!(both.ids, None, "ids with a condition are searched for");
        let ids = chosen(&[ID, ID], None);
        assert_eq!(ids.ids.as_deref(), Some(&[ID.parse().unwrap()][..]));
        assert!(chosen(&[], None).is_everything());
        assert!(!chosen(&[], Some("mail")).is_everything());
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let filter = Filter { words: vec![text.to_owned()], ..Filter::default() };
        let failure = filter.parse(Subject::Message, None, &here("UTC")).unwrap_err();
        assert_eq!(failure.to_string(), expected);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        refused(
            "state:ready queu:mail",
            "error: there is no field `queu` here; did you mean `queue:`? (invalid-filter)\n  \
             why: state:ready queu:mail\n  \
             do:              ^ correct it here",
        );
        let long = format!("{} attempt:x {}", "a".repeat(50), "b".repeat(50));
        refused(
            &long,
            &format!(
                "error: `x` is not a whole number, such as 3, >3 or 1..5 (invalid-filter)\n  \
                 why: …{} attempt:x {}…\n  \
                 do:  {}^ correct it here",
                "a".repeat(21),
                "b".repeat(28),
                " ".repeat(31),
            ),
        );
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let read = |zone: &str, text: &str| {
            let (first, last) = here(zone).read(text)?;
            Some((crate::instant::rfc3339(first), last.as_micros() - first.as_micros()))
        };
        let hours = |hours: i64| hours * 3_600_000_000 - 1;
        assert_eq!(read("UTC", "today"), Some(("2026-10-25T00:00:00Z".into(), hours(24))));
        let longest = ("2026-10-24T22:00:00Z".to_owned(), hours(25));
        assert_eq!(read("Europe/Madrid", "2026-10-25"), Some(longest), "clocks go back that day");
        assert_eq!(read("UTC", "2026-11-30T08:00:00+02:00"), Some(("2026-11-30T06:00:00Z".into(), 0)));
        assert_eq!(read("UTC", "soon"), None);
        assert_eq!(read("UTC", "2026-13-01"), None);
    }
}

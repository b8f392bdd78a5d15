//! Instants: RFC 3339 for machines, local time for people, and what people type.

use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, ZonedDateTime};
use millpond::Timestamp;
use millpond::text::parse_duration;
use serde::Serializer;

/// What may be typed, for errors and help.
pub(crate) const ALLOWED: &str = "RFC 3339 such as 2027-01-31T08:00:00Z, `today`, or a distance such as +10m";

/// RFC 3339 in UTC, to the microsecond.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    instant(at).to_string()
}

/// Local time with its offset, to the second.
pub(crate) fn local(at: Timestamp, zone: &TimeZone) -> String {
    instant(at).to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%:z").to_string()
}

/// Reads what people type: RFC 3339, `today`, `-2h`, `+10m`.
pub(crate) fn parse(text: &str) -> Result<Timestamp, String> {
    parse_at(text, &ZonedDateTime::now())
}

fn parse_at(text: &str, now: &ZonedDateTime) -> Result<Timestamp, String> {
    let micros = |at: Instant| Timestamp::from_micros(at.as_microsecond());
    let here = micros(now.timestamp());
    if text == "today" {
        return now.start_of_day().map(|day| micros(day.timestamp())).map_err(|error| error.to_string());
    }
    if let Some(wait) = text.strip_prefix('+') {
        return Ok(here + parse_duration(wait).map_err(|error| error.to_string())?);
    }
    if let Some(wait) = text.strip_prefix('-') {
        return Ok(here - parse_duration(wait).map_err(|error| error.to_string())?);
    }
    text.parse().map(micros).map_err(|_| format!("`{text}` is not a time: write {ALLOWED}"))
}

/// For JSON.
pub(crate) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&rfc3339(*at))
}

/// For JSON, where it may be absent.
pub(crate) fn serialize_if<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serialize(at, serializer),
        None => serializer.serialize_none(),
    }
}

/// What lies outside the calendar is shown at its edge.
fn instant(at: Timestamp) -> Instant {
    let edge = if at.as_micros() < 0 { Instant::MIN } else { Instant::MAX };
    Instant::from_microsecond(at.as_micros()).unwrap_or(edge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let now: ZonedDateTime = "2026-12-01T10:30:00+01:00[+01:00]".parse().unwrap();
        assert_eq!(parse_at(text, &now).map_or_else(|error| error, rfc3339), expected);
    }

    #[test]
    fn what_people_type() {
        check("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        check("2027-01-01T00:00:00.25+02:00", "2026-12-31T22:00:00.25Z");
        check("+10m", "2026-12-01T09:40:00Z");
        check("-2h", "2026-12-01T07:30:00Z");
        check("today", "2026-11-30T23:00:00Z");
        check("+10", "`10` needs a unit, such as `10s`: allowed are ms, s, m, h and d");
        check("soon", &format!("`soon` is not a time: write {ALLOWED}"));
    }

    #[test]
    fn what_no_calendar_holds_is_shown_at_its_edge() {
        assert!(rfc3339(Timestamp::from_micros(i64::MAX)).starts_with("9999-12-3"));
        assert_eq!(local(Timestamp::from_secs(0), &TimeZone::UTC), "1970-01-01 00:00:00+00:00");
    }
}

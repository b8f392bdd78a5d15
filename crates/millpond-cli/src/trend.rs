//! Counters by the day of a time zone: which instants a day holds, and what happened in it.
//!
//! A day runs from its first instant to that of the next one, so it may have 23 or 25 hours, or begin at 01:00 where
//! the clocks go forward at midnight. Counters are kept by the quarter of an hour, and the offset of every zone is a
//! multiple of that, so each of them belongs to one day.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, ToSpan as _};
use millpond::Timestamp;
use millpond::text::nearest;
use millpond::view::Tally;
use millpond_core::time::micros;
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Counters of the last 24 hours are kept by it.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The beginning of the minute of an instant.
pub(crate) fn minute(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_micros() - at.as_micros().rem_euclid(micros(MINUTE)))
}

/// A day of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Day {
    date: Date,
    /// Its first instant.
    pub(crate) from: Timestamp,
    /// The first instant of the next day.
    pub(crate) to: Timestamp,
}

/// What happened in a day, in the words of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Item {
    pub(crate) date: String,
    pub(crate) total: u64,
    pub(crate) enqueue: u64,
    pub(crate) start: u64,
    pub(crate) success: u64,
    pub(crate) retry: u64,
    pub(crate) dlq: u64,
    pub(crate) recover: u64,
}

/// The zone of this name.
pub(crate) fn zone(name: &str) -> Result<TimeZone, Failure> {
    jiff::tz::db().get(name).map_err(|_| {
        let tried = format!("there is no time zone `{name}`");
        let failure = Failure::new(Exit::Usage, "unknown-time-zone", tried);
        match near(name) {
            Some(near) => failure.advice(format!("did you mean `{near}`?")),
            None => failure.advice("write a name such as Europe/Madrid or UTC"),
        }
    })
}

/// The nearest name: of the whole, else of the city alone.
fn near(name: &str) -> Option<String> {
    let known: Vec<String> = jiff::tz::db().available().map(|name| name.as_str().to_owned()).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    if let Some(near) = nearest(name, &known) {
        return Some(near.to_owned());
    }
    let city = |zone: &str| zone.rsplit('/').next().unwrap_or(zone).to_lowercase().replace(['_', ' '], "");
    let cities: Vec<String> = known.iter().map(|zone| city(zone)).collect();
    let found = nearest(&city(name), &cities.iter().map(String::as_str).collect::<Vec<_>>())?.to_owned();
    let zones = known.iter().zip(&cities).filter(|(zone, city)| **city == found && zone.contains('/'));
    zones.map(|(zone, _)| (*zone).to_owned()).next()
}

/// The error for days that no calendar has.
pub(crate) fn beyond(error: jiff::Error) -> Failure {
    Failure::new(Exit::Failed, "internal", "cannot tell the days of the store's time").why(error.to_string())
}

/// The last `count` days of a zone, the one of `now` the last.
pub(crate) fn days(now: Timestamp, count: u16, zone: &TimeZone) -> Result<Vec<Day>, jiff::Error> {
    let now = Instant::from_microsecond(now.as_micros())?;
    let today = now.to_zoned_datetime(zone.clone()).date();
    let begins = |date: Date| -> Result<Timestamp, jiff::Error> {
        let first = date.to_zoned_datetime(zone.clone())?.timestamp();
        Ok(Timestamp::from_micros(first.as_microsecond()))
    };
    let day = |back: u16| -> Result<Day, jiff::Error> {
        let date = today.checked_sub(i64::from(back).days())?;
        Ok(Day { date, from: begins(date)?, to: begins(date.tomorrow()?)? })
    };
    (0..count).rev().map(day).collect()
}

/// One item for each of `days`, zeros included.
pub(crate) fn items(days: &[Day], tallies: &[Tally]) -> Vec<Item> {
    days.iter().map(|day| item(day, tallies)).collect()
}

fn item(day: &Day, tallies: &[Tally]) -> Item {
    let of_day = || tallies.iter().filter(|tally| day.from <= tally.at && tally.at < day.to);
    let sum = |count: fn(&Tally) -> u64| of_day().map(count).sum::<u64>();
    let mut item = Item {
        date: day.date.to_string(),
        total: 0,
        enqueue: sum(|tally| tally.sent),
        start: sum(|tally| tally.leased),
        success: sum(|tally| tally.done),
        retry: sum(|tally| tally.retried),
        dlq: sum(|tally| tally.dead),
        recover: sum(|tally| tally.recovered),
    };
    item.total = item.enqueue + item.start + item.success + item.retry + item.dlq + item.recover;
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER: i64 = 15 * 60;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_micros(text.parse::<Instant>().unwrap().as_microsecond())
    }

    /// Hours of each day, and when the last one begins.
    #[track_caller]
    fn check(now: &str, name: &str, dates: &[(&str, f64)], last_begins: &str) {
        let days = days(at(now), u16::try_from(dates.len()).unwrap(), &zone(name).unwrap()).unwrap();
        let hours = |day: &Day| day.to.since(day.from).as_secs_f64() / 3_600.0;
        let found: Vec<_> = days.iter().map(|day| (day.date.to_string(), hours(day))).collect();
        let found: Vec<_> = found.iter().map(|(date, hours)| (date.as_str(), *hours)).collect();
        assert_eq!(found, dates);
        assert_eq!(days.last().unwrap().from, at(last_begins));
        assert!(days.windows(2).all(|two| two[0].to == two[1].from), "days leave no gap");
        let whole = |day: &Day| day.from.as_micros() % (QUARTER * 1_000_000) == 0;
        assert!(days.iter().all(whole), "a counter belongs to one day");
    }

    #[test]
    fn a_day_has_the_hours_that_its_zone_gives_it() {
        let madrid = "Europe/Madrid";
        let autumn = [("2026-10-24", 24.0), ("2026-10-25", 25.0), ("2026-10-26", 24.0)];
        check("2026-10-26T12:00:00Z", madrid, &autumn, "2026-10-25T23:00:00Z");
        check("2026-10-25T00:30:00Z", madrid, &autumn[..2], "2026-10-24T22:00:00Z");
        check("2026-10-25T22:59:59Z", madrid, &autumn[..2], "2026-10-24T22:00:00Z");
        check("2026-03-29T12:00:00Z", madrid, &[("2026-03-29", 23.0)], "2026-03-28T23:00:00Z");
        let york = "America/New_York";
        check(
            "2026-11-01T12:00:00Z",
            york,
            &[("2026-10-31", 24.0), ("2026-11-01", 25.0)],
            "2026-11-01T04:00:00Z",
        );
        check("2026-03-08T12:00:00Z", york, &[("2026-03-08", 23.0)], "2026-03-08T05:00:00Z");
        let kathmandu = [("2026-10-24", 24.0), ("2026-10-25", 24.0)];
        check("2026-10-24T18:15:00Z", "Asia/Kathmandu", &kathmandu, "2026-10-24T18:15:00Z");
        check("2026-10-24T18:14:59Z", "Asia/Kathmandu", &kathmandu[..1], "2026-10-23T18:15:00Z");
        // Half an hour of summer time: to +11 in October, back to +10:30 in April.
        check("2026-10-04T03:00:00Z", "Australia/Lord_Howe", &[("2026-10-04", 23.5)], "2026-10-03T13:30:00Z");
        check("2026-04-05T03:00:00Z", "Australia/Lord_Howe", &[("2026-04-05", 24.5)], "2026-04-04T13:00:00Z");
        // The clocks of Havana go forward at midnight: the day begins at 01:00.
        check("2026-03-08T12:00:00Z", "America/Havana", &[("2026-03-08", 23.0)], "2026-03-08T05:00:00Z");
        check("2026-03-08T12:00:00Z", "UTC", &[("2026-03-08", 24.0)], "2026-03-08T00:00:00Z");
    }

    #[test]
    fn there_are_as_many_days_as_were_asked_for() {
        for count in [1, 7, 90] {
            let days = days(at("2026-10-26T12:00:00Z"), count, &zone("Europe/Madrid").unwrap()).unwrap();
            assert_eq!(days.len(), usize::from(count));
            assert_eq!(days.last().unwrap().date.to_string(), "2026-10-26");
        }
    }

    /// One of each quarter of an hour of these days: what is counted is how many a day has.
    #[test]
    fn a_quarter_of_an_hour_is_counted_in_its_day_and_what_is_absent_is_zero() {
        let days = days(at("2026-10-26T12:00:00Z"), 3, &zone("Europe/Madrid").unwrap()).unwrap();
        let (first, last) = (days[0].from.as_micros(), days[1].to.as_micros());
        let quarters = (first..last).step_by((QUARTER * 1_000_000) as usize).map(Timestamp::from_micros);
        let tallies: Vec<Tally> =
            quarters.map(|at| Tally { at, sent: 1, leased: 2, done: 3, ..Tally::default() }).collect();
        let items = items(&days, &tallies);
        let found: Vec<_> =
            items.iter().map(|item| (item.enqueue, item.start, item.success, item.total)).collect();
        assert_eq!(found, [(96, 192, 288, 576), (100, 200, 300, 600), (0, 0, 0, 0)]);
    }

    #[test]
    fn the_total_is_the_sum_of_the_six() {
        let days = days(at("2026-10-25T12:00:00Z"), 1, &TimeZone::UTC).unwrap();
        let at = at("2026-10-25T11:45:00Z");
        let tally =
            Tally { at, sent: 6, leased: 7, done: 5, retried: 1, dead: 1, recovered: 9, ..Tally::default() };
        let expected = r#"[{"date":"2026-10-25","total":29,"enqueue":6,"start":7,"success":5,"retry":1,"dlq":1,"recover":9}]"#;
        assert_eq!(serde_json::to_string(&items(&days, &[tally])).unwrap(), expected);
    }

    #[test]
    fn a_zone_that_does_not_exist_is_answered_with_the_nearest() {
        for (name, near) in [
            ("Europe/Madird", Some("Europe/Madrid")),
            ("Madrid", Some("Europe/Madrid")),
            ("new york", Some("America/New_York")),
            ("Nowhere/At_All", None),
        ] {
            assert_eq!(super::near(name).as_deref(), near, "{name}");
            assert!(zone(name).is_err(), "{name}");
        }
    }
}

//! Rates as people write them: `30/1m`.

use std::time::Duration;

use millpond::Rate;
use millpond::text::{format_duration, parse_duration};

use crate::args::count;

const ALLOWED: &str = "write messages and a period, such as `30/1m`";

/// Reads a rate.
pub(super) fn parse(text: &str) -> Result<Rate, String> {
    let (messages, period) = text.split_once('/').ok_or_else(|| format!("`{text}` has no `/`: {ALLOWED}"))?;
    let period = period.trim();
    let period: Duration = parse_duration(period).map_err(|error| format!("{error}; {ALLOWED}"))?;
    let rate = Rate { count: count(messages.trim())?, period };
    rate.check()?;
    Ok(rate)
}

/// Writes a rate in the form that [`parse`] reads.
pub(super) fn show(rate: Rate) -> String {
    format!("{}/{}", rate.count, format_duration(rate.period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        assert_eq!(parse(text).map_or_else(|error| error, show), shown);
    }

    #[test]
    fn what_is_read_is_written_again() {
        check("30/1m", "30/1m");
        check("5 / 100ms", "5/100ms");
        check("1/1d", "1/1d");
    }

    #[test]
    fn what_cannot_be_a_rate_says_what_can() {
        check("30", &format!("`30` has no `/`: {ALLOWED}"));
        let duration = "`m` is not a duration: write whole numbers with a unit, such as `1h30m`";
        check("30/m", &format!("{duration}; {ALLOWED}"));
        check("0/1m", "write a whole number from 1 to 4294967295");
        check("1/0ms", "rate has the period 0ns; it is from 1 ms to a day");
        check("1/2d", "rate has the period 172800s; it is from 1 ms to a day");
    }
}

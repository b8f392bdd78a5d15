//! Durations for eyes: two units at most.

use std::time::Duration;

use millpond::text::format_duration;

/// `12ms`, `1.8s`, `41s`, `3m20s`, `2d4h`.
pub(crate) fn short(span: Duration) -> String {
    const TENTHS_BELOW: Duration = Duration::from_secs(10);
    let secs = span.as_secs();
    if span < Duration::from_secs(1) {
        return format!("{}ms", span.as_millis());
    }
    if span < TENTHS_BELOW {
        return format!("{:.1}s", span.as_secs_f64());
    }
    let unit = match secs {
        0..3_600 => 1,
        3_600..86_400 => 60,
        _ => 3_600,
    };
    format_duration(Duration::from_secs(secs / unit * unit))
}

/// The same, or nothing.
pub(crate) fn short_if(span: Option<Duration>) -> String {
    span.map(short).unwrap_or_default()
}

/// Whole milliseconds, for JSON.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_are_enough() {
        let of = |ms| short(Duration::from_millis(ms));
        assert_eq!([of(0), of(12), of(1_840), of(41_000)], ["0ms", "12ms", "1.8s", "41s"]);
        assert_eq!([of(200_000), of(3_723_000), of(187_499_000)], ["3m20s", "1h2m", "2d4h"]);
    }
}

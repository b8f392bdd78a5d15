//! Backoffs as people write them: `30s`, `1s,5s,10s`, `["1s","5s"]`, `1s..5m`.

use std::time::Duration;

use millpond::Backoff;
use millpond::text::{format_duration, parse_duration};
use serde::Deserialize;
use serde_json::Value;

/// Most waits that a list may name.
const LIST_MAX: usize = 16;

const ALLOWED: &str = "write one wait `30s`, a list `1s,5s,10s`, or a doubling `1s..5m`";

/// Reads a backoff.
pub(super) fn parse(text: &str) -> Result<Backoff, String> {
    let wait = |text: &str| parse_duration(text.trim()).map_err(|error| format!("{error}; {ALLOWED}"));
    if let Some((first, max)) = text.split_once("..") {
        let (first, max) = (wait(first)?, wait(max)?);
        if max < first {
            return Err(format!("it ends at {}, before it begins; {ALLOWED}", format_duration(max)));
        }
        return Ok(Backoff::exponential(first, max));
    }
    let waits: Vec<String> = match text.starts_with('[') {
        true => {
            serde_json::from_str(text).map_err(|_| format!("`{text}` is not a list of waits; {ALLOWED}"))?
        }
        false => text.split(',').map(str::to_owned).collect(),
    };
    let waits = waits.iter().map(|text| wait(text)).collect::<Result<Vec<_>, _>>()?;
    match waits.as_slice() {
        [] => Err(format!("the list is empty; {ALLOWED}")),
        [one] => Ok(Backoff::fixed(*one)),
        list if LIST_MAX < list.len() => {
            Err(format!("the list has {} waits, at most {LIST_MAX} are allowed", list.len()))
        }
        list => Ok(Backoff::list(list)),
    }
}

/// Writes a backoff in the form that [`parse`] reads.
pub(super) fn show(backoff: &Backoff) -> String {
    // A backoff shows its parts in its stored form only.
    let stored = serde_json::to_value(backoff).unwrap_or_default();
    let shape = &stored["shape"];
    if let Some(fixed) = shape.get("fixed") {
        return wait(&fixed["wait"]);
    }
    if let Some(list) = shape.get("list") {
        let len = usize::try_from(list["len"].as_u64().unwrap_or(0)).unwrap_or(0);
        let waits = list["waits"].as_array().map(Vec::as_slice).unwrap_or_default();
        return waits.iter().take(len).map(wait).collect::<Vec<_>>().join(",");
    }
    let growing = &shape["exponential"];
    format!("{}..{}", wait(&growing["first"]), wait(&growing["max"]))
}

fn wait(stored: &Value) -> String {
    Duration::deserialize(stored).map(format_duration).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        assert_eq!(parse(text).map_or_else(|error| error, |backoff| show(&backoff)), shown);
    }

    #[test]
    fn what_is_read_is_written_again() {
        check("30s", "30s");
        check("1s,5s,10s", "1s,5s,10s");
        check("1s, 5s", "1s,5s");
        check(r#"["1s", "5s"]"#, "1s,5s");
        check("10s..10m", "10s..10m");
    }

    #[test]
    fn what_cannot_be_a_backoff_says_what_can() {
        let allowed = "write one wait `30s`, a list `1s,5s,10s`, or a doubling `1s..5m`";
        check("30", &format!("`30` needs a unit, such as `30s`: allowed are ms, s, m, h and d; {allowed}"));
        check("[1, 2]", &format!("`[1, 2]` is not a list of waits; {allowed}"));
        check("[]", &format!("the list is empty; {allowed}"));
        check("5m..1s", &format!("it ends at 1s, before it begins; {allowed}"));
        check("1s,".repeat(17).trim_end_matches(','), "the list has 17 waits, at most 16 are allowed");
    }
}

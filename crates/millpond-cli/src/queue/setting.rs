//! Settings of a queue by their names, as people write them: `attempts_max=3`, `timeout=none`.

use millpond::text::{format_duration, format_size, nearest};
use millpond::{HistoryLevel, QueueSettings};
use serde_json::Value;

use super::{backoff, rate};
use crate::args::{count, duration, limit, size};

/// Every setting that can be changed, in the order in which it is shown.
pub(super) const NAMES: [&str; 13] = [
    "attempts_max",
    "backoff",
    "lease",
    "timeout",
    "message_limit",
    "retention",
    "dedup_window",
    "releases_max",
    "concurrency_per_node",
    "exclusive",
    "concurrency",
    "rate",
    "events",
];

/// The name of a setting as it is stored; a hyphen does for `_`.
pub(super) fn name(text: &str) -> Result<&'static str, String> {
    let written = text.replace('-', "_");
    if written == "delivery" {
        return Err("delivery is fixed for the life of a queue; declare another queue".to_owned());
    }
    if written == "transactional" {
        let how = "`millpond queue add NAME --transactional …`, or in code by the type of its constant";
        return Err(format!("transactional is a part of the declaration: {how}"));
    }
    NAMES.iter().copied().find(|name| *name == written).ok_or_else(|| {
        let near = nearest(&written, &NAMES).map(|near| format!("did you mean `{near}`? "));
        let near = near.unwrap_or_default();
        format!("there is no setting `{text}`; {near}known are {}", NAMES.join(", "))
    })
}

/// A setting with its new value, from `name=value`.
pub(super) fn assignment(text: &str) -> Result<(&'static str, String), String> {
    let (left, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` has no `=`: write NAME=VALUE, such as attempts_max=3"))?;
    let name = name(left.trim())?;
    let value = value.trim().to_owned();
    with(QueueSettings::DEFAULT, name, &value).map_err(|why| format!("{name}: {why}"))?;
    Ok((name, value))
}

/// The settings with one of them changed.
pub(super) fn with(mut settings: QueueSettings, name: &str, value: &str) -> Result<QueueSettings, String> {
    let absent = value == "none";
    match name {
        "attempts_max" => settings.attempts_max = count(value)?,
        "backoff" => settings.backoff = backoff::parse(value)?,
        "lease" => settings.lease = duration(value)?,
        "timeout" => settings.timeout = limit(value)?.0,
        "message_limit" if absent => settings.message_limit = None,
        "message_limit" => settings.message_limit = Some(size(value)?),
        "retention" => settings.retention = duration(value)?,
        "dedup_window" => settings.dedup_window = duration(value)?,
        "releases_max" => settings.releases_max = count(value)?,
        "concurrency_per_node" if absent => settings.concurrency_per_node = None,
        "concurrency_per_node" => settings.concurrency_per_node = Some(count(value)?),
        "exclusive" => {
            settings.exclusive = match value {
                "true" => true,
                "false" => false,
                _ => return Err(format!("`{value}` is not known; write true or false")),
            }
        }
        "concurrency" if absent => settings.concurrency = None,
        "concurrency" => settings.concurrency = Some(count(value)?),
        "rate" if absent => settings.rate = None,
        "rate" => settings.rate = Some(rate::parse(value)?),
        "events" => {
            settings.events = match value {
                "all" => HistoryLevel::All,
                "failures" => HistoryLevel::Failures,
                _ => return Err(format!("`{value}` is not known; write all or failures")),
            }
        }
        _ => return Err(format!("there is no setting `{name}`")),
    }
    Ok(settings)
}

/// A setting as it is written.
pub(super) fn text(settings: &QueueSettings, name: &str) -> String {
    let none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    match name {
        "attempts_max" => settings.attempts_max.to_string(),
        "backoff" => backoff::show(&settings.backoff),
        "lease" => format_duration(settings.lease),
        "timeout" => none(settings.timeout.map(format_duration)),
        "message_limit" => format_size(settings.message_limit()),
        "retention" => format_duration(settings.retention),
        "dedup_window" => format_duration(settings.dedup_window),
        "releases_max" => settings.releases_max.to_string(),
        "concurrency_per_node" => none(settings.concurrency_per_node.map(|count| count.to_string())),
        "exclusive" => settings.exclusive.to_string(),
        "concurrency" => none(settings.concurrency.map(|count| count.to_string())),
        "rate" => none(settings.rate.map(rate::show)),
        "events" => match settings.events {
            HistoryLevel::All => "all".to_owned(),
            HistoryLevel::Failures => "failures".to_owned(),
        },
        _ => String::new(),
    }
}

/// The value of a setting as a store takes it.
pub(super) fn stored(settings: &QueueSettings, name: &str) -> Value {
    serde_json::to_value(settings).map(|mut all| all[name].take()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_a_queue_has_its_name_here() {
        let all = serde_json::to_value(QueueSettings::DEFAULT).unwrap();
        let mut names: Vec<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
        names.retain(|name| !["delivery", "transactional"].contains(name));
        let mut known = NAMES;
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for name in NAMES {
            let text = text(&QueueSettings::DEFAULT, name);
            assert_eq!(
                with(QueueSettings::DEFAULT, name, &text),
                Ok(QueueSettings::DEFAULT),
                "{name}={text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_set_says_why() {
        for (text, part) in [
            ("attempts_max", "has no `=`"),
            ("atempts_max=3", "did you mean `attempts_max`?"),
            ("attempts-max=0", "attempts_max: write a whole number from 1"),
            ("timeout=10", "timeout: `10` needs a unit"),
            ("delivery=ordered", "fixed for the life of a queue"),
            ("events=some", "write all or failures"),
            ("exclusive=yes", "write true or false"),
            ("concurrency=0", "concurrency: write a whole number from 1"),
            ("rate=30", "rate: `30` has no `/`"),
        ] {
            let why = assignment(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        assert_eq!(assignment("timeout = none"), Ok(("timeout", "none".to_owned())));
        let limited = [("exclusive", "true"), ("concurrency", "4"), ("rate", "30/1m")];
        for (name, value) in limited {
            let settings = with(QueueSettings::DEFAULT, name, value).unwrap();
            assert_eq!(text(&settings, name), value);
        }
    }
}

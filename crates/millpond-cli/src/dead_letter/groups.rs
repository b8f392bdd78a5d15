//! `millpond dead-letter groups`.

use std::process::ExitCode;

use millpond::Timestamp;
use millpond::view::{FailureGroup, GroupBy};
use serde::Serialize;

use super::Letters;
use crate::exit::Done;
use crate::output::Column;
use crate::{Context, instant, open};

/// Which, and by what.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Letters,
    /// What they have in common: fingerprint (like errors), queue, kind, reason or worker
    #[arg(long, value_enum, default_value_t = By::Fingerprint, hide_possible_values = true)]
    by: By,
}

const EXAMPLES: &str = "\
Examples:
  millpond dead-letter groups
  millpond dead-letter groups queue:mail --by reason
  millpond dead-letter redrive fingerprint:9f86d081884c7d65 --dry-run";

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum By {
    Fingerprint,
    Queue,
    #[value(alias = "job-name", alias = "jobName")]
    Kind,
    Reason,
    Worker,
}

/// A group, in the words of the HTTP API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    key: String,
    fingerprint: Option<String>,
    queue: Option<String>,
    job_name: Option<String>,
    reason: Option<String>,
    error_class: Option<String>,
    example: Option<String>,
    count: u64,
    #[serde(serialize_with = "instant::serialize")]
    first_failed_at: Timestamp,
    #[serde(serialize_with = "instant::serialize")]
    last_failed_at: Timestamp,
    per_day: [u64; 7],
}

const COLUMNS: [Column<Shown>; 8] = [
    Column::text("key", |row, _| row.key.clone()),
    Column::new("count", |row, _| row.count.to_string()),
    Column::optional(Column::new("7 days", |row, _| bars(&row.per_day))),
    Column::optional(Column::text("queue", |row, _| mixed(&row.queue))),
    Column::optional(Column::text("kind", |row, _| mixed(&row.job_name))),
    Column::optional(Column::new("reason", |row, _| mixed(&row.reason))),
    Column::optional(Column::new("last", |row, times| times.show(row.last_failed_at))),
    Column::text("example", |row, _| row.example.clone().unwrap_or_default()),
];

impl From<By> for GroupBy {
    fn from(by: By) -> Self {
        match by {
            By::Fingerprint => GroupBy::Fingerprint,
            By::Queue => GroupBy::Queue,
            By::Kind => GroupBy::Kind,
            By::Reason => GroupBy::Reason,
            By::Worker => GroupBy::Worker,
        }
    }
}

/// Groups them.
pub(super) async fn run(args: Args, context: &Context) -> Done {
    let pond = open::existing(context.config.store()).await?;
    let chosen = args.filter.read(&pond, context).await?;
    let groups = pond.store().dead_letter_groups(chosen.query, args.by.into()).await?;
    let shown: Vec<Shown> = groups.into_iter().map(Shown::from).collect();
    context.output.list(&shown, &COLUMNS, "no dead letters")?;
    Ok(ExitCode::SUCCESS)
}

impl From<FailureGroup> for Shown {
    fn from(group: FailureGroup) -> Self {
        Self {
            key: group.key,
            fingerprint: group.fingerprint,
            queue: group.queue,
            job_name: group.kind,
            reason: group.reason,
            error_class: group.class,
            example: group.example,
            count: group.count,
            first_failed_at: group.first,
            last_failed_at: group.last,
            per_day: group.per_day,
        }
    }
}

fn mixed(common: &Option<String>) -> String {
    common.clone().unwrap_or_else(|| "(several)".to_owned())
}

/// A day is a bar, as high as the highest allows.
fn bars(days: &[u64; 7]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = days.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| match count {
        0 => '·',
        count => BARS[usize::try_from((count * 8).div_ceil(highest)).unwrap_or(8).clamp(1, 8) - 1],
    };
    days.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_without_is_seen_as_one() {
        assert_eq!(bars(&[0, 1, 8, 4, 0, 0, 2]), "·▁█▄··▂");
        assert_eq!(bars(&[0; 7]), "·······");
    }
}

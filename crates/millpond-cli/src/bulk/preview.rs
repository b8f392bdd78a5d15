//! What a bulk action is about: how many, of what, since when, and what will stand in its way.

use std::collections::BTreeMap;
use std::io;

use millpond::{Pond, Timestamp};
use millpond_core::hints::{is_live, knows};
use serde::Serialize;

use super::Action;
use super::search::Hit;
use crate::exit::Failure;
use crate::output::{Column, clean, table};
use crate::{Context, instant};

/// Rows that are shown.
const SAMPLE_ROWS: usize = 10;

/// Values that are counted apart; what has others is counted together.
const GROUPS_MAX: usize = 200;

/// What other values are counted under.
const OTHER: &str = "(other)";

/// Groups of one kind in a line for a person.
const GROUPS_SHOWN_MAX: usize = 6;

type Groups<K> = BTreeMap<K, u64>;

/// The answer to a dry run, in the words of the HTTP API.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preview {
    pub(super) matched: u64,
    by_queue: Groups<String>,
    by_job_name: Groups<String>,
    by_reason: Groups<String>,
    #[serde(serialize_with = "instant::serialize_if")]
    oldest: Option<Timestamp>,
    #[serde(serialize_with = "instant::serialize_if")]
    newest: Option<Timestamp>,
    sample: Vec<Hit>,
    blocked: Blocked,
    warnings: Warnings,
    /// By queue and kind: who must be there to work on them.
    #[serde(skip)]
    works: Groups<(String, String)>,
}

/// What will not get done, for now.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Blocked {
    /// No live worker has a handler for them.
    handler_missing: u64,
}

#[derive(Debug, Default, Serialize)]
struct Warnings {
    /// With a worker now.
    running: u64,
}

const SAMPLE: [Column<Hit>; 6] = [
    Column::new("id", |hit, _| hit.id.to_string()),
    Column::text("queue", |hit, _| hit.queue.clone()),
    Column::optional(Column::text("kind", |hit, _| hit.kind.clone())),
    Column::text("reason", |hit, _| hit.reason.clone().unwrap_or_else(|| hit.state.to_owned())),
    Column::optional(Column::new("at", |hit, times| times.show(hit.at))),
    Column::text("error", |hit, _| hit.error.clone().unwrap_or_default()),
];

fn add<K: Ord>(groups: &mut Groups<K>, key: K, other: K) {
    let key = if GROUPS_MAX <= groups.len() && !groups.contains_key(&key) { other } else { key };
    *groups.entry(key).or_default() += 1;
}

impl Preview {
    /// One more row.
    pub(super) fn add(&mut self, hit: Hit) {
        self.matched += 1;
        add(&mut self.by_queue, hit.queue.clone(), OTHER.to_owned());
        add(&mut self.by_job_name, hit.kind.clone(), OTHER.to_owned());
        let reason = hit.reason.clone().unwrap_or_else(|| hit.state.to_owned());
        add(&mut self.by_reason, reason, OTHER.to_owned());
        let other = (hit.queue.clone(), OTHER.to_owned());
        add(&mut self.works, (hit.queue.clone(), hit.kind.clone()), other);
        self.oldest = self.oldest.into_iter().chain([hit.at]).min();
        self.newest = self.newest.into_iter().chain([hit.at]).max();
        self.warnings.running += u64::from(hit.state == "leased");
        if self.sample.len() < SAMPLE_ROWS {
            self.sample.push(hit);
        }
    }

    /// Counts what no live worker has a handler for, in the queue that they are moved to, else in their own.
    pub(super) async fn look_for_workers(&mut self, pond: &Pond, to: Option<&str>) -> Result<(), Failure> {
        let now = pond.store().now().await?;
        let mut live = pond.store().workers().await?;
        live.retain(|worker| is_live(worker, now));
        let missing = self.works.iter().filter(|((queue, kind), _)| {
            !live.iter().any(|worker| {
                let listens = worker.queues.iter().any(|listens| listens == to.unwrap_or(queue));
                listens && (kind == OTHER || knows(worker, kind))
            })
        });
        self.blocked.handler_missing = missing.map(|(_, count)| count).sum();
        Ok(())
    }

    /// Where they are, in a few words.
    pub(super) fn in_short(&self) -> String {
        in_line(&self.by_queue)
    }

    /// Prints it.
    pub(super) fn show(&self, action: &Action<'_>, context: &Context) -> io::Result<()> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Document<'a> {
            dry_run: bool,
            #[serde(flatten)]
            preview: &'a Preview,
        }
        let ids: Vec<String> = self.sample.iter().map(|hit| hit.id.to_string()).collect();
        context.output.one(&Document { dry_run: true, preview: self }, &ids.join("\n"), |times| {
            if self.matched == 0 {
                return format!("no {}s match", action.one);
            }
            let mut text = format!("would {} {}\n", action.infinitive, action.count(self.matched));
            let mut line =
                |name: &str, value: String| text.push_str(&format!("  {name:<8} {}\n", clean(&value)));
            line("queues", in_line(&self.by_queue));
            line("kinds", in_line(&self.by_job_name));
            line("reasons", in_line(&self.by_reason));
            line("oldest", times.show_if(self.oldest));
            line("newest", times.show_if(self.newest));
            if 0 < self.blocked.handler_missing {
                line(
                    "blocked",
                    format!("{}: no live worker has a handler for them", self.blocked.handler_missing),
                );
            }
            if 0 < self.warnings.running {
                line("running", format!("{}: their workers are told", self.warnings.running));
            }
            text + "\n" + &table(&self.sample, &SAMPLE, times)
        })
    }
}

/// The largest first.
fn in_line(groups: &Groups<String>) -> String {
    let mut sorted: Vec<(&String, &u64)> = groups.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut shown: Vec<String> =
        sorted.iter().take(GROUPS_SHOWN_MAX).map(|(name, count)| format!("{name} {count}")).collect();
    if GROUPS_SHOWN_MAX < sorted.len() {
        shown.push(format!("and {} others", sorted.len() - GROUPS_SHOWN_MAX));
    }
    shown.join(", ")
}

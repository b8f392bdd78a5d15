//! What the hints are made of, read from a store: one list after the other, each of bounded length.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond::query::{Field, Query};
use millpond::view::{Count, Find, GroupBy, QueueView, WorkerView};
use millpond::{Pond, Timestamp};
use millpond_core::hints::{Facts, QueueFacts, is_live};

use crate::exit::Failure;
use crate::why::if_supported;

/// Messages that are looked at for their worker or kind.
const MESSAGES_MAX: usize = 1_000;

/// Runs of a queue of which the times are looked at.
const RUNS_MAX: usize = 200;

/// Dead letters are counted up to this many.
const DEAD_MAX: u64 = 100_000;

/// A lease may be over for so long before somebody takes it over.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(10);

/// Reads everything that hints are made of.
pub(super) async fn facts(pond: &Pond) -> Result<Facts, Failure> {
    let store = pond.store();
    let before = host_now();
    let now = store.now().await?;
    let after = host_now();
    let host_now = before.zip(after).map(|(before, after)| before + after.since(before) / 2);
    let queues = store.queues().await?;
    let workers = store.workers().await?;
    let outbox = if_supported(store.outbox_summary().await)?.unwrap_or_default();
    let info = if_supported(store.info().await)?;
    let findings = info.map(|info| info.findings).unwrap_or_default();
    let failed = failed(pond).await?;
    let more = more(pond, &queues, &workers, now).await?;
    Ok(Facts { now, host_now, queues, workers, outbox, failed, more, snapshot_age: None, findings })
}

fn host_now() -> Option<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_micros(i64::try_from(since.as_micros()).ok()?))
}

async fn failed(pond: &Pond) -> Result<u64, Failure> {
    let query = Query::default().and(Field::Status, ["open".to_owned()]);
    let find = Find { query, rows_max: 1, count: Count::UpTo(DEAD_MAX), ..Find::default() };
    Ok(if_supported(pond.store().dead_letters(find).await)?.map_or(0, |found| found.matched))
}

async fn more(
    pond: &Pond,
    queues: &[QueueView],
    workers: &[WorkerView],
    now: Timestamp,
) -> Result<Vec<QueueFacts>, Failure> {
    let mut more: BTreeMap<String, QueueFacts> = queues
        .iter()
        .map(|queue| (queue.name.clone(), QueueFacts { queue: queue.name.clone(), ..QueueFacts::default() }))
        .collect();
    for (queue, count) in timed_out(pond, queues, workers, now).await? {
        more.entry(queue).and_modify(|facts| facts.timed_out = count);
    }
    for (queue, days) in dead_by_day(pond).await? {
        more.entry(queue).and_modify(|facts| facts.dead_by_day = days);
    }
    for queue in queues {
        let Some(facts) = more.get_mut(&queue.name) else { continue };
        if queue.settings.timeout.is_some() {
            let runs = pond.store().run_times(queue.name.clone(), RUNS_MAX).await;
            facts.runs = if_supported(runs)?.unwrap_or_default();
        }
        if names_its_kinds(queue, workers, now) {
            facts.kinds = kinds(pond, queue).await?;
        }
    }
    Ok(more.into_values().collect())
}

fn query(field: Field, words: &[&str]) -> Query {
    Query::default().and(field, words.iter().map(|word| (*word).to_owned()))
}

/// Leased messages of workers that are gone, by queue.
async fn timed_out(
    pond: &Pond,
    queues: &[QueueView],
    workers: &[WorkerView],
    now: Timestamp,
) -> Result<BTreeMap<String, u64>, Failure> {
    let mut counts = BTreeMap::new();
    if queues.iter().all(|queue| queue.leased == 0) {
        return Ok(counts);
    }
    let find = Find { query: query(Field::State, &["leased"]), rows_max: MESSAGES_MAX, ..Find::default() };
    let Some(found) = if_supported(pond.store().messages(find).await)? else { return Ok(counts) };
    let is_lost = |id: &str| {
        let worker = workers.iter().find(|worker| worker.id == id);
        worker.is_some_and(|worker| TAKEN_OVER_WITHIN < now.since(worker.lease_until))
    };
    for row in found.items {
        if row.worker.as_deref().is_some_and(is_lost) {
            *counts.entry(row.queue).or_default() += 1;
        }
    }
    Ok(counts)
}

/// Dead letters of the last seven spans of 24 hours, without those that somebody cancelled.
async fn dead_by_day(pond: &Pond) -> Result<Vec<(String, Vec<u64>)>, Failure> {
    let died = query(Field::Status, &["open", "retried"]);
    let groups = if_supported(pond.store().dead_letter_groups(died, GroupBy::Queue).await)?;
    let groups = groups.unwrap_or_default().into_iter();
    Ok(groups.map(|group| (group.key, group.per_day.to_vec())).collect())
}

/// Whether its kinds matter: messages wait, and none of those that listen takes any kind.
fn names_its_kinds(queue: &QueueView, workers: &[WorkerView], now: Timestamp) -> bool {
    let mut listeners = workers
        .iter()
        .filter(|worker| is_live(worker, now) && worker.queues.contains(&queue.name))
        .peekable();
    0 < queue.ready + queue.retrying
        && listeners.peek().is_some()
        && listeners.all(|worker| !worker.facts.kinds.is_empty())
}

async fn kinds(pond: &Pond, queue: &QueueView) -> Result<Vec<String>, Failure> {
    let waiting = query(Field::State, &["ready", "retrying"]).and(Field::Queue, [queue.name.clone()]);
    let find = Find { query: waiting, rows_max: MESSAGES_MAX, ..Find::default() };
    let found = if_supported(pond.store().messages(find).await)?;
    let rows = found.map(|found| found.items).unwrap_or_default();
    let kinds: BTreeSet<String> = rows.into_iter().map(|row| row.kind).collect();
    Ok(kinds.into_iter().collect())
}

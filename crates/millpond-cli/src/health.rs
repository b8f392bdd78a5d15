//! `millpond health`: a probe for containers. It never hangs, whatever the store does.

use std::process::ExitCode;
use std::time::Duration;

use millpond::view::WorkerView;
use millpond::{Code, Error, Timestamp};
use millpond_core::hints::{coarse, is_live};
use serde::Serialize;

use crate::exit::{Done, Exit, Failure};
use crate::{Context, codes, instant, open, span};

/// How long the store may take to open and to answer, together.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Nothing but the flags of every command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  millpond health
  millpond health -o json | jq .checks

It says one of three words, within 2 seconds:
  ready      the store opens, its schema fits, and it answers; workers are there or were never asked for
  degraded   the same, but every worker that did not stop is silent
  not ready  the store cannot be used now

Exit codes: 0 ready or degraded, 3 the store is not there, is locked or does not answer, 4 it is none of ours or has
another schema, 2 the configuration is wrong.")]
pub(crate) struct Args {}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Health {
    status: &'static str,
    store: String,
    /// The code of what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(serialize_with = "instant::serialize_if", skip_serializing_if = "Option::is_none")]
    now: Option<Timestamp>,
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    name: &'static str,
    ok: bool,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
}

/// Whether the store can be used, and somebody works.
pub(crate) async fn run(_: Args, context: &Context) -> Done {
    let url = context.config.store();
    let store = millpond::redact(url, &[]);
    // In a task of its own: if it does not end, nobody waits for what it holds.
    let look = tokio::spawn(look(url.to_owned()));
    let (health, exit) = match tokio::time::timeout(ANSWER_MAX, look).await {
        Ok(Ok(Ok((now, workers)))) => (of_store(store, now, &workers), ExitCode::SUCCESS),
        Ok(Ok(Err(failure))) => not_ready(store, &failure),
        Ok(Err(panicked)) => {
            let error = Error::new(Code::Internal, "look at the store").because(panicked.to_string());
            not_ready(store, &error.into())
        }
        Err(_) => {
            let why = format!("no answer within {}", coarse(ANSWER_MAX));
            not_ready(
                store,
                &Error::new(Code::StoreUnavailable, "open and read the store").because(why).into(),
            )
        }
    };
    context.output.one(&health, health.status, |_| health.text())?;
    Ok(exit)
}

async fn look(url: String) -> Result<(Timestamp, Vec<WorkerView>), Failure> {
    let pond = open::existing(&url).await?;
    let now = pond.store().now().await?;
    let workers = pond.store().workers().await?;
    Ok((now, workers))
}

fn of_store(store: String, now: Timestamp, workers: &[WorkerView]) -> Health {
    let workers = work_is_done(now, workers);
    let answers =
        Check { name: "store", ok: true, text: "it opens, its schema fits, it answers".into(), age_ms: None };
    let status = if workers.ok { "ready" } else { "degraded" };
    Health { status, store, code: None, now: Some(now), checks: vec![answers, workers] }
}

/// Somebody lives, or nobody is missed.
fn work_is_done(now: Timestamp, workers: &[WorkerView]) -> Check {
    let of = |ok, text: String, age: Option<Duration>| Check {
        name: "workers",
        ok,
        text,
        age_ms: age.map(span::millis),
    };
    let beat = |workers: &mut dyn Iterator<Item = &WorkerView>| workers.map(|worker| worker.seen_at).max();
    let live = workers.iter().filter(|worker| is_live(worker, now)).count();
    if 0 < live {
        let age = beat(&mut workers.iter().filter(|worker| is_live(worker, now))).map(|at| now.since(at));
        let ago = coarse(age.unwrap_or_default());
        return of(true, format!("{live} live, the last beat {ago} ago"), age);
    }
    let age = beat(&mut workers.iter().filter(|worker| !worker.stopped)).map(|at| now.since(at));
    match age {
        Some(silent) => of(false, format!("none lives; the last beat was {} ago", coarse(silent)), age),
        None if workers.is_empty() => of(true, "there never was one".to_owned(), None),
        None => of(true, "all have stopped by themselves".to_owned(), None),
    }
}

fn not_ready(store: String, failure: &Failure) -> (Health, ExitCode) {
    let code = failure.code();
    let said = failure.to_string();
    let parts = said.lines().map(|line| line.split_once(": ").map_or(line, |(_, text)| text.trim()));
    let text = parts.collect::<Vec<_>>().join("; ");
    let checks = vec![Check { name: "store", ok: false, text, age_ms: None }];
    let exit = codes::find(code).map_or(Exit::Failed, |facts| facts.exit).code();
    (Health { status: "not ready", store, code: Some(code), now: None, checks }, exit)
}

impl Health {
    fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.status, crate::output::clean(&self.store));
        for check in &self.checks {
            text.push_str(&format!("  {:<7}  {}\n", check.name, crate::output::clean(&check.text)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use millpond::view::WorkerFacts;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn worker(seen: u64, lease_lasts: bool, stopped: bool) -> WorkerView {
        let seen_at = NOW - Duration::from_secs(seen);
        WorkerView {
            id: "w".into(),
            host: "h".into(),
            queues: Vec::new(),
            slots: 1,
            busy: 0,
            started_at: seen_at,
            seen_at,
            lease_until: if lease_lasts { NOW + Duration::from_secs(9) } else { NOW },
            stopped,
            error: None,
            facts: WorkerFacts::default(),
            wish: None,
        }
    }

    #[track_caller]
    fn check(workers: &[WorkerView], status: &str, text: &str) {
        let health = of_store(String::new(), NOW, workers);
        assert_eq!((health.status, health.checks[1].text.as_str()), (status, text));
    }

    #[test]
    fn a_store_is_degraded_when_nobody_is_left() {
        let (live, lost, stopped) =
            (worker(3, true, false), worker(90, false, false), worker(5, false, true));
        check(&[], "ready", "there never was one");
        check(&[live, lost.clone(), stopped.clone()], "ready", "1 live, the last beat 3s ago");
        check(&[lost, stopped.clone()], "degraded", "none lives; the last beat was 1m30s ago");
        check(&[stopped], "ready", "all have stopped by themselves");
    }
}

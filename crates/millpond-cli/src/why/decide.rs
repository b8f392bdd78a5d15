//! What keeps a message from running: a function of stored facts, tested as a table of cases.

use std::time::Duration;

use millpond::state::State;
use millpond::text::format_duration;
use millpond::view::{MessageView, QueueView, WorkerView};
use millpond::{MessageId, Timestamp};
use millpond_core::reason::EventKind;
use serde::Serialize;

use super::instant;

/// What is known, of one moment.
pub(super) struct Facts<'a> {
    pub(super) id: MessageId,
    /// Database time.
    pub(super) now: Timestamp,
    pub(super) message: Option<&'a MessageView>,
    /// The queue of the message.
    pub(super) queue: Option<&'a QueueView>,
    pub(super) workers: &'a [WorkerView],
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Why {
    pub(super) state: &'static str,
    #[serde(serialize_with = "instant::serialize_if", skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<Timestamp>,
    /// The first is the nearest; there is always one.
    pub(super) causes: Vec<Cause>,
}

/// One thing that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Cause {
    pub(super) code: &'static str,
    pub(super) text: String,
    #[serde(serialize_with = "instant::serialize_if", skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<String>,
}

impl Cause {
    fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), until: None, action: None }
    }

    fn until(self, until: Option<Timestamp>) -> Self {
        Self { until, ..self }
    }

    fn action(self, action: impl Into<String>) -> Self {
        Self { action: Some(action.into()), ..self }
    }
}

/// Why a message does not run: every cause that applies, the nearest first.
pub(super) fn decide(facts: &Facts<'_>) -> Why {
    let Some(message) = facts.message else {
        let text = "it was never stored here, or settled longer ago than its queue keeps messages";
        let cause = Cause::new("unknown-id", text).action("check the id and --store");
        return Why { state: "unknown", since: None, causes: vec![cause] };
    };
    let causes = match message.state {
        State::Done => vec![done(message)],
        State::Dead => vec![dead(facts, message)],
        State::Cancelled => vec![Cause::new("cancelled", with(&message.error, "it was cancelled"))],
        State::Leased => vec![leased(facts, message)],
        State::Scheduled | State::Retrying => waiting(facts, message),
        State::Ready => ready(facts, message),
    };
    Why { state: message.state.as_str(), since: message.since, causes }
}

fn done(message: &MessageView) -> Cause {
    let worker = message
        .events
        .iter()
        .rev()
        .find(|event| event.kind == EventKind::Success)
        .and_then(|event| event.worker.as_ref());
    let by = worker.map(|worker| format!(" by worker {worker}")).unwrap_or_default();
    Cause::new("done", format!("it was acknowledged{by}, at attempt {}", message.attempt.max(1)))
}

fn dead(facts: &Facts<'_>, message: &MessageView) -> Cause {
    let reason = message.reason.as_deref().unwrap_or("unknown");
    let text = format!("it is a dead letter after {}: {reason}", attempts(message));
    let cause = Cause::new("dead", with(&message.error, &text));
    match message.redriven_as {
        Some(id) => cause.action(format!("it lives on as {id}: millpond why {id}")),
        None => cause.action(format!("millpond dead-letter redrive --id {}", facts.id)),
    }
}

fn leased(facts: &Facts<'_>, message: &MessageView) -> Cause {
    let worker = message.worker.as_deref().unwrap_or("unknown");
    let ran = facts.now.since(message.since.unwrap_or(facts.now));
    if message.lease_until.is_none_or(|until| until <= facts.now) {
        let text =
            format!("worker {worker} had it and is silent; it waits for another worker to take it over");
        return no_taker(facts, Cause::new("lease-expired", text));
    }
    let timeout = facts.queue.and_then(|queue| queue.settings.timeout);
    let stuck = timeout.is_some_and(|timeout| timeout < ran);
    let note = if stuck { ", stuck: it is past its timeout" } else { "" };
    let text = format!("worker {worker} has had it for {}, {}{note}", shown(ran), attempts(message));
    Cause::new("leased", text).until(message.lease_until)
}

/// In the outbox: until it is due, and then until a worker moves it.
fn waiting(facts: &Facts<'_>, message: &MessageView) -> Vec<Cause> {
    let mut causes = Vec::new();
    match message.ready_at.filter(|due| facts.now < *due) {
        Some(due) => {
            let wait = shown(due.since(facts.now));
            let (code, text) = match (message.state, message.reason.as_deref()) {
                (State::Retrying, Some("limited")) => ("retrying", "it was given back".to_owned()),
                (_, Some("snooze")) => ("snoozed", "its handler asked to be called later".to_owned()),
                (State::Retrying, _) => {
                    ("retrying", with(&message.error, &format!("{} failed", attempts(message))))
                }
                (_, _) => ("scheduled", "it was sent to be due later".to_owned()),
            };
            causes.push(Cause::new(code, format!("{text}; due in {wait}")).until(Some(due)));
        }
        None => {
            let late = shown(facts.now.since(message.ready_at.unwrap_or(facts.now)));
            let text =
                format!("it has been due for {late}, and no worker has moved it from the outbox to the log");
            causes.push(Cause::new("not-relayed", text));
        }
    }
    causes.extend(no_listener(facts));
    causes.extend(no_handler(facts, message));
    causes
}

/// In the log, and nobody has taken it.
fn ready(facts: &Facts<'_>, message: &MessageView) -> Vec<Cause> {
    let mut causes: Vec<Cause> = no_listener(facts).into_iter().collect();
    causes.extend(no_handler(facts, message));
    if 0 < message.suspect {
        let company = match message.suspect {
            1 => "alone, when a worker's hands are empty".to_owned(),
            size => format!("in a group of at most {size}"),
        };
        causes
            .push(Cause::new("suspect-waits", format!("workers died with it in hand, so it runs {company}")));
    }
    if let Some(before) = message.behind.filter(|before| 0 < *before) {
        causes
            .push(Cause::new("behind", format!("{before} messages of its part of the queue come before it")));
    }
    causes.extend(no_free_slots(facts));
    if causes.is_empty() {
        causes.push(Cause::new("ready", "nothing holds it: it will be leased at the next poll"));
    }
    causes
}

fn no_listener(facts: &Facts<'_>) -> Option<Cause> {
    let queue = facts.queue?;
    if live(facts).next().is_some() {
        return None;
    }
    let last =
        facts.workers.iter().filter(|worker| listens(worker, queue)).map(|worker| worker.seen_at).max();
    let last = match last {
        Some(at) => format!("the last one was seen {} ago", shown(facts.now.since(at))),
        None => "none ever did, as far as is known".to_owned(),
    };
    let cause =
        Cause::new("no-listener", format!("no live worker listens to queue `{}`; {last}", queue.name));
    Some(cause.action(format!(
        "run `millpond work {} --exec PROGRAM`, or start the program that handles it",
        queue.name
    )))
}

/// The last delivery found nobody who knows the kind.
fn no_handler(facts: &Facts<'_>, message: &MessageView) -> Option<Cause> {
    live(facts).next()?;
    let last = message.events.last().and_then(|event| event.reason.as_deref());
    let text =
        format!("workers listen, but the last one that had it knows no handler of kind `{}`", message.kind);
    (last == Some("no-handler"))
        .then(|| Cause::new("no-handler", text).action("register a handler of this kind"))
}

fn no_free_slots(facts: &Facts<'_>) -> Option<Cause> {
    let workers: Vec<&WorkerView> = live(facts).collect();
    let all_busy = !workers.is_empty() && workers.iter().all(|worker| worker.slots <= worker.busy);
    let busy: u32 = workers.iter().map(|worker| worker.busy).sum();
    all_busy.then(|| {
        let text = format!("all {} listeners are busy, with {busy} handlers running", workers.len());
        Cause::new("no-free-slots", text).action("raise --concurrency, or start another worker")
    })
}

/// What waits for any worker at all says so.
fn no_taker(facts: &Facts<'_>, cause: Cause) -> Cause {
    let anybody = facts.workers.iter().any(|worker| is_live(worker, facts.now));
    if anybody { cause } else { cause.action("no worker is live: start one") }
}

fn live<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = &'a WorkerView> {
    let hears = |worker: &&WorkerView| facts.queue.is_some_and(|queue| listens(worker, queue));
    facts.workers.iter().filter(|worker| is_live(worker, facts.now)).filter(hears)
}

fn is_live(worker: &WorkerView, now: Timestamp) -> bool {
    !worker.stopped && now < worker.lease_until
}

fn listens(worker: &WorkerView, queue: &QueueView) -> bool {
    worker.queues.contains(&queue.name)
}

fn attempts(message: &MessageView) -> String {
    match message.attempts_max {
        Some(max) => format!("attempt {} of {max}", message.attempt),
        None => format!("attempt {}", message.attempt),
    }
}

fn with(error: &Option<String>, text: &str) -> String {
    match error {
        Some(error) => format!("{text} ({error})"),
        None => text.to_owned(),
    }
}

/// To the second, unless it is less than one.
fn shown(duration: Duration) -> String {
    let coarse = if duration.as_secs() == 0 { duration } else { Duration::from_secs(duration.as_secs()) };
    format_duration(coarse)
}

#[cfg(test)]
mod tests {
    use millpond::QueueSettings;
    use millpond::view::{EventView, WorkerFacts};
    use serde_json::Value;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn message(state: State) -> MessageView {
        MessageView {
            id: "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10".parse().unwrap(),
            queue: "mail".into(),
            state,
            kind: "mail".into(),
            key: None,
            headers: Value::Null,
            content_type: "application/json".into(),
            body: Vec::new(),
            priority: 2,
            attempt: 0,
            releases: 0,
            attempts_max: Some(5),
            sent_at: at(900),
            since: Some(at(950)),
            ready_at: None,
            reason: None,
            error: None,
            worker: None,
            lease_until: None,
            suspect: 0,
            behind: None,
            redriven_as: None,
            retry_of: None,
            cancel_asked: false,
            events: Vec::new(),
        }
    }

    fn event(kind: &str, reason: Option<&str>) -> EventView {
        EventView {
            id: String::new(),
            message: None,
            queue: "mail".into(),
            name: "mail".into(),
            kind: EventKind::parse(kind).unwrap(),
            reason: reason.map(str::to_owned),
            attempt: 1,
            delivery: 1,
            count: 1,
            at: at(960),
            worker: Some("w1".into()),
            run: None,
            error: None,
            retry_of: None,
        }
    }

    fn worker(busy: u32) -> WorkerView {
        WorkerView {
            id: "w1".into(),
            host: "here".into(),
            queues: vec!["mail".into()],
            slots: 2,
            busy,
            started_at: at(100),
            seen_at: at(990),
            lease_until: at(1_020),
            stopped: false,
            error: None,
            facts: WorkerFacts::default(),
            wish: None,
        }
    }

    fn queue() -> QueueView {
        QueueView {
            name: "mail".into(),
            settings: QueueSettings::DEFAULT,
            ready: 1,
            leased: 0,
            scheduled: 0,
            retrying: 0,
            dead: 0,
            done: 0,
            sent: 1,
            oldest_ready: None,
            listeners: 0,
            changes: Vec::new(),
            paused_by: Vec::new(),
        }
    }

    #[track_caller]
    fn check(message: Option<MessageView>, workers: &[WorkerView], expected: &[(&str, &str)]) -> Why {
        let (id, queue) = ("0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10".parse().unwrap(), queue());
        let why = decide(&Facts { id, now: NOW, message: message.as_ref(), queue: Some(&queue), workers });
        let found: Vec<_> = why.causes.iter().map(|cause| (cause.code, cause.text.as_str())).collect();
        assert_eq!(found, expected);
        why
    }

    #[test]
    fn an_id_that_is_not_stored() {
        let text = "it was never stored here, or settled longer ago than its queue keeps messages";
        let why = check(None, &[], &[("unknown-id", text)]);
        assert_eq!(why.state, "unknown");
    }

    #[test]
    fn what_has_ended_says_how() {
        let done = MessageView { attempt: 2, events: vec![event("SUCCESS", None)], ..message(State::Done) };
        check(Some(done), &[], &[("done", "it was acknowledged by worker w1, at attempt 2")]);
        let dead = MessageView {
            attempt: 5,
            reason: Some("exhausted".into()),
            error: Some("no route".into()),
            ..message(State::Dead)
        };
        let why = check(
            Some(dead),
            &[],
            &[("dead", "it is a dead letter after attempt 5 of 5: exhausted (no route)")],
        );
        assert_eq!(
            why.causes[0].action.as_deref(),
            Some("millpond dead-letter redrive --id 0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10")
        );
        check(Some(message(State::Cancelled)), &[], &[("cancelled", "it was cancelled")]);
    }

    #[test]
    fn a_lease_runs_or_is_stuck_or_is_over() {
        let leased = MessageView {
            attempt: 1,
            worker: Some("w1".into()),
            lease_until: Some(at(1_020)),
            ..message(State::Leased)
        };
        let why = check(
            Some(leased.clone()),
            &[worker(1)],
            &[("leased", "worker w1 has had it for 50s, attempt 1 of 5")],
        );
        assert_eq!(why.causes[0].until, Some(at(1_020)));
        let stuck = MessageView { since: Some(at(600)), ..leased.clone() };
        check(
            Some(stuck),
            &[worker(1)],
            &[("leased", "worker w1 has had it for 6m40s, attempt 1 of 5, stuck: it is past its timeout")],
        );
        let over = MessageView { lease_until: Some(at(999)), ..leased };
        let text = "worker w1 had it and is silent; it waits for another worker to take it over";
        assert_eq!(
            check(Some(over.clone()), &[worker(1)], &[("lease-expired", text)]).causes[0].action,
            None
        );
        assert!(check(Some(over), &[], &[("lease-expired", text)]).causes[0].action.is_some());
    }

    #[test]
    fn what_waits_in_the_outbox_is_due_later() {
        let waits = |state, reason: &str| MessageView {
            attempt: 2,
            ready_at: Some(at(1_090)),
            reason: Some(reason.into()),
            ..message(state)
        };
        let scheduled = MessageView { attempt: 0, ..waits(State::Scheduled, "delay") };
        let why = check(
            Some(scheduled),
            &[worker(0)],
            &[("scheduled", "it was sent to be due later; due in 1m30s")],
        );
        assert_eq!(why.causes[0].until, Some(at(1_090)));
        let failed = MessageView { error: Some("no route".into()), ..waits(State::Retrying, "retry") };
        check(Some(failed), &[worker(0)], &[("retrying", "attempt 2 of 5 failed (no route); due in 1m30s")]);
        check(
            Some(waits(State::Scheduled, "snooze")),
            &[worker(0)],
            &[("snoozed", "its handler asked to be called later; due in 1m30s")],
        );
        let unknown_kind = MessageView {
            events: vec![event("RETRY", Some("no-handler"))],
            ..waits(State::Retrying, "limited")
        };
        check(
            Some(unknown_kind),
            &[worker(0)],
            &[
                ("retrying", "it was given back; due in 1m30s"),
                (
                    "no-handler",
                    "workers listen, but the last one that had it knows no handler of kind `mail`",
                ),
            ],
        );
    }

    #[test]
    fn what_is_due_waits_for_a_worker_to_move_it() {
        let due = MessageView {
            ready_at: Some(at(990)),
            reason: Some("delay".into()),
            ..message(State::Scheduled)
        };
        let text = "it has been due for 10s, and no worker has moved it from the outbox to the log";
        let none = "no live worker listens to queue `mail`; none ever did, as far as is known";
        check(Some(due.clone()), &[worker(0)], &[("not-relayed", text)]);
        check(Some(due), &[], &[("not-relayed", text), ("no-listener", none)]);
    }

    #[test]
    fn nobody_listens() {
        let silent = WorkerView { lease_until: at(999), ..worker(0) };
        let stopped = WorkerView { stopped: true, seen_at: at(700), ..worker(0) };
        let other = WorkerView { queues: vec!["other".into()], ..worker(0) };
        let text = "no live worker listens to queue `mail`; the last one was seen 10s ago";
        check(Some(message(State::Ready)), &[stopped, silent, other], &[("no-listener", text)]);
    }

    #[test]
    fn what_is_ready_waits_for_its_turn() {
        check(
            Some(message(State::Ready)),
            &[worker(1)],
            &[("ready", "nothing holds it: it will be leased at the next poll")],
        );
        let behind = MessageView { behind: Some(7), ..message(State::Ready) };
        check(
            Some(behind),
            &[worker(2)],
            &[
                ("behind", "7 messages of its part of the queue come before it"),
                ("no-free-slots", "all 1 listeners are busy, with 2 handlers running"),
            ],
        );
        let suspect = |size| MessageView { suspect: size, ..message(State::Ready) };
        let alone = "workers died with it in hand, so it runs alone, when a worker's hands are empty";
        check(Some(suspect(1)), &[worker(0)], &[("suspect-waits", alone)]);
        let group = "workers died with it in hand, so it runs in a group of at most 64";
        check(Some(suspect(64)), &[worker(0)], &[("suspect-waits", group)]);
    }
}

//! What keeps a message from running: a function of stored facts, tested as a table of cases.

use std::time::Duration;

use millpond::state::State;
use millpond::text::format_duration;
use millpond::view::{MessageRow, MessageView, Pause, QueueView, WorkerView};
use millpond::{MessageId, Timestamp};
use millpond_core::hints::{coarse, is_live, knows, pause_action, pause_text};
use millpond_core::reason::EventKind;
use serde::Serialize;

use super::instant;
use super::rates::{self, Rate};
use crate::paste::Paste;

/// Workers that are named as those that hold the room.
const HOLDERS_MAX: usize = 3;

/// What is known, of one moment.
pub(super) struct Facts<'a> {
    pub(super) id: MessageId,
    /// Database time.
    pub(super) now: Timestamp,
    pub(super) message: Option<&'a MessageView>,
    /// The queue of the message.
    pub(super) queue: Option<&'a QueueView>,
    pub(super) workers: &'a [WorkerView],
    /// How fast the queue is worked on, the shortest window first.
    pub(super) rates: &'a [Rate],
    /// What runs in the queue, the longest first.
    pub(super) running: &'a [MessageRow],
    /// Who has messages of the queue in hand, and how many, the most first.
    pub(super) holders: &'a [(String, usize)],
    pub(super) paste: &'a Paste,
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
    /// A command that works when it is pasted.
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

impl Facts<'_> {
    fn paste(&self, words: &str) -> String {
        self.paste.line(words)
    }
}

/// Why a message does not run: every cause that applies, the nearest first.
pub(super) fn decide(facts: &Facts<'_>) -> Why {
    let Some(message) = facts.message else {
        let text = "it was never stored here, or settled longer ago than its queue keeps messages";
        let cause = Cause::new("unknown-id", text).action(facts.paste("store info"));
        return Why { state: "unknown", since: None, causes: vec![cause] };
    };
    let causes = match message.state {
        State::Done => vec![done(message)],
        State::Dead => vec![dead(facts, message)],
        State::Cancelled => vec![redriven(facts, message, cancelled(message))],
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
    let last = message.events.iter().rev().find(|event| event.kind == EventKind::Dlq);
    let by = last.and_then(|event| event.worker.as_ref());
    let by = by.map(|worker| format!(" of worker {worker}")).unwrap_or_default();
    let text = format!("it is a dead letter after {}{by}: {reason}", attempts(message));
    redriven(facts, message, Cause::new("dead", with(&message.error, &text)))
}

fn cancelled(message: &MessageView) -> Cause {
    Cause::new("cancelled", with(&message.error, "it was cancelled"))
}

/// With where it lives on, or how it comes back.
fn redriven(facts: &Facts<'_>, message: &MessageView, mut cause: Cause) -> Cause {
    match message.redriven_as {
        Some(id) => {
            cause.text.push_str(&format!("; it lives on as {id}"));
            cause.action(facts.paste(&format!("why {id}")))
        }
        None => cause.action(facts.paste(&format!("dead-letter redrive --id {}", facts.id))),
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
    let note = match (stuck, message.cancel_asked) {
        (true, true) => ", stuck: it is past its timeout, and was asked to stop",
        (true, false) => ", stuck: it is past its timeout",
        (false, true) => "; it was asked to stop",
        (false, false) => "",
    };
    let text = format!("worker {worker} has had it for {}, {}{note}", coarse(ran), attempts(message));
    let cause = Cause::new("leased", text).until(message.lease_until);
    match stuck && !message.cancel_asked {
        true => cause.action(facts.paste(&format!("message cancel {}", facts.id))),
        false => cause,
    }
}

/// In the outbox: until it is due, and then until a worker moves it.
fn waiting(facts: &Facts<'_>, message: &MessageView) -> Vec<Cause> {
    let mut causes = Vec::new();
    match message.ready_at.filter(|due| facts.now < *due) {
        Some(due) => {
            let wait = coarse(due.since(facts.now));
            let (code, text) = match (message.state, message.reason.as_deref()) {
                (State::Retrying, Some("limited")) => ("retrying", "it was given back".to_owned()),
                (_, Some("snooze")) => ("snoozed", "its handler asked to be called later".to_owned()),
                (State::Retrying, _) => {
                    ("retrying", with(&message.error, &format!("{} failed", attempts(message))))
                }
                (_, _) => ("scheduled", "it was sent to be due later".to_owned()),
            };
            let cause = Cause::new(code, format!("{text}; due in {wait}")).until(Some(due));
            causes.push(cause.action(facts.paste(&format!("message retry {}", facts.id))));
        }
        None => causes.push(not_relayed(facts, message)),
    }
    causes.extend(paused(facts));
    causes.extend(no_listener(facts));
    causes.extend(no_handler(facts, message));
    causes
}

fn not_relayed(facts: &Facts<'_>, message: &MessageView) -> Cause {
    let late = coarse(facts.now.since(message.ready_at.unwrap_or(facts.now)));
    let text = format!("it has been due for {late}, and no worker has moved it from the outbox to the log");
    let text = match anybody(facts) {
        true => text,
        false => format!("{text}: no worker of any queue is live"),
    };
    Cause::new("not-relayed", with(&message.error, &text)).action(facts.paste("worker list"))
}

/// In the log, and nobody has taken it.
fn ready(facts: &Facts<'_>, message: &MessageView) -> Vec<Cause> {
    let mut causes = paused(facts);
    causes.extend(no_listener(facts));
    causes.extend(no_handler(facts, message));
    if 0 < message.suspect {
        let company = match message.suspect {
            1 => "alone, when a worker's hands are empty".to_owned(),
            size => format!("in a group of at most {size}"),
        };
        let text = format!("workers died with it in hand, so it runs {company}");
        causes.push(Cause::new("suspect-waits", text).action(facts.paste("worker list")));
    }
    causes.extend(limited(facts));
    causes.extend(behind(facts, message));
    causes.extend(no_free_slots(facts));
    if causes.is_empty() {
        causes.push(Cause::new("ready", "nothing holds it: it will be leased at the next poll"));
    }
    causes
}

/// A cause for each pause: it runs when the last of them has ended.
fn paused(facts: &Facts<'_>) -> Vec<Cause> {
    let pauses = facts.queue.map(|queue| queue.paused_by.as_slice()).unwrap_or_default();
    let cause = |pause: &Pause| {
        let action = facts.paste(&pause_action(pause));
        Cause::new("paused", pause_text(pause, facts.now)).until(pause.until).action(action)
    };
    pauses.iter().map(cause).collect()
}

fn no_listener(facts: &Facts<'_>) -> Option<Cause> {
    let queue = facts.queue?;
    if live(facts).next().is_some() {
        return None;
    }
    let action = facts.paste("worker list");
    if facts.workers.iter().any(|worker| hears(facts, worker)) {
        let text = format!("each of the workers that listen to queue `{}` drains", queue.name);
        return Some(Cause::new("no-listener", text).action(action));
    }
    let last =
        facts.workers.iter().filter(|worker| listens(worker, queue)).map(|worker| worker.seen_at).max();
    let last = match last {
        Some(at) => format!("the last one was seen {} ago", coarse(facts.now.since(at))),
        None => "none ever did, as far as is known".to_owned(),
    };
    let text = format!(
        "no live worker listens to queue `{}`; {last}: start the program that handles it, or `millpond work {} --exec \
         PROGRAM`",
        queue.name, queue.name
    );
    Some(Cause::new("no-listener", text).action(action))
}

/// No live worker has a handler for the kind, by what they say, or by what the last of them did.
fn no_handler(facts: &Facts<'_>, message: &MessageView) -> Option<Cause> {
    live(facts).next()?;
    let kind = &message.kind;
    let last = message.events.last().and_then(|event| event.reason.as_deref());
    let text = match (live(facts).any(|worker| knows(worker, kind)), last) {
        (false, _) => {
            let known: Vec<&str> =
                live(facts).flat_map(|worker| &worker.facts.kinds).map(String::as_str).collect();
            let (count, known) = (live(facts).count(), in_order(known).join(", "));
            let who = if count == 1 {
                "1 worker listens and has".to_owned()
            } else {
                format!("{count} workers listen, none has")
            };
            let no = if count == 1 { "no" } else { "a" };
            format!("{who} {no} handler of kind `{kind}`; they know {known}")
        }
        (true, Some("no-handler")) => {
            format!("workers listen, but the last one that had it knows no handler of kind `{kind}`")
        }
        (true, _) => return None,
    };
    Some(Cause::new("no-handler", text).action(facts.paste("worker list")))
}

fn in_order(mut words: Vec<&str>) -> Vec<&str> {
    words.sort_unstable();
    words.dedup();
    words
}

/// How many come before it, and how long that will take at the pace of the last minutes.
fn behind(facts: &Facts<'_>, message: &MessageView) -> Option<Cause> {
    let before = message.behind.filter(|before| 0 < *before)?;
    let (messages, come) = if before == 1 { ("message", "comes") } else { ("messages", "come") };
    let text = format!("{before} {messages} of its part of the queue {come} before it");
    let pace = facts.rates.iter().map(|rate| rate.leased_per_second).find(|pace| 0.0 < *pace);
    let text = match pace {
        Some(pace) => {
            let wait = Duration::try_from_secs_f64(before as f64 / pace).unwrap_or(Duration::MAX);
            format!("{text}; at {}, its turn is in about {}", rates::shown(pace), coarse(wait))
        }
        None if facts.rates.is_empty() => text,
        None => format!("{text}; none was taken in the last hour"),
    };
    let queue = facts.queue.map_or(message.queue.as_str(), |queue| &queue.name);
    Some(Cause::new("behind", text).action(facts.paste(&format!("why {queue}"))))
}

/// What the limits of the queue say that hold over all nodes.
fn limited(facts: &Facts<'_>) -> Vec<Cause> {
    let Some(queue) = facts.queue else { return Vec::new() };
    let action = || facts.paste(&format!("queue show {}", queue.name));
    let mut causes = Vec::new();
    if queue.settings.exclusive && 0 < queue.leased {
        let text = format!("queue `{}` is exclusive, and {} in hand", queue.name, holders(facts));
        causes.push(Cause::new("exclusive-busy", text).action(facts.paste("worker list")));
    }
    if let Some(limit) = queue.settings.concurrency.filter(|limit| u64::from(*limit) <= queue.leased) {
        let most = if limit == 1 { "1 message".to_owned() } else { format!("{limit} messages") };
        let text = format!("at most {most} of queue `{}` may be in hand, and {}", queue.name, holders(facts));
        causes.push(Cause::new("concurrency-limit", text).action(action()));
    }
    if let (Some(rate), Some(until)) = (queue.settings.rate, queue.rate_until.filter(|at| facts.now < *at)) {
        let text = format!(
            "queue `{}` has leased what its rate of {} in {} allows; there is room in {}",
            queue.name,
            rate.count,
            format_duration(rate.period),
            coarse(until.since(facts.now))
        );
        causes.push(Cause::new("rate-limited", text).until(Some(until)).action(action()));
    }
    causes
}

/// Who has how many, as far as is known. What a silent worker has is its own until another one takes it over.
fn holders(facts: &Facts<'_>) -> String {
    let leased = facts.queue.map_or(0, |queue| queue.leased);
    let holder = |(worker, count): &(String, usize)| {
        let silent = !facts.workers.iter().any(|known| known.id == *worker && is_live(known, facts.now));
        let silent = if silent { ", which is silent: it waits to be taken over" } else { "" };
        format!("worker {worker} has {count}{silent}")
    };
    match facts.holders {
        [] => format!("{leased} are"),
        known => known.iter().take(HOLDERS_MAX).map(holder).collect::<Vec<_>>().join(", "),
    }
}

fn no_free_slots(facts: &Facts<'_>) -> Option<Cause> {
    let queue = facts.queue?;
    let (mut count, mut slots, mut busy) = (0, 0, 0);
    for worker in live(facts) {
        (count, slots, busy) = (count + 1, slots + worker.slots, busy + worker.busy);
    }
    if count == 0 || busy < slots {
        return None;
    }
    let workers = if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") };
    let mut text = format!("all {slots} slots of {workers} are busy");
    let longest: Vec<String> = facts.running.iter().map(running).collect();
    if !longest.is_empty() {
        text.push_str(&format!("; the longest: {}", longest.join(", ")));
    }
    let action = facts.paste(&format!("why {}", queue.name));
    Some(Cause::new("no-free-slots", text).action(action))
}

fn running(row: &MessageRow) -> String {
    let run = row.run.map(|run| format!(" for {}", coarse(run))).unwrap_or_default();
    format!("{}{run} ({})", row.kind, row.id)
}

/// What waits for any worker at all says so.
fn no_taker(facts: &Facts<'_>, mut cause: Cause) -> Cause {
    if anybody(facts) {
        return cause;
    }
    cause.text.push_str("; no worker of any queue is live: start one");
    cause.action(facts.paste("worker list"))
}

fn anybody(facts: &Facts<'_>) -> bool {
    facts.workers.iter().any(|worker| is_live(worker, facts.now))
}

/// Workers that may lease from the queue.
fn live<'a>(facts: &'a Facts<'_>) -> impl Iterator<Item = &'a WorkerView> {
    facts.workers.iter().filter(|worker| hears(facts, worker) && !worker.facts.draining)
}

fn hears(facts: &Facts<'_>, worker: &WorkerView) -> bool {
    is_live(worker, facts.now) && facts.queue.is_some_and(|queue| listens(worker, queue))
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
            retry_until: None,
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
            rate_until: None,
        }
    }

    const ID: &str = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a10";

    /// What is known beside the message and the workers.
    #[derive(Default)]
    struct Around {
        paused_by: Vec<Pause>,
        rates: Vec<Rate>,
        running: Vec<MessageRow>,
        holders: Vec<(String, usize)>,
        settings: QueueSettings,
        leased: u64,
        rate_until: Option<Timestamp>,
    }

    #[track_caller]
    fn check_with(
        message: Option<MessageView>,
        workers: &[WorkerView],
        around: Around,
        expected: &[(&str, &str)],
    ) -> Why {
        let queue = QueueView {
            paused_by: around.paused_by,
            settings: around.settings,
            leased: around.leased,
            rate_until: around.rate_until,
            ..queue()
        };
        let why = decide(&Facts {
            id: ID.parse().unwrap(),
            now: NOW,
            message: message.as_ref(),
            queue: Some(&queue),
            workers,
            rates: &around.rates,
            running: &around.running,
            holders: &around.holders,
            paste: &Paste::default(),
        });
        let found: Vec<_> = why.causes.iter().map(|cause| (cause.code, cause.text.as_str())).collect();
        assert_eq!(found, expected);
        why
    }

    #[track_caller]
    fn check(message: Option<MessageView>, workers: &[WorkerView], expected: &[(&str, &str)]) -> Why {
        check_with(message, workers, Around::default(), expected)
    }

    fn actions(why: &Why) -> Vec<Option<&str>> {
        why.causes.iter().map(|cause| cause.action.as_deref()).collect()
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
            events: vec![event("DLQ", Some("exhausted"))],
            ..message(State::Dead)
        };
        let why = check(
            Some(dead),
            &[],
            &[("dead", "it is a dead letter after attempt 5 of 5 of worker w1: exhausted (no route)")],
        );
        assert_eq!(actions(&why), [Some(&*format!("millpond dead-letter redrive --id {ID}"))]);
        let cancelled = MessageView { error: Some("by ann: a mistake".into()), ..message(State::Cancelled) };
        check(Some(cancelled.clone()), &[], &[("cancelled", "it was cancelled (by ann: a mistake)")]);
        let new = "0192c5d2-7b1e-7c4e-9d39-1f7b2f6c1a11";
        let again = MessageView { redriven_as: Some(new.parse().unwrap()), error: None, ..cancelled };
        let text = format!("it was cancelled; it lives on as {new}");
        let why = check(Some(again), &[], &[("cancelled", &text)]);
        assert_eq!(actions(&why), [Some(&*format!("millpond why {new}"))]);
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
        let text = "worker w1 has had it for 6m40s, attempt 1 of 5, stuck: it is past its timeout";
        let why = check(Some(stuck.clone()), &[worker(1)], &[("leased", text)]);
        assert_eq!(actions(&why), [Some(&*format!("millpond message cancel {ID}"))]);
        let asked = |leased| Some(MessageView { cancel_asked: true, ..leased });
        let text = format!("{text}, and was asked to stop");
        assert_eq!(actions(&check(asked(stuck), &[worker(1)], &[("leased", &text)])), [None]);
        let text = "worker w1 has had it for 50s, attempt 1 of 5; it was asked to stop";
        check(asked(leased.clone()), &[worker(1)], &[("leased", text)]);
        let over = MessageView { lease_until: Some(at(999)), ..leased };
        let text = "worker w1 had it and is silent; it waits for another worker to take it over";
        assert_eq!(
            check(Some(over.clone()), &[worker(1)], &[("lease-expired", text)]).causes[0].action,
            None
        );
        let text = format!("{text}; no worker of any queue is live: start one");
        assert!(check(Some(over), &[], &[("lease-expired", &text)]).causes[0].action.is_some());
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
        let none = "no live worker listens to queue `mail`; none ever did, as far as is known: start the program that \
                    handles it, or `millpond work mail --exec PROGRAM`";
        check(Some(due.clone()), &[worker(0)], &[("not-relayed", text)]);
        let text = format!("{text}: no worker of any queue is live");
        let why = check(Some(due), &[], &[("not-relayed", &text), ("no-listener", none)]);
        assert_eq!(actions(&why), [Some("millpond worker list"); 2]);
    }

    #[test]
    fn nobody_listens() {
        let silent = WorkerView { lease_until: at(999), ..worker(0) };
        let stopped = WorkerView { stopped: true, seen_at: at(700), ..worker(0) };
        let other = WorkerView { queues: vec!["other".into()], ..worker(0) };
        let text = "no live worker listens to queue `mail`; the last one was seen 10s ago: start the program that \
                    handles it, or `millpond work mail --exec PROGRAM`";
        check(Some(message(State::Ready)), &[stopped, silent, other], &[("no-listener", text)]);
        let draining =
            WorkerView { facts: WorkerFacts { draining: true, ..WorkerFacts::default() }, ..worker(0) };
        let text = "each of the workers that listen to queue `mail` drains";
        check(Some(message(State::Ready)), &[draining], &[("no-listener", text)]);
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
                ("no-free-slots", "all 2 slots of 1 worker are busy"),
            ],
        );
        let suspect = |size| MessageView { suspect: size, ..message(State::Ready) };
        let alone = "workers died with it in hand, so it runs alone, when a worker's hands are empty";
        check(Some(suspect(1)), &[worker(0)], &[("suspect-waits", alone)]);
        let group = "workers died with it in hand, so it runs in a group of at most 64";
        check(Some(suspect(64)), &[worker(0)], &[("suspect-waits", group)]);
    }

    #[test]
    fn what_is_behind_others_has_a_pace() {
        let rate = |leased_per_second| Rate {
            minutes: 1,
            arrived_per_second: 0.0,
            leased_per_second,
            ended_per_second: 0.0,
            ended: 0,
            retried: 0,
            dead: 0,
        };
        for (before, rates, expected) in [
            (1, vec![], "1 message of its part of the queue comes before it"),
            (
                120,
                vec![rate(0.0), rate(2.0)],
                "120 messages of its part of the queue come before it; at 2.0/s, its turn is in about 1m",
            ),
            (
                2,
                vec![rate(0.0)],
                "2 messages of its part of the queue come before it; none was taken in the last hour",
            ),
        ] {
            let behind = MessageView { behind: Some(before), ..message(State::Ready) };
            let around = Around { rates, ..Around::default() };
            let why = check_with(Some(behind), &[worker(0)], around, &[("behind", expected)]);
            assert_eq!(actions(&why), [Some("millpond why mail")]);
        }
    }

    #[test]
    fn the_longest_of_the_jobs_that_hold_the_slots_are_named() {
        let row = MessageRow {
            id: ID.parse().unwrap(),
            queue: "mail".into(),
            kind: "mail.welcome".into(),
            key: None,
            priority: 2,
            state: State::Leased,
            attempt: 1,
            attempts_max: None,
            retry_until: None,
            sent_at: at(900),
            ready_at: None,
            wait: None,
            run: Some(Duration::from_secs(90)),
            reason: None,
            error: None,
            worker: None,
            headers: Value::Null,
            content_type: String::new(),
            body: Vec::new(),
        };
        let around = Around { running: vec![row], ..Around::default() };
        let text = format!("all 4 slots of 2 workers are busy; the longest: mail.welcome for 1m30s ({ID})");
        check_with(Some(message(State::Ready)), &[worker(2), worker(2)], around, &[("no-free-slots", &text)]);
        let free = "nothing holds it: it will be leased at the next poll";
        check(Some(message(State::Ready)), &[worker(2), worker(1)], &[("ready", free)]);
    }

    #[test]
    fn what_a_limit_of_the_queue_holds_says_who_has_the_room() {
        let limited = |settings, leased, holders: &[(&str, usize)]| Around {
            settings,
            leased,
            holders: holders.iter().map(|(worker, count)| ((*worker).to_owned(), *count)).collect(),
            ..Around::default()
        };
        let exclusive = QueueSettings { exclusive: true, ..QueueSettings::DEFAULT };
        let why = check_with(
            Some(message(State::Ready)),
            &[worker(1)],
            limited(exclusive, 1, &[("w1", 1)]),
            &[("exclusive-busy", "queue `mail` is exclusive, and worker w1 has 1 in hand")],
        );
        assert_eq!(actions(&why), [Some("millpond worker list")]);
        let silent = WorkerView { id: "w2".into(), lease_until: at(999), ..worker(0) };
        let four = QueueSettings { concurrency: Some(4), ..QueueSettings::DEFAULT };
        let text = "at most 4 messages of queue `mail` may be in hand, and worker w1 has 3, worker w2 has 1, which is \
                    silent: it waits to be taken over";
        let holders = [("w1", 3), ("w2", 1)];
        let why = check_with(
            Some(message(State::Ready)),
            &[worker(1), silent],
            limited(four, 4, &holders),
            &[("concurrency-limit", text)],
        );
        assert_eq!(actions(&why), [Some("millpond queue show mail")]);
        let free = [("ready", "nothing holds it: it will be leased at the next poll")];
        check_with(Some(message(State::Ready)), &[worker(1)], limited(four, 3, &[("w1", 3)]), &free);
        check_with(Some(message(State::Ready)), &[worker(1)], limited(exclusive, 0, &[]), &free);
    }

    #[test]
    fn what_a_rate_holds_says_when_there_is_room() {
        let rate = millpond::Rate { count: 30, period: Duration::from_secs(60) };
        let settings = QueueSettings { rate: Some(rate), ..QueueSettings::DEFAULT };
        let around = |rate_until| Around { settings, rate_until, ..Around::default() };
        let text = "queue `mail` has leased what its rate of 30 in 1m allows; there is room in 2s";
        let ready = || Some(message(State::Ready));
        let why = check_with(ready(), &[worker(1)], around(Some(at(1_002))), &[("rate-limited", text)]);
        assert_eq!(why.causes[0].until, Some(at(1_002)));
        let free = [("ready", "nothing holds it: it will be leased at the next poll")];
        check_with(ready(), &[worker(1)], around(None), &free);
        check_with(ready(), &[worker(1)], around(Some(at(1_000))), &free);
    }

    #[test]
    fn every_pause_that_holds_it_is_named() {
        let pause = |scope, reason: Option<&str>, until| Pause {
            scope,
            reason: reason.map(str::to_owned),
            actor: "ann".into(),
            since: at(940),
            until,
        };
        use millpond::view::Scope;
        let all = pause(Scope::Global, None, Some(at(1_060)));
        let one = pause(Scope::Queue("mail".into()), Some("deploy"), None);
        let expected = [
            ("paused", "every queue has been paused for 1m by ann; it ends in 1m"),
            ("paused", "queue `mail` has been paused for 1m by ann (deploy); it has no end"),
        ];
        let paused_by = vec![all, one];
        let around = || Around { paused_by: paused_by.clone(), ..Around::default() };
        let why = check_with(Some(message(State::Ready)), &[worker(0)], around(), &expected);
        assert_eq!(why.causes[0].until, Some(at(1_060)));
        assert_eq!(actions(&why), [Some("millpond queue resume --all"), Some("millpond queue resume mail")]);
        let later = MessageView { ready_at: Some(at(1_010)), ..message(State::Scheduled) };
        let both = [("scheduled", "it was sent to be due later; due in 10s"), expected[0], expected[1]];
        let why = check_with(Some(later), &[worker(0)], around(), &both);
        assert_eq!(actions(&why)[0], Some(&*format!("millpond message retry {ID}")));
    }

    #[test]
    fn workers_say_which_kinds_they_know() {
        let knowing = |kinds: &[&str]| {
            let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
            WorkerView { facts: WorkerFacts { kinds, ..WorkerFacts::default() }, ..worker(0) }
        };
        let text = "1 worker listens and has no handler of kind `mail`; they know a, b";
        check(Some(message(State::Ready)), &[knowing(&["b", "a"])], &[("no-handler", text)]);
        let text = "2 workers listen, none has a handler of kind `mail`; they know a, b";
        check(Some(message(State::Ready)), &[knowing(&["b"]), knowing(&["a", "b"])], &[("no-handler", text)]);
        let free = "nothing holds it: it will be leased at the next poll";
        check(Some(message(State::Ready)), &[knowing(&["b"]), knowing(&["mail"])], &[("ready", free)]);
        check(Some(message(State::Ready)), &[knowing(&["b"]), knowing(&[])], &[("ready", free)]);
    }
}

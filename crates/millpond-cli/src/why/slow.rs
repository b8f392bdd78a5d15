//! Why a queue is slow: one sentence of advice, then what it rests on. A function of stored facts.

use std::time::Duration;

use millpond::Timestamp;
use millpond::text::{format_duration, format_size};
use millpond::view::{QueueView, WorkerView};
use millpond_core::hints::{coarse, is_live, pause_action, pause_text, percentile};
use serde::Serialize;

use super::instant;
use super::rates::{Rate, shown};
use crate::output::counted;
use crate::paste::Paste;
use crate::span::millis;

/// A ready message that waits less than this is no sign of slowness: workers poll each half second.
const AGE_FINE: Duration = Duration::from_secs(2);

/// Fewer failed attempts than this in an hour say nothing.
const FAILURES_MIN: u64 = 10;

/// What is known, of one moment.
pub(super) struct Facts<'a> {
    /// Database time.
    pub(super) now: Timestamp,
    pub(super) queue: &'a QueueView,
    pub(super) workers: &'a [WorkerView],
    /// Messages that are due in the outbox and were not moved yet.
    pub(super) due: u64,
    /// The last minute, 5 and 60, if counters can be read.
    pub(super) rates: Option<[Rate; 3]>,
    /// How long the newest runs took, sorted.
    pub(super) runs: &'a [Duration],
    pub(super) paste: &'a Paste,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slow {
    pub(super) queue: String,
    pub(super) advice: Advice,
    pub(super) lag: Lag,
    pub(super) rates: Vec<Rate>,
    pub(super) runs: Option<Runs>,
    pub(super) in_flight: u64,
    pub(super) slots: Slots,
    pub(super) retries_in_hour: Option<u64>,
    pub(super) dead_in_hour: Option<u64>,
    pub(super) dead: u64,
    pub(super) paused_by: Vec<PauseShown>,
    pub(super) limits: Limits,
}

/// What would help, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Advice {
    /// A word that does not change.
    pub(super) code: &'static str,
    /// Whether more workers would help.
    pub(super) more_workers_help: bool,
    pub(super) text: String,
    /// A command that works when it is pasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<String>,
}

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lag {
    pub(super) ready: u64,
    /// In the outbox, among those below, and due.
    pub(super) due: u64,
    pub(super) scheduled: u64,
    pub(super) retrying: u64,
    pub(super) oldest_age_ms: Option<u64>,
}

/// How long runs take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Runs {
    pub(super) count: usize,
    pub(super) p50_ms: u64,
    pub(super) p95_ms: u64,
    pub(super) max_ms: u64,
}

/// Slots of the live workers that listen, whatever queue they work for at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slots {
    pub(super) listeners: u64,
    pub(super) draining: u64,
    pub(super) slots: u32,
    pub(super) busy: u32,
    pub(super) stuck: u32,
    /// Busy slots of all.
    pub(super) saturation: Option<f64>,
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PauseShown {
    pub(super) text: String,
    pub(super) actor: String,
    pub(super) reason: Option<String>,
    #[serde(serialize_with = "instant::serialize")]
    pub(super) since: Timestamp,
    #[serde(serialize_with = "instant::serialize_if")]
    pub(super) until: Option<Timestamp>,
}

/// Settings that hold messages back or end them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Limits {
    pub(super) concurrency_per_node: Option<u32>,
    pub(super) exclusive: bool,
    pub(super) concurrency: Option<u32>,
    pub(super) rate_messages: Option<u32>,
    pub(super) rate_period_ms: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) attempts_max: u32,
    pub(super) message_limit_bytes: u64,
}

/// Why a queue is slow, if it is.
pub(super) fn slow(facts: &Facts<'_>) -> Slow {
    let (queue, slots) = (facts.queue, slots(facts));
    let hour = facts.rates.map(|[_, _, hour]| hour);
    let pause = |pause: &millpond::view::Pause| PauseShown {
        text: pause_text(pause, facts.now),
        actor: pause.actor.clone(),
        reason: pause.reason.clone(),
        since: pause.since,
        until: pause.until,
    };
    Slow {
        queue: queue.name.clone(),
        advice: advice(facts, &slots),
        lag: Lag {
            ready: queue.ready,
            due: facts.due,
            scheduled: queue.scheduled,
            retrying: queue.retrying,
            oldest_age_ms: age(facts).map(millis),
        },
        rates: facts.rates.map(Vec::from).unwrap_or_default(),
        runs: runs(facts.runs),
        in_flight: queue.leased,
        slots,
        retries_in_hour: hour.map(|hour| hour.retried),
        dead_in_hour: hour.map(|hour| hour.dead),
        dead: queue.dead,
        paused_by: queue.paused_by.iter().map(pause).collect(),
        limits: Limits {
            concurrency_per_node: queue.settings.concurrency_per_node,
            exclusive: queue.settings.exclusive,
            concurrency: queue.settings.concurrency,
            rate_messages: queue.settings.rate.map(|rate| rate.count),
            rate_period_ms: queue.settings.rate.map(|rate| millis(rate.period)),
            timeout_ms: queue.settings.timeout.map(millis),
            attempts_max: queue.settings.attempts_max,
            message_limit_bytes: queue.settings.message_limit(),
        },
    }
}

fn age(facts: &Facts<'_>) -> Option<Duration> {
    facts.queue.oldest_ready.filter(|_| 0 < facts.queue.ready).map(|oldest| facts.now.since(oldest))
}

fn runs(runs: &[Duration]) -> Option<Runs> {
    let (p50, p95) = (percentile(runs, 50)?, percentile(runs, 95)?);
    let max = runs.last().copied()?;
    Some(Runs { count: runs.len(), p50_ms: millis(p50), p95_ms: millis(p95), max_ms: millis(max) })
}

fn slots(facts: &Facts<'_>) -> Slots {
    let mut found = Slots { listeners: 0, draining: 0, slots: 0, busy: 0, stuck: 0, saturation: None };
    let hears =
        |worker: &&WorkerView| is_live(worker, facts.now) && worker.queues.contains(&facts.queue.name);
    for worker in facts.workers.iter().filter(hears) {
        if worker.facts.draining {
            found.draining += 1;
            continue;
        }
        found.listeners += 1;
        found.slots += worker.slots;
        found.busy += worker.busy.min(worker.slots);
        found.stuck += worker.facts.stuck;
    }
    found.saturation = (0 < found.slots).then(|| f64::from(found.busy) / f64::from(found.slots));
    found
}

/// The first that applies.
fn advice(facts: &Facts<'_>, slots: &Slots) -> Advice {
    let name = &facts.queue.name;
    let say = |code, more_workers_help, text: String, words: Option<String>| Advice {
        code,
        more_workers_help,
        text,
        action: words.map(|words| facts.paste.line(&words)),
    };
    let not = |code, why: String, words: Option<String>| {
        say(code, false, format!("more workers would not help: {why}"), words)
    };
    let pending = facts.queue.ready + facts.due;
    let wait = waiting(pending);
    let age = age(facts).unwrap_or_default();
    if let Some(pause) = facts.queue.paused_by.first() {
        return not("paused", pause_text(pause, facts.now), Some(pause_action(pause)));
    }
    if pending == 0 {
        let text = match facts.queue.leased {
            0 => "nothing is slow: nothing waits".to_owned(),
            1 => "nothing is slow: 1 message is being worked on and none waits".to_owned(),
            count => format!("nothing is slow: {count} messages are being worked on and none waits"),
        };
        return say("nothing-waits", false, text, None);
    }
    if slots.listeners == 0 {
        let text = match slots.draining {
            0 => format!("a worker would help: {wait} and nobody listens"),
            _ => format!("a worker would help: {wait} and all that listen are draining"),
        };
        return say("no-listener", true, text, Some("worker list".to_owned()));
    }
    if let Some(share) = failures(facts) {
        let words = format!("events list 'queue:{name} event:RETRY,DLQ'");
        return not("attempts-fail", share, Some(words));
    }
    if 0 < slots.stuck && slots.slots <= slots.stuck {
        let text = format!(
            "all {} slots are stuck in handlers past their timeout: restart the workers",
            slots.slots
        );
        return not("slots-stuck", text, Some("worker list".to_owned()));
    }
    if age < AGE_FINE {
        let text = match facts.queue.ready {
            0 => format!("nothing is slow: {wait} in the outbox to be moved"),
            _ => format!("nothing is slow: {wait}, the oldest for {}", coarse(age)),
        };
        return say("nothing-slow", false, text, None);
    }
    if let Some((code, why)) = limit_of_all(facts) {
        return not(code, format!("{why}{}", pace(facts)), Some(format!("queue show {name}")));
    }
    if slots.slots <= slots.busy {
        let all = format!("all {} slots are busy", slots.slots);
        let text = format!("more workers would help: {all}{}", pace(facts));
        return say("no-free-slots", true, text, Some("worker list".to_owned()));
    }
    if let Some(limit) = limit_reached(facts, slots) {
        let text = format!(
            "more workers would help, and so would a higher limit: concurrency-per-node {limit} holds, and each of {} \
             workers has reached it{}",
            slots.listeners,
            pace(facts)
        );
        return say("concurrency-limit", true, text, Some(format!("queue show {name}")));
    }
    let free = slots.slots - slots.busy;
    let text = format!(
        "{free} of {} slots are free, yet {wait}, the oldest for {}: look at one of them",
        slots.slots,
        coarse(age)
    );
    not("slots-free", text, Some(format!("message list 'queue:{name} state:ready'")))
}

fn waiting(ready: u64) -> String {
    if ready == 1 { "1 message waits".to_owned() } else { format!("{ready} messages wait") }
}

/// Most attempts of the last hour failed.
fn failures(facts: &Facts<'_>) -> Option<String> {
    let [_, _, hour] = facts.rates?;
    let (failed, done) = (hour.retried + hour.dead, hour.ended.saturating_sub(hour.dead));
    (FAILURES_MIN <= failed && done < failed).then(|| {
        format!(
            "{failed} of {} attempts of the last hour failed, {} of them for good: look at their errors",
            failed + done,
            hour.dead
        )
    })
}

/// What holds the queue over all workers, however many there are.
fn limit_of_all(facts: &Facts<'_>) -> Option<(&'static str, String)> {
    let (queue, settings) = (facts.queue, facts.queue.settings);
    if settings.exclusive && 0 < queue.leased {
        return Some(("exclusive-busy", "it is exclusive, one message at a time, and busy".to_owned()));
    }
    if let Some(limit) = settings.concurrency.filter(|limit| u64::from(*limit) <= queue.leased) {
        let why = format!("concurrency {limit} holds for all of them together, and is reached");
        return Some(("concurrency-limit", why));
    }
    let rate = settings.rate.filter(|_| queue.rate_until.is_some_and(|until| facts.now < until))?;
    let period = format_duration(rate.period);
    Some(("rate-limited", format!("its rate of {} in {period} holds for all of them together", rate.count)))
}

/// Each worker runs as many of this queue as it may.
fn limit_reached(facts: &Facts<'_>, slots: &Slots) -> Option<u32> {
    let limit = facts.queue.settings.concurrency_per_node?;
    (u64::from(limit) * slots.listeners <= facts.queue.leased).then_some(limit)
}

fn pace(facts: &Facts<'_>) -> String {
    let Some([minute, ..]) = facts.rates else { return String::new() };
    format!(", {} arrive and {} end", shown(minute.arrived_per_second), shown(minute.ended_per_second))
}

impl Slow {
    /// The advice, then a line for each number.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.advice.text);
        if let Some(action) = &self.advice.action {
            text.push_str(&format!("  {action}\n"));
        }
        text.push('\n');
        for (name, value) in self.lines() {
            text.push_str(&format!("{name:<10}  {value}\n"));
        }
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let span = |ms: u64| format_duration(Duration::from_millis(ms));
        let oldest = self
            .lag
            .oldest_age_ms
            .map(|ms| format!(", the oldest for {}", coarse(Duration::from_millis(ms))));
        let mut lines = vec![(
            "waits",
            format!(
                "{} ready{}; {} in the outbox, {} of them due, {} after an attempt",
                self.lag.ready,
                oldest.unwrap_or_default(),
                self.lag.scheduled + self.lag.retrying,
                self.lag.due,
                self.lag.retrying
            ),
        )];
        for rate in &self.rates {
            let window = if rate.minutes == 1 {
                "1 min"
            } else if rate.minutes == 5 {
                "5 min"
            } else {
                "60 min"
            };
            let (arrived, ended) = (shown(rate.arrived_per_second), shown(rate.ended_per_second));
            lines.push((window, format!("{arrived} arrive, {ended} end")));
        }
        if let Some(runs) = self.runs {
            let (p50, p95, max) = (span(runs.p50_ms), span(runs.p95_ms), span(runs.max_ms));
            lines.push(("runs", format!("p50 {p50}, p95 {p95}, max {max}, of the newest {}", runs.count)));
        }
        lines.push(("in flight", self.in_flight.to_string()));
        lines.push(("slots", self.slots.text()));
        if let (Some(retries), Some(dead)) = (self.retries_in_hour, self.dead_in_hour) {
            let retries = if retries == 1 { "1 retry".to_owned() } else { format!("{retries} retries") };
            lines.push(("last hour", format!("{retries}, {}", counted(dead, "dead letter"))));
        }
        lines.push(("dead", self.dead.to_string()));
        lines.extend(self.paused_by.iter().map(|pause| ("paused", pause.text.clone())));
        lines.push(("limits", self.limits.text()));
        lines
    }
}

impl Slots {
    fn text(&self) -> String {
        let Some(saturation) = self.saturation else { return "no live worker listens".to_owned() };
        let percent = (saturation * 100.0).round();
        let workers =
            if self.listeners == 1 { "1 worker".to_owned() } else { format!("{} workers", self.listeners) };
        let mut text = format!("{} of {} busy ({percent} %), {workers}", self.busy, self.slots);
        if 0 < self.stuck {
            text.push_str(&format!(", {} stuck", self.stuck));
        }
        if 0 < self.draining {
            text.push_str(&format!("; {} more draining", self.draining));
        }
        text
    }
}

impl Limits {
    fn text(&self) -> String {
        let per_node =
            self.concurrency_per_node.map(|limit| format!("at most {limit} at once in a worker, "));
        let alone = self.exclusive.then(|| "one at a time over all workers, ".to_owned());
        let in_hand = self.concurrency.map(|limit| format!("at most {limit} at once over all workers, "));
        let rate = self.rate_messages.zip(self.rate_period_ms).map(|(messages, ms)| {
            format!("at most {messages} in {}, ", format_duration(Duration::from_millis(ms)))
        });
        let at_once: String = [per_node, alone, in_hand, rate].into_iter().flatten().collect();
        let timeout = match self.timeout_ms {
            Some(ms) => format!("a run may take {}", format_duration(Duration::from_millis(ms))),
            None => "a run may take for ever".to_owned(),
        };
        let attempts = counted(self.attempts_max.into(), "attempt");
        let size = format_size(self.message_limit_bytes);
        format!("{at_once}{timeout}, {attempts}, bodies under {size}")
    }
}

#[cfg(test)]
mod tests {
    use millpond::QueueSettings;
    use millpond::view::{Pause, Scope, WorkerFacts};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(10_000);

    fn queue() -> QueueView {
        QueueView {
            name: "mail".into(),
            settings: QueueSettings::DEFAULT,
            ready: 40,
            leased: 8,
            scheduled: 2,
            retrying: 3,
            dead: 1,
            done: 0,
            sent: 0,
            oldest_ready: Some(NOW - Duration::from_secs(90)),
            listeners: 2,
            changes: Vec::new(),
            paused_by: Vec::new(),
            rate_until: None,
        }
    }

    fn worker(busy: u32) -> WorkerView {
        WorkerView {
            id: "w1".into(),
            host: "here".into(),
            queues: vec!["mail".into()],
            slots: 4,
            busy,
            started_at: NOW,
            seen_at: NOW,
            lease_until: NOW + Duration::from_secs(20),
            stopped: false,
            error: None,
            facts: WorkerFacts::default(),
            wish: None,
        }
    }

    fn rates(retried: u64, dead: u64, done: u64) -> [Rate; 3] {
        [1, 5, 60].map(|minutes| Rate {
            minutes,
            arrived_per_second: 12.0,
            leased_per_second: 9.0,
            ended_per_second: 9.0,
            ended: done + dead,
            retried,
            dead,
        })
    }

    #[track_caller]
    fn check(
        queue: QueueView,
        workers: &[WorkerView],
        rates: Option<[Rate; 3]>,
        code: &str,
        text: &str,
    ) -> Slow {
        let facts =
            Facts { now: NOW, queue: &queue, workers, due: 0, rates, runs: &[], paste: &Paste::default() };
        let slow = slow(&facts);
        assert_eq!((slow.advice.code, slow.advice.text.as_str()), (code, text));
        slow
    }

    #[test]
    fn the_first_that_applies_is_the_advice() {
        let well = Some(rates(0, 0, 500));
        let pause = Pause {
            scope: Scope::Queue("mail".into()),
            reason: Some("deploy".into()),
            actor: "ann".into(),
            since: NOW - Duration::from_secs(60),
            until: None,
        };
        let paused = QueueView { paused_by: vec![pause], ..queue() };
        let text =
            "more workers would not help: queue `mail` has been paused for 1m by ann (deploy); it has no end";
        let slow = check(paused, &[], well, "paused", text);
        assert_eq!(slow.advice.action.as_deref(), Some("millpond queue resume mail"));
        let idle = QueueView { ready: 0, leased: 0, oldest_ready: None, ..queue() };
        check(idle.clone(), &[], well, "nothing-waits", "nothing is slow: nothing waits");
        let text = "nothing is slow: 3 messages are being worked on and none waits";
        check(QueueView { leased: 3, ..idle }, &[worker(3)], well, "nothing-waits", text);
        let text = "a worker would help: 40 messages wait and nobody listens";
        check(queue(), &[], well, "no-listener", text);
        let draining =
            WorkerView { facts: WorkerFacts { draining: true, ..WorkerFacts::default() }, ..worker(1) };
        let text = "a worker would help: 40 messages wait and all that listen are draining";
        check(queue(), &[draining], well, "no-listener", text);
        let text = "more workers would not help: 90 of 100 attempts of the last hour failed, 20 of them for good: look \
                    at their errors";
        check(queue(), &[worker(4)], Some(rates(70, 20, 10)), "attempts-fail", text);
        let stuck = WorkerView { facts: WorkerFacts { stuck: 4, ..WorkerFacts::default() }, ..worker(4) };
        let text = "more workers would not help: all 4 slots are stuck in handlers past their timeout: restart the \
                    workers";
        check(queue(), &[stuck], well, "slots-stuck", text);
        let fresh = QueueView { oldest_ready: Some(NOW - Duration::from_millis(300)), ..queue() };
        let text = "nothing is slow: 40 messages wait, the oldest for 300ms";
        check(fresh, &[worker(4)], well, "nothing-slow", text);
        let text = "more workers would help: all 8 slots are busy, 12/s arrive and 9.0/s end";
        let slow = check(queue(), &[worker(4), worker(4)], well, "no-free-slots", text);
        assert!(slow.advice.more_workers_help);
        check(queue(), &[worker(4)], None, "no-free-slots", "more workers would help: all 4 slots are busy");
        let settings = QueueSettings { concurrency_per_node: Some(3), ..QueueSettings::DEFAULT };
        let held = QueueView { settings, leased: 6, ..queue() };
        let text = "more workers would help, and so would a higher limit: concurrency-per-node 3 holds, and each of 2 \
                    workers has reached it, 12/s arrive and 9.0/s end";
        check(held, &[worker(3), worker(3)], well, "concurrency-limit", text);
        let text = "more workers would not help: 3 of 4 slots are free, yet 40 messages wait, the oldest for 1m30s: look \
                    at one of them";
        check(queue(), &[worker(1)], well, "slots-free", text);
    }

    #[test]
    fn more_workers_do_not_help_against_a_limit_that_holds_for_all() {
        let limited = |settings, rate_until| QueueView { settings, rate_until, ..queue() };
        let settings = QueueSettings { exclusive: true, ..QueueSettings::DEFAULT };
        let text = "more workers would not help: it is exclusive, one message at a time, and busy, 12/s arrive and 9.0/s \
                    end";
        let well = Some(rates(0, 0, 500));
        check(limited(settings, None), &[worker(1)], well, "exclusive-busy", text);
        let settings = QueueSettings { concurrency: Some(8), ..QueueSettings::DEFAULT };
        let text =
            "more workers would not help: concurrency 8 holds for all of them together, and is reached";
        let slow = check(limited(settings, None), &[worker(4)], None, "concurrency-limit", text);
        assert!(slow.text().contains("limits      at most 8 at once over all workers, a run may take 5m"));
        let rate = millpond::Rate { count: 30, period: Duration::from_secs(60) };
        let settings = QueueSettings { rate: Some(rate), ..QueueSettings::DEFAULT };
        let text = "more workers would not help: its rate of 30 in 1m holds for all of them together";
        let slow = check(
            limited(settings, Some(NOW + Duration::from_secs(2))),
            &[worker(4)],
            None,
            "rate-limited",
            text,
        );
        assert!(slow.text().contains("limits      at most 30 in 1m, a run may take 5m"));
        check(
            limited(settings, None),
            &[worker(4)],
            None,
            "no-free-slots",
            "more workers would help: all 4 slots are busy",
        );
    }

    #[test]
    fn a_few_failures_say_nothing() {
        let text = "more workers would help: all 4 slots are busy, 12/s arrive and 9.0/s end";
        for (retried, dead, done) in [(5, 4, 0), (10, 0, 10)] {
            check(queue(), &[worker(4)], Some(rates(retried, dead, done)), "no-free-slots", text);
        }
    }

    #[test]
    fn the_numbers_stand_below_the_advice() {
        let (queue, workers) = (queue(), [worker(4), worker(2)]);
        let runs: Vec<Duration> = (1..=100).map(|ms| Duration::from_millis(ms * 10)).collect();
        let facts = Facts {
            now: NOW,
            queue: &queue,
            workers: &workers,
            due: 1,
            rates: Some(rates(7, 1, 500)),
            runs: &runs,
            paste: &Paste::default(),
        };
        let text = slow(&facts).text();
        let expected = "\n\
            waits       40 ready, the oldest for 1m30s; 5 in the outbox, 1 of them due, 3 after an attempt\n\
            1 min       12/s arrive, 9.0/s end\n\
            5 min       12/s arrive, 9.0/s end\n\
            60 min      12/s arrive, 9.0/s end\n\
            runs        p50 500ms, p95 950ms, max 1s, of the newest 100\n\
            in flight   8\n\
            slots       6 of 8 busy (75 %), 2 workers\n\
            last hour   7 retries, 1 dead letter\n\
            dead        1\n\
            limits      a run may take 5m, 5 attempts, bodies under 1MiB\n";
        assert!(text.ends_with(expected), "{text}");
    }
}

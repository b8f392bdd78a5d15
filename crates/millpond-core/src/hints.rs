//! What a person should know of a store: hints, a function of what was read from it.
//!
//! A hint is computed at each call and never stored. The most severe come first, then in the order of [`hints`];
//! [`HEALTHY`] stands alone if nothing else applies. What asks for them reads [`Facts`], as much as it can: what is
//! absent gives no hint.

use std::time::Duration;

use crate::text::format_duration;
use crate::time::Timestamp;
use crate::view::{Finding, OutboxSummary, Pause, QueueView, Scope, Severity, WorkerView};

/// A worker that is silent for less than this is not missed yet, however short its lease.
pub const SILENCE_MIN: Duration = Duration::from_secs(30);

/// An outbox whose oldest due row waits longer than this does not move.
pub const OUTBOX_STALLED_AFTER: Duration = Duration::from_secs(600);

/// A ready message older than this is a backlog.
pub const BACKLOG_AGE_MAX: Duration = Duration::from_secs(60);

/// Clocks may differ by this much.
pub const SKEW_MAX: Duration = Duration::from_secs(1);

/// A snapshot that is open longer than this keeps the store from cleaning up.
pub const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(600);

/// Fewer dead letters in a day than this are no rise.
pub const RISING_MIN: u64 = 10;

/// So many times the mean of the days before is a rise.
pub const RISING_TIMES: u64 = 3;

/// Fewer runs than this tell nothing of how long they take.
pub const RUNS_MIN: usize = 20;

/// Of a timeout, the part that 95 of 100 runs should stay under, in percent.
const TIMEOUT_USED_MAX: u32 = 80;

/// The code of the hint that all is well.
pub const HEALTHY: &str = "HEALTHY";

/// How bad a hint is; the first is the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Work does not get done, or may be lost.
    Critical,
    /// Somebody should look.
    Warn,
    /// Worth knowing.
    Info,
    /// Nothing needs anybody.
    Ok,
}

impl Level {
    /// The word that is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Critical => "critical",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Ok => "ok",
        }
    }
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Critical => Level::Critical,
            Severity::Warn => Level::Warn,
            Severity::Info => Level::Info,
        }
    }
}

/// Something that a person should know, or that there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// A word that does not change.
    pub code: String,
    /// How bad it is.
    pub level: Level,
    /// What is the case, as a sentence.
    pub message: String,
    /// Of how many things.
    pub count: Option<u64>,
    /// What to do: the words after `millpond` that look into it, or do it.
    pub action: Option<String>,
}

impl Hint {
    fn new(code: &str, level: Level, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), level, message: message.into(), count: None, action: None }
    }

    fn count(self, count: u64) -> Self {
        Self { count: Some(count), ..self }
    }

    fn action(self, action: impl Into<String>) -> Self {
        Self { action: Some(action.into()), ..self }
    }
}

/// What is known of a queue beside its counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueFacts {
    /// Its name.
    pub queue: String,
    /// Leased messages whose worker has been silent beyond its lease for a while.
    pub timed_out: u64,
    /// How long its newest runs took.
    pub runs: Vec<Duration>,
    /// Dead letters in each of the last spans of 24 hours, today's last; without those that somebody cancelled.
    pub dead_by_day: Vec<u64>,
    /// The kinds of its waiting messages, as far as they were looked at.
    pub kinds: Vec<String>,
}

/// What is known of a store at one moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Database time.
    pub now: Timestamp,
    /// The time of the host that asks, read at the same moment.
    pub host_now: Option<Timestamp>,
    /// Every queue.
    pub queues: Vec<QueueView>,
    /// Every worker.
    pub workers: Vec<WorkerView>,
    /// The outbox by queue.
    pub outbox: Vec<OutboxSummary>,
    /// Dead letters that nobody sent again or cancelled.
    pub failed: u64,
    /// What more is known of some queues.
    pub more: Vec<QueueFacts>,
    /// How long the oldest snapshot has been open.
    pub snapshot_age: Option<Duration>,
    /// What the store itself found.
    pub findings: Vec<Finding>,
}

/// Whether a worker has not stopped and its lease lasts.
pub fn is_live(worker: &WorkerView, now: Timestamp) -> bool {
    !worker.stopped && now < worker.lease_until
}

/// Whether a worker was not heard of for longer than its lease, and did not say that it stops.
pub fn is_stale(worker: &WorkerView, now: Timestamp) -> bool {
    !worker.stopped && worker.lease_until <= now && SILENCE_MIN <= now.since(worker.seen_at)
}

/// Whether a live worker has a handler for a kind; one that names none takes any.
pub fn knows(worker: &WorkerView, kind: &str) -> bool {
    worker.facts.kinds.is_empty() || worker.facts.kinds.iter().any(|known| known == kind)
}

/// Everything a person should know, the most severe first; [`HEALTHY`] alone if there is nothing.
pub fn hints(facts: &Facts) -> Vec<Hint> {
    let mut found = Vec::new();
    found.extend(heartbeat_stale(facts));
    found.extend(outbox_stalled(facts));
    found.extend(timed_out(facts));
    found.extend(failed(facts));
    found.extend(facts.more.iter().filter_map(dead_letters_rise));
    found.extend(facts.queues.iter().filter_map(|queue| without_listener(facts, queue)));
    found.extend(facts.more.iter().filter_map(|more| without_handler(facts, more)));
    found.extend(facts.queues.iter().filter_map(|queue| backlog(facts, queue)));
    found.extend(facts.more.iter().filter_map(|more| timeout_too_short(facts, more)));
    found.extend(clock_skew(facts));
    found.extend(old_snapshot(facts));
    found.extend(slots_stuck(facts));
    found.extend(paused(facts));
    found.extend(facts.findings.iter().map(from_store));
    found.sort_by_key(|hint| hint.level);
    if found.is_empty() {
        found.push(Hint::new(HEALTHY, Level::Ok, "nothing needs anybody"));
    }
    found
}

fn from_store(finding: &Finding) -> Hint {
    let Finding { code, severity, text, action } = finding;
    // What a store advises is a sentence, not a command.
    let message = action.as_ref().map_or_else(|| text.clone(), |action| format!("{text}: {action}"));
    Hint::new(code, (*severity).into(), message)
}

fn heartbeat_stale(facts: &Facts) -> Option<Hint> {
    let stale: Vec<&WorkerView> = facts.workers.iter().filter(|worker| is_stale(worker, facts.now)).collect();
    let latest = stale.iter().max_by_key(|worker| worker.seen_at)?;
    let (id, host, ago) = (&latest.id, &latest.host, coarse(facts.now.since(latest.seen_at)));
    let text = match stale.len() {
        1 => format!(
            "worker {id} on {host} has been silent for {ago} and did not say that it stops: look at its host"
        ),
        count => format!(
            "{count} workers are silent and did not say that they stop, the last of them, {id} on {host}, for {ago}: \
             look at their hosts"
        ),
    };
    let hint = Hint::new("WORKER_HEARTBEAT_STALE", Level::Critical, text);
    Some(hint.count(stale.len() as u64).action("worker list"))
}

fn outbox_stalled(facts: &Facts) -> Option<Hint> {
    let waited = |row: &OutboxSummary| row.oldest_due.map(|due| facts.now.since(due));
    let stalled: Vec<(&OutboxSummary, Duration)> = facts
        .outbox
        .iter()
        .filter_map(|row| Some((row, waited(row).filter(|waited| OUTBOX_STALLED_AFTER < *waited)?)))
        .collect();
    let (oldest, waited) = stalled.iter().max_by_key(|(_, waited)| *waited)?;
    let due = stalled.iter().map(|(row, _)| row.due).sum();
    let text = format!(
        "{due} messages of the outbox are due and nobody moves them, the oldest, of queue `{}`, for {}: a live \
         worker of any queue would",
        oldest.queue,
        coarse(*waited)
    );
    Some(Hint::new("OUTBOX_STALLED", Level::Critical, text).count(due).action("outbox summary"))
}

fn timed_out(facts: &Facts) -> Option<Hint> {
    let count = facts.more.iter().map(|more| more.timed_out).sum();
    let queues: Vec<String> =
        facts.more.iter().filter(|more| 0 < more.timed_out).map(|more| format!("`{}`", more.queue)).collect();
    (0 < count).then(|| {
        let text = format!(
            "{count} messages of {} are leased by workers whose lease is over, and nobody takes them over: does any \
             worker reach the store?",
            queues.join(", ")
        );
        Hint::new("TIMED_OUT_PROCESSING", Level::Warn, text).count(count).action("worker list")
    })
}

fn failed(facts: &Facts) -> Option<Hint> {
    (0 < facts.failed).then(|| {
        let text = match facts.failed {
            1 => "1 dead letter waits for a decision".to_owned(),
            count => format!("{count} dead letters wait for a decision"),
        };
        let hint = Hint::new("FAILED_JOBS_PRESENT", Level::Warn, text);
        hint.count(facts.failed).action("dead-letter groups")
    })
}

fn dead_letters_rise(more: &QueueFacts) -> Option<Hint> {
    let (today, before) = more.dead_by_day.split_last()?;
    let days = before.len().max(1) as u64;
    let sum: u64 = before.iter().sum();
    (RISING_MIN < *today && RISING_TIMES * sum < *today * days).then(|| {
        let text = format!(
            "queue `{}` has {today} dead letters of the last 24 hours, and had {} a day before that",
            more.queue,
            sum / days
        );
        let action = format!("dead-letter groups queue:{}", more.queue);
        Hint::new("DLQ_RISING", Level::Warn, text).count(*today).action(action)
    })
}

/// Messages that are ready, or due in the outbox.
fn pending(facts: &Facts, queue: &QueueView) -> u64 {
    let due = facts.outbox.iter().filter(|row| row.queue == queue.name).map(|row| row.due).sum::<u64>();
    queue.ready + due
}

fn without_listener(facts: &Facts, queue: &QueueView) -> Option<Hint> {
    let pending = pending(facts, queue);
    (0 < pending && queue.listeners == 0).then(|| {
        let text =
            format!("queue `{}` has {} and no live worker listens: start one", queue.name, messages(pending));
        let hint = Hint::new("QUEUE_WITHOUT_LISTENER", Level::Warn, text);
        hint.count(pending).action(format!("why {}", queue.name))
    })
}

fn without_handler(facts: &Facts, more: &QueueFacts) -> Option<Hint> {
    let listeners: Vec<&WorkerView> = facts
        .workers
        .iter()
        .filter(|worker| is_live(worker, facts.now) && worker.queues.contains(&more.queue))
        .collect();
    if listeners.is_empty() {
        return None;
    }
    let strange = more.kinds.iter().filter(|kind| !listeners.iter().any(|worker| knows(worker, kind)));
    let strange: Vec<String> = strange.map(|kind| format!("`{kind}`")).collect();
    (!strange.is_empty()).then(|| {
        let text = format!(
            "queue `{}` has messages of {} {}, for which none of its live workers has a handler",
            more.queue,
            if strange.len() == 1 { "kind" } else { "the kinds" },
            strange.join(", ")
        );
        let hint = Hint::new("JOB_WITHOUT_HANDLER", Level::Warn, text);
        hint.count(strange.len() as u64).action(format!("message list queue:{}", more.queue))
    })
}

fn backlog(facts: &Facts, queue: &QueueView) -> Option<Hint> {
    let age = facts.now.since(queue.oldest_ready?);
    (BACKLOG_AGE_MAX < age && 0 < queue.ready).then(|| {
        let text = format!(
            "the oldest of {} ready messages of queue `{}` waits for {}",
            queue.ready,
            queue.name,
            coarse(age)
        );
        let hint = Hint::new("BACKLOG_AGE", Level::Warn, text);
        hint.count(queue.ready).action(format!("why {}", queue.name))
    })
}

/// The run that `percent` of `runs` are not longer than; `runs` are sorted.
pub fn percentile(runs: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (runs.len() * percent).div_ceil(100).max(1);
    runs.get(rank - 1).copied()
}

fn timeout_too_short(facts: &Facts, more: &QueueFacts) -> Option<Hint> {
    let timeout = facts.queues.iter().find(|queue| queue.name == more.queue)?.settings.timeout?;
    let mut runs = more.runs.clone();
    runs.sort_unstable();
    let p95 = percentile(&runs, 95).filter(|_| RUNS_MIN <= runs.len())?;
    (timeout * TIMEOUT_USED_MAX / 100 < p95).then(|| {
        let text = format!(
            "5 in 100 runs of queue `{}` take {} or longer, and its timeout is {}: raise it, or make them shorter",
            more.queue,
            coarse(p95),
            format_duration(timeout)
        );
        let action = format!("why {}", more.queue);
        Hint::new("PROCESSING_TIMEOUT_TOO_SHORT", Level::Warn, text).action(action)
    })
}

fn clock_skew(facts: &Facts) -> Option<Hint> {
    let host = facts.host_now?;
    let (skew, which) = match host <= facts.now {
        true => (facts.now.since(host), "ahead of"),
        false => (host.since(facts.now), "behind"),
    };
    (SKEW_MAX < skew).then(|| {
        let text = format!("the store's clock is {} {which} that of this host", coarse(skew));
        Hint::new("CLOCK_SKEW", Level::Warn, text)
    })
}

fn old_snapshot(facts: &Facts) -> Option<Hint> {
    let age = facts.snapshot_age.filter(|age| SNAPSHOT_AGE_MAX < *age)?;
    // The store may have found it itself, and then knows more of it.
    if facts.findings.iter().any(|finding| finding.code == "OLD_SNAPSHOT") {
        return None;
    }
    let text =
        format!("a snapshot of the store has been open for {}, so that nothing is cleaned up", coarse(age));
    Some(Hint::new("OLD_SNAPSHOT", Level::Warn, text).action("store info"))
}

fn slots_stuck(facts: &Facts) -> Option<Hint> {
    let live = facts.workers.iter().filter(|worker| is_live(worker, facts.now) && 0 < worker.facts.stuck);
    let stuck: Vec<&WorkerView> = live.collect();
    let count: u64 = stuck.iter().map(|worker| u64::from(worker.facts.stuck)).sum();
    let ids: Vec<&str> = stuck.iter().map(|worker| worker.id.as_str()).collect();
    (0 < count).then(|| {
        let (slots, are) = if count == 1 { ("slot", "is") } else { ("slots", "are") };
        let text = format!(
            "{count} {slots} of {} {are} held by handlers past their timeout that cannot be stopped: restart it",
            ids.join(", ")
        );
        Hint::new("SLOTS_STUCK", Level::Warn, text).count(count).action("worker list")
    })
}

/// A pause in words: what, since when, by whom, why, how long.
pub fn pause_text(pause: &Pause, now: Timestamp) -> String {
    let what = match &pause.scope {
        Scope::Global => "every queue has been".to_owned(),
        Scope::Queue(name) => format!("queue `{name}` has been"),
    };
    let why = pause.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let end = match pause.until {
        Some(until) => format!("it ends in {}", coarse(until.since(now))),
        None => "it has no end".to_owned(),
    };
    format!("{what} paused for {} by {}{why}; {end}", coarse(now.since(pause.since)), pause.actor)
}

/// The words after `millpond` that end a pause.
pub fn pause_action(pause: &Pause) -> String {
    match &pause.scope {
        Scope::Global => "queue resume --all".to_owned(),
        Scope::Queue(name) => format!("queue resume {name}"),
    }
}

fn paused(facts: &Facts) -> Vec<Hint> {
    let mut seen: Vec<&Pause> = Vec::new();
    for pause in facts.queues.iter().flat_map(|queue| &queue.paused_by) {
        if !seen.contains(&pause) {
            seen.push(pause);
        }
    }
    let hint = |pause: &&Pause| {
        Hint::new("QUEUE_PAUSED", Level::Info, pause_text(pause, facts.now)).action(pause_action(pause))
    };
    seen.iter().map(hint).collect()
}

fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}

/// A duration to the second, unless it is less than one.
pub fn coarse(duration: Duration) -> String {
    let coarse = if duration.as_secs() == 0 { duration } else { Duration::from_secs(duration.as_secs()) };
    format_duration(coarse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueSettings;
    use crate::view::WorkerFacts;

    const NOW: Timestamp = Timestamp::from_secs(100_000);

    fn ago(secs: u64) -> Timestamp {
        NOW - Duration::from_secs(secs)
    }

    fn queue() -> QueueView {
        QueueView {
            name: "mail".into(),
            settings: QueueSettings::DEFAULT,
            ready: 0,
            leased: 0,
            scheduled: 0,
            retrying: 0,
            dead: 0,
            done: 0,
            sent: 0,
            oldest_ready: None,
            listeners: 1,
            changes: Vec::new(),
            paused_by: Vec::new(),
            rate_until: None,
        }
    }

    fn worker() -> WorkerView {
        WorkerView {
            id: "w1".into(),
            host: "here".into(),
            queues: vec!["mail".into()],
            slots: 2,
            busy: 0,
            started_at: ago(900),
            seen_at: ago(5),
            lease_until: NOW + Duration::from_secs(25),
            stopped: false,
            error: None,
            facts: WorkerFacts::default(),
            wish: None,
        }
    }

    fn more() -> QueueFacts {
        QueueFacts { queue: "mail".into(), ..QueueFacts::default() }
    }

    fn well() -> Facts {
        Facts {
            now: NOW,
            host_now: Some(NOW),
            queues: vec![queue()],
            workers: vec![worker()],
            ..Facts::default()
        }
    }

    /// Codes with their levels, in their order, and the first message.
    #[track_caller]
    fn check(facts: &Facts, expected: &[(&str, Level)], message: &str) {
        let found = hints(facts);
        let words: Vec<_> = found.iter().map(|hint| (hint.code.as_str(), hint.level)).collect();
        assert_eq!(words, expected);
        assert_eq!(found[0].message, message);
    }

    #[test]
    fn what_is_well_is_said_to_be() {
        check(&well(), &[(HEALTHY, Level::Ok)], "nothing needs anybody");
        check(&Facts::default(), &[(HEALTHY, Level::Ok)], "nothing needs anybody");
    }

    #[test]
    fn a_worker_that_did_not_stop_is_missed() {
        let silent = WorkerView { seen_at: ago(90), lease_until: ago(60), ..worker() };
        let text =
            "worker w1 on here has been silent for 1m30s and did not say that it stops: look at its host";
        let one = Facts { workers: vec![silent.clone()], ..well() };
        check(&one, &[("WORKER_HEARTBEAT_STALE", Level::Critical)], text);
        let older = WorkerView { id: "w0".into(), seen_at: ago(900), ..silent.clone() };
        let two = Facts { workers: vec![older, silent.clone()], ..well() };
        let text = "2 workers are silent and did not say that they stop, the last of them, w1 on here, for 1m30s: look \
                    at their hosts";
        check(&two, &[("WORKER_HEARTBEAT_STALE", Level::Critical)], text);
        for fine in [
            WorkerView { stopped: true, ..silent.clone() },
            WorkerView { seen_at: ago(29), lease_until: ago(27), ..silent.clone() },
            WorkerView { lease_until: NOW + Duration::from_secs(1), ..silent },
        ] {
            check(&Facts { workers: vec![fine], ..well() }, &[(HEALTHY, Level::Ok)], "nothing needs anybody");
        }
    }

    #[test]
    fn an_outbox_that_does_not_move_is_critical() {
        let row = |secs| OutboxSummary {
            queue: "mail".into(),
            rows: 9,
            due: 7,
            oldest_due: Some(ago(secs)),
            next_due: None,
            attempts_max: 0,
        };
        let text = "7 messages of the outbox are due and nobody moves them, the oldest, of queue `mail`, for 10m1s: a \
                    live worker of any queue would";
        check(&Facts { outbox: vec![row(601)], ..well() }, &[("OUTBOX_STALLED", Level::Critical)], text);
        check(&Facts { outbox: vec![row(600)], ..well() }, &[(HEALTHY, Level::Ok)], "nothing needs anybody");
    }

    #[test]
    fn leases_that_nobody_takes_over_are_counted() {
        let facts = Facts { more: vec![QueueFacts { timed_out: 3, ..more() }], ..well() };
        let text = "3 messages of `mail` are leased by workers whose lease is over, and nobody takes them over: does \
                    any worker reach the store?";
        check(&facts, &[("TIMED_OUT_PROCESSING", Level::Warn)], text);
    }

    #[test]
    fn dead_letters_are_there_or_rise() {
        let text = "3 dead letters wait for a decision";
        check(&Facts { failed: 3, ..well() }, &[("FAILED_JOBS_PRESENT", Level::Warn)], text);
        let by_day = |days: &[u64]| Facts {
            more: vec![QueueFacts { dead_by_day: days.to_vec(), ..more() }],
            ..well()
        };
        let text = "queue `mail` has 31 dead letters of the last 24 hours, and had 10 a day before that";
        check(&by_day(&[10, 10, 10, 10, 10, 10, 10, 31]), &[("DLQ_RISING", Level::Warn)], text);
        let text = "queue `mail` has 11 dead letters of the last 24 hours, and had 0 a day before that";
        check(&by_day(&[0, 0, 0, 0, 0, 0, 0, 11]), &[("DLQ_RISING", Level::Warn)], text);
        for fine in [[10, 10, 10, 10, 10, 10, 10, 30], [0, 0, 0, 0, 0, 0, 0, 10]] {
            check(&by_day(&fine), &[(HEALTHY, Level::Ok)], "nothing needs anybody");
        }
    }

    #[test]
    fn messages_that_nobody_can_run_are_named() {
        let waits = QueueView { ready: 4, listeners: 0, ..queue() };
        let text = "queue `mail` has 4 messages and no live worker listens: start one";
        let facts = Facts { queues: vec![waits], ..well() };
        check(&facts, &[("QUEUE_WITHOUT_LISTENER", Level::Warn)], text);
        let kinds = |known: &[&str], waiting: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let facts = WorkerFacts { kinds: owned(known), ..WorkerFacts::default() };
            let more = QueueFacts { kinds: owned(waiting), ..more() };
            Facts { workers: vec![WorkerView { facts, ..worker() }], more: vec![more], ..well() }
        };
        let text = "queue `mail` has messages of kind `b`, for which none of its live workers has a handler";
        check(&kinds(&["a"], &["a", "b"]), &[("JOB_WITHOUT_HANDLER", Level::Warn)], text);
        check(&kinds(&[], &["a", "b"]), &[(HEALTHY, Level::Ok)], "nothing needs anybody");
    }

    #[test]
    fn a_backlog_has_an_age() {
        let old = |secs| Facts {
            queues: vec![QueueView { ready: 2, oldest_ready: Some(ago(secs)), ..queue() }],
            ..well()
        };
        let text = "the oldest of 2 ready messages of queue `mail` waits for 1m1s";
        check(&old(61), &[("BACKLOG_AGE", Level::Warn)], text);
        check(&old(60), &[(HEALTHY, Level::Ok)], "nothing needs anybody");
    }

    #[test]
    fn runs_come_close_to_their_timeout() {
        let runs = |secs: u64, count| {
            let runs = vec![Duration::from_secs(secs); count];
            Facts { more: vec![QueueFacts { runs, ..more() }], ..well() }
        };
        let text = "5 in 100 runs of queue `mail` take 4m1s or longer, and its timeout is 5m: raise it, or make them \
                    shorter";
        check(&runs(241, 20), &[("PROCESSING_TIMEOUT_TOO_SHORT", Level::Warn)], text);
        check(&runs(240, 20), &[(HEALTHY, Level::Ok)], "nothing needs anybody");
        check(&runs(299, 19), &[(HEALTHY, Level::Ok)], "nothing needs anybody");
    }

    #[test]
    fn a_percentile_is_one_of_the_runs() {
        let runs: Vec<Duration> = (1..=10).map(Duration::from_secs).collect();
        for (percent, secs) in [(50, 5), (95, 10), (10, 1), (0, 1), (100, 10)] {
            assert_eq!(percentile(&runs, percent), Some(Duration::from_secs(secs)), "{percent}");
        }
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn clocks_and_snapshots_and_slots() {
        let skewed = Facts { host_now: Some(ago(2)), ..well() };
        check(&skewed, &[("CLOCK_SKEW", Level::Warn)], "the store's clock is 2s ahead of that of this host");
        let skewed = Facts { host_now: Some(NOW + Duration::from_millis(1_500)), ..well() };
        check(&skewed, &[("CLOCK_SKEW", Level::Warn)], "the store's clock is 1s behind that of this host");
        let old = Facts { snapshot_age: Some(Duration::from_secs(601)), ..well() };
        let text = "a snapshot of the store has been open for 10m1s, so that nothing is cleaned up";
        check(&old, &[("OLD_SNAPSHOT", Level::Warn)], text);
        let facts = WorkerFacts { stuck: 2, ..WorkerFacts::default() };
        let stuck = Facts { workers: vec![WorkerView { facts, ..worker() }], ..well() };
        let text = "2 slots of w1 are held by handlers past their timeout that cannot be stopped: restart it";
        check(&stuck, &[("SLOTS_STUCK", Level::Warn)], text);
    }

    #[test]
    fn a_pause_is_said_once_and_after_what_is_worse() {
        let pause = |scope, until| Pause {
            scope,
            reason: Some("deploy".into()),
            actor: "ann".into(),
            since: ago(60),
            until,
        };
        let all = pause(Scope::Global, Some(NOW + Duration::from_secs(60)));
        let one = pause(Scope::Queue("mail".into()), None);
        let mail = QueueView { paused_by: vec![all.clone(), one], ready: 1, listeners: 0, ..queue() };
        let other = QueueView { name: "other".into(), paused_by: vec![all], ..queue() };
        let facts = Facts { queues: vec![mail, other], ..well() };
        let found = hints(&facts);
        let shown: Vec<_> =
            found.iter().map(|hint| (hint.message.as_str(), hint.action.as_deref())).collect();
        assert_eq!(
            shown[1..],
            [
                (
                    "every queue has been paused for 1m by ann (deploy); it ends in 1m",
                    Some("queue resume --all")
                ),
                (
                    "queue `mail` has been paused for 1m by ann (deploy); it has no end",
                    Some("queue resume mail")
                ),
            ]
        );
        assert_eq!(found[0].code, "QUEUE_WITHOUT_LISTENER");
    }

    #[test]
    fn what_the_store_found_is_among_them() {
        let finding = |severity, code: &str| {
            let (text, action) = ("x".to_owned(), Some("do y".to_owned()));
            Finding { code: code.into(), severity, text, action }
        };
        let findings = vec![finding(Severity::Info, "A"), finding(Severity::Critical, "B")];
        let facts = Facts { failed: 1, findings, ..well() };
        let expected = [("B", Level::Critical), ("FAILED_JOBS_PRESENT", Level::Warn), ("A", Level::Info)];
        check(&facts, &expected, "x: do y");
    }
}

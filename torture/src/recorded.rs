//! A store that reports every lease, settlement and takeover that passes through it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_core::capability::Capabilities;
use millpond_core::error::{Error, Result};
use millpond_core::hook::{HookEnd, Hooks, Pending, TakeHooks};
use millpond_core::message::{Due, Leased, MessageId, NewMessage, Offset, Token};
use millpond_core::query::Query;
use millpond_core::queue::QueueSettings;
use millpond_core::reason::{Back, Release};
use millpond_core::settle::Settlement;
use millpond_core::store::{
    Act, Admin, Begun, BoxFuture, Changed, ClaimRef, EffectTx, History, Inspect, Lease, LeaseRequest, Log,
    Operate, Outbox, Pulse, Purged, Queue, QueueId, Redrive, Relayed, Renewal, Renewed, SettleClaim,
    SettleItem, Settled, Store, Stored, TakeOver, TakenOver,
};
use millpond_core::time::Timestamp;
use millpond_core::view::{
    AuditLine, DeadLetterView, EventView, FailureGroup, Find, Found, GroupBy, MessageRow, MessageView,
    OutboxRow, OutboxSummary, Pause, QueueView, Scope, StoreInfo, Tallies, Tally, Wish, WorkerView,
};
use millpond_core::within::{Dialect, Hold, Row, Statement, Within};
use millpond_testkit::judge::history::{Event, Op, Phase};
use uuid::Uuid;

use crate::wire::Reporter;

/// The decorator.
pub(crate) struct Recorded {
    store: Arc<dyn Store>,
    reporter: Arc<Reporter>,
    books: Mutex<Books>,
    /// How long a takeover is held back after it was reported.
    dwell: Duration,
}

#[derive(Default)]
struct Books {
    queues: HashMap<QueueId, String>,
    /// What is under each token, by offset, as the event of its lease.
    held: HashMap<Token, HashMap<u64, Event>>,
}

impl Recorded {
    pub(crate) fn new(store: Arc<dyn Store>, reporter: Arc<Reporter>, dwell: Duration) -> Self {
        Self { store, reporter, books: Mutex::default(), dwell }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports messages that came under a token.
    fn leased(&self, queue: &str, held: &ClaimRef, messages: &[Leased]) {
        let part = u32::try_from(held.partition).ok();
        let lease = |message: &Leased| {
            let about = about(queue, held.token, message, Op::Lease);
            Event { part, off: Some(message.offset.0), ..about }
        };
        let mut events: Vec<Event> = messages.iter().map(lease).collect();
        self.books().keep(held.token, messages, &events);
        if let (Some(first), Some(last)) = (messages.first(), messages.last()) {
            let queue = Some(queue.to_owned());
            let (off, to) = (Some(first.offset.0), Some(last.offset.0 + 1));
            events.push(Event { queue, part, off, to, ..Event::new(0, Op::Cursor, Phase::Ok) });
        }
        self.reporter.events(events);
    }

    fn taken_over(&self, taken: &TakenOver) {
        let reclaim = |message: &Leased| Event {
            old: Some(uuid(taken.old_token)),
            val: Some(i64::from(taken.in_hand)),
            ..about(&taken.queue.name, taken.held.token, message, Op::Reclaim)
        };
        let events: Vec<Event> = taken.unsettled.iter().map(reclaim).collect();
        self.books().keep(taken.held.token, &taken.unsettled, &events);
        self.reporter.events(events);
    }

    async fn settle_and_report(&self, claims: Vec<SettleClaim>) -> Result<Vec<Settled>> {
        let asked: Vec<Vec<Verdict>> = claims.iter().map(|claim| self.books().verdicts(claim)).collect();
        let begun = asked.iter().flatten().map(|verdict| verdict.said(Phase::Invoke));
        self.reporter.events(begun.collect());
        let tokens: Vec<Token> = claims.iter().map(|claim| claim.held.token).collect();
        let answer = self.store.settle(claims).await;
        self.reporter.events(match &answer {
            Ok(answers) => {
                asked.iter().zip(answers).flat_map(|(asked, answer)| answered(asked, answer)).collect()
            }
            Err(error) => asked.iter().flatten().map(|verdict| unanswered(verdict, error)).collect(),
        });
        if answer.is_ok() {
            let mut books = self.books();
            for (token, asked) in tokens.iter().zip(&asked) {
                books.forget(*token, asked);
            }
        }
        answer
    }
}

impl Books {
    fn name(&self, queue: QueueId) -> String {
        self.queues.get(&queue).cloned().unwrap_or_default()
    }

    fn keep(&mut self, token: Token, messages: &[Leased], events: &[Event]) {
        let held = self.held.entry(token).or_default();
        held.extend(messages.iter().map(|message| message.offset.0).zip(events.iter().cloned()));
    }

    /// What a settlement says of the messages that are known. A reclaimer also settles offsets that the inbox
    /// told it are done; their ids are not known here, and nobody gave a verdict on them.
    fn verdicts(&self, claim: &SettleClaim) -> Vec<Verdict> {
        let Some(held) = self.held.get(&claim.held.token) else { return Vec::new() };
        let verdict = |item: &SettleItem| {
            held.get(&item.offset.0).map(|lease| Verdict { item: item.clone(), lease: lease.clone() })
        };
        claim.items.iter().filter_map(verdict).collect()
    }

    fn forget(&mut self, token: Token, settled: &[Verdict]) {
        if let Some(held) = self.held.get_mut(&token) {
            settled.iter().for_each(|verdict| drop(held.remove(&verdict.item.offset.0)));
            if held.is_empty() {
                self.held.remove(&token);
            }
        }
    }
}

/// An item of a settlement, with the lease or takeover that it ends.
struct Verdict {
    item: SettleItem,
    lease: Event,
}

impl Verdict {
    fn said(&self, ph: Phase) -> Event {
        let (verdict, reason) = match &self.item.settlement {
            Settlement::Done => ("ack", None),
            Settlement::Dead { reason, .. } => ("dead-letter", Some(reason.as_str().to_owned())),
            Settlement::Again { back: Back::Failed(_), .. } => ("retry", None),
            Settlement::Again { back: Back::Snoozed, .. } => ("snooze", None),
            Settlement::Again { .. } => ("release", None),
        };
        let Event { queue, id, token, attempt, delivery, .. } = self.lease.clone();
        let verdict = Some(verdict.to_owned());
        Event { queue, id, token, attempt, delivery, verdict, reason, ..Event::new(0, Op::Settle, ph) }
    }

    /// Given back because of a limit: the delivery is not counted, and its number comes again.
    fn uncounted(&self) -> bool {
        matches!(self.item.settlement, Settlement::Again { back: Back::Released(Release::Limited), .. })
    }
}

fn answered<'v>(asked: &'v [Verdict], answer: &'v Settled) -> impl Iterator<Item = Event> + 'v {
    asked.iter().flat_map(move |verdict| match answer {
        Settled::LeaseLost => {
            vec![Event { err: Some("lease-lost".to_owned()), ..verdict.said(Phase::Fail) }]
        }
        Settled::Applied { done_anyway } if done_anyway.contains(&verdict.item.offset) => {
            let (ack, reason) = (Some("ack".to_owned()), None);
            vec![Event { verdict: ack, reason, ..verdict.said(Phase::Ok) }]
        }
        // The judge tells deliveries apart by their numbers, so neither the lease nor its end may be certain.
        Settled::Applied { .. } if verdict.uncounted() => {
            vec![verdict.said(Phase::Info), Event { ph: Phase::Info, ..verdict.lease.clone() }]
        }
        Settled::Applied { .. } => vec![verdict.said(Phase::Ok)],
    })
}

fn unanswered(verdict: &Verdict, error: &Error) -> Event {
    Event { err: Some(error.code().as_str().to_owned()), ..verdict.said(Phase::Info) }
}

fn about(queue: &str, token: Token, message: &Leased, op: Op) -> Event {
    Event {
        queue: Some(queue.to_owned()),
        id: Some(message.id.0),
        token: Some(uuid(token)),
        attempt: Some(message.attempt),
        delivery: Some(message.delivery()),
        ..Event::new(0, op, Phase::Ok)
    }
}

fn uuid(token: Token) -> Uuid {
    Uuid::from_bytes(token.0)
}

impl Log for Recorded {
    fn append(&self, queue: QueueId, messages: Vec<NewMessage>) -> BoxFuture<'_, Result<Vec<Stored>>> {
        self.store.append(queue, messages)
    }

    fn lease(&self, request: LeaseRequest) -> BoxFuture<'_, Result<Lease>> {
        Box::pin(async move {
            let queue = self.books().name(request.queue);
            let answer = self.store.lease(request).await;
            if let Ok(Lease::Claim(claim)) = &answer {
                self.leased(&queue, &claim.held, &claim.messages);
            }
            answer
        })
    }

    fn settle(&self, claims: Vec<SettleClaim>) -> BoxFuture<'_, Result<Vec<Settled>>> {
        Box::pin(self.settle_and_report(claims))
    }

    fn renew(&self, renewal: Renewal) -> BoxFuture<'_, Result<Renewed>> {
        self.store.renew(renewal)
    }

    fn unsettled(&self, held: ClaimRef) -> BoxFuture<'_, Result<Vec<Leased>>> {
        self.store.unsettled(held)
    }

    fn end_worker(&self, worker: String) -> BoxFuture<'_, Result<()>> {
        self.store.end_worker(worker)
    }

    fn take_over(&self, request: TakeOver) -> BoxFuture<'_, Result<Vec<TakenOver>>> {
        Box::pin(async move {
            let answer = self.store.take_over(request).await;
            if let Ok(taken) = &answer {
                taken.iter().for_each(|taken| self.taken_over(taken));
                if !taken.is_empty() && !self.dwell.is_zero() {
                    tokio::time::sleep(self.dwell).await;
                }
            }
            answer
        })
    }

    fn begin(&self, held: ClaimRef, offset: Offset, limit: Duration) -> BoxFuture<'_, Result<Begun>> {
        self.store.begin(held, offset, limit)
    }

    fn pulse(&self, queues: Vec<QueueId>) -> BoxFuture<'_, Result<Pulse>> {
        self.store.pulse(queues)
    }

    fn changed(&self) -> BoxFuture<'_, Vec<QueueId>> {
        self.store.changed()
    }
}

/// The methods of a port of which nothing is reported.
macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> BoxFuture<'_, Result<$answer>> { self.store.$name($($arg),*) })*
    };
}

impl Outbox for Recorded {
    pass_on! {
        fn relay(rows_max: usize) -> Relayed;
        fn open(limit: Duration) -> Box<dyn EffectTx>;
        fn arrived(ids: Vec<MessageId>) -> Vec<MessageId>;
    }
}

impl Within for Recorded {
    fn dialect(&self) -> Dialect {
        self.store.dialect()
    }

    fn find_queue(&self, name: &str) -> Statement {
        self.store.find_queue(name)
    }

    fn found_queue(&self, name: &str, rows: Vec<Row>) -> Result<Option<Queue>> {
        self.store.found_queue(name, rows)
    }

    fn later_release(&self) -> Option<Statement> {
        self.store.later_release()
    }

    fn hold(&self, queue: QueueId, hold: Hold<'_>) -> Vec<Statement> {
        self.store.hold(queue, hold)
    }

    fn put(&self, queue: QueueId, messages: &[&NewMessage]) -> Vec<Statement> {
        self.store.put(queue, messages)
    }

    fn checksum(&self, body: &[u8]) -> i64 {
        self.store.checksum(body)
    }
}

impl Inspect for Recorded {
    pass_on! {
        fn queues() -> Vec<QueueView>;
        fn message(id: MessageId) -> Option<MessageView>;
        fn messages(find: Find) -> Found<MessageRow>;
        fn dead_letters(find: Find) -> Found<DeadLetterView>;
        fn dead_letter_groups(query: Query, by: GroupBy) -> Vec<FailureGroup>;
        fn outbox(find: Find) -> Found<OutboxRow>;
        fn outbox_summary() -> Vec<OutboxSummary>;
        fn workers() -> Vec<WorkerView>;
        fn info() -> StoreInfo;
    }
}

impl History for Recorded {
    pass_on! {
        fn events(find: Find) -> Found<EventView>;
        fn tallies(which: Tallies) -> Vec<Tally>;
        fn run_times(queue: String, runs_max: usize) -> Vec<Duration>;
        fn audit(before: Option<u64>, rows_max: usize) -> Vec<AuditLine>;
    }
}

impl Operate for Recorded {
    pass_on! {
        fn change(queue: String, settings: Vec<(String, Option<serde_json::Value>)>, act: Act) -> Queue;
        fn pause(scope: Scope, until: Option<Due>, act: Act) -> Vec<Pause>;
        fn resume(scope: Scope, act: Act) -> Vec<Pause>;
        fn cancel(ids: Vec<MessageId>, act: Act) -> Vec<Changed>;
        fn hasten(ids: Vec<MessageId>, act: Act) -> Vec<Changed>;
        fn redrive(redrives: Vec<Redrive>, act: Act) -> Vec<Changed>;
        fn remove_dead_letters(ids: Vec<MessageId>, act: Act) -> Vec<Changed>;
        fn purge(queue: String, rows_max: usize, act: Act) -> Purged;
        fn steer(worker: Option<String>, wish: Option<Wish>, act: Act) -> u64;
    }
}

impl Admin for Recorded {
    fn declare(&self, name: String, settings: QueueSettings) -> BoxFuture<'_, Result<Queue>> {
        Box::pin(async move {
            let queue = self.store.declare(name, settings).await?;
            self.books().queues.insert(queue.id, queue.name.clone());
            Ok(queue)
        })
    }

    fn queue(&self, name: String) -> BoxFuture<'_, Result<Option<Queue>>> {
        Box::pin(async move {
            let found = self.store.queue(name).await?;
            if let Some(queue) = &found {
                self.books().queues.insert(queue.id, queue.name.clone());
            }
            Ok(found)
        })
    }

    fn retain(&self, node: String, rows_max: usize) -> BoxFuture<'_, Result<u64>> {
        self.store.retain(node, rows_max)
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        self.store.now()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}

impl Hooks for Recorded {
    pass_on! {
        fn expect_hooks(queue: QueueId) -> ();
        fn take_hooks(take: TakeHooks) -> Vec<Pending>;
        fn finish_hooks(ends: Vec<(i64, HookEnd)>) -> ();
    }
}

impl Store for Recorded {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

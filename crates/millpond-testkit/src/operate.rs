//! What people change, at the level of the ports and under a virtual clock: scenarios that look into the tables too.
//! A macro in the crate of each store runs them.

#![expect(clippy::unwrap_used, reason = "a scenario fails like a test")]
#![expect(missing_docs, reason = "the name of a scenario is its sentence")]

use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Result};
use millpond_core::message::{Dedup, Due, MessageId, NewMessage, Offset, Token};
use millpond_core::pick::Lane;
use millpond_core::query::{Field, Query};
use millpond_core::queue::QueueSettings;
use millpond_core::reason::{Back, DropReason, Failure};
use millpond_core::settle::Settlement;
use millpond_core::state::State;
use millpond_core::store::{
    Act, Begun, BoxFuture, Changed, Claim, Clock, Lease, LeaseRequest, Purged, Queue, Redrive, Renewal,
    Renewed, SettleClaim, SettleItem, Settled, Store, Stored, TakeOver,
};
use millpond_core::time::Timestamp;
use millpond_core::view::{Count, Find, MessageView, QueueView, Scope, Tallies, Tally, Wish, WorkerFacts};
use serde_json::json;

use crate::clock::VirtualClock;
use crate::holder::number;

const LEASE: Duration = Duration::from_secs(30);
const CLASS: u8 = 2;
const LANES: [Lane; 3] = [Lane::Return, Lane::Suspect, Lane::Main];

/// A fresh place for a store, into whose tables a scenario can look.
pub trait Place: Send + Sync {
    /// Opens the store; every further call opens what another process would find there.
    fn open(&self, clock: Arc<dyn Clock>) -> BoxFuture<'_, Result<Arc<dyn Store>>>;

    /// Runs a statement, and answers its first number; nothing is 0. Names of tables stand in `<>`, without what
    /// comes before all of them ([`prefixed`]).
    fn ask<'a>(&'a self, statement: &'a str) -> BoxFuture<'a, i64>;
}

/// A statement of a scenario, with what names of tables begin with.
pub fn prefixed(statement: &str, prefix: &str) -> String {
    statement.replace('<', prefix).replace('>', "")
}

/// A store with one queue.
pub struct Fixture {
    place: Box<dyn Place>,
    store: Arc<dyn Store>,
    clock: Arc<VirtualClock>,
    queue: Queue,
}

fn act(verb: &str) -> Act {
    Act { actor: "ana".to_owned(), verb: verb.to_owned(), object: "mail".to_owned(), reason: None }
}

/// The heartbeat of a worker of this name.
fn renewal(worker: &str) -> Renewal {
    Renewal {
        worker: worker.to_owned(),
        host: "host".to_owned(),
        lease: LEASE,
        queues: vec!["mail".to_owned()],
        slots: 4,
        busy: 0,
        error: None,
        facts: WorkerFacts { pid: 7, version: "1.2".to_owned(), processed: 3, ..WorkerFacts::default() },
    }
}

fn mail() -> Scope {
    Scope::Queue("mail".to_owned())
}

fn failed() -> Settlement {
    Settlement::Again {
        due: Due::In(Duration::from_secs(10)),
        attempt: 1,
        releases: 0,
        suspect: 0,
        back: Back::Failed(Failure::Error),
    }
}

impl Fixture {
    /// On a fresh place.
    ///
    /// # Panics
    ///
    /// When the store cannot be opened.
    pub async fn on(place: impl Place + 'static) -> Self {
        let clock = Arc::new(VirtualClock::new());
        let store = place.open(clock.clone()).await.unwrap();
        let queue = store.declare("mail".to_owned(), QueueSettings::DEFAULT).await.unwrap();
        Self { place: Box::new(place), store, clock, queue }
    }

    /// Closes the store.
    pub async fn close(self) {
        self.store.close().await;
    }

    /// What another process finds there.
    async fn open(&self) -> Arc<dyn Store> {
        self.place.open(self.clock.clone()).await.unwrap()
    }

    async fn ask(&self, statement: &str) -> i64 {
        self.place.ask(statement).await
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// What was counted of the queue, in all.
    async fn counted(&self, of: impl Fn(&Tally) -> u64) -> u64 {
        let (now, hour) = (self.clock.now(), Duration::from_secs(3_600));
        let which = Tallies { queue: None, kind: None, from: now - hour, to: now + hour, by_minute: true };
        self.store.tallies(which).await.unwrap().iter().map(of).sum()
    }

    /// Everything that the list of messages has.
    async fn listed(&self) -> Vec<MessageId> {
        let find =
            Find { query: Query::default(), after: None, rows_max: 100, bodies: false, count: Count::No };
        self.store.messages(find).await.unwrap().items.iter().map(|row| row.id).collect()
    }

    fn id(&self) -> MessageId {
        let millis = u64::try_from(self.clock.micros() / 1_000).unwrap();
        let mut bits = [0; 10];
        bits[2..].copy_from_slice(&number().to_be_bytes());
        MessageId(uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid())
    }

    fn message(&self, due: Option<Duration>) -> NewMessage {
        NewMessage {
            id: self.id(),
            kind: None,
            key: None,
            headers: Default::default(),
            content_type: None,
            body: b"1".to_vec(),
            priority: CLASS,
            due: due.map(Due::In),
            attempts_max: None,
            retry_until: None,
            dedup: None,
        }
    }

    async fn send_due(&self, due: Option<Duration>) -> MessageId {
        let message = self.message(due);
        let id = message.id;
        assert_eq!(self.store.append(self.queue.id, vec![message]).await.unwrap(), [Stored::New]);
        id
    }

    async fn send(&self, count: usize) -> Vec<MessageId> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.send_due(None).await);
        }
        ids
    }

    async fn renew(&self, worker: &str) -> Renewed {
        self.store.renew(renewal(worker)).await.unwrap()
    }

    /// A request with a token of its own.
    fn request(&self, worker: &str, messages_max: usize) -> LeaseRequest {
        let mut token = [7; 16];
        token[..8].copy_from_slice(&number().to_be_bytes());
        LeaseRequest {
            queue: self.queue.id,
            worker: worker.to_owned(),
            token: Token(token),
            turns: LANES.map(|lane| (CLASS, lane)).into(),
            messages_max,
            bytes_max: usize::MAX,
            hands_empty: true,
            one_by_one: true,
        }
    }

    async fn try_lease(&self, worker: &str, messages_max: usize) -> Lease {
        self.renew(worker).await;
        self.store.lease(self.request(worker, messages_max)).await.unwrap()
    }

    async fn lease(&self, messages_max: usize) -> Claim {
        match self.try_lease("w", messages_max).await {
            Lease::Claim(claim) => claim,
            other => panic!("no claim, but {other:?}"),
        }
    }

    async fn leased_ids(&self, messages_max: usize) -> Vec<MessageId> {
        self.lease(messages_max).await.messages.iter().map(|message| message.id).collect()
    }

    async fn nothing_ready(&self) {
        let lease = self.try_lease("idle", 10).await;
        assert!(matches!(lease, Lease::Empty), "{lease:?}");
    }

    async fn settle(&self, claim: &Claim, ends: &[(Offset, Settlement)]) -> Settled {
        let item = |(offset, settlement): &(Offset, Settlement)| SettleItem {
            offset: *offset,
            kind: None,
            settlement: settlement.clone(),
            error: None,
            class: None,
            run: Duration::from_millis(5),
        };
        let items = ends.iter().map(item).collect();
        self.store.settle(vec![SettleClaim { held: claim.held, items }]).await.unwrap().remove(0)
    }

    async fn end_all(&self, claim: &Claim, settlement: Settlement) {
        let ends: Vec<_> =
            claim.messages.iter().map(|message| (message.offset, settlement.clone())).collect();
        assert_eq!(self.settle(claim, &ends).await, Settled::Applied { done_anyway: Vec::new() });
    }

    /// Every message of the claim failed, whatever is known of it.
    async fn end_all_anyway(&self, claim: &Claim) {
        let ends: Vec<_> = claim.messages.iter().map(|message| (message.offset, failed())).collect();
        assert!(matches!(self.settle(claim, &ends).await, Settled::Applied { .. }));
    }

    async fn cancel(&self, ids: &[MessageId]) -> Vec<Changed> {
        let act = Act { reason: Some("a mistake".to_owned()), ..act("message cancel") };
        self.store.cancel(ids.to_vec(), act).await.unwrap()
    }

    async fn counts(&self) -> QueueView {
        self.store.queues().await.unwrap().into_iter().find(|view| view.name == "mail").unwrap()
    }

    /// Ready, leased, dead and done.
    async fn four(&self) -> (u64, u64, u64, u64) {
        let counts = self.counts().await;
        (counts.ready, counts.leased, counts.dead, counts.done)
    }

    async fn look(&self, id: MessageId) -> MessageView {
        self.store.message(id).await.unwrap().unwrap()
    }

    async fn purge(&self, rows_max: usize) -> Purged {
        self.store.purge("mail".to_owned(), rows_max, act("queue purge")).await.unwrap()
    }

    async fn heads(&self) -> usize {
        self.store.pulse(vec![self.queue.id]).await.unwrap().heads.len()
    }

    async fn declarations(&self) -> u64 {
        self.store.pulse(vec![self.queue.id]).await.unwrap().declarations
    }

    async fn change(
        &self,
        setting: &str,
        value: Option<serde_json::Value>,
    ) -> std::result::Result<Queue, String> {
        let changed = vec![(setting.to_owned(), value)];
        let answer = self.store.change("mail".to_owned(), changed, act("queue set")).await;
        answer.map_err(|error| format!("{}: {}", error.code().as_str(), error.causes()))
    }
}

pub async fn a_pause_holds_everywhere_until_it_is_resumed(store: &Fixture) {
    let before = store.declarations().await;
    store.send(2).await;
    let own = store.store.pause(mail(), None, act("queue pause")).await.unwrap();
    let all = store.store.pause(Scope::Global, None, act("pause")).await.unwrap();
    assert_eq!((own.len(), all.len()), (1, 1));
    assert_ne!(store.declarations().await, before);
    assert!(matches!(store.try_lease("w", 1).await, Lease::Paused));
    assert_eq!(
        (store.heads().await, store.counts().await.ready),
        (0, 2),
        "it is not looked for, and counted"
    );
    let holders: Vec<Scope> = store.counts().await.paused_by.into_iter().map(|pause| pause.scope).collect();
    assert_eq!(holders, [Scope::Global, mail()]);

    let left = store.store.resume(mail(), act("queue resume")).await.unwrap();
    assert_eq!(left.iter().map(|pause| &pause.scope).collect::<Vec<_>>(), [&Scope::Global]);
    let again = store.open().await;
    assert_eq!(again.queues().await.unwrap()[0].paused_by.len(), 1, "it holds after a restart");
    assert!(store.store.resume(Scope::Global, act("resume")).await.unwrap().is_empty());
    assert_eq!(store.leased_ids(9).await.len(), 2);
}

pub async fn a_pause_with_an_end_is_over_by_itself_and_can_be_moved(store: &Fixture) {
    store.send(1).await;
    let minute = Some(Due::In(Duration::from_secs(60)));
    let first = store.store.pause(mail(), minute, act("queue pause")).await.unwrap().remove(0);
    store.pass(Duration::from_secs(30));
    let why = Act { reason: Some("a repair".to_owned()), ..act("queue pause") };
    let moved = store.store.pause(mail(), minute, why).await.unwrap().remove(0);
    assert_eq!((moved.since, moved.reason.as_deref()), (first.since, Some("a repair")));
    store.pass(Duration::from_secs(59));
    assert!(matches!(store.try_lease("w", 1).await, Lease::Paused));
    store.pass(Duration::from_secs(1));
    assert_eq!((store.heads().await, store.counts().await.paused_by.len()), (1, 0));
    let later = store.store.pause(mail(), minute, act("queue pause")).await.unwrap().remove(0);
    assert_ne!(later.since, first.since, "the first one was over");
    store.pass(Duration::from_secs(60));
    assert_eq!(store.leased_ids(1).await.len(), 1);
}

pub async fn a_pause_of_a_queue_that_is_not_there_is_refused_and_leaves_no_line(store: &Fixture) {
    let error =
        store.store.pause(Scope::Queue("male".to_owned()), None, act("queue pause")).await.unwrap_err();
    assert_eq!(error.code(), Code::UnknownQueue);
    assert!(store.store.audit(None, 10).await.unwrap().is_empty());
}

pub async fn a_cancelled_message_that_is_ready_is_dead_at_once_and_never_delivered(store: &Fixture) {
    let ids = store.send(5).await;
    assert_eq!(store.cancel(&[ids[1], ids[3]]).await, [Changed::Done; 2]);
    assert_eq!(store.four().await, (3, 0, 2, 0));
    let view = store.look(ids[1]).await;
    assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, Some("by ana: a mistake")));
    assert_eq!(view.attempt, 0);
    assert_eq!(store.cancel(&[ids[1]]).await, [Changed::AlreadySettled]);

    let claim = store.lease(10).await;
    let leased: Vec<MessageId> = claim.messages.iter().map(|message| message.id).collect();
    assert_eq!(leased, [ids[0], ids[2], ids[4]]);
    assert_eq!(store.four().await, (0, 3, 2, 0));
    store.end_all(&claim, Settlement::Done).await;
    assert_eq!(store.four().await, (0, 0, 2, 3));
    assert_eq!(store.ask("select count(*) from <cancel>").await, 0);
    assert_eq!(store.counted(|tally| tally.leased).await, 3);
    let starts =
        |view: MessageView| view.events.iter().filter(|event| event.kind.as_str() == "START").count();
    assert_eq!((starts(store.look(ids[1]).await), starts(store.look(ids[2]).await)), (0, 1));
}

pub async fn a_lease_passes_what_is_cancelled_at_the_front_and_at_the_end(store: &Fixture) {
    let ids = store.send(6).await;
    store.cancel(&[ids[0], ids[1], ids[2], ids[5]]).await;
    assert_eq!(store.leased_ids(1).await, [ids[3]]);
    assert_eq!(store.leased_ids(5).await, [ids[4]]);
    store.nothing_ready().await;
    assert_eq!(store.heads().await, 0, "the cursor is at the end");
    assert_eq!(store.four().await, (0, 2, 4, 0));
}

pub async fn a_queue_of_which_everything_is_cancelled_is_empty(store: &Fixture) {
    let ids = store.send(3).await;
    store.cancel(&ids).await;
    assert_eq!(store.four().await, (0, 0, 3, 0));
    assert_eq!(store.heads().await, 1, "a lease must pass them");
    store.nothing_ready().await;
    assert_eq!(store.heads().await, 0);
    let next = store.send(1).await;
    assert_eq!(store.leased_ids(9).await, next);
}

pub async fn a_cancelled_claim_that_is_lost_gives_back_only_the_others(store: &Fixture) {
    let ids = store.send(3).await;
    store.cancel(&[ids[1]]).await;
    store.lease(3).await;
    store.pass(LEASE + Duration::from_secs(1));
    let request =
        TakeOver { worker: None, lease: LEASE, in_touch_since: Timestamp::from_secs(0), claims_max: 10 };
    let taken = store.store.take_over(request).await.unwrap().remove(0);
    let unsettled: Vec<MessageId> = taken.unsettled.iter().map(|message| message.id).collect();
    assert_eq!((unsettled, taken.in_hand), (vec![ids[0], ids[2]], 2));
}

pub async fn a_message_that_waits_dies_in_the_outbox(store: &Fixture) {
    let id = store.send_due(Some(Duration::from_secs(60))).await;
    assert_eq!(store.cancel(&[id]).await, [Changed::Done]);
    assert_eq!(store.look(id).await.state, State::Cancelled);
    store.pass(Duration::from_secs(60));
    assert_eq!(store.store.relay(10).await.unwrap().moved, 0);
    assert_eq!(store.four().await, (0, 0, 1, 0));
    let unknown = store.id();
    assert_eq!(store.cancel(&[unknown]).await, [Changed::NotFound]);
}

pub async fn what_runs_is_asked_to_stop_and_an_acknowledgement_stands(store: &Fixture) {
    let ids = store.send(4).await;
    let before = store.declarations().await;
    let claim = store.lease(4).await;
    assert_eq!(store.cancel(&ids[..3]).await, [Changed::Asked; 3]);
    assert_ne!(store.declarations().await, before, "its worker looks at once");
    let asked: Vec<_> =
        claim.messages[..3].iter().map(|message| (claim.held.token, message.offset)).collect();
    assert_eq!(store.renew("w").await.cancels, asked);
    assert!(store.renew("other").await.cancels.is_empty());

    let refused = Settlement::Dead { reason: DropReason::Refused, detail: Some("no".to_owned()) };
    let ends = [Settlement::Done, failed(), refused, failed()];
    let ends: Vec<_> = claim.messages.iter().map(|message| message.offset).zip(ends).collect();
    store.settle(&claim, &ends).await;
    let mut states = Vec::new();
    for id in &ids {
        states.push(store.look(*id).await.state);
    }
    assert_eq!(states, [State::Done, State::Cancelled, State::Cancelled, State::Retrying]);
    assert_eq!(store.cancel(&ids[..2]).await, [Changed::AlreadySettled; 2]);
    assert!(store.renew("w").await.cancels.is_empty());
}

pub async fn a_message_that_was_to_stop_is_cancelled_when_its_worker_dies(store: &Fixture) {
    let ids = store.send(1).await;
    store.lease(1).await;
    store.cancel(&ids).await;
    store.pass(LEASE + Duration::from_secs(1));
    let request =
        TakeOver { worker: None, lease: LEASE, in_touch_since: Timestamp::from_secs(0), claims_max: 10 };
    let taken = store.store.take_over(request).await.unwrap().remove(0);
    let claim = Claim { held: taken.held, messages: taken.unsettled, leased_at: Timestamp::from_secs(0) };
    store.end_all(&claim, failed()).await;
    assert_eq!(store.look(ids[0]).await.state, State::Cancelled);
}

pub async fn a_suspect_that_is_cancelled_is_passed_and_its_company_goes_on(store: &Fixture) {
    let ids = store.send(3).await;
    let claim = store.lease(3).await;
    let suspect = Settlement::Again {
        due: Due::In(Duration::ZERO),
        attempt: 0,
        releases: 1,
        suspect: 8,
        back: Back::Reclaimed,
    };
    store.end_all(&claim, suspect).await;
    assert_eq!(store.cancel(&ids[..1]).await, [Changed::Done], "it waits in the outbox");
    store.store.relay(10).await.unwrap();
    assert_eq!(store.cancel(&ids[1..2]).await, [Changed::Done], "it waits in the suspect lane");
    assert_eq!(store.leased_ids(9).await, ids[2..]);
    assert_eq!(store.four().await, (0, 1, 2, 0));
}

pub async fn a_committed_effect_is_not_cancelled(store: &Fixture) {
    let ids = store.send(2).await;
    let claim = store.lease(2).await;
    let Begun::Open(tx) = store.store.begin(claim.held, claim.messages[0].offset, LEASE).await.unwrap()
    else {
        panic!("nothing was committed yet");
    };
    tx.commit().await.unwrap();
    assert_eq!(store.cancel(&ids).await, [Changed::AlreadySettled, Changed::Asked]);
    store.end_all_anyway(&claim).await;
    assert_eq!(store.look(ids[0]).await.state, State::Done);
    assert_eq!(store.look(ids[1]).await.state, State::Cancelled);
}

pub async fn a_cancelled_message_can_be_redriven(store: &Fixture) {
    let ids = store.send(1).await;
    store.cancel(&ids).await;
    let new = redrive(store, ids[0]).await;
    store.store.relay(10).await.unwrap();
    assert_eq!(store.leased_ids(9).await, [new]);
}

/// Redrives one dead letter, and answers its new id.
async fn redrive(store: &Fixture, id: MessageId) -> MessageId {
    let one = Redrive { id, new_id: store.id(), due: None, queue: None, attempts_max: None };
    let new = one.new_id;
    assert_eq!(store.store.redrive(vec![one], act("dead-letter redrive")).await.unwrap(), [Changed::Done]);
    new
}

pub async fn retention_and_a_cancelled_message_do_not_disturb_each_other(store: &Fixture) {
    let ids = store.send(3).await;
    store.cancel(&ids[..2]).await;
    store.pass(Duration::from_secs(25 * 3600));
    store.store.retain("node".to_owned(), 1_000).await.unwrap();
    assert_eq!(store.ask("select count(*) from <log>").await, 3, "nothing of it is settled");
    let claim = store.lease(9).await;
    store.cancel(&ids[2..]).await;
    store.end_all(&claim, Settlement::Done).await;
    assert_eq!(store.ask("select count(*) from <cancel>").await, 1, "who acknowledges looks at no mark");
    store.send(1).await;
    store.pass(Duration::from_secs(25 * 3600));
    store.store.retain("node".to_owned(), 1_000).await.unwrap();
    assert_eq!(store.ask("select count(*) from <log>").await, 1);
    assert_eq!(store.ask("select count(*) from <cancel>").await, 0);
}

pub async fn the_audit_has_one_line_for_each_change_and_finds_a_line_that_was_changed(store: &Fixture) {
    let ids = store.send(2).await;
    store.cancel(&ids).await;
    store.store.pause(mail(), None, act("queue pause")).await.unwrap();
    store.store.resume(mail(), act("queue resume")).await.unwrap();
    store.store.resume(mail(), act("queue resume")).await.unwrap();
    let lines = store.store.audit(None, 10).await.unwrap();
    let said: Vec<_> = lines.iter().map(|line| (line.number, line.verb.as_str(), line.count)).collect();
    assert_eq!(
        said,
        [(4, "queue resume", 0), (3, "queue resume", 1), (2, "queue pause", 1), (1, "message cancel", 2)]
    );
    assert_eq!((lines[3].actor.as_str(), lines[3].reason.as_deref()), ("ana", Some("a mistake")));
    assert!(lines.iter().all(|line| line.intact));
    let page = store.store.audit(Some(4), 2).await.unwrap();
    assert_eq!(
        page.iter().map(|line| (line.number, line.intact)).collect::<Vec<_>>(),
        [(3, true), (2, true)]
    );

    store.ask("update <audit> set actor = 'bob' where number = 2").await;
    let intact = |lines: Vec<millpond_core::view::AuditLine>| -> Vec<bool> {
        lines.into_iter().map(|line| line.intact).collect()
    };
    assert_eq!(intact(store.store.audit(None, 10).await.unwrap()), [false, false, false, true]);
    store.ask("update <audit> set actor = 'ana' where number = 2").await;
    store.ask("delete from <audit> where number = 3").await;
    assert_eq!(intact(store.store.audit(None, 10).await.unwrap()), [false, true, true]);
}

pub async fn a_setting_that_is_changed_wins_over_the_declaration_until_it_is_unset(store: &Fixture) {
    let before = store.declarations().await;
    let changed = store.change("attempts_max", Some(json!(9))).await.unwrap();
    assert_eq!(changed.settings.attempts_max, 9);
    assert_ne!(store.declarations().await, before);
    let declared = QueueSettings { attempts_max: 3, releases_max: 7, ..QueueSettings::DEFAULT };
    let again = store.store.declare("mail".to_owned(), declared).await.unwrap();
    assert_eq!((again.settings.attempts_max, again.settings.releases_max), (9, 7));
    let view = store.counts().await;
    let change = &view.changes[0];
    assert_eq!((view.settings.attempts_max, view.changes.len()), (9, 1));
    assert_eq!(
        (change.setting.as_str(), &change.value, change.actor.as_str()),
        ("attempts_max", &json!(9), "ana")
    );
    assert_eq!(store.store.queue("mail".to_owned()).await.unwrap().unwrap().settings.attempts_max, 9);

    assert_eq!(store.change("attempts_max", None).await.unwrap().settings.attempts_max, 3);
    assert!(store.counts().await.changes.is_empty());
}

pub async fn a_setting_that_cannot_work_is_refused_and_nothing_is_changed(store: &Fixture) {
    let refused = async |setting: &str, value, expected: &str| {
        let error = store.change(setting, Some(value)).await.unwrap_err();
        assert!(error.starts_with("invalid-config") && error.contains(expected), "{error}");
    };
    refused("atempts_max", json!(9), "did you mean `attempts_max`?").await;
    refused("delivery", json!("dispatch"), "for life").await;
    refused("attempts_max", json!("many"), "attempts_max cannot be \"many\"").await;
    refused("attempts_max", json!(0), "attempts_max is 0").await;
    assert!(store.counts().await.changes.is_empty());
    let unknown = store.store.change("male".to_owned(), Vec::new(), act("queue set")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::UnknownQueue);
}

pub async fn what_waits_is_due_now_and_keeps_its_attempts(store: &Fixture) {
    store.send(1).await;
    let claim = store.lease(1).await;
    let failed_id = claim.messages[0].id;
    store.end_all(&claim, failed()).await;
    let later = store.send_due(Some(Duration::from_secs(60))).await;
    let ready = store.send(1).await[0];
    let changed = store.store.hasten(vec![failed_id, later, ready, store.id()], act("retry")).await.unwrap();
    assert_eq!(changed, [Changed::Done, Changed::Done, Changed::WrongState(State::Ready), Changed::NotFound]);
    assert_eq!(store.store.relay(10).await.unwrap().moved, 2);
    let claim = store.lease(1).await;
    assert_eq!((claim.messages[0].id, claim.messages[0].attempt), (failed_id, 2));
}

pub async fn a_redrive_is_a_new_life_once_and_where_it_is_wanted(store: &Fixture) {
    let other = store.store.declare("other".to_owned(), QueueSettings::DEFAULT).await.unwrap();
    let id = store.send(1).await[0];
    store.cancel(&[id]).await;
    let one = Redrive {
        id,
        new_id: store.id(),
        due: Some(Due::In(Duration::from_secs(60))),
        queue: Some(other.id),
        attempts_max: Some(2),
    };
    let twice = Redrive { new_id: store.id(), ..one.clone() };
    let changed = store.store.redrive(vec![one.clone(), twice], act("redrive")).await.unwrap();
    assert_eq!(changed, [Changed::Done, Changed::AlreadyRetried(one.new_id)]);
    let new = store.look(one.new_id).await;
    assert_eq!((new.queue.as_str(), new.state, new.attempts_max), ("other", State::Scheduled, Some(2)));
    assert_eq!(store.look(id).await.redriven_as, Some(one.new_id));
    let enqueued = "select count(*) from <event> where kind = 'ENQUEUE' and reason = 'redrive'
                    and retry_of is not null";
    assert_eq!(store.ask(enqueued).await, 1);
    let alive = Redrive { id: one.new_id, ..one.clone() };
    let lost = Redrive { id: store.id(), ..one.clone() };
    let changed = store.store.redrive(vec![alive, lost], act("redrive")).await.unwrap();
    assert_eq!(changed, [Changed::WrongState(State::Scheduled), Changed::NotFound]);
    assert_eq!(store.store.audit(None, 1).await.unwrap()[0].count, 0);

    let many = vec![one; 501];
    assert_eq!(store.store.redrive(many, act("redrive")).await.unwrap_err().code(), Code::BatchTooLarge);
}

pub async fn a_new_life_begins_under_the_name_of_its_work(store: &Fixture) {
    let id = store.send(1).await[0];
    store.ask("update <log> set kind = 'mail.welcome'").await;
    store.cancel(&[id]).await;
    let new = redrive(store, id).await;
    let names: Vec<String> = store.look(new).await.events.into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["mail.welcome"]);
}

pub async fn a_dead_letter_that_is_removed_is_gone(store: &Fixture) {
    let ids = store.send(2).await;
    store.cancel(&ids[..1]).await;
    let changed = store.store.remove_dead_letters(ids.clone(), act("dead-letter delete")).await.unwrap();
    assert_eq!(changed, [Changed::Done, Changed::WrongState(State::Ready)]);
    assert_eq!(store.counts().await.dead, 0);
    // The row of the log is there still: it is passed by, and does not count as done.
    assert_eq!(store.leased_ids(9).await, ids[1..]);
    assert_eq!(store.look(ids[0]).await.state, State::Cancelled);
    assert_eq!(store.cancel(&ids[..1]).await, [Changed::AlreadySettled]);
}

pub async fn a_cancelled_message_stays_cancelled_when_its_dead_letter_is_removed(store: &Fixture) {
    let ids = store.send(2).await;
    store.cancel(&ids).await;
    store.store.remove_dead_letters(ids.clone(), act("dead-letter remove")).await.unwrap();
    // No lease has passed them yet.
    assert_eq!(store.look(ids[0]).await.state, State::Cancelled);
    assert_eq!(store.cancel(&ids[..1]).await, [Changed::AlreadySettled]);
    assert_eq!(store.ask("select count(*) from <event> where kind = 'DLQ'").await, 2);
    assert_eq!(store.counted(|tally| tally.dead).await, 2);
    // Now one has; it leaves no history, so nothing is kept of them but their events.
    store.nothing_ready().await;
    assert_eq!(store.look(ids[0]).await.state, State::Cancelled);
    assert!(store.listed().await.is_empty(), "neither is done");
}

pub async fn a_message_that_is_purged_while_it_waits_for_a_retry_is_not_done(store: &Fixture) {
    purged_while_it_waits(store, "all").await;
}

pub async fn without_a_history_a_message_that_is_purged_while_it_waits_is_not_done(store: &Fixture) {
    purged_while_it_waits(store, "failures").await;
}

async fn purged_while_it_waits(store: &Fixture, events: &str) {
    store.change("events", Some(json!(events))).await.unwrap();
    let ids = store.send(2).await;
    let claim = store.lease(2).await;
    store.end_all(&claim, failed()).await;
    assert_eq!(store.purge(9).await, Purged { messages: 2, more: false });
    let view = store.look(ids[0]).await;
    assert_eq!((view.state, view.reason.as_deref()), (State::Dead, Some("purged")));
    assert_eq!(store.cancel(&ids[..1]).await, [Changed::AlreadySettled]);
    assert!(store.listed().await.is_empty(), "neither is done");
}

pub async fn a_purge_drops_what_waits_in_chunks_and_leaves_alone_what_runs(store: &Fixture) {
    let ids = store.send(10).await;
    let claim = store.lease(2).await;
    store.cancel(&ids[3..4]).await;
    let later = store.send_due(Some(Duration::from_secs(60))).await;
    assert_eq!(store.purge(5).await, Purged { messages: 4, more: true }, "one of the five was cancelled");
    assert_eq!(store.purge(5).await, Purged { messages: 4, more: false });
    assert_eq!(store.purge(5).await, Purged::default());
    assert_eq!(store.four().await, (0, 2, 1, 0));
    assert!(store.store.message(later).await.unwrap().is_none());
    let view = store.look(ids[5]).await;
    assert_eq!((view.state, view.reason.as_deref()), (State::Dead, Some("purged")));
    assert_eq!(store.cancel(&ids[5..6]).await, [Changed::AlreadySettled]);
    let events = "select count(*) from <event> where reason = 'purged' and count = 4";
    assert_eq!(store.ask(events).await, 2);
    assert_eq!(store.counted(|tally| tally.dead).await, 9);

    store.end_all(&claim, Settlement::Done).await;
    let next = store.send(1).await;
    assert_eq!(store.leased_ids(9).await, next, "the cursor is where the purge ended");
}

pub async fn what_waited_long_before_it_was_ready_is_on_its_page(store: &Fixture) {
    let waited = store.send_due(Some(Duration::from_secs(600))).await;
    store.pass(Duration::from_secs(5));
    let direct = store.send(3).await;
    store.pass(Duration::from_secs(600));
    assert_eq!(store.store.relay(10).await.unwrap().moved, 1);
    let mut find = Find {
        query: Query::default().and(Field::State, ["ready".to_owned()]),
        after: None,
        rows_max: 2,
        bodies: false,
        count: Count::No,
    };
    let mut seen = Vec::new();
    loop {
        let page = store.store.messages(find.clone()).await.unwrap();
        seen.extend(page.items.iter().map(|row| row.id));
        let Some(next) = page.next else { break };
        find.after = Some(next);
    }
    assert_eq!(seen, [direct[2], direct[1], direct[0], waited]);
}

pub async fn a_wish_reaches_the_workers_that_live_and_can_be_taken_back(store: &Fixture) {
    assert_eq!(store.renew("a").await.wish, None);
    store.renew("b").await;
    store.store.end_worker("b".to_owned()).await.unwrap();
    let steer = async |worker: Option<&str>, wish| {
        store.store.steer(worker.map(str::to_owned), wish, act("worker steer")).await.unwrap()
    };
    assert_eq!(steer(None, Some(Wish::Drain)).await, 1);
    assert_eq!(store.renew("a").await.wish, Some(Wish::Drain));
    let workers = store.store.workers().await.unwrap();
    let view = workers.iter().find(|worker| worker.id == "a").unwrap();
    assert_eq!((view.wish, view.facts.pid, view.facts.version.as_str()), (Some(Wish::Drain), 7, "1.2"));
    assert_eq!(view.facts.processed, 3);
    assert_eq!(steer(Some("a"), None).await, 1);
    assert_eq!(store.renew("a").await.wish, None);
    assert_eq!(steer(Some("nobody"), Some(Wish::Restart)).await, 0);
}

/// A worker of an earlier release may live on while another process migrates: it must change nothing from there on,
/// as it does not know what the new tables mean. `migrate`: what notes a migration of a later release.
pub async fn a_store_that_is_migrated_is_not_written_any_more(fixture: &Fixture, migrate: &str) {
    fixture.send(2).await;
    let claim = fixture.lease(1).await;
    fixture.ask(migrate).await;
    let Fixture { store, queue, .. } = fixture;
    let keyed = NewMessage {
        dedup: Some(Dedup { key: "a".to_owned(), window: Duration::from_secs(9) }),
        ..fixture.message(None)
    };
    let settle = SettleClaim { held: claim.held, items: Vec::new() };
    let later = Some(Duration::from_secs(9));
    let refused = [
        store.append(queue.id, vec![fixture.message(None)]).await.map(drop),
        store.append(queue.id, vec![keyed]).await.map(drop),
        store.append(queue.id, vec![fixture.message(later)]).await.map(drop),
        store.lease(fixture.request("w", 1)).await.map(drop),
        store.settle(vec![settle]).await.map(drop),
        store.relay(10).await.map(drop),
        store.renew(renewal("w")).await.map(drop),
        store.begin(claim.held, Offset(0), LEASE).await.map(drop),
        store.declare("more".to_owned(), QueueSettings::DEFAULT).await.map(drop),
        store.pause(mail(), None, act("pause")).await.map(drop),
    ];
    for (index, outcome) in refused.into_iter().enumerate() {
        assert_eq!(outcome.unwrap_err().code(), Code::SchemaNewer, "{index}");
    }
    assert_eq!(fixture.ask("select count(*) from <log>").await, 2);
    assert_eq!(fixture.ask("select count(*) from <outbox>").await, 0);
}

/// A test for each scenario, on a fresh [`Place`] each. The crate needs `tokio` with its macros.
#[macro_export]
macro_rules! operate {
    ($place:expr) => {
        $crate::operate_tests! { $place;
            a_pause_holds_everywhere_until_it_is_resumed
            a_pause_with_an_end_is_over_by_itself_and_can_be_moved
            a_pause_of_a_queue_that_is_not_there_is_refused_and_leaves_no_line
            a_cancelled_message_that_is_ready_is_dead_at_once_and_never_delivered
            a_lease_passes_what_is_cancelled_at_the_front_and_at_the_end
            a_queue_of_which_everything_is_cancelled_is_empty
            a_cancelled_claim_that_is_lost_gives_back_only_the_others
            a_message_that_waits_dies_in_the_outbox
            what_runs_is_asked_to_stop_and_an_acknowledgement_stands
            a_message_that_was_to_stop_is_cancelled_when_its_worker_dies
            a_suspect_that_is_cancelled_is_passed_and_its_company_goes_on
            a_committed_effect_is_not_cancelled
            a_cancelled_message_can_be_redriven
            retention_and_a_cancelled_message_do_not_disturb_each_other
            the_audit_has_one_line_for_each_change_and_finds_a_line_that_was_changed
            a_setting_that_is_changed_wins_over_the_declaration_until_it_is_unset
            a_setting_that_cannot_work_is_refused_and_nothing_is_changed
            what_waits_is_due_now_and_keeps_its_attempts
            a_redrive_is_a_new_life_once_and_where_it_is_wanted
            a_new_life_begins_under_the_name_of_its_work
            a_dead_letter_that_is_removed_is_gone
            a_cancelled_message_stays_cancelled_when_its_dead_letter_is_removed
            a_message_that_is_purged_while_it_waits_for_a_retry_is_not_done
            without_a_history_a_message_that_is_purged_while_it_waits_is_not_done
            a_purge_drops_what_waits_in_chunks_and_leaves_alone_what_runs
            what_waited_long_before_it_was_ready_is_on_its_page
            a_wish_reaches_the_workers_that_live_and_can_be_taken_back
        }
    };
}

/// The tests of [`operate!`](crate::operate!), from names.
#[doc(hidden)]
#[macro_export]
macro_rules! operate_tests {
    ($place:expr; $($scenario:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $scenario() {
                let fixture = $crate::operate::Fixture::on($place).await;
                $crate::operate::$scenario(&fixture).await;
                fixture.close().await;
            }
        )*
    };
}

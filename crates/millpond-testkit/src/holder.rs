//! A worker without an engine: it renews, leases and settles through the ports, one call at a time, so that a
//! scenario can stop it at any place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond_core::message::{Leased, Offset, Token};
use millpond_core::pick::Lane;
use millpond_core::queue::CLASSES;
use millpond_core::settle::{Counters, Ending, Policy, Settlement, Verdict, settle};
use millpond_core::store::{
    Claim, Lease, LeaseRequest, Queue, Renewal, Renewed, SettleClaim, SettleItem, Settled, Store,
};
use millpond_core::view::WorkerFacts;

/// The lease of every holder.
pub const HOLDER_LEASE: Duration = Duration::from_secs(30);

/// A worker that does only what it is told.
pub struct Holder {
    store: Arc<dyn Store>,
    name: String,
    queue: Arc<Queue>,
    one_by_one: bool,
}

impl Holder {
    /// A worker of `queue` with a name of its own.
    pub fn new(store: Arc<dyn Store>, queue: Arc<Queue>) -> Self {
        Self { store, name: format!("holder-{}-{}", std::process::id(), number()), queue, one_by_one: true }
    }

    /// The same, which may handle the messages of a claim at once.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { one_by_one: false, ..self }
    }

    /// Renews its lease.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn renew(&self) -> Renewed {
        let renewal = Renewal {
            worker: self.name.clone(),
            host: "bench".to_owned(),
            lease: HOLDER_LEASE,
            queues: vec![self.queue.name.clone()],
            slots: 1,
            busy: 0,
            error: None,
            facts: WorkerFacts::default(),
        };
        self.store.renew(renewal).await.expect("a renewal is recorded")
    }

    /// Asks for messages of these lanes, the first that has some.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn try_lease(&self, lanes: &[Lane], messages_max: usize, hands_empty: bool) -> Lease {
        self.renew().await;
        let mut token = [7; 16];
        token[..8].copy_from_slice(&number().to_be_bytes());
        token[8..12].copy_from_slice(&std::process::id().to_be_bytes());
        let turns = (0..CLASSES).flat_map(|class| lanes.iter().map(move |lane| (class, *lane)));
        let request = LeaseRequest {
            queue: self.queue.id,
            worker: self.name.clone(),
            token: Token(token),
            turns: turns.collect(),
            messages_max,
            bytes_max: usize::MAX,
            hands_empty,
            one_by_one: self.one_by_one,
        };
        self.store.lease(request).await.expect("a lease is answered")
    }

    /// Leases messages of any lane, with empty hands.
    ///
    /// # Panics
    ///
    /// When there are none.
    pub async fn lease(&self, messages_max: usize) -> Claim {
        match self.try_lease(&[Lane::Return, Lane::Suspect, Lane::Main], messages_max, true).await {
            Lease::Claim(claim) => claim,
            other => panic!("there is nothing to lease: {other:?}"),
        }
    }

    /// Whether nothing is ready.
    pub async fn finds_nothing(&self) -> bool {
        let lanes = [Lane::Return, Lane::Suspect, Lane::Main];
        matches!(self.try_lease(&lanes, 1, true).await, Lease::Empty)
    }

    /// Whether a pause holds the queue.
    pub async fn finds_a_pause(&self) -> bool {
        matches!(self.try_lease(&[Lane::Main], 1, true).await, Lease::Paused)
    }

    /// Acknowledges the messages of a claim.
    pub async fn ack(&self, claim: &Claim) -> Settled {
        self.end(claim, &Ending::Returned(Verdict::Ack)).await
    }

    /// Ends the delivery of every message of a claim in the same way.
    pub async fn end(&self, claim: &Claim, ending: &Ending) -> Settled {
        let settlement = |message: &Leased| (message.offset, self.decide(claim, message, ending));
        self.settle(claim, claim.messages.iter().map(settlement).collect()).await
    }

    /// Records how deliveries of a claim ended.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn settle(&self, claim: &Claim, ends: Vec<(Offset, Settlement)>) -> Settled {
        let item = |(offset, settlement)| SettleItem {
            offset,
            kind: None,
            error: (settlement != Settlement::Done).then(|| "it broke".to_owned()),
            settlement,
            class: None,
            run: Duration::from_millis(5),
        };
        let items = ends.into_iter().map(item).collect();
        let answers = self.store.settle(vec![SettleClaim { held: claim.held, items }]).await;
        answers.expect("a settlement is answered").remove(0)
    }

    /// What core makes of the end of a delivery.
    pub fn decide(&self, claim: &Claim, message: &Leased, ending: &Ending) -> Settlement {
        let policy = Policy::of(&self.queue.settings, message.attempts_max, message.retry_until);
        settle(&policy, Counters::of(message), ending.clone(), claim.leased_at, 0.5)
    }

    /// Gives up its lease in the store, as a worker does that stops.
    ///
    /// # Panics
    ///
    /// When the store refuses.
    pub async fn leave(&self) {
        self.store.end_worker(self.name.clone()).await.expect("the end of a worker is recorded");
    }
}

/// Numbers that no two tokens or names of this process share.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

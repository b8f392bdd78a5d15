//! The settler: collects how deliveries ended and records them in batches.
//!
//! At most 25 ms after the first one, and at once when a claim has ended: so a fast queue settles a thousand
//! messages with one row, and a slow one does not wait.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millpond_core::error::{Error, ErrorKind, Result};
use millpond_core::message::Token;
use millpond_core::reason::Back;
use millpond_core::settle::Settlement;
use millpond_core::store::{SettleClaim, SettleItem, Settled};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::patience::Patience;
use crate::pond::Pond;
use crate::worker::board::Envelope;
use crate::worker::hands::Hands;
use crate::worker::slot::Fault;

/// How long an ended delivery may wait for company.
const GATHER: Duration = Duration::from_millis(25);

/// How long the last verdicts of a worker that was dropped may take to be recorded.
const LAST: Duration = Duration::from_secs(5);

/// How deliveries ended, waiting to be recorded. Bounded by what is in hand.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    inner: Mutex<Inner>,
    some: Notify,
    urgent: Notify,
    /// Messages acknowledged, and attempts failed, since the worker started.
    processed: AtomicU64,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// By partition and place, so that two batches never lock claims in opposite order (R12).
    claims: BTreeMap<(i64, i64, u64, Token), SettleClaim>,
    /// When the first of them came.
    since: Option<Instant>,
    /// How many messages of each claim have not ended.
    open: HashMap<Token, usize>,
}

impl Endings {
    /// A claim was leased: it has this many messages to end.
    pub(crate) fn expect(&self, token: Token, messages: usize) {
        self.lock().open.insert(token, messages);
    }

    /// A delivery ended.
    pub(crate) fn push(&self, envelope: &Envelope, settlement: Settlement, fault: Fault, run: Duration) {
        self.tally(&settlement);
        let held = envelope.held;
        let item = SettleItem {
            offset: envelope.offset,
            kind: envelope.kind.clone(),
            settlement,
            error: fault.text,
            class: fault.class,
            run,
        };
        let (first, claim_ended) = {
            let mut inner = self.lock();
            let first = inner.claims.is_empty();
            if first {
                inner.since = Some(Instant::now());
            }
            let place = (held.subscription, held.partition, held.to_offset.0, held.token);
            let claim = inner.claims.entry(place).or_insert_with(|| SettleClaim { held, items: Vec::new() });
            claim.items.push(item);
            let open = inner.open.get_mut(&held.token);
            let left = open.map_or(0, |left| {
                *left = left.saturating_sub(1);
                *left
            });
            (first, left == 0)
        };
        if first {
            self.some.notify_one();
        }
        if claim_ended {
            self.urgent.notify_one();
        }
    }

    fn tally(&self, settlement: &Settlement) {
        match settlement {
            Settlement::Done => self.processed.fetch_add(1, Ordering::Relaxed),
            Settlement::Again { back: Back::Failed(_), .. } | Settlement::Dead { .. } => {
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
            Settlement::Again { .. } => 0,
        };
    }

    /// Messages acknowledged, and attempts failed, so far.
    pub(crate) fn tallies(&self) -> (u64, u64) {
        (self.processed.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// A claim was taken over: what is left of it is somebody else's.
    pub(crate) fn lost(&self, token: Token) {
        self.lock().open.remove(&token);
    }

    /// Whether everything that ended is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().claims.is_empty()
    }

    /// How long the first of those that are not recorded has waited.
    pub(crate) fn waited(&self) -> Option<Duration> {
        let inner = self.lock();
        let since = inner.since.filter(|_| !inner.claims.is_empty());
        since.map(|since| since.elapsed())
    }

    fn take(&self) -> Vec<SettleClaim> {
        std::mem::take(&mut self.lock().claims).into_values().collect()
    }

    fn forget(&self, token: Token) {
        let mut inner = self.lock();
        if inner.open.get(&token) == Some(&0) {
            inner.open.remove(&token);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records endings until the worker has stopped.
#[derive(Clone)]
pub(crate) struct Settler {
    pub(crate) pond: Pond,
    pub(crate) endings: Arc<Endings>,
    pub(crate) hands: Arc<Hands>,
    /// Told after each batch.
    pub(crate) settled: Arc<Notify>,
    /// Told when something was dropped.
    pub(crate) dropped: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

impl Settler {
    pub(crate) async fn run(&self) {
        let mut work = pin!(self.work());
        tokio::select! {
            () = &mut work => {}
            () = self.stop.cancelled() => {}
        }
        if self.hands.left().in_hand != 0 {
            // The worker was dropped: its slots are being aborted, and each says so of its message.
            let _ = timeout(LAST, work).await;
        }
    }

    /// Until the worker has stopped and has nothing in hand.
    async fn work(&self) {
        while !self.stop.is_cancelled() || self.hands.left().in_hand != 0 {
            self.endings.some.notified().await;
            // A claim that ended, or 25 ms: what comes first. Both are fine.
            let _ = timeout(GATHER, self.endings.urgent.notified()).await;
            self.record_all().await;
        }
    }

    /// Records what has ended so far.
    pub(crate) async fn record_all(&self) {
        let claims = self.endings.take();
        if !claims.is_empty() {
            self.record(claims).await;
            self.settled.notify_one();
        }
    }

    /// Records a batch, or, if it is refused as a whole, its messages one by one.
    async fn record(&self, claims: Vec<SettleClaim>) {
        claims.iter().for_each(|claim| self.hands.settling(claim.held.token, claim.items.len()));
        let Err(error) = self.record_patiently(&claims).await else { return };
        tracing::error!(%error, cause = error.causes(), "a batch of verdicts failed; one by one now");
        for SettleClaim { held, items } in claims {
            for item in items {
                let offset = item.offset.0;
                if let Err(error) = self.record_patiently(&[SettleClaim { held, items: vec![item] }]).await {
                    tracing::error!(%error, cause = error.causes(), offset, "a verdict cannot be recorded");
                    // Once nothing else of its claim is in hand, the next renewal gives the message back.
                    self.hands.settled(held.token, 1);
                    self.endings.forget(held.token);
                }
            }
        }
    }

    /// Records verdicts; while the store is away they are kept and it is tried again.
    async fn record_patiently(&self, claims: &[SettleClaim]) -> Result<()> {
        let mut patience = Patience::new();
        loop {
            match self.pond.store().settle(claims.to_vec()).await {
                Ok(answers) => {
                    self.recorded(claims, &answers);
                    return Ok(());
                }
                Err(error) if is_away(&error) => {
                    tracing::warn!(%error, cause = error.causes(), "cannot settle now; the verdicts are kept");
                    sleep(patience.wait()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn recorded(&self, claims: &[SettleClaim], answers: &[Settled]) {
        for (claim, answer) in claims.iter().zip(answers) {
            let (token, messages) = (claim.held.token, claim.items.len());
            if *answer == Settled::LeaseLost {
                let partition = claim.held.partition;
                tracing::warn!(partition, messages, "lease-lost: another worker may have the messages");
                // Nothing more of it is begun.
                self.hands.lose(token);
                self.endings.lost(token);
                continue;
            }
            self.hands.settled(token, messages);
            self.endings.forget(token);
            let goes_back = |item: &SettleItem| matches!(item.settlement, Settlement::Again { .. });
            if claim.items.iter().any(goes_back) {
                self.pond.nudge();
            }
            let is_dropped = |item: &SettleItem| matches!(item.settlement, Settlement::Dead { .. });
            if claim.items.iter().any(is_dropped) {
                self.dropped.notify_one();
            }
        }
    }
}

/// Whether trying again later can help.
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
        && error.code() != millpond_core::Code::Internal
        && error.code() != millpond_core::Code::ShuttingDown
}

#[cfg(test)]
mod tests {
    use millpond_core::Code;

    use super::*;
    use crate::fake::{FakeStore, held, leased};

    /// How many messages are recorded and how many are in hand, after two have ended and `codes` were the answers,
    /// the last of them first.
    async fn recorded(codes: &[Code]) -> (usize, usize) {
        let store = Arc::new(FakeStore::default());
        store.refuse_to_settle(codes);
        let (endings, hands) = (Arc::<Endings>::default(), Arc::<Hands>::default());
        hands.take(held(), 2, false);
        endings.expect(held().token, 2);
        for _ in 0..2 {
            endings.push(
                &Envelope::of(held(), &leased(b"1"), None),
                Settlement::Done,
                Fault::default(),
                Duration::ZERO,
            );
        }
        let settler = Settler {
            pond: Pond::new(store.clone()),
            endings: Arc::clone(&endings),
            hands: Arc::clone(&hands),
            settled: Arc::default(),
            dropped: Arc::default(),
            stop: CancellationToken::new(),
        };
        settler.record(endings.take()).await;
        assert!(endings.lock().open.is_empty());
        (store.settled().len(), hands.left().in_hand)
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_is_kept_while_the_store_is_away_also_when_they_go_one_by_one() {
        use Code::{Internal, StorageFull, StoreUnavailable};
        assert_eq!(recorded(&[StorageFull, StoreUnavailable]).await, (2, 0));
        assert_eq!(recorded(&[StoreUnavailable, Internal]).await, (2, 0));
    }

    #[tokio::test]
    async fn a_message_whose_verdict_is_refused_leaves_the_hands_and_so_goes_back() {
        assert_eq!(recorded(&[Code::Internal, Code::Internal]).await, (1, 0));
    }
}

//! The settler: collects how deliveries ended and records them in batches.
//!
//! At most 25 ms after the first one, and at once when a claim has ended: so a fast queue settles a thousand
//! messages with one row, and a slow one does not wait.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_core::error::{Error, ErrorKind};
use millpond_core::message::Token;
use millpond_core::settle::Settlement;
use millpond_core::store::{ClaimRef, Queue, QueueId, SettleClaim, SettleItem, Settled};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::patience::Patience;
use crate::pond::Pond;
use crate::worker::board::Envelope;
use crate::worker::hands::Hands;

/// How long an ended delivery may wait for company.
const GATHER: Duration = Duration::from_millis(25);

/// How long the last verdicts of a worker that was dropped may take to be recorded.
const LAST: Duration = Duration::from_secs(5);

/// The longest wait between two tries while the store is away.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How deliveries ended, waiting to be recorded. Bounded by what is in hand.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    inner: Mutex<Inner>,
    some: Notify,
    urgent: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// By partition and place, so that two batches never lock claims in opposite order (R12).
    claims: BTreeMap<(i64, i64, u64, Token), SettleClaim>,
    /// Messages of each claim that have not ended.
    open: HashMap<Token, Open>,
    speeds: HashMap<QueueId, (u32, Duration)>,
}

#[derive(Debug)]
struct Open {
    left: usize,
    queue: QueueId,
}

impl Endings {
    /// A claim was leased: it has this many messages to end.
    pub(crate) fn expect(&self, token: Token, queue: QueueId, messages: usize) {
        self.lock().open.insert(token, Open { left: messages, queue });
    }

    /// A delivery ended.
    pub(crate) fn push(
        &self,
        envelope: &Envelope,
        settlement: Settlement,
        error: Option<String>,
        run: Duration,
    ) {
        let held = envelope.held;
        let item =
            SettleItem { offset: envelope.offset, kind: envelope.kind.clone(), settlement, error, run };
        let (first, claim_ended) = {
            let mut inner = self.lock();
            let first = inner.claims.is_empty();
            let place = (held.subscription, held.partition, held.to_offset.0, held.token);
            let claim = inner.claims.entry(place).or_insert_with(|| SettleClaim { held, items: Vec::new() });
            claim.items.push(item);
            let open = inner.open.get_mut(&held.token);
            let left = open.map_or(0, |open| {
                open.left = open.left.saturating_sub(1);
                open.left
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

    /// A claim was taken over: what is left of it is somebody else's.
    pub(crate) fn lost(&self, token: Token) {
        self.lock().open.remove(&token);
    }

    /// A handler ran for this long.
    pub(crate) fn measured(&self, queue: &Queue, run: Duration) {
        let mut inner = self.lock();
        let (runs, total) = inner.speeds.entry(queue.id).or_default();
        *runs = runs.saturating_add(1);
        *total = total.saturating_add(run);
    }

    /// The run times of a queue since the last call.
    pub(crate) fn take_speed(&self, queue: QueueId) -> (u32, Duration) {
        self.lock().speeds.remove(&queue).unwrap_or_default()
    }

    /// Whether everything that ended is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().claims.is_empty()
    }

    fn take(&self) -> Vec<SettleClaim> {
        std::mem::take(&mut self.lock().claims).into_values().collect()
    }

    fn forget(&self, token: Token) {
        let mut inner = self.lock();
        if inner.open.get(&token).is_none_or(|open| open.left == 0) {
            inner.open.remove(&token);
        }
    }

    fn queue_of(&self, token: Token) -> Option<QueueId> {
        self.lock().open.get(&token).map(|open| open.queue)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records endings until the worker has stopped.
pub(crate) struct Settler {
    pub(crate) pond: Pond,
    pub(crate) endings: Arc<Endings>,
    pub(crate) hands: Arc<Hands>,
    /// Told after each batch.
    pub(crate) settled: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

impl Settler {
    pub(crate) async fn run(self) {
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
            let claims = self.endings.take();
            if !claims.is_empty() {
                self.record(claims).await;
                self.settled.notify_one();
            }
        }
    }

    /// Records a batch; while the store is away the verdicts are kept and it is tried again.
    async fn record(&self, claims: Vec<SettleClaim>) {
        let mut patience = Patience::up_to(RETRY_MAX);
        loop {
            match self.pond.store().settle(claims.clone()).await {
                Ok(answers) => return self.recorded(&claims, &answers),
                Err(error) if is_away(&error) => {
                    tracing::warn!(%error, cause = error.causes(), "cannot settle now; the verdicts are kept");
                    sleep(patience.wait()).await;
                }
                Err(error) => {
                    tracing::error!(%error, cause = error.causes(), "a batch of verdicts failed; one by one now");
                    return self.record_one_by_one(claims).await;
                }
            }
        }
    }

    async fn record_one_by_one(&self, claims: Vec<SettleClaim>) {
        for SettleClaim { held, items } in claims {
            for item in items {
                let one = vec![SettleClaim { held, items: vec![item] }];
                match self.pond.store().settle(one.clone()).await {
                    Ok(answers) => self.recorded(&one, &answers),
                    // It stays leased until this worker ends, and is reclaimed then.
                    Err(error) => {
                        let offset = one[0].items[0].offset.0;
                        tracing::error!(%error, cause = error.causes(), offset, "a verdict cannot be recorded");
                    }
                }
            }
        }
    }

    fn recorded(&self, claims: &[SettleClaim], answers: &[Settled]) {
        for (claim, answer) in claims.iter().zip(answers) {
            let token = claim.held.token;
            let queue = self.endings.queue_of(token);
            match answer {
                Settled::Applied { .. } => self.hands.settled(token, claim.items.len()),
                Settled::LeaseLost => self.lost(&claim.held, claim.items.len()),
            }
            self.endings.forget(token);
            let goes_back = |item: &SettleItem| matches!(item.settlement, Settlement::Again { .. });
            if let Some(queue) = queue
                && claim.items.iter().any(goes_back)
            {
                self.pond.outbox_changed(queue);
            }
        }
    }

    fn lost(&self, held: &ClaimRef, messages: usize) {
        tracing::warn!(
            partition = held.partition,
            messages,
            "lease-lost: another worker may have the messages"
        );
        self.hands.settled(held.token, messages);
    }
}

/// Whether trying again later can help.
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
        && error.code() != millpond_core::Code::Internal
        && error.code() != millpond_core::Code::ShuttingDown
}

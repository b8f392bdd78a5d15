//! Reclaim: every node, each second, takes the claims of workers whose lease is over and decides about what they
//! left. No leader: a dead leader would delay it.

use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::Result;
use millpond_core::message::{Leased, Offset};
use millpond_core::settle::{Counters, Ending, Policy, Settlement, settle};
use millpond_core::store::{SettleClaim, SettleItem, TakeOver, TakenOver};
use millpond_core::time::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::patience::{LONGEST, Patience, roll};
use crate::pond::Pond;
use crate::renewal::{LeaseWatch, pause};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

/// Claims of one page.
const CLAIMS_MAX: usize = 64;

/// How long a node has to settle what it took over, before another may take it from there.
const LEASE: Duration = Duration::from_secs(10);

/// The loop of one node.
pub(crate) struct Reclaim {
    pub(crate) pond: Pond,
    /// The worker of this node.
    pub(crate) worker: String,
    pub(crate) watch: Arc<LeaseWatch>,
    /// Told when something was dropped.
    pub(crate) dropped: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

impl Reclaim {
    pub(crate) async fn run(&self) {
        let mut patience = Patience::up_to(longest_wait(self.watch.lease()));
        let mut wait = EVERY;
        while pause(&self.stop, wait).await {
            match self.page().await {
                Ok(CLAIMS_MAX) => wait = Duration::ZERO,
                Ok(_) => (wait, _) = (EVERY, patience.reset()),
                Err(error) => {
                    tracing::warn!(%error, cause = error.causes(), "cannot reclaim now");
                    wait = patience.wait();
                }
            }
        }
    }

    /// Takes over and settles one page of claims; answers how many there were.
    async fn page(&self) -> Result<usize> {
        // The store may be back while this node has not renewed yet: then others have not either.
        let Some(in_touch_since) = self.watch.in_touch_since() else { return Ok(0) };
        let request = TakeOver {
            worker: Some(self.worker.clone()),
            lease: LEASE,
            in_touch_since,
            claims_max: CLAIMS_MAX,
        };
        let taken = self.pond.store().take_over(request).await?;
        for claim in &taken {
            let verdicts = verdicts(claim, self.watch.database_now());
            let (queue, worker) = (&claim.queue.name, &claim.worker);
            tracing::info!(%queue, %worker, unsettled = claim.unsettled.len(), in_hand = claim.in_hand, "reclaimed");
            // One claim that cannot be settled must not hide the next.
            if let Err(error) = self.pond.store().settle(vec![verdicts]).await {
                tracing::warn!(%error, cause = error.causes(), "cannot settle a reclaimed claim; it is tried again");
            }
            self.pond.nudge();
            self.dropped.notify_one();
        }
        Ok(taken.len())
    }
}

/// The longest wait after an error. A store that goes away again and again is back for a short while only: who waits much
/// longer than a renewal takes finds it away each time, and nobody reclaims.
fn longest_wait(lease: Duration) -> Duration {
    LONGEST.min(lease / 3 + EVERY)
}

/// What becomes of the messages of a claim that was lost.
pub fn verdicts(claim: &TakenOver, now: Timestamp) -> SettleClaim {
    let done = claim.done.iter().map(|offset| item(*offset, None, Settlement::Done));
    let lost = claim.unsettled.iter().map(|message| lost(claim, message, now));
    SettleClaim { held: claim.held, items: done.chain(lost).collect() }
}

fn lost(claim: &TakenOver, message: &Leased, now: Timestamp) -> SettleItem {
    let policy = Policy::of(&claim.queue.settings, message.attempts_max, message.retry_until);
    let ending = Ending::Lost { in_hand: claim.in_hand };
    let settlement = settle(&policy, Counters::of(message), ending, now, roll());
    if let Settlement::Dead { reason, .. } = &settlement {
        let (queue, id, attempt) = (&claim.queue.name, message.id, message.attempt);
        tracing::warn!(%queue, %id, attempt, %reason, "a message is a dead letter");
    }
    item(message.offset, message.kind.as_deref(), settlement)
}

fn item(offset: Offset, kind: Option<&str>, settlement: Settlement) -> SettleItem {
    SettleItem {
        offset,
        kind: kind.map(Into::into),
        settlement,
        error: None,
        class: None,
        run: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant as HostInstant;

    use millpond_core::store::Renewed;
    use tokio::time::Instant;

    use super::*;
    use crate::fake::FakeStore;

    /// As a worker has it whose lease was granted just now.
    fn watch(lease: Duration) -> Arc<LeaseWatch> {
        let now = Timestamp::from_secs(1);
        let renewed = Renewed { now, claims: Vec::new(), wish: None, cancels: Vec::new() };
        Arc::new(LeaseWatch::new(lease, HostInstant::now(), &renewed))
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_of_any_length_it_looks_again_soon() {
        for (lease, bound) in [(3, 2), (30, 5), (3_600, 5)] {
            let (store, stop) = (Arc::new(FakeStore::default()), CancellationToken::new());
            let reclaim = Reclaim {
                pond: Pond::new(store.clone()),
                worker: "w".to_owned(),
                watch: watch(Duration::from_secs(lease)),
                stop: stop.clone(),
                dropped: Arc::default(),
            };
            store.go_away(true);
            let running = tokio::spawn(async move { reclaim.run().await });
            assert!(pause(&stop, Duration::from_secs(600)).await);
            store.go_away(false);
            let back = Instant::now();
            store.taken_over().await;
            let bound = Duration::from_secs(bound).mul_f64(1.21);
            assert!(back.elapsed() < bound, "lease {lease} s: {:?}", back.elapsed());
            let looked = Instant::now();
            store.taken_over().await;
            assert!(looked.elapsed() < EVERY + Duration::from_millis(10), "and then as ever");
            stop.cancel();
            running.await.unwrap();
        }
    }
}

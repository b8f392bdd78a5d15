//! The hooks of a worker: takes dead letters whose hook is pending, and calls it, beside the slots.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::Result;
use millpond_core::hook::{HOOK_LEASE, HOOK_LIMIT, HookEnd, HookStep, Pending, TakeHooks, step};
use millpond_core::redact;
use millpond_core::store::Queue;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::counters::Counter;
use crate::hook::{BoundHook, Origin};
use crate::patience::Patience;
use crate::pond::Pond;
use crate::supervise::{caught, panic_text};

/// Hooks of a worker that run at once.
pub(crate) const HOOKS_AT_ONCE: usize = 16;

/// How often it looks without a hint: for what other nodes, a reclaim or an operator have dropped.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the hooks of the last drops may take after the worker has stopped.
const LAST: Duration = Duration::from_secs(5);

/// The hooks of one queue.
#[derive(Debug)]
pub(crate) struct HookLine {
    pub(crate) queue: Arc<Queue>,
    pub(crate) name: Arc<str>,
    /// For what has no hook of its own.
    pub(crate) any: Option<BoundHook>,
    pub(crate) by_kind: HashMap<String, BoundHook>,
}

impl HookLine {
    pub(crate) fn find(&self, kind: &str) -> Option<&BoundHook> {
        self.by_kind.get(kind).or(self.any.as_ref())
    }
}

/// Calls the hooks of a worker.
pub(crate) struct HookLoop {
    pub(crate) pond: Pond,
    pub(crate) lines: Vec<Arc<HookLine>>,
    /// Told when this worker has dropped something.
    pub(crate) dropped: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

impl HookLoop {
    pub(crate) async fn run(&self) {
        let mut running = JoinSet::new();
        let mut patience = Patience::new();
        while !self.stop.is_cancelled() {
            let wait = match self.begin(&mut running).await {
                Ok(()) => {
                    patience.reset();
                    LOOK_EVERY
                }
                Err(error) => {
                    tracing::warn!(%error, cause = error.causes(), "cannot look for hooks");
                    patience.wait()
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = self.dropped.notified() => {}
                Some(_) = running.join_next() => {}
                () = sleep(wait) => {}
            }
        }
        let last = async {
            let _ = self.begin(&mut running).await;
            while running.join_next().await.is_some() {}
        };
        if timeout(LAST, last).await.is_err() {
            tracing::warn!("hooks still run at the stop: what did not end is called again");
        }
    }

    /// Begins the hooks that are pending, as far as there is room.
    async fn begin(&self, running: &mut JoinSet<()>) -> Result<()> {
        while running.try_join_next().is_some() {}
        for line in &self.lines {
            let rows_max = HOOKS_AT_ONCE.saturating_sub(running.len());
            if rows_max == 0 {
                return Ok(());
            }
            let take = TakeHooks { queue: line.queue.id, lease: HOOK_LEASE, rows_max };
            for pending in self.pond.store().take_hooks(take).await? {
                let kind = pending.kind.as_deref().map_or_else(|| Arc::clone(&line.name), Into::into);
                let origin = Origin { queue: Arc::clone(&line.name), kind };
                let hook = line.find(&origin.kind).cloned();
                running.spawn(handle(self.pond.clone(), hook, origin, pending));
            }
        }
        Ok(())
    }
}

/// Calls the hook of one dead letter, unless it may not be called, and records how that ended.
async fn handle(pond: Pond, hook: Option<BoundHook>, origin: Origin, pending: Pending) {
    let (number, id, queue) = (pending.number, pending.id, Arc::clone(&origin.queue));
    let failed = |why: &str| {
        let why = redact::summary(why);
        tracing::error!(%queue, %id, why, "a hook failed; it is not called again for this message");
        pond.counts().add(Counter::OnErrorFailed, &queue, 1);
        HookEnd::Failed
    };
    let end = match (step(pending.tries, pending.acknowledged), hook) {
        (HookStep::End(HookEnd::Failed), _) => {
            failed("it was begun too often, and its process died each time")
        }
        (HookStep::End(end), _) => {
            tracing::info!(%queue, %id, "no hook is called: the message was acknowledged");
            pond.counts().add(Counter::OnErrorSuppressed, &queue, 1);
            end
        }
        (HookStep::Call, None) => HookEnd::Done,
        (HookStep::Call, Some(hook)) => match call(&hook, origin, pending).await {
            Ok(()) => HookEnd::Done,
            Err(why) => failed(&why),
        },
    };
    let record = async {
        let mut patience = Patience::new();
        while let Err(error) = pond.store().finish_hooks(vec![(number, end)]).await {
            tracing::warn!(%error, cause = error.causes(), "cannot record now that a hook has ended");
            sleep(patience.wait()).await;
        }
    };
    // Later somebody else may have it; then it is called again.
    let _ = timeout(HOOK_LEASE.saturating_sub(HOOK_LIMIT), record).await;
}

/// Calls a hook in a task of its own, so that one that blocks its thread holds nobody up.
pub(crate) async fn call(
    hook: &BoundHook,
    origin: Origin,
    pending: Pending,
) -> std::result::Result<(), String> {
    let run = hook.run(origin, pending);
    let mut task = tokio::spawn(caught(run));
    match timeout(HOOK_LIMIT, &mut task).await {
        Ok(Ok(Ok(ended))) => ended,
        Ok(Ok(Err(panic))) => Err(panic_text(&*panic)),
        Ok(Err(_)) => Err("its task was aborted".to_owned()),
        Err(_) => {
            task.abort();
            Err(format!("it ran longer than {HOOK_LIMIT:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use millpond_core::QueueSettings;
    use millpond_core::message::MessageId;
    use millpond_core::reason::DropReason;
    use millpond_core::store::QueueId;
    use millpond_core::time::Timestamp;

    use super::*;
    use crate::fake::FakeStore;
    use crate::handler::States;
    use crate::hook::{Content, Dropped, Hook};

    fn pending(number: i64, body: &str) -> Pending {
        Pending {
            number,
            id: MessageId(uuid::Uuid::nil()),
            reason: "exhausted".to_owned(),
            detail: Some("broken".to_owned()),
            class: None,
            attempt: 5,
            kind: None,
            key: None,
            headers: None,
            content_type: None,
            body: body.as_bytes().to_vec(),
            sent_at: Timestamp::from_secs(1),
            died_at: Timestamp::from_secs(2),
            tries: 1,
            acknowledged: false,
        }
    }

    /// What is recorded of these dead letters, by number, and the counts of failures and suppressions.
    async fn ended<A>(hook: impl Hook<u32, A>, letters: Vec<Pending>) -> (Vec<(i64, HookEnd)>, u64, u64) {
        let store = Arc::new(FakeStore::default());
        let count = letters.len();
        *store.pending.lock().unwrap() = letters;
        let pond = Pond::new(Arc::clone(&store) as _);
        let queue = Queue { id: QueueId(1), name: "mail".to_owned(), settings: QueueSettings::DEFAULT };
        let any = Some(hook.bind(&States::default()).unwrap());
        let line = HookLine { queue: Arc::new(queue), name: "mail".into(), any, by_kind: HashMap::new() };
        let stop = CancellationToken::new();
        let hooks = HookLoop {
            pond: pond.clone(),
            lines: vec![Arc::new(line)],
            dropped: Arc::default(),
            stop: stop.clone(),
        };
        let task = tokio::spawn(async move { hooks.run().await });
        while store.finished.lock().unwrap().len() < count {
            tokio::time::advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
        }
        stop.cancel();
        task.await.unwrap();
        let mut finished = store.finished.lock().unwrap().clone();
        finished.sort_by_key(|(number, _)| *number);
        let counted = |counter| pond.counts().of(counter, "mail");
        (finished, counted(Counter::OnErrorFailed), counted(Counter::OnErrorSuppressed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_gets_what_was_dropped_decoded_or_raw() {
        let hook = |dropped: Dropped<u32>| async move {
            assert_eq!(
                (dropped.reason, dropped.attempts, &*dropped.kind),
                (DropReason::Exhausted, 5, "mail")
            );
            match dropped.message {
                Content::Decoded(7) => Ok(()),
                Content::Raw { bytes, .. } if bytes == b"x" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        };
        let (ended, failed, _) = ended(hook, vec![pending(1, "7"), pending(2, "x"), pending(3, "8")]).await;
        assert_eq!(ended, [(1, HookEnd::Done), (2, HookEnd::Done), (3, HookEnd::Failed)]);
        assert_eq!(failed, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_fails_panics_or_hangs_holds_nothing_up_and_is_counted() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let hook = move |dropped: Dropped<u32>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match dropped.message {
                    Content::Decoded(1) => Err("broken"),
                    Content::Decoded(2) => panic!("boom"),
                    Content::Decoded(3) => std::future::pending().await,
                    _ => Ok(()),
                }
            }
        };
        let letters = (1..=4).map(|number| pending(number, &number.to_string())).collect();
        let (ended, failed, _) = ended(hook, letters).await;
        let fail = |number| (number, HookEnd::Failed);
        assert_eq!(ended, [fail(1), fail(2), fail(3), (4, HookEnd::Done)]);
        assert_eq!((failed, calls.load(Ordering::SeqCst)), (3, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn no_hook_is_called_for_a_success_or_a_fourth_time() {
        async fn hook(_: Dropped<u32>) {
            unreachable!("nobody calls it")
        }
        let letters =
            vec![Pending { acknowledged: true, ..pending(1, "1") }, Pending { tries: 4, ..pending(2, "2") }];
        let counted = ended(hook, letters).await;
        assert_eq!(counted, (vec![(1, HookEnd::Suppressed), (2, HookEnd::Failed)], 1, 1));
    }
}

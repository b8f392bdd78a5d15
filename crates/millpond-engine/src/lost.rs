//! Drops of messages that only ever were in this process's memory: `commit-unknown` and `handoff-failed`.
//!
//! No store has a dead letter of them, so log line, counter and hook come from the process itself, and none of them is
//! repeated if it dies. The hook is that of a worker that was started on the same pond.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use millpond_core::hook::Pending;
use millpond_core::message::NewMessage;
use millpond_core::reason::DropReason;
use millpond_core::redact;
use millpond_core::time::Timestamp;
use tokio::task::JoinSet;

use crate::counters::{Counter, NO_QUEUE};
use crate::hook::{BoundHook, Origin};
use crate::pond::{Batch, Pond};
use crate::worker::hooks::{HOOKS_AT_ONCE, HookLine, call};

/// The hooks of the workers of a pond, by queue. They stay when their worker has stopped: what is in memory goes last.
#[derive(Debug, Default)]
pub(crate) struct OwnHooks(RwLock<HashMap<String, Arc<HookLine>>>);

impl OwnHooks {
    pub(crate) fn learn(&self, line: &Arc<HookLine>) {
        let mut lines = self.0.write().unwrap_or_else(PoisonError::into_inner);
        lines.insert(line.queue.name.clone(), Arc::clone(line));
    }

    fn line(&self, queue: &str) -> Option<Arc<HookLine>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(queue).cloned()
    }
}

impl Pond {
    /// A commit ended without an answer: what was to be sent after it is discarded, because it could announce a change
    /// that did not happen.
    pub(crate) fn outcome_is_unknown(&self, discarded: Vec<(Arc<millpond_core::store::Queue>, Batch)>) {
        self.counts().add(Counter::CommitOutcomeUnknown, NO_QUEUE, 1);
        for (queue, batch) in discarded {
            let why = "the outcome of the commit is unknown, and nobody may hear of what did not happen";
            self.lose(&queue.name, batch.messages, DropReason::CommitUnknown, Counter::CommitUnknown, why);
        }
    }

    /// Gives messages up that are nowhere but here: says so, counts them, and calls their hook.
    pub(crate) fn lose(
        &self,
        queue: &str,
        messages: Vec<NewMessage>,
        reason: DropReason,
        counter: Counter,
        why: &str,
    ) {
        if messages.is_empty() {
            return;
        }
        self.counts().add(counter, queue, messages.len());
        tracing::error!(queue, messages = messages.len(), reason = reason.as_str(), why, "messages are lost");
        let Some(line) = self.hooks().line(queue) else { return };
        let (pond, why) = (self.clone(), redact::summary(why));
        self.track(async move {
            let now = pond.time();
            let mut running = JoinSet::new();
            for message in messages {
                if running.len() == HOOKS_AT_ONCE {
                    running.join_next().await;
                }
                let pending = pending(message, reason, &why, now);
                let kind = pending.kind.as_deref().map_or_else(|| Arc::clone(&line.name), Into::into);
                let origin = Origin { queue: Arc::clone(&line.name), kind };
                if let Some(hook) = line.find(&origin.kind).cloned() {
                    running.spawn(tell(pond.clone(), hook, origin, pending));
                }
            }
            while running.join_next().await.is_some() {}
        });
    }
}

/// Calls a hook once. If it fails, that is logged and counted, and that was the end.
async fn tell(pond: Pond, hook: BoundHook, origin: Origin, pending: Pending) {
    let (id, queue) = (pending.id, Arc::clone(&origin.queue));
    if let Err(why) = call(&hook, origin, pending).await {
        let why = redact::summary(&why);
        tracing::error!(%queue, %id, why, "a hook failed; it is not called again for this message");
        pond.counts().add(Counter::OnErrorFailed, &queue, 1);
    }
}

/// A message as its hook hears of it. No store knows it, so it has no number.
fn pending(message: NewMessage, reason: DropReason, why: &str, now: Timestamp) -> Pending {
    let headers = (!message.headers.is_empty())
        .then(|| serde_json::to_string(&message.headers).expect("a map of texts has a JSON form"));
    Pending {
        number: 0,
        id: message.id,
        reason: reason.as_str().to_owned(),
        detail: Some(why.to_owned()),
        class: None,
        attempt: 0,
        kind: message.kind,
        key: message.key,
        headers,
        content_type: message.content_type,
        body: message.body,
        sent_at: message.id.made_at().unwrap_or(now),
        died_at: now,
        tries: 1,
        acknowledged: false,
    }
}

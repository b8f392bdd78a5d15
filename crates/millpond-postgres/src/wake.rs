//! Hints between nodes: after a commit the node says so to the others, from a connection of its own, and at most each
//! few milliseconds. A hint is never in the transaction that appends, because it takes a lock of the whole server until
//! the commit. One that is lost costs a poll.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millpond_core::error::Result;
use millpond_core::store::QueueId;
use tokio::sync::{Notify, watch};
use tokio_postgres::AsyncMessage;

use crate::connection::{CONNECT_WAIT, Target};
use crate::lane::Lane;
use crate::pool::Pool;

/// The least time between two hints.
const TELL_EVERY: Duration = Duration::from_millis(5);

/// Queues that one hint names at most; with more it names none, and those who hear it look for themselves.
const QUEUES_MAX: usize = 100;

/// The least and the most that is waited before the connection is made anew.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);

/// How often the listening connection is asked whether it lives.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Hears of the commits of others, and tells them of ours.
#[derive(Clone)]
pub(crate) struct Wake {
    /// The last hint. `None`: there are no hints.
    heard: Option<watch::Receiver<Vec<QueueId>>>,
    ours: Arc<Ours>,
}

/// Commits of this node that the others have not been told of.
#[derive(Default)]
struct Ours {
    /// The logs that have grown.
    queues: Mutex<BTreeSet<QueueId>>,
    told: Notify,
}

impl Wake {
    /// No hints.
    pub(crate) fn none() -> Self {
        Self { heard: None, ours: Arc::default() }
    }

    /// Listens, on a connection that is made anew whenever it is lost.
    pub(crate) async fn start(lane: &Lane, target: &Arc<Target>) -> Result<Self> {
        let (tell, heard) = watch::channel(Vec::new());
        let ours = Arc::new(Ours::default());
        let (target, told) = (Arc::clone(target), Arc::clone(&ours));
        lane.spawn("listen for hints", async move |_: Arc<Pool>| {
            tokio::task::spawn_local(listen(target, tell, told));
        })
        .await?;
        Ok(Self { heard: Some(heard), ours })
    }

    /// Something was committed, and the logs of `queues` have grown. Returns at once.
    pub(crate) fn tell(&self, queues: impl IntoIterator<Item = QueueId>) {
        if self.heard.is_some() {
            self.ours.queues.lock().unwrap_or_else(PoisonError::into_inner).extend(queues);
            self.ours.told.notify_one();
        }
    }

    /// Waits for the next hint after this call, whenever the future is polled.
    pub(crate) fn changed(&self) -> impl Future<Output = Vec<QueueId>> + Send + use<> {
        let mut heard = self.heard.clone();
        if let Some(heard) = &mut heard {
            heard.mark_unchanged();
        }
        async move {
            if let Some(mut heard) = heard
                && heard.changed().await.is_ok()
            {
                return heard.borrow().clone();
            }
            std::future::pending().await
        }
    }
}

/// Listens until nobody holds the other end any more.
async fn listen(target: Arc<Target>, tell: watch::Sender<Vec<QueueId>>, ours: Arc<Ours>) {
    let mut wait = AGAIN_AFTER;
    while !tell.is_closed() {
        match tokio::time::timeout(CONNECT_WAIT, connect(&target)).await {
            Ok(Ok(wire)) => {
                wait = AGAIN_AFTER;
                // What was committed while nobody listened is looked for.
                tell.send_replace(Vec::new());
                wire.serve(&tell, &ours).await;
            }
            Ok(Err(error)) => tracing::info!(%error, "cannot listen for hints; workers poll meanwhile"),
            Err(_) => tracing::info!("the server does not answer; workers poll meanwhile"),
        }
        tokio::select! {
            () = tell.closed() => {}
            () = tokio::time::sleep(wait) => {}
        }
        wait = (wait * 2).min(AGAIN_AFTER_MAX);
    }
}

/// The payload of a hint.
fn names(queues: &BTreeSet<QueueId>) -> String {
    if QUEUES_MAX < queues.len() {
        return String::new();
    }
    queues.iter().map(|queue| queue.0.to_string()).collect::<Vec<_>>().join(",")
}

/// The queues in a payload; whoever sends a hint by hand names none.
fn named(payload: &str) -> Vec<QueueId> {
    payload.split(',').filter_map(|number| number.parse().ok().map(QueueId)).take(QUEUES_MAX).collect()
}

/// A connection that listens.
struct Wire {
    client: tokio_postgres::Client,
    backend: i32,
    heard: tokio::sync::mpsc::UnboundedReceiver<(i32, Vec<QueueId>)>,
    channel: String,
}

async fn connect(target: &Arc<Target>) -> std::result::Result<Wire, tokio_postgres::Error> {
    let mut config = target.location.config.clone();
    config.application_name("millpond hints").connect_timeout(CONNECT_WAIT);
    let (client, mut connection) = config.connect(target.tls()).await?;
    let (hear, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::task::spawn_local(async move {
        // It ends with the connection, or when the client is dropped.
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(hint) = message {
                let _ = hear.send((hint.process_id(), named(hint.payload())));
            }
        }
    });
    let channel = format!("{}_wake", target.location.schema);
    // A hint has a commit of its own, which need not wait for the disk.
    client.batch_execute(&format!("set synchronous_commit = off; listen {channel}")).await?;
    let row = client.query_typed_one("select pg_backend_pid()", &[]).await?;
    Ok(Wire { client, backend: row.get(0), heard, channel })
}

impl Wire {
    /// Until the connection is lost.
    async fn serve(mut self, tell: &watch::Sender<Vec<QueueId>>, ours: &Ours) {
        loop {
            tokio::select! {
                () = tell.closed() => return,
                hint = self.heard.recv() => match hint {
                    Some((backend, _)) if backend == self.backend => {}
                    Some((_, queues)) => _ = tell.send_replace(queues),
                    None => return,
                },
                () = ours.told.notified() => {
                    let queues = std::mem::take(&mut *ours.queues.lock().unwrap_or_else(PoisonError::into_inner));
                    let notify = format!("notify {}, '{}'", self.channel, names(&queues));
                    if self.client.batch_execute(&notify).await.is_err() {
                        return;
                    }
                    // More commits meanwhile are one hint.
                    tokio::time::sleep(TELL_EVERY).await;
                }
                () = tokio::time::sleep(HEARTBEAT) => {
                    let alive = tokio::time::timeout(CONNECT_WAIT, self.client.batch_execute("")).await;
                    if !alive.is_ok_and(|alive| alive.is_ok()) {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_queues_whose_logs_have_grown() {
        let check = |queues: &[i64], payload: &str| {
            let queues: BTreeSet<QueueId> = queues.iter().copied().map(QueueId).collect();
            assert_eq!(names(&queues), payload);
            assert_eq!(named(payload), queues.into_iter().collect::<Vec<_>>());
        };
        check(&[], "");
        check(&[7], "7");
        check(&[3, 12], "3,12");
        assert_eq!(names(&(0..200).map(QueueId).collect()), "");
        assert_eq!(named("by hand"), []);
    }
}

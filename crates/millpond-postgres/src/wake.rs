//! Hints between nodes: after a commit the node says so to the others, from a connection of its own, and at most each
//! few milliseconds. A hint is never in the transaction that appends, because it takes a lock of the whole server until
//! the commit. One that is lost costs a poll.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::Result;
use tokio::sync::{Notify, watch};
use tokio_postgres::AsyncMessage;

use crate::connection::{CONNECT_WAIT, Target};
use crate::lane::Lane;
use crate::pool::Pool;

/// The least time between two hints.
const TELL_EVERY: Duration = Duration::from_millis(5);

/// The least and the most that is waited before the connection is made anew.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);

/// How often the listening connection is asked whether it lives.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Hears of the commits of others, and tells them of ours.
#[derive(Clone)]
pub(crate) struct Wake {
    /// `None`: there are no hints.
    heard: Option<watch::Receiver<u64>>,
    ours: Arc<Notify>,
}

impl Wake {
    /// No hints.
    pub(crate) fn none() -> Self {
        Self { heard: None, ours: Arc::default() }
    }

    /// Listens, on a connection that is made anew whenever it is lost.
    pub(crate) async fn start(lane: &Lane, target: &Arc<Target>) -> Result<Self> {
        let (tell, heard) = watch::channel(0);
        let ours = Arc::new(Notify::new());
        let (target, told) = (Arc::clone(target), Arc::clone(&ours));
        lane.spawn("listen for hints", async move |_: Arc<Pool>| {
            tokio::task::spawn_local(listen(target, tell, told));
        })
        .await?;
        Ok(Self { heard: Some(heard), ours })
    }

    /// Something was committed. Returns at once.
    pub(crate) fn tell(&self) {
        if self.heard.is_some() {
            self.ours.notify_one();
        }
    }

    /// Waits for the next hint after this call, whenever the future is polled.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut heard = self.heard.clone();
        if let Some(heard) = &mut heard {
            heard.mark_unchanged();
        }
        async move {
            if let Some(mut heard) = heard
                && heard.changed().await.is_ok()
            {
                return;
            }
            std::future::pending().await
        }
    }
}

/// Listens until nobody holds the other end any more.
async fn listen(target: Arc<Target>, tell: watch::Sender<u64>, told: Arc<Notify>) {
    let mut wait = AGAIN_AFTER;
    while !tell.is_closed() {
        match tokio::time::timeout(CONNECT_WAIT, connect(&target)).await {
            Ok(Ok(wire)) => {
                wait = AGAIN_AFTER;
                // What was committed while nobody listened is looked for.
                tell.send_modify(|count| *count += 1);
                wire.serve(&tell, &told).await;
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

/// A connection that listens.
struct Wire {
    client: tokio_postgres::Client,
    backend: i32,
    heard: tokio::sync::mpsc::UnboundedReceiver<i32>,
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
                let _ = hear.send(hint.process_id());
            }
        }
    });
    let channel = format!("{}_wake", target.location.schema);
    client.batch_execute(&format!("listen {channel}")).await?;
    let row = client.query_typed_one("select pg_backend_pid()", &[]).await?;
    Ok(Wire { client, backend: row.get(0), heard, channel })
}

impl Wire {
    /// Until the connection is lost.
    async fn serve(mut self, tell: &watch::Sender<u64>, told: &Notify) {
        let notify = format!("notify {}", self.channel);
        loop {
            tokio::select! {
                () = tell.closed() => return,
                hint = self.heard.recv() => match hint {
                    Some(backend) if backend == self.backend => {}
                    Some(_) => tell.send_modify(|count| *count += 1),
                    None => return,
                },
                () = told.notified() => {
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

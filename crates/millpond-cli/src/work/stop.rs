//! The signals that end a worker: the first one lets programs end, the second one hurries, the third one leaves
//! everything as it is.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};

/// How often it was asked for.
#[derive(Debug)]
pub(super) struct Stop {
    count: watch::Receiver<u32>,
}

impl Stop {
    /// Listens to SIGTERM, SIGINT and SIGHUP from now on.
    pub(super) fn listen() -> Result<Arc<Self>, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Exit::Failed, "internal", "cannot listen to signals").why(error.to_string())
        };
        let listen = |kind| signal(kind).map_err(failed);
        let signals = [
            listen(SignalKind::terminate())?,
            listen(SignalKind::interrupt())?,
            listen(SignalKind::hangup())?,
        ];
        let (tell, count) = watch::channel(0);
        tokio::spawn(count_them(signals, tell));
        Ok(Arc::new(Self { count }))
    }

    /// Resolves at the first signal.
    pub(super) async fn first(&self) {
        self.reached(1).await;
    }

    /// Resolves at the second signal.
    pub(super) async fn second(&self) {
        self.reached(2).await;
    }

    /// Resolves at the third signal.
    pub(super) async fn third(&self) {
        self.reached(3).await;
    }

    async fn reached(&self, count: u32) {
        if self.count.clone().wait_for(|seen| count <= *seen).await.is_err() {
            // Nobody counts any more: then there will be no signal.
            std::future::pending().await
        }
    }
}

async fn count_them(signals: [Signal; 3], tell: watch::Sender<u32>) {
    let [mut terminate, mut interrupt, mut hang_up] = signals;
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
        tell.send_modify(|count| *count += 1);
        match *tell.borrow() {
            1 => tracing::info!("stopping; a second signal ends the programs now"),
            2 => tracing::info!("stopping now; a third signal does not wait for the programs"),
            _ => {}
        }
    }
}

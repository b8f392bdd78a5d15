//! Ctrl-C in a long command: it ends where it leaves nothing half done, and says how far it came.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{Exit, Failure};

/// Whether somebody wants the command to end.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    asked: watch::Receiver<bool>,
}

impl Interrupt {
    /// Listens to SIGINT and SIGTERM from now on: they do not end the process any more.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Exit::Failed, "internal", "cannot listen to signals").why(error.to_string())
        };
        let listen = |kind| signal(kind).map_err(failed);
        let signals = [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?];
        let (tell, asked) = watch::channel(false);
        tokio::spawn(hear(signals, tell));
        Ok(Self { asked })
    }

    /// Whether a signal came.
    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Resolves when a signal comes.
    pub(crate) async fn asked(&self) {
        if self.asked.clone().wait_for(|asked| *asked).await.is_err() {
            // Nobody listens any more: then there will be no signal.
            std::future::pending().await
        }
    }
}

async fn hear(signals: [Signal; 2], tell: watch::Sender<bool>) {
    let [mut interrupt, mut terminate] = signals;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tell.send_replace(true);
    // The channel stays: whoever asks later still hears of it.
    tell.closed().await;
}

/// The end of a command that was interrupted.
pub(crate) fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted", "interrupted")
}

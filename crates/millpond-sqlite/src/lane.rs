//! A thread with a connection of its own, for what must not wait behind the writer: lease renewals, and reading.

use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::store::{BoxFuture, Clock};
use millpond_core::time::Timestamp;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{Tried, closed};

/// Calls that wait for a lane.
const CALLS_MAX: usize = 256;

/// How often it is asked whether another process has written: a pickup between processes takes half of it on the
/// average, and each look costs an idle process some of its half a percent of a core.
const PROBE_EVERY: Duration = Duration::from_millis(25);

type Job = Box<dyn FnOnce(&Connection, Timestamp) + Send>;

/// A handle to a lane's thread. The thread ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct Lane {
    jobs: mpsc::Sender<Job>,
}

impl Lane {
    pub(crate) fn start(name: &str, conn: Connection, clock: Arc<dyn Clock>) -> Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(CALLS_MAX);
        let run = move || {
            while let Some(job) = waiting.blocking_recv() {
                job(&conn, Timestamp::from_micros(clock.micros()));
            }
        };
        spawn(name, run)?;
        Ok(Self { jobs })
    }

    /// Runs `work` on the lane's connection.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection, Timestamp) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let job = move |conn: &Connection, now: Timestamp| {
                let outcome = work(conn, now).map_err(|fault| fault.into_error(doing));
                // A caller that stopped waiting needs no answer.
                let _ = reply.send(outcome);
            };
            self.jobs.send(Box::new(job)).await.map_err(|_| closed(doing))?;
            answer.await.map_err(|_| closed(doing))?
        })
    }
}

/// Tells when another connection, of this process or another, has committed.
#[derive(Clone)]
pub(crate) struct Probe {
    /// `None`: the store belongs to this process alone.
    version: Option<watch::Receiver<i64>>,
}

impl Probe {
    /// Nobody else can write.
    pub(crate) const fn none() -> Self {
        Self { version: None }
    }

    /// Asks the kept connection for its data version, again and again.
    pub(crate) fn start(conn: Connection) -> Result<Self> {
        let (tell, version) = watch::channel(0);
        let run = move || {
            while !tell.is_closed() {
                let version = conn
                    .prepare_cached("pragma data_version")
                    .and_then(|mut ask| ask.query_row([], |row| row.get(0)));
                if let Ok(version) = version {
                    tell.send_if_modified(|last| std::mem::replace(last, version) != version);
                }
                std::thread::park_timeout(PROBE_EVERY);
            }
        };
        spawn("millpond-probe", run)?;
        Ok(Self { version: Some(version) })
    }

    /// Waits for the next change after this call, whenever the future is polled.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut version = self.version.clone();
        if let Some(version) = &mut version {
            version.mark_unchanged();
        }
        async move {
            if let Some(mut version) = version
                && version.changed().await.is_ok()
            {
                return;
            }
            std::future::pending().await
        }
    }
}

/// Starts a thread of the store.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map(drop)
        .map_err(|error| Error::new(Code::StoreUnavailable, format!("start thread {name}")).because(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_between_the_call_and_the_first_poll_is_heard() {
        let (tell, version) = watch::channel(0);
        let probe = Probe { version: Some(version) };
        tell.send_replace(1);
        let (before, after) = (probe.changed(), tell.send_replace(2));
        assert_eq!(after, 1);
        before.await;
        let none = tokio::time::timeout(Duration::ZERO, probe.changed()).await;
        assert!(none.is_err(), "what was before the call is not");
    }
}

//! The watchdog: a thread with a runtime of its own, for the time in which handlers block every thread of the
//! application's. The worker's loop and its settler stand still then. The watchdog does for them what cannot wait:
//! it gives up the handlers whose time is up, and records what has ended. In a healthy worker it finds nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::error::{Code, Error, Result};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::renewal::pause;
use crate::supervise::supervise;
use crate::worker::settler::Settler;
use crate::worker::slot::Station;

/// How often it looks: far less often than the loop, which is the one that should.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An ended delivery that has waited this long to be recorded has been forgotten by the settler.
const RECORDED_WITHIN: Duration = Duration::from_millis(500);

/// How long what it is recording may take after the worker has stopped.
const LAST: Duration = Duration::from_secs(5);

/// Watches the slots of a worker.
pub(crate) struct Watchdog {
    pub(crate) stations: Vec<Arc<Station>>,
    pub(crate) settler: Settler,
    pub(crate) stop: CancellationToken,
}

impl Watchdog {
    /// Starts the thread.
    pub(crate) fn start(self) -> Result<()> {
        let doing = "start the thread that watches the handlers";
        let failed = |error: std::io::Error| Error::new(Code::Internal, doing).because(error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let stop = self.stop.clone();
        let run = move || runtime.block_on(supervise("watchdog", stop, async || self.run().await));
        std::thread::Builder::new().name("millpond-watch".into()).spawn(run).map(drop).map_err(failed)
    }

    async fn run(&self) {
        let mut recording = JoinSet::new();
        while pause(&self.stop, LOOK_EVERY).await {
            self.look(&mut recording);
        }
        // What takes longer is delivered again when the lease is over.
        let _ = timeout(LAST, async { while recording.join_next().await.is_some() {} }).await;
    }

    fn look(&self, recording: &mut JoinSet<()>) {
        for station in &self.stations {
            station.give_up_overdue(Instant::now());
        }
        while recording.try_join_next().is_some() {}
        let forgotten = self.settler.endings.waited().is_some_and(|waited| RECORDED_WITHIN <= waited);
        if forgotten && recording.is_empty() {
            let settler = self.settler.clone();
            recording.spawn(async move { settler.record_all().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use millpond_core::Settlement;
    use millpond_core::reason::{Back, Failure};
    use millpond_core::settle::Verdict;
    use tokio::sync::oneshot;

    use super::*;
    use crate::fake::{FakeStore, leased};
    use crate::job::Job;
    use crate::pond::Pond;
    use crate::queue::Queue;
    use crate::worker::Worker;

    /// How long a test waits for what must come.
    const LIMIT: Duration = Duration::from_secs(10);

    const SHORT: Duration = Duration::from_millis(50);

    /// The only thread of the runtime is blocked: the timeout of the one handler is recorded all the same.
    #[test]
    fn a_timeout_is_recorded_while_handlers_block_every_thread() {
        const MAIL: Queue<u32> = Queue::new("mail");
        let store = Arc::new(FakeStore::default());
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let closed = Arc::clone(&gate);
        let handler = move |_: Job<u32>| {
            let closed = Arc::clone(&closed);
            async move {
                let open = closed.0.lock().unwrap();
                drop(closed.1.wait_while(open, |open| !*open).unwrap());
                Verdict::Ack
            }
        };
        let worker = Worker::new(&Pond::new(store.clone())).concurrency(1).handle(&MAIL, handler);
        let worker = worker.timeout(SHORT).cancel_grace(SHORT);
        store.give(leased(b"1"));
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(worker.run_until_stopped(async { drop(stopped.await) }, std::future::pending()))
        });
        let settled = store.settled_within(LIMIT);
        assert!(
            matches!(
                settled[..],
                [Settlement::Again { attempt: 1, back: Back::Failed(Failure::Timeout), .. }]
            ),
            "{settled:?}"
        );
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        stop.send(()).unwrap();
        assert!(thread.join().unwrap().unwrap().is_clean());
        assert_eq!(store.settled().len(), 1, "the late result counts for nothing");
    }
}

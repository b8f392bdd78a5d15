//! A thread with a runtime and connections of its own. Calls run on it to their end, whether or not their caller still
//! waits, and whatever the caller's runtime does meanwhile.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::store::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};

use crate::connection::Connection;
use crate::error::{Fault, Lost, Tried, closed};
use crate::pool::{Lent, Pool};

/// Calls that wait to be begun.
const CALLS_MAX: usize = 4_096;

/// How long a call may take once it has a connection. Longer than any lock is waited for, so that the server can
/// say what happened.
pub(crate) const CALL_WAIT: Duration = Duration::from_secs(20);

/// How often a call is begun anew after a deadlock.
pub(crate) const DEADLOCK_TRIES: u32 = 5;

/// The wait before that, longer with each try.
const DEADLOCK_WAIT: Duration = Duration::from_millis(2);

type Local = Pin<Box<dyn Future<Output = ()>>>;
type Job = Box<dyn FnOnce(Arc<Pool>) -> Local + Send>;

/// Up to as long again, by chance.
fn jitter() -> Duration {
    let mut byte = [0];
    match getrandom::fill(&mut byte) {
        Ok(()) => DEADLOCK_WAIT * u32::from(byte[0]) / u32::from(u8::MAX),
        Err(_) => Duration::ZERO,
    }
}

/// A handle to a lane's thread. The thread ends with the last handle.
#[derive(Clone)]
pub(crate) struct Lane {
    jobs: mpsc::Sender<Job>,
    stopped: Arc<watch::Sender<bool>>,
}

impl Lane {
    /// Starts the thread.
    pub(crate) fn start(name: &str, pool: Arc<Pool>) -> Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job>(CALLS_MAX);
        let cannot = |error: std::io::Error| {
            Error::new(Code::StoreUnavailable, format!("start thread {name}")).because(error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let run = move || {
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async {
                while let Some(job) = waiting.recv().await {
                    tokio::task::spawn_local(job(Arc::clone(&pool)));
                }
                pool.clear();
            });
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(cannot)?;
        Ok(Self { jobs, stopped: Arc::new(watch::channel(false).0) })
    }

    /// Runs `work` on a connection of the lane. `lost` is what the caller is told when the connection is lost before
    /// the answer.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        lost: Lost,
        work: impl AsyncFn(&mut Connection) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        self.take(doing, lost, async move |mut lent: Lent| {
            let mut tries = 0;
            let done = loop {
                let done = work(lent.get()).await;
                tries += 1;
                if tries == DEADLOCK_TRIES || !done.as_ref().is_err_and(Fault::is_deadlock) {
                    break done;
                }
                // Not at the same moment as the other one.
                tokio::time::sleep(DEADLOCK_WAIT * tries + jitter()).await;
            };
            if done.is_ok() || !done.as_ref().is_err_and(Fault::is_ambiguous) {
                lent.give_back();
            }
            done
        })
    }

    /// The same for work that keeps the connection, or gives it back itself.
    pub(crate) fn take<T: Send + 'static>(
        &self,
        doing: &'static str,
        lost: Lost,
        work: impl AsyncFnOnce(Lent) -> Tried<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let answer = self.spawn(doing, async move |pool: Arc<Pool>| {
                // What cannot connect has certainly done nothing.
                let lent = pool.lend().await.map_err(|fault| fault.into_error(doing, Lost::AskAgain))?;
                let done = tokio::time::timeout(CALL_WAIT, work(lent)).await;
                let done = done.unwrap_or(Err(Fault::Silence(CALL_WAIT)));
                done.map_err(|fault| fault.into_error(doing, lost))
            });
            answer.await?
        })
    }

    /// Runs `work` on the lane's thread.
    pub(crate) async fn spawn<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(Arc<Pool>) -> T + Send + 'static,
    ) -> Result<T> {
        if *self.stopped.borrow() {
            return Err(closed(doing));
        }
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |pool| {
            Box::pin(async move {
                // A caller that stopped waiting needs no answer.
                let _ = reply.send(work(pool).await);
            })
        });
        self.jobs.send(job).await.map_err(|_| closed(doing))?;
        answer.await.map_err(|_| closed(doing))
    }

    /// Drops something on the lane's thread, or here if the lane has ended or is full.
    pub(crate) fn drop_there(&self, thing: impl Send + 'static) {
        let job: Job = Box::new(move |_| {
            Box::pin(async move {
                drop(thing);
            })
        });
        let _ = self.jobs.try_send(job);
    }

    /// Refuses calls from now on, and closes the connections that are idle.
    pub(crate) async fn stop(&self) {
        let _ = self.spawn("close the store", async |pool: Arc<Pool>| pool.clear()).await;
        self.stopped.send_replace(true);
    }
}

//! A thread with a runtime and connections of its own. Calls run on it to their end, whether or not their caller still
//! waits, and whatever the caller's runtime does meanwhile.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use millpond_core::error::{Code, Error, Result};
use millpond_core::store::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};

use crate::fault::{Fault, Lost, closed};
use crate::pool::{Lent, Pool, Pooled};

/// Calls that wait to be begun.
const CALLS_MAX: usize = 4_096;

/// How long a call may take once it has a connection. Longer than any lock is waited for, so that the server can
/// say what happened.
pub const CALL_WAIT: Duration = Duration::from_secs(20);

/// How often a call is begun anew after a deadlock.
pub const DEADLOCK_TRIES: u32 = 5;

type Local = Pin<Box<dyn Future<Output = ()>>>;
type Job<C> = Box<dyn FnOnce(Arc<Pool<C>>) -> Local + Send>;

/// A handle to a lane's thread. The thread ends with the last handle.
pub struct Lane<C: Pooled> {
    jobs: mpsc::Sender<Job<C>>,
    stopped: Arc<watch::Sender<bool>>,
}

impl<C: Pooled> Clone for Lane<C> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), stopped: Arc::clone(&self.stopped) }
    }
}

impl<C: Pooled> Lane<C> {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// `store-unavailable` when the host has no more of them.
    pub fn start(name: &str, pool: Arc<Pool<C>>) -> Result<Self> {
        let (jobs, mut waiting) = mpsc::channel::<Job<C>>(CALLS_MAX);
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
    pub fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        lost: Lost,
        work: impl AsyncFn(&mut C) -> std::result::Result<T, C::Fault> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        self.take(doing, lost, async move |mut lent: Lent<C>| {
            let mut tries = 0;
            let done = loop {
                let done = work(lent.get()).await;
                tries += 1;
                if tries == DEADLOCK_TRIES || !done.as_ref().is_err_and(C::Fault::is_deadlock) {
                    break done;
                }
                C::after_deadlock(tries).await;
            };
            if done.is_ok() || !done.as_ref().is_err_and(C::Fault::is_ambiguous) {
                lent.give_back();
            }
            done
        })
    }

    /// The same for work that keeps the connection, or gives it back itself.
    pub fn take<T: Send + 'static>(
        &self,
        doing: &'static str,
        lost: Lost,
        work: impl AsyncFnOnce(Lent<C>) -> std::result::Result<T, C::Fault> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let answer = self.spawn(doing, async move |pool: Arc<Pool<C>>| {
                // What cannot connect has certainly done nothing.
                let lent = pool.lend().await.map_err(|fault| fault.into_error(doing, Lost::AskAgain))?;
                let done = tokio::time::timeout(CALL_WAIT, work(lent)).await;
                let done = done.unwrap_or(Err(C::Fault::silence(CALL_WAIT)));
                done.map_err(|fault| fault.into_error(doing, lost))
            });
            answer.await?
        })
    }

    /// Runs `work` on the lane's thread.
    ///
    /// # Errors
    ///
    /// `shutting-down` when it was stopped.
    pub async fn spawn<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(Arc<Pool<C>>) -> T + Send + 'static,
    ) -> Result<T> {
        if *self.stopped.borrow() {
            return Err(closed(doing));
        }
        let (reply, answer) = oneshot::channel();
        let job: Job<C> = Box::new(move |pool| {
            Box::pin(async move {
                // A caller that stopped waiting needs no answer.
                let _ = reply.send(work(pool).await);
            })
        });
        self.jobs.send(job).await.map_err(|_| closed(doing))?;
        answer.await.map_err(|_| closed(doing))
    }

    /// Drops something on the lane's thread, or here if the lane has ended or is full.
    pub fn drop_there(&self, thing: impl Send + 'static) {
        let job: Job<C> = Box::new(move |_| {
            Box::pin(async move {
                drop(thing);
            })
        });
        let _ = self.jobs.try_send(job);
    }

    /// Refuses calls from now on, and closes the connections that are idle.
    pub async fn stop(&self) {
        let _ = self.spawn("close the store", async |pool: Arc<Pool<C>>| pool.clear()).await;
        self.stopped.send_replace(true);
    }
}

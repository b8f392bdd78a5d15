//! What handlers saw: which message, which attempt, and how many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::message::MessageId;
use millpond_core::time::Timestamp;
use millpond_engine::job::Job;
use tokio::sync::Notify;

use crate::clock::VirtualClock;

/// One call of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<B> {
    /// The message.
    pub id: MessageId,
    /// Its body.
    pub body: B,
    /// As the handler saw it.
    pub attempt: u32,
    /// As the handler saw it.
    pub releases: u32,
    /// When it began, by the clock of the store.
    pub at: Timestamp,
}

/// The calls of some handlers, in the order in which they began.
#[derive(Debug)]
pub struct Recorder<B> {
    seen: Mutex<Seen<B>>,
    clock: Arc<VirtualClock>,
    signal: Arc<Notify>,
}

#[derive(Debug)]
struct Seen<B> {
    calls: Vec<Call<B>>,
    batches: Vec<usize>,
    running: BTreeMap<MessageId, usize>,
    overlapped: BTreeSet<MessageId>,
    peak: usize,
}

/// A handler that runs, until it is dropped.
#[derive(Debug)]
pub struct Visit<B> {
    recorder: Arc<Recorder<B>>,
    id: MessageId,
}

impl<B: Clone> Recorder<B> {
    /// A recorder that tells `signal` of every beginning and end.
    pub fn new(clock: Arc<VirtualClock>, signal: Arc<Notify>) -> Self {
        let seen = Seen {
            calls: Vec::new(),
            batches: Vec::new(),
            running: BTreeMap::new(),
            overlapped: BTreeSet::new(),
            peak: 0,
        };
        Self { seen: Mutex::new(seen), clock, signal }
    }

    /// A handler begins.
    pub fn enter(self: &Arc<Self>, job: &Job<B>) -> Visit<B> {
        self.begin(job);
        Visit { recorder: Arc::clone(self), id: job.id }
    }

    /// A batch handler begins with these jobs.
    pub fn enter_batch(self: &Arc<Self>, jobs: &[Job<B>]) -> Vec<Visit<B>> {
        self.lock().batches.push(jobs.len());
        jobs.iter().map(|job| self.enter(job)).collect()
    }

    /// How many jobs each call of a batch handler had.
    pub fn batches(&self) -> Vec<usize> {
        self.lock().batches.clone()
    }

    fn begin(&self, job: &Job<B>) {
        let Job { id, attempt, releases, .. } = *job;
        let call = Call { id, body: job.body.clone(), attempt, releases, at: self.clock.now() };
        {
            let mut seen = self.lock();
            seen.calls.push(call);
            let running = seen.running.entry(id).or_default();
            *running += 1;
            if 1 < *running {
                seen.overlapped.insert(id);
            }
            let now: usize = seen.running.values().sum();
            seen.peak = seen.peak.max(now);
        }
        self.signal.notify_waiters();
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Call<B>> {
        self.lock().calls.clone()
    }

    /// The bodies of every call so far.
    pub fn bodies(&self) -> Vec<B> {
        self.lock().calls.iter().map(|call| call.body.clone()).collect()
    }

    /// The attempts that were seen of one message.
    pub fn attempts(&self, id: MessageId) -> Vec<u32> {
        let seen = self.lock();
        seen.calls.iter().filter(|call| call.id == id).map(|call| call.attempt).collect()
    }
}

impl<B> Recorder<B> {
    /// Calls so far.
    pub fn count(&self) -> usize {
        self.lock().calls.len()
    }

    /// Handlers that run now.
    pub fn running(&self) -> usize {
        self.lock().running.values().sum()
    }

    /// The most handlers that ever ran at once.
    pub fn peak(&self) -> usize {
        self.lock().peak
    }

    /// Messages that two handlers worked on at once.
    pub fn overlapped(&self) -> Vec<MessageId> {
        self.lock().overlapped.iter().copied().collect()
    }

    fn leave(&self, id: MessageId) {
        let mut seen = self.lock();
        if let Some(running) = seen.running.get_mut(&id) {
            *running -= 1;
            if *running == 0 {
                seen.running.remove(&id);
            }
        }
        drop(seen);
        self.signal.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Seen<B>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Drop for Visit<B> {
    fn drop(&mut self) {
        self.recorder.leave(self.id);
    }
}

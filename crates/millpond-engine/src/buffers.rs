//! The buffers of a process: messages of buffered queues that wait in memory, and the flusher that writes them.
//!
//! When something is written is decided by [`Window`]; here it is done. The flusher is one task. It begins with the first
//! message, looks each tick, and ends when nothing waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millpond_core::buffer::{Admission, Buffer, TICK, Window};
use millpond_core::error::{Code, Error, ErrorKind, Result};
use millpond_core::message::NewMessage;
use millpond_core::reason::DropReason;
use millpond_core::store;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::counters::Counter;
use crate::dedup::Dedup;
use crate::patience::Patience;
use crate::pond::{Pond, SEND_DEADLINE};
use crate::supervise::{caught, panic_text};

/// How long the last flushes may take when the pond is closed.
const LAST: Duration = Duration::from_secs(30);

/// How a queue is buffered.
#[derive(Debug, Clone)]
pub(crate) struct Gathering {
    pub(crate) buffer: Buffer,
    /// This many messages are written at the next tick.
    pub(crate) batch_max: usize,
    /// Applied to everything that is written together.
    pub(crate) dedup: Option<Dedup>,
}

/// How long the store may take to say what became of a flush. It finds that out by itself and goes on meanwhile, so who
/// gives up earlier and repeats stores twice.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How often it is asked what became of a flush whose answer was lost.
const ASKED_MAX: usize = 20;

/// What waits in memory, by queue.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    inner: Mutex<Inner>,
    landed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<String, Entry>,
    /// When the first message ever came: ticks are counted from there.
    epoch: Option<Instant>,
    /// The flusher runs.
    runs: bool,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    queue: Arc<store::Queue>,
    window: Window,
    waiting: Vec<NewMessage>,
    /// What is being written.
    flying: Arc<Vec<NewMessage>>,
    dedup: Option<Dedup>,
}

/// What is being written: where to, what, and what removes waste from it.
type Flight = (Arc<store::Queue>, Arc<Vec<NewMessage>>, Option<Dedup>);

impl Entry {
    /// Begins a flush of everything that waits.
    fn begin(&mut self) -> Flight {
        self.window.begin();
        self.flying = Arc::new(std::mem::take(&mut self.waiting));
        (Arc::clone(&self.queue), Arc::clone(&self.flying), self.dedup.clone())
    }

    /// Ends it: what was not written waits again, in front of what came meanwhile.
    fn land(&mut self, kept: Vec<NewMessage>, now: Duration) {
        self.flying = Arc::default();
        if kept.is_empty() {
            self.window.stored();
            return;
        }
        self.window.failed(kept.len(), now);
        let behind = std::mem::replace(&mut self.waiting, kept);
        self.waiting.extend(behind);
    }
}

impl Buffers {
    /// Puts messages into memory, or gives them back: then the caller writes them itself.
    pub(crate) fn add(
        &self,
        pond: &Pond,
        queue: &Arc<store::Queue>,
        how: &Gathering,
        messages: Vec<NewMessage>,
    ) -> std::result::Result<(), Vec<NewMessage>> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(messages);
        }
        let epoch = *inner.epoch.get_or_insert_with(Instant::now);
        let entry = inner.entries.entry(queue.name.clone()).or_insert_with(|| Entry {
            queue: Arc::clone(queue),
            window: Window::new(how.buffer, how.batch_max),
            waiting: Vec::new(),
            flying: Arc::default(),
            dedup: how.dedup.clone(),
        });
        if entry.window.add(messages.len(), epoch.elapsed()) == Admission::Direct {
            return Err(messages);
        }
        entry.waiting.extend(messages);
        if !inner.runs {
            inner.runs = true;
            // It holds the pond until everything is written.
            tokio::spawn(flush_until_empty(pond.clone(), epoch));
        }
        Ok(())
    }

    /// How many messages of each queue are in memory.
    pub(crate) fn counts(&self) -> Vec<(String, usize)> {
        let inner = self.lock();
        let counts = inner.entries.iter().map(|(name, entry)| (name.clone(), entry.window.messages()));
        counts.filter(|(_, messages)| 0 < *messages).collect()
    }

    /// Nothing more is taken; everything is written, whatever its deadline, or given up after a while.
    pub(crate) async fn close(&self, pond: &Pond) {
        self.lock().closed = true;
        if timeout(LAST, self.flush(pond)).await.is_ok() {
            return;
        }
        let entries = std::mem::take(&mut self.lock().entries);
        for (queue, entry) in entries {
            let messages = entry.flying.iter().cloned().chain(entry.waiting).collect();
            give_up(pond, &queue, messages, "the process ends, and they could not be written");
        }
    }

    /// Writes everything that is in memory now, whatever its deadline; tries until it is written.
    pub(crate) async fn flush(&self, pond: &Pond) {
        let mut patience = Patience::new();
        loop {
            let landed = self.landed.notified();
            let (begun, flying) = {
                let mut inner = self.lock();
                let open = inner
                    .entries
                    .values_mut()
                    .filter(|entry| !entry.window.is_flying() && !entry.waiting.is_empty());
                let begun: Vec<_> = open.map(Entry::begin).collect();
                let flying = inner.entries.values().any(|entry| entry.window.is_flying());
                (begun, flying)
            };
            if begun.is_empty() && !flying {
                return;
            }
            if begun.is_empty() {
                landed.await;
                continue;
            }
            // In tasks of their own, together: whoever stops waiting for this stops no flush half-way.
            let flights: Vec<_> = begun.into_iter().map(|flight| take_off(pond, flight)).collect();
            let mut failed = false;
            for flight in flights {
                failed |= !flight.await.unwrap_or(false);
            }
            if failed {
                tokio::time::sleep(patience.wait()).await;
            }
        }
    }

    /// Begins what is due; `None` if nothing waits or is being written, and the flusher ends.
    fn due(&self, now: Duration) -> Option<Vec<Flight>> {
        let mut inner = self.lock();
        if inner.entries.values().all(|entry| entry.window.messages() == 0) {
            inner.runs = false;
            return None;
        }
        let due = inner.entries.values_mut().filter(|entry| entry.window.is_due(now));
        Some(due.map(Entry::begin).collect())
    }

    fn land(&self, queue: &str, kept: Vec<NewMessage>) {
        let mut inner = self.lock();
        let now = inner.epoch.map(|epoch| epoch.elapsed()).unwrap_or_default();
        if let Some(entry) = inner.entries.get_mut(queue) {
            entry.land(kept, now);
        }
        drop(inner);
        self.landed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The flusher: looks at multiples of the tick, and never waits for a flush.
async fn flush_until_empty(pond: Pond, epoch: Instant) {
    loop {
        let ticks = epoch.elapsed().as_millis() / TICK.as_millis();
        let next = u32::try_from(ticks + 1).map_or(epoch.elapsed() + TICK, |tick| TICK * tick);
        sleep_until(epoch + next).await;
        let Some(due) = pond.buffers().due(epoch.elapsed()) else { return };
        for flight in due {
            drop(take_off(&pond, flight));
        }
    }
}

/// Begins a flush that nobody has to wait for.
fn take_off(pond: &Pond, (queue, messages, dedup): Flight) -> JoinHandle<bool> {
    let pond = pond.clone();
    tokio::spawn(async move { fly(&pond, queue, messages, dedup).await })
}

/// Writes messages together; what cannot be written goes back. Answers whether all were written, or refused for good.
async fn fly(
    pond: &Pond,
    queue: Arc<store::Queue>,
    messages: Arc<Vec<NewMessage>>,
    dedup: Option<Dedup>,
) -> bool {
    let left = match caught(write(pond, &queue, &messages, dedup)).await {
        Ok(left) => left,
        Err(panic) => {
            pond.counts().add(Counter::FlusherRestarts, &queue.name, 1);
            let (name, why) = (&queue.name, panic_text(&*panic));
            tracing::error!(queue = %name, why, "a flush panicked; its messages are kept");
            messages.to_vec()
        }
    };
    let written = left.is_empty();
    pond.buffers().land(&queue.name, left);
    written
}

/// Writes messages together, or, if they are refused as a whole, one by one. Answers what is to be tried again.
async fn write(
    pond: &Pond,
    queue: &store::Queue,
    messages: &[NewMessage],
    dedup: Option<Dedup>,
) -> Vec<NewMessage> {
    let messages = match dedup {
        Some(dedup) => dedup.apply(pond, &queue.name, messages.to_vec()).kept,
        None => messages.to_vec(),
    };
    let error = match append(pond, queue, messages.clone()).await {
        Ok(()) => return Vec::new(),
        Err(error) => error,
    };
    let (name, count) = (&queue.name, messages.len());
    if error.kind() == ErrorKind::Unknown && is_stored(pond, &messages).await {
        tracing::warn!(queue = %name, messages = count, "a flush whose answer was lost had been stored");
        return Vec::new();
    }
    if is_away(&error) {
        tracing::warn!(queue = %name, messages = count, %error, cause = error.causes(), "cannot flush a buffer now; it is kept");
        return messages;
    }
    tracing::warn!(queue = %name, messages = count, %error, cause = error.causes(), "a flush was refused; one by one now");
    let mut left = Vec::new();
    for message in messages {
        if !left.is_empty() {
            // The store is away: the others would only wait for it, one after the other.
            left.push(message);
            continue;
        }
        match append(pond, queue, vec![message.clone()]).await {
            Ok(()) => {}
            Err(error) if is_away(&error) => left.push(message),
            Err(error) => {
                give_up(
                    pond,
                    name,
                    vec![message],
                    &format!("the store refuses it: {error}: {}", error.causes()),
                );
            }
        }
    }
    left
}

/// Whether a flush whose answer was lost was stored: all of it was, or nothing. The store is asked until it says, within
/// bounds; a flush that is repeated for nothing would be there twice.
async fn is_stored(pond: &Pond, messages: &[NewMessage]) -> bool {
    let Some(first) = messages.first() else { return true };
    let mut patience = Patience::new();
    for _ in 0..ASKED_MAX {
        match timeout(SEND_DEADLINE, pond.find(first.id)).await {
            Ok(Ok(found)) => return found.is_some(),
            Ok(Err(_)) | Err(_) => tokio::time::sleep(patience.wait()).await,
        }
    }
    false
}

async fn append(pond: &Pond, queue: &store::Queue, messages: Vec<NewMessage>) -> Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    let waits = messages.iter().any(|message| message.due.is_some());
    let append = pond.store().append(queue.id, messages);
    let Ok(stored) = timeout(ANSWER_MAX, append).await else {
        let doing = format!("flush the buffer of queue `{}`", queue.name);
        return Err(Error::new(Code::UnknownOutcome, doing));
    };
    stored?;
    pond.wake(queue.id);
    if waits {
        pond.nudge();
    }
    Ok(())
}

/// Messages of a buffer that are not stored any more.
fn give_up(pond: &Pond, queue: &str, messages: Vec<NewMessage>, why: &str) {
    pond.lose(queue, messages, DropReason::HandoffFailed, Counter::HandoffFailed, why);
}

/// Whether trying again later can help.
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
        && !matches!(error.code(), Code::ShuttingDown | Code::Internal)
}

#[cfg(test)]
mod tests {
    use millpond_core::Code;
    use millpond_core::store::Stored;
    use tokio::time::advance;

    use super::*;
    use crate::fake::FakeStore;
    use crate::item::ItemOptions;
    use crate::queue::Queue;

    const PINGS: Queue<u32> = Queue::new("pings").buffered(Buffer::DEFAULT).batch_max(3);

    fn pond() -> (Arc<FakeStore>, Pond) {
        let store = Arc::new(FakeStore::default());
        (Arc::clone(&store), Pond::new(store))
    }

    async fn send(pond: &Pond, queue: &Queue<u32>, bodies: &[u32]) -> Stored {
        pond.send(queue, bodies.iter().copied()).await.unwrap().messages[0].stored
    }

    /// Lets time pass in steps in which every task gets its turn.
    async fn pass(millis: u64) {
        for _ in 0..millis {
            advance(Duration::from_millis(1)).await;
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_send_returns_at_once_and_a_tick_writes_what_came_together() {
        let (store, pond) = pond();
        assert_eq!(send(&pond, &PINGS, &[1]).await, Stored::Buffered);
        pass(50).await;
        send(&pond, &PINGS, &[2]).await;
        assert_eq!(pond.buffered(), [("pings".to_owned(), 2)]);
        pass(145).await;
        assert!(store.bodies().is_empty(), "the second one moved the deadline from 100 to 150");
        pass(10).await;
        assert_eq!((store.bodies(), store.appended()), (vec![b"1".to_vec(), b"2".to_vec()], vec![2]));
        assert!(pond.buffered().is_empty());
        send(&pond, &PINGS, &[3]).await;
        pass(250).await;
        assert_eq!(store.appended(), [2, 1], "the flusher begins again");
    }

    #[tokio::test(start_paused = true)]
    async fn the_size_trips_and_the_whole_list_is_written() {
        let (store, pond) = pond();
        send(&pond, &PINGS, &[1, 2, 3, 4, 5]).await;
        assert!(store.bodies().is_empty(), "not by the caller");
        pass(101).await;
        assert_eq!(store.appended(), [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_bound_and_with_a_dedup_key_a_send_writes_directly() {
        let (store, pond) = pond();
        let small = Queue::new("small").buffered(Buffer::DEFAULT.messages_max(1));
        assert_eq!(send(&pond, &small, &[1]).await, Stored::Buffered);
        assert_eq!(send(&pond, &small, &[2]).await, Stored::New);
        assert_eq!(store.bodies(), [b"2"]);
        let sent = pond.send(&PINGS, [3.dedup_key("three")]).await.unwrap();
        assert_eq!(sent.messages[0].stored, Stored::New);
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_is_kept_while_the_store_is_away_in_its_order() {
        let (store, pond) = pond();
        store.refuse_to_append(&[Code::StoreUnavailable, Code::StoreUnavailable]);
        send(&pond, &PINGS, &[1, 2, 3]).await;
        pass(110).await;
        send(&pond, &PINGS, &[4]).await;
        pass(900).await;
        assert!(store.bodies().is_empty(), "it waits for a second");
        pass(1_000).await;
        assert!(store.bodies().is_empty(), "and then for two");
        pass(1_300).await;
        assert_eq!(store.bodies(), [b"1", b"2", b"3", b"4"]);
        assert_eq!(store.appended(), [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_that_panics_keeps_its_messages_and_is_counted() {
        let (store, pond) = pond();
        store.refuse_to_append(&[Code::Internal]);
        send(&pond, &PINGS, &[1, 2, 3]).await;
        pass(110).await;
        assert_eq!(pond.counts().of(Counter::FlusherRestarts, "pings"), 1);
        pass(1_200).await;
        assert_eq!(store.appended(), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_whose_caller_goes_away_is_finished_and_the_next_one_comes() {
        let (store, pond) = pond();
        store.append_takes(Duration::from_secs(12));
        send(&pond, &PINGS, &[1]).await;
        assert!(timeout(Duration::from_millis(10), pond.flush()).await.is_err());
        send(&pond, &PINGS, &[2]).await;
        pass(25_000).await;
        assert_eq!(store.appended(), [1, 1], "each once, however slow the store");
        assert!(pond.buffered().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_whose_answer_was_lost_is_not_stored_twice() {
        let (store, pond) = pond();
        store.refuse_to_append(&[Code::UnknownOutcome]);
        send(&pond, &PINGS, &[1, 2, 3]).await;
        pass(5_000).await;
        assert_eq!(store.appended(), [3]);
        assert!(pond.buffered().is_empty());
    }

    #[test]
    fn only_what_time_may_mend_is_tried_again() {
        let is_away = |code| is_away(&Error::new(code, "flush"));
        assert!(is_away(Code::StoreUnavailable) && is_away(Code::UnknownOutcome));
        for code in [Code::Internal, Code::BodyTooLarge, Code::ShuttingDown] {
            assert!(!is_away(code), "{code:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_refused_takes_no_other_along() {
        let (store, pond) = pond();
        store.refuse_to_append(&[Code::BodyTooLarge, Code::BodyTooLarge]);
        send(&pond, &PINGS, &[1, 2, 3]).await;
        pass(110).await;
        assert_eq!(store.bodies(), [b"2", b"3"], "the second refusal was that of the first message");
        assert_eq!(pond.counts().of(Counter::HandoffFailed, "pings"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_writes_everything_whatever_its_deadline() {
        let (store, pond) = pond();
        store.refuse_to_append(&[Code::StoreUnavailable]);
        send(&pond, &PINGS, &[1, 2]).await;
        pond.clone().close().await;
        assert_eq!((store.appended(), store.is_closed()), (vec![2], true));
        assert_eq!(pond.send(&PINGS, [3]).await.unwrap_err().code(), Code::ShuttingDown);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_written_by_the_end_is_lost_and_counted() {
        let (store, pond) = pond();
        send(&pond, &PINGS, &[1, 2]).await;
        store.refuse_to_append(&[Code::StoreUnavailable; 10_000]);
        pond.clone().close().await;
        assert!(store.bodies().is_empty());
        assert_eq!(pond.counts().of(Counter::HandoffFailed, "pings"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_dedup_function_sees_each_send_and_the_whole_entry() {
        fn odd_once(bodies: Vec<u32>) -> Vec<u32> {
            let mut seen = std::collections::BTreeSet::new();
            bodies.into_iter().filter(|body| body % 2 == 0 || seen.insert(*body)).collect()
        }
        let (store, pond) = pond();
        let queue = Queue::new("pings").buffered(Buffer::DEFAULT).dedup(odd_once);
        let sent = pond.send(&queue, [1, 2, 1, 2]).await.unwrap();
        let of = sent.messages[0].id;
        assert_eq!(sent.messages[2].stored, Stored::Duplicate { of });
        assert_eq!(sent.messages[3].stored, Stored::Buffered);
        send(&pond, &queue, &[3, 1]).await;
        pass(300).await;
        assert_eq!(store.bodies(), [b"1", b"2", b"2", b"3"]);
        assert_eq!(pond.counts().of(Counter::Deduplicated, "pings"), 2);
    }
}
